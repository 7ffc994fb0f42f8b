"""The middleware of every request: access log, host guard and rate limits.

The host guard rejects requests for foreign host names, from foreign web pages, and with too large bodies: a web page
can make the browser of its visitor send requests to this machine, also under a name of its own that resolves to it.
No response has a CORS header, so a foreign page cannot read one either.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
from collections.abc import Container, Iterable, Mapping
from math import ceil
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recollect.cache.redis_client import RateLimiter
from recollect.config.settings import Settings
from recollect.http.auth.address import is_loopback
from recollect.http.errors import ErrorFormat, ErrorInfo, error_format_for, send_error
from recollect.observability.metrics import HTTP_REQUESTS, HTTP_SECONDS, LIMITED
from recollect.observability.tracing import request_id

log = logging.getLogger("recollect.access")
_MAX_PATH_CHARS = 200
_MAX_STATUS_CHARS = 60
_ID_HEADER = b"x-request-id"
_VALID_ID = re.compile(rb"[A-Za-z0-9._:+=-]{1,128}")
# Words of upstreams' paths; those of our own routes are known from them.
_UPSTREAM_WORDS = frozenset((
    "v1", "assistants", "audio", "batches", "classify", "completions", "containers", "content", "detokenize", "edits",
    "embeddings", "files", "fine_tuning", "generations", "images", "jobs", "models", "moderations", "pooling",
    "realtime", "rerank", "score", "speech", "threads", "tokenize", "transcriptions", "translations", "uploads",
    "variations", "vector_stores", "videos",
))  # fmt: skip
_HIDDEN_SEGMENT = "*"
_METHODS = frozenset(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])


class AccessLogMiddleware:
    """Logs method, path without query, status, milliseconds, bytes sent, and the status of memory.

    Of the path only words of routes are logged: ids of sessions, users and memories become an asterisk. A response
    that was not sent completely is marked "broken off". Of the request's headers only X-Request-Id is read, so that
    no key is logged; control characters are escaped. An upstream's X-Request-Id is kept.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._words = _UPSTREAM_WORDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._words is _UPSTREAM_WORDS:
            self._words = _UPSTREAM_WORDS | _words_of_routes(getattr(scope.get("app"), "routes", ()))
        response = _ResponseRecord(_get_request_id(scope))

        async def send_recorded(message: Message) -> None:
            if message["type"] == "http.response.start":
                response.start(message)
            elif message["type"] == "http.response.body":
                response.sent += len(message.get("body", b""))
                response.whole = not message.get("more_body", False)
            await send(message)

        started = time.perf_counter()
        token = request_id.set(response.id.decode())
        try:
            await self._app(scope, receive, send_recorded)
        except BaseException:
            response.whole = False
            raise
        finally:
            _log_request(scope, response, time.perf_counter() - started, self._words)
            request_id.reset(token)


class _ResponseRecord:
    """The facts about a response that are logged."""

    __slots__ = ("id", "memory", "sent", "status", "upstream_id", "whole")

    def __init__(self, id: bytes) -> None:
        self.id = id
        self.upstream_id = b""
        self.status = 500
        self.sent = 0
        self.whole = False
        self.memory = b""

    def start(self, message: Message) -> None:
        self.status = message["status"]
        headers = list(message.get("headers", ()))
        for name, value in headers:
            low = name.lower()
            if low == b"x-memory-status":
                self.memory = value
            elif low == _ID_HEADER:
                self.upstream_id = value
        if not self.upstream_id:
            message["headers"] = [*headers, (_ID_HEADER, self.id)]


def _log_request(scope: Scope, response: _ResponseRecord, seconds: float, words: Container[str]) -> None:
    method = scope["method"] if scope["method"] in _METHODS else "other"
    route = _route_path(scope)
    HTTP_REQUESTS.add(method, route, str(response.status))
    HTTP_SECONDS.observe(seconds, route)
    if not log.isEnabledFor(logging.INFO):
        return
    memory = _escape(response.memory[:_MAX_STATUS_CHARS])
    fields: dict[str, Any] = {
        "method": _escape(scope["method"].encode()),
        "path": _request_path(scope, words),
        "route": route,
        "status": response.status,
        "ms": round(seconds * 1000, 1),
        "bytes": response.sent,
        "whole": response.whole,
    }
    if memory:
        fields["memory"] = memory
    if response.upstream_id:
        fields["upstream_request_id"] = _escape(response.upstream_id[:_MAX_STATUS_CHARS])
    suffix = f"{f' memory {memory}' if memory else ''}{'' if response.whole else ' broken off'}"
    log.info(
        "%s %s %s %.1f ms %d B%s",
        fields["method"], fields["path"], response.status, fields["ms"], response.sent, suffix,
        extra={"fields": fields},
    )  # fmt: skip


def _route_path(scope: Scope) -> str:
    """Return the path of the route, which contains no ids."""
    if (path := getattr(scope.get("route"), "path", "")) or "endpoint" not in scope:
        return path or "unmatched"
    # FastAPI sets the route only for its own kind.
    routes = getattr(scope.get("app"), "routes", ())
    return next((each.path for each in routes if getattr(each, "endpoint", None) is scope["endpoint"]), "unmatched")


def _get_request_id(scope: Scope) -> bytes:
    """Return the client's id, if it is valid, or a new one."""
    header = next((value for name, value in scope["headers"] if name == _ID_HEADER), b"")
    return header if _VALID_ID.fullmatch(header) else os.urandom(12).hex().encode()


def _words_of_routes(routes: Iterable[Any]) -> frozenset[str]:
    segments = {segment for route in routes for segment in getattr(route, "path", "").split("/")}
    return frozenset(segment for segment in segments if "{" not in segment)


def _request_path(scope: Scope, words: Container[str]) -> str:
    """Return the path with everything but words of routes replaced: other parts are ids, or anything at all."""
    raw = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
    segments = raw.partition(b"?")[0][:_MAX_PATH_CHARS].decode("ascii", "replace").split("/")
    return "/".join(each if each in words else _HIDDEN_SEGMENT for each in segments)


def _escape(raw: bytes) -> str:
    """Return the text with everything but printable ASCII escaped."""
    text = raw.decode("ascii", "backslashreplace")
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_ANY_ADDRESS = ("0.0.0.0", "::", "[::]")  # noqa: S104 - compared with, not bound to
_SAFE_METHODS = frozenset(["GET", "HEAD", "OPTIONS"])
# Files that are streamed and never held in memory; their size is limited elsewhere.
_UPLOAD_PREFIXES = (
    *("/v1/files", "/v1/uploads", "/v1/audio/", "/v1/images/", "/v1/videos", "/v1/containers/"),
    "/recollect/v1/import",
)
# A client that gets a response while it still sends may never read it: so much more is received and discarded.
_MAX_DISCARDED_BYTES = 64 << 20
_MAX_DISCARD_S = 5.0
_CLOSE = {"Connection": "close"}


class HostGuardMiddleware:
    """Rejects foreign hosts with 421, foreign pages with 403 and large bodies with 413."""

    def __init__(self, app: ASGIApp, settings: Settings, error_formats: Mapping[str, ErrorFormat]) -> None:
        self._app, self._error_formats = app, error_formats
        self._max_bytes = settings.max_body_mb << 20
        allowed = [name.strip().lower() for name in settings.allowed_hosts.split(",") if name.strip()]
        if not allowed and not is_loopback(settings.host):
            # A public server requires credentials, which no foreign page has: any name is safe.
            allowed = ["*"]
        self._allows_any = "*" in allowed
        # An empty tuple of suffixes would be an error, so there is always one that nothing ends with.
        self._allowed_suffixes = (b"\0", *(name[1:].encode() for name in allowed if name.startswith("*.")))
        self._allowed = frozenset(_bracket_ipv6(name).encode() for name in allowed)
        bound = () if settings.host in _ANY_ADDRESS else (settings.host.lower(),)
        self._hosts = self._allowed | {_bracket_ipv6(name).encode() for name in (*_LOOPBACK, *bound)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # The start of the server, or a websocket, which the framework closes because no route takes one.
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        length = headers.get(b"content-length", b"")
        if error := self._check_source(scope, hosts, headers.get(b"origin", b"")):
            await send_error(scope, send, error, self._error_formats)
        elif scope["path"].startswith(_UPLOAD_PREFIXES):
            await self._app(scope, receive, send)
        elif length.isdigit() and int(length) > self._max_bytes:
            has_more = not headers.get(b"expect")
            await _reject_too_large(receive if has_more else None, send, self._max_bytes, self._error_format(scope))
        elif b"transfer-encoding" in headers:
            await _BodyLimiter(self._app, self._max_bytes, self._error_format(scope))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check_source(self, scope: Scope, hosts: list[bytes], origin: bytes) -> ErrorInfo | None:
        if len(hosts) != 1:
            return ErrorInfo(400, "BadHost", "A request needs exactly one Host header", headers=_CLOSE)
        if not self._is_allowed_host(hosts[0]):
            message = "This server does not serve that host name; set allowed_hosts"
            return ErrorInfo(421, "ForeignHost", message, headers=_CLOSE)
        if origin and scope["method"] not in _SAFE_METHODS and not self._is_allowed_origin(origin, hosts[0]):
            return ErrorInfo(403, "ForeignOrigin", "Pages of other sites may not send this request", headers=_CLOSE)
        return None

    def _error_format(self, scope: Scope) -> ErrorFormat:
        return error_format_for(scope["path"], self._error_formats)

    def _is_allowed_host(self, host: bytes) -> bool:
        hostname = _hostname(host)
        return hostname in self._hosts or self._allows_any or hostname.endswith(self._allowed_suffixes)

    def _is_allowed_origin(self, origin: bytes, host: bytes) -> bool:
        """Whether the page came from this server, or from a host that the operator allows."""
        authority = origin.lower().partition(b"://")[2]
        if not authority:
            return False
        hostname = _hostname(authority)
        return authority == host.lower() or hostname in self._allowed or hostname.endswith(self._allowed_suffixes)


class _BodyLimiter:
    """Limits the body of a request that does not declare its length."""

    def __init__(self, app: ASGIApp, max_bytes: int, error_format: ErrorFormat) -> None:
        self._app, self._max_bytes, self._error_format = app, max_bytes, error_format
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
            # The app may answer the truncated request in its own way; the client gets the 413 instead.
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


def _bracket_ipv6(name: str) -> str:
    return f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name


def _hostname(authority: bytes) -> bytes:
    host, _, port = authority.rpartition(b":")
    return (host if host and port.isdigit() else authority).lower().rstrip(b".")


async def _reject_too_large(receive: Receive | None, send: Send, max_bytes: int, error_format: ErrorFormat) -> None:
    """Answer at once, then discard what is still arriving, within limits; without `receive` nothing is."""
    message = f"The request is larger than the limit of {max_bytes >> 20} MiB; max_body_mb sets it"
    body = json.dumps(error_format(ErrorInfo(413, "TooLarge", message))).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 413, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    if receive is not None:
        remaining = _MAX_DISCARDED_BYTES
        try:
            async with asyncio.timeout(_MAX_DISCARD_S):
                while remaining > 0 and (message_in := await receive()).get("more_body"):
                    remaining -= len(message_in["body"])
        except TimeoutError:
            pass
    await send({"type": "http.response.body", "body": b""})


# Health checks are always answered.
_UNLIMITED_PATHS = frozenset(["/live", "/ready", "/health", "/version", "/metrics"])


class RateLimits:
    """The rate limiters of the settings, or None where there is no limit. Processes share them through Redis."""

    def __init__(self, settings: Settings) -> None:
        self._redis = None
        if settings.redis_url:
            from recollect.cache.redis_client import RedisClient

            self._redis = RedisClient(settings.redis_url, timeout_s=settings.redis_timeout_s)
        self.requests = self._create_limiter(settings, settings.rate_limit_per_minute, "requests")
        self.writes = self._create_limiter(settings, settings.user_writes_per_minute, "writes")

    def _create_limiter(self, settings: Settings, per_minute: int, resource: str) -> RateLimiter | None:
        if not per_minute:
            return None
        return RateLimiter(per_minute, resource=resource, redis=self._redis, prefix=settings.redis_prefix)

    async def close(self) -> None:
        if self._redis is not None:
            await self._redis.close()


class RateLimitMiddleware:
    """Answers 429 with Retry-After once a key or an address exceeds its limit."""

    def __init__(self, app: ASGIApp, limits: RateLimits, error_formats: Mapping[str, ErrorFormat]) -> None:
        self._app, self._error_formats, self._requests = app, error_formats, limits.requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._requests is None or scope["type"] != "http" or scope["path"] in _UNLIMITED_PATHS:
            await self._app(scope, receive, send)
        elif wait_s := await self._requests.acquire(_client_key(scope)):
            LIMITED.add("requests")
            message = f"Request rate limit exceeded; retry in {ceil(wait_s)} s"
            error = ErrorInfo(429, "RateLimitExceeded", message, retry_after_s=wait_s)
            await send_error(scope, send, error, self._error_formats)
        else:
            await self._app(scope, receive, send)


def _client_key(scope: Scope) -> str:
    """Return what the limit is counted by: the credentials, or else the address."""
    caller = scope.get("state", {}).get("caller")
    if caller is not None and caller.kind != "local":
        # Keys of two users may have the same name, and all users of a gateway have.
        return f"{caller.kind} {caller.name} {caller.user or ''}"
    client = scope.get("client")
    return f"address {client[0] if client else ''}"
