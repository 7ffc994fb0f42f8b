"""Every request is counted, has an id and a line in the log: what was asked for and what came of it.

Never what was in it.
"""

from __future__ import annotations

import logging
import os
import re
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recollect.observe.metrics import HTTP_REQUESTS, HTTP_SECONDS
from recollect.observe.request import request_id

log = logging.getLogger("recollect.access")
_MOST_PATH_CHARS = 200
_MOST_STATUS_CHARS = 60
_ID = b"x-request-id"
_GOOD_ID = re.compile(rb"[A-Za-z0-9._:+=-]{1,128}")
_METHODS = frozenset(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])


class AccessLog:
    """Logs method, path without query, status, milliseconds, bytes sent, and what memory did.

    A request whose client left before its answer was whole is marked "broken off". Of the request's headers only
    X-Request-Id is looked at, so no key is in the log; nothing that is logged can begin a line of its own. An answer
    that brings an X-Request-Id of its own, as an upstream's does, keeps it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = _Seen(_id_of(scope))

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen.start(message)
            elif message["type"] == "http.response.body":
                seen.sent += len(message.get("body", b""))
                seen.whole = not message.get("more_body", False)
            await send(message)

        begun = time.perf_counter()
        before = request_id.set(seen.id.decode())
        try:
            await self._app(scope, receive, counted)
        except BaseException:
            seen.whole = False
            raise
        finally:
            _tell(scope, seen, time.perf_counter() - begun)
            request_id.reset(before)


class _Seen:
    """What was seen of an answer on its way out."""

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
            elif low == _ID:
                self.upstream_id = value
        if not self.upstream_id:
            message["headers"] = [*headers, (_ID, self.id)]


def _tell(scope: Scope, seen: _Seen, seconds: float) -> None:
    method = scope["method"] if scope["method"] in _METHODS else "other"
    route = _route(scope)
    HTTP_REQUESTS.add(method, route, str(seen.status))
    HTTP_SECONDS.note(seconds, route)
    if not log.isEnabledFor(logging.INFO):
        return
    memory = _plain(seen.memory[:_MOST_STATUS_CHARS])
    told: dict[str, Any] = {
        "method": _plain(scope["method"].encode()),
        "path": _path(scope),
        "route": route,
        "status": seen.status,
        "ms": round(seconds * 1000, 1),
        "bytes": seen.sent,
        "whole": seen.whole,
    }
    if memory:
        told["memory"] = memory
    if seen.upstream_id:
        told["upstream_request_id"] = _plain(seen.upstream_id[:_MOST_STATUS_CHARS])
    after = f"{f' memory {memory}' if memory else ''}{'' if seen.whole else ' broken off'}"
    log.info(
        "%s %s %s %.1f ms %d B%s",
        told["method"], told["path"], seen.status, told["ms"], seen.sent, after,
        extra={"told": told},
    )  # fmt: skip


def _route(scope: Scope) -> str:
    """The path as it was declared, so that no id is in it."""
    if (path := getattr(scope.get("route"), "path", "")) or "endpoint" not in scope:
        return path or "unmatched"
    # FastAPI says which route it was only of its own ones.
    routes = getattr(scope.get("app"), "routes", ())
    return next((each.path for each in routes if getattr(each, "endpoint", None) is scope["endpoint"]), "unmatched")


def _id_of(scope: Scope) -> bytes:
    """The id that the client gave, if it can be one, or a new one."""
    given = next((value for name, value in scope["headers"] if name == _ID), b"")
    return given if _GOOD_ID.fullmatch(given) else os.urandom(12).hex().encode()


def _path(scope: Scope) -> str:
    raw = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
    return _plain(raw.partition(b"?")[0][:_MOST_PATH_CHARS])


def _plain(raw: bytes) -> str:
    """Printable ASCII as it is; whatever else, escaped."""
    text = raw.decode("ascii", "backslashreplace")
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
