"""The access log: a request id, metrics and a log line for each request, without its content."""

from __future__ import annotations

import logging
import os
import re
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recollect.observability.logs import request_id
from recollect.observability.metrics import HTTP_REQUESTS, HTTP_SECONDS

log = logging.getLogger("recollect.access")
_MAX_PATH_CHARS = 200
_MAX_STATUS_CHARS = 60
_ID_HEADER = b"x-request-id"
_VALID_ID = re.compile(rb"[A-Za-z0-9._:+=-]{1,128}")
_METHODS = frozenset(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])


class AccessLogMiddleware:
    """Logs method, path without query, status, milliseconds, bytes sent, and the status of memory.

    A response that was not sent completely is marked "broken off". Of the request's headers only X-Request-Id is
    read, so that no key is logged; control characters are escaped. An upstream's X-Request-Id is kept.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
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
            _log_request(scope, response, time.perf_counter() - started)
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


def _log_request(scope: Scope, response: _ResponseRecord, seconds: float) -> None:
    method = scope["method"] if scope["method"] in _METHODS else "other"
    route = _route_path(scope)
    HTTP_REQUESTS.add(method, route, str(response.status))
    HTTP_SECONDS.observe(seconds, route)
    if not log.isEnabledFor(logging.INFO):
        return
    memory = _escape(response.memory[:_MAX_STATUS_CHARS])
    fields: dict[str, Any] = {
        "method": _escape(scope["method"].encode()),
        "path": _request_path(scope),
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


def _request_path(scope: Scope) -> str:
    raw = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
    return _escape(raw.partition(b"?")[0][:_MAX_PATH_CHARS])


def _escape(raw: bytes) -> str:
    """Return the text with everything but printable ASCII escaped."""
    text = raw.decode("ascii", "backslashreplace")
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
