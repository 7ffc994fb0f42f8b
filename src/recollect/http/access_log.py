"""One line in the log for each request: what was asked for and what came of it, never what was in it."""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("recollect.access")
_MOST_PATH_CHARS = 200
_MOST_STATUS_CHARS = 60


class AccessLog:
    """Logs method, path without query, status, milliseconds, bytes sent, and what memory did.

    A request whose client left before its answer was whole is marked "broken off". No header of the request is
    looked at, so no key is in the log; nothing that is logged can begin a line of its own.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not log.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        seen = _Seen()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen.start(message)
            elif message["type"] == "http.response.body":
                seen.sent += len(message.get("body", b""))
                seen.whole = not message.get("more_body", False)
            await send(message)

        begun = time.perf_counter()
        try:
            await self._app(scope, receive, counted)
        except BaseException:
            seen.whole = False
            raise
        finally:
            ms = (time.perf_counter() - begun) * 1000
            log.info(
                "%s %s %s %.1f ms %d B%s", scope["method"], _path(scope), seen.status, ms, seen.sent, seen.told()
            )


class _Seen:
    """What was seen of an answer on its way out."""

    __slots__ = ("memory", "sent", "status", "whole")

    def __init__(self) -> None:
        self.status = 500
        self.sent = 0
        self.whole = False
        self.memory = b""

    def start(self, message: Message) -> None:
        self.status = message["status"]
        for name, value in message.get("headers", ()):
            if name.lower() == b"x-memory-status":
                self.memory = value

    def told(self) -> str:
        memory = f" memory {_plain(self.memory[:_MOST_STATUS_CHARS])}" if self.memory else ""
        return memory if self.whole else f"{memory} broken off"


def _path(scope: Scope) -> str:
    raw = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
    return _plain(raw.partition(b"?")[0][:_MOST_PATH_CHARS])


def _plain(raw: bytes) -> str:
    """Printable ASCII as it is; whatever else, escaped."""
    text = raw.decode("ascii", "backslashreplace")
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
