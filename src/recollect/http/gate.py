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

from recollect.http.auth.address import is_loopback
from recollect.http.auth.shapes import Shape, as_both, shape_of
from recollect.settings import Settings

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_ANY_ADDRESS = ("0.0.0.0", "::", "[::]")  # noqa: S104
_READS = frozenset(["GET", "HEAD", "OPTIONS"])
# Files that are passed on or taken in as they come, never held: how large they may be is for others to say.
_UPLOADS = (
    *("/v1/files", "/v1/uploads", "/v1/audio/", "/v1/images/", "/v1/videos", "/v1/containers/"),
    "/recollect/v1/import",
)
# A client that hears an answer while it still sends may never read it: so much more is taken in, and thrown away.
_DISCARDED_BYTES = 64 << 20
_DISCARD_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """What comes through: the names of this machine, those the operator gave it, and how many bytes."""

    hosts: Sequence[str]
    named: Sequence[str] = ()
    most_bytes: int


class Gate:
    """Refuses with 421 what asks for a foreign host, with 403 foreign pages, with 413 what is too large."""

    def __init__(self, app: ASGIApp, admitted: Admitted, shapes: Mapping[str, Shape] | None = None) -> None:
        self._app = app
        self._shapes = shapes or {}
        named = [name.lower() for name in admitted.named]
        self._any = "*" in named
        self._below = tuple(name[1:].encode() for name in named if name.startswith("*."))
        self._named = frozenset(_host_of(name).encode() for name in named)
        self._hosts = self._named | {_host_of(name.lower()).encode() for name in admitted.hosts}
        self._most = admitted.most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it before anything else has seen it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        hosts: list[bytes] = []
        origin = length = expects = b""
        untold = False
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name == b"content-length":
                length = value
            elif name == b"origin":
                origin = value
            elif name == b"transfer-encoding":
                untold = True
            elif name == b"expect":
                expects = value
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            await _refuse(scope, send, self._shape(scope), *_host_trouble(hosts))
        elif origin and scope.get("method") not in _READS and not self._is_own_page(origin, hosts[0]):
            await _refuse(
                scope, send, self._shape(scope), 403, "ForeignOrigin", "a page of another site may not send this"
            )
        elif scope["type"] == "websocket" or scope["path"].startswith(_UPLOADS):
            await self._app(scope, receive, send)
        elif length.isdigit() and int(length) > self._most:
            await _refuse_length(None if expects else receive, send, self._most, self._shape(scope))
        elif untold:
            await _Counted(self._app, self._most, self._shape(scope))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _shape(self, scope: Scope) -> Shape:
        return shape_of(scope["path"], self._shapes, as_both)

    def _is_ours(self, host: bytes) -> bool:
        bare = _bare(host)
        return bare in self._hosts or self._any or bare.endswith(self._below or (b"\0",))

    def _is_own_page(self, origin: bytes, host: bytes) -> bool:
        """Whether the page came from this server, or from a name that the operator gave it."""
        authority = origin.lower().partition(b"://")[2]
        if not authority:
            return False
        named = _bare(authority)
        return authority == host.lower() or named in self._named or named.endswith(self._below or (b"\0",))


class _Counted:
    """An app whose request may not grow beyond a length that it did not tell."""

    def __init__(self, app: ASGIApp, most_bytes: int, shape: Shape) -> None:
        self._app = app
        self._shape = shape
        self._most = most_bytes
        self._came = 0
        self._more = True
        self._answered = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted() -> Message:
            message = await receive()
            self._came += len(message.get("body", b""))
            self._more = message.get("more_body", False)
            if self._came > self._most:
                raise HTTPException(413)
            return message

        async def answer(message: Message) -> None:
            # Whatever the app makes of a request that was cut off, the client is told why.
            if self._came <= self._most or self._answered:
                self._answered = True
                await send(message)

        try:
            await self._app(scope, counted, answer)
        except HTTPException:
            if self._came <= self._most:
                raise
        if self._came > self._most and not self._answered:
            await _refuse_length(receive if self._more else None, send, self._most, self._shape)


def admitted_by(settings: Settings) -> Admitted:
    """What the settings let through."""
    bound = () if settings.host in _ANY_ADDRESS else (settings.host,)
    named = [name.strip() for name in settings.allowed_hosts.split(",") if name.strip()]
    if not named and not is_loopback(settings.host):
        # Whoever asks from elsewhere has to show a key, and no page has one: any name will do.
        named = ["*"]
    return Admitted(hosts=(*_LOOPBACK, *bound), named=named, most_bytes=settings.max_body_mb << 20)


def _host_of(name: str) -> str:
    """A host as it stands in a header: an IPv6 address in brackets."""
    return f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name


def _bare(authority: bytes) -> bytes:
    """The host of a header, without its port and in lower case."""
    host, _, port = authority.rpartition(b":")
    return (host if host and port.isdigit() else authority).lower().rstrip(b".")


def _host_trouble(hosts: list[bytes]) -> tuple[int, str, str]:
    if len(hosts) != 1:
        return 400, "BadHost", "a request needs exactly one Host header"
    return 421, "ForeignHost", "this server does not answer to that host name; allowed_hosts names those it does"


async def _refuse(scope: Scope, send: Send, shape: Shape, *told: Any) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    start, body = _answer(shape, *told)
    await send(start)
    await send({"type": "http.response.body", "body": body})


async def _refuse_length(receive: Receive | None, send: Send, most: int, shape: Shape) -> None:
    """Answer at once, then let what is still on its way run out, within reason; without `receive` nothing is."""
    text = f"the request is larger than {most >> 20} MiB, which is the limit; max_body_mb sets it"
    start, body = _answer(shape, 413, "TooLarge", text)
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": True})
    if receive is not None:
        left = _DISCARDED_BYTES
        try:
            async with asyncio.timeout(_DISCARD_S):
                while left > 0 and (message := await receive()).get("more_body"):
                    left -= len(message["body"])
        except TimeoutError:
            pass
    await send({"type": "http.response.body", "body": b""})


def _answer(shape: Shape, status: int, code: str, message: str) -> tuple[Message, bytes]:
    body = json.dumps(shape(status, code, message)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    return {"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]}, body
