"""The gate before every route: who may be asked for, from which pages, and how much may be sent.

A web page can make the browser of its visitor send requests to this machine, also under a name of its own that leads
here. So a request for a foreign name is refused, and so is one that a foreign page sends. No answer carries a CORS
header, so a foreign page cannot read one either.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recollect.config.settings import Settings
from recollect.http.auth.address import is_loopback
from recollect.http.errors import ErrorFormat, combined_error, error_format_for

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_ANY_ADDRESS = ("0.0.0.0", "::", "[::]")  # noqa: S104
_SAFE_METHODS = frozenset(["GET", "HEAD", "OPTIONS"])
# Files that are passed on or taken in as they come, never held: how large they may be is for others to say.
_UPLOAD_PREFIXES = (
    *("/v1/files", "/v1/uploads", "/v1/audio/", "/v1/images/", "/v1/videos", "/v1/containers/"),
    "/recollect/v1/import",
)
# A client that hears an answer while it still sends may never read it: so much more is taken in, and thrown away.
_MAX_DISCARDED_BYTES = 64 << 20
_MAX_DISCARD_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGuardConfig:
    """What comes through: the names of this machine, those the operator gave it, and how many bytes."""

    hosts: Sequence[str]
    allowed: Sequence[str] = ()
    max_bytes: int


class HostGuardMiddleware:
    """Refuses with 421 what asks for a foreign host, with 403 foreign pages, with 413 what is too large."""

    def __init__(
        self, app: ASGIApp, config: HostGuardConfig, error_formats: Mapping[str, ErrorFormat] | None = None
    ) -> None:
        self._app = app
        self._error_formats = error_formats or {}
        allowed = [name.lower() for name in config.allowed]
        self._allows_any = "*" in allowed
        self._allowed_suffixes = tuple(name[1:].encode() for name in allowed if name.startswith("*."))
        self._allowed = frozenset(_bracket_ipv6(name).encode() for name in allowed)
        self._hosts = self._allowed | {_bracket_ipv6(name.lower()).encode() for name in config.hosts}
        self._max_bytes = config.max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it before anything else has seen it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        hosts: list[bytes] = []
        origin = length = expects = b""
        is_chunked = False
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name == b"content-length":
                length = value
            elif name == b"origin":
                origin = value
            elif name == b"transfer-encoding":
                is_chunked = True
            elif name == b"expect":
                expects = value
        if len(hosts) != 1 or not self._is_allowed_host(hosts[0]):
            await _reject(scope, send, self._error_format(scope), *_host_error(hosts))
        elif origin and scope.get("method") not in _SAFE_METHODS and not self._is_allowed_origin(origin, hosts[0]):
            await _reject(
                scope,
                send,
                self._error_format(scope),
                403,
                "ForeignOrigin",
                "a page of another site may not send this",
            )
        elif scope["type"] == "websocket" or scope["path"].startswith(_UPLOAD_PREFIXES):
            await self._app(scope, receive, send)
        elif length.isdigit() and int(length) > self._max_bytes:
            await _reject_too_large(None if expects else receive, send, self._max_bytes, self._error_format(scope))
        elif is_chunked:
            await _BodyLimiter(self._app, self._max_bytes, self._error_format(scope))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _error_format(self, scope: Scope) -> ErrorFormat:
        return error_format_for(scope["path"], self._error_formats, combined_error)

    def _is_allowed_host(self, host: bytes) -> bool:
        hostname = _hostname(host)
        return hostname in self._hosts or self._allows_any or hostname.endswith(self._allowed_suffixes or (b"\0",))

    def _is_allowed_origin(self, origin: bytes, host: bytes) -> bool:
        """Whether the page came from this server, or from a name that the operator gave it."""
        authority = origin.lower().partition(b"://")[2]
        if not authority:
            return False
        hostname = _hostname(authority)
        return (
            authority == host.lower()
            or hostname in self._allowed
            or hostname.endswith(self._allowed_suffixes or (b"\0",))
        )


class _BodyLimiter:
    """An app whose request may not grow beyond a length that it did not tell."""

    def __init__(self, app: ASGIApp, max_bytes: int, error_format: ErrorFormat) -> None:
        self._app = app
        self._error_format = error_format
        self._max_bytes = max_bytes
        self._received = 0
        self._more = True
        self._answered = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_limited() -> Message:
            message = await receive()
            self._received += len(message.get("body", b""))
            self._more = message.get("more_body", False)
            if self._received > self._max_bytes:
                raise HTTPException(413)
            return message

        async def send_unless_exceeded(message: Message) -> None:
            # Whatever the app makes of a request that was cut off, the client is told why.
            if self._received <= self._max_bytes or self._answered:
                self._answered = True
                await send(message)

        try:
            await self._app(scope, receive_limited, send_unless_exceeded)
        except HTTPException:
            if self._received <= self._max_bytes:
                raise
        if self._received > self._max_bytes and not self._answered:
            await _reject_too_large(receive if self._more else None, send, self._max_bytes, self._error_format)


def host_guard_config(settings: Settings) -> HostGuardConfig:
    """What the settings let through."""
    bound = () if settings.host in _ANY_ADDRESS else (settings.host,)
    allowed = [name.strip() for name in settings.allowed_hosts.split(",") if name.strip()]
    if not allowed and not is_loopback(settings.host):
        # Whoever asks from elsewhere has to show a key, and no page has one: any name will do.
        allowed = ["*"]
    return HostGuardConfig(hosts=(*_LOOPBACK, *bound), allowed=allowed, max_bytes=settings.max_body_mb << 20)


def _bracket_ipv6(name: str) -> str:
    """A host as it stands in a header: an IPv6 address in brackets."""
    return f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name


def _hostname(authority: bytes) -> bytes:
    """The host of a header, without its port and in lower case."""
    host, _, port = authority.rpartition(b":")
    return (host if host and port.isdigit() else authority).lower().rstrip(b".")


def _host_error(hosts: list[bytes]) -> tuple[int, str, str]:
    if len(hosts) != 1:
        return 400, "BadHost", "a request needs exactly one Host header"
    return 421, "ForeignHost", "this server does not answer to that host name; allowed_hosts names those it does"


async def _reject(scope: Scope, send: Send, error_format: ErrorFormat, *error: Any) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    start, body = _error_response(error_format, *error)
    await send(start)
    await send({"type": "http.response.body", "body": body})


async def _reject_too_large(receive: Receive | None, send: Send, max_bytes: int, error_format: ErrorFormat) -> None:
    """Answer at once, then let what is still on its way run out, within reason; without `receive` nothing is."""
    text = f"the request is larger than {max_bytes >> 20} MiB, which is the limit; max_body_mb sets it"
    start, body = _error_response(error_format, 413, "TooLarge", text)
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": True})
    if receive is not None:
        remaining = _MAX_DISCARDED_BYTES
        try:
            async with asyncio.timeout(_MAX_DISCARD_S):
                while remaining > 0 and (message := await receive()).get("more_body"):
                    remaining -= len(message["body"])
        except TimeoutError:
            pass
    await send({"type": "http.response.body", "body": b""})


def _error_response(error_format: ErrorFormat, status: int, code: str, message: str) -> tuple[Message, bytes]:
    body = json.dumps(error_format(status, code, message)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    return {"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]}, body
