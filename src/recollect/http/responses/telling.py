"""A response that is told bit by bit: it can be looked at and cancelled meanwhile, and is kept however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from recollect.http.responses.asgi import AsgiRequest
from recollect.http.responses.asked import Json
from recollect.http.responses.keeping import ResponseWriter
from recollect.http.responses.parts import InProgressResponse


class ResponseState(Protocol):
    """A response as it stands."""

    response: Json

    @property
    def id(self) -> str:
        """Its id; empty as long as it has none."""
        ...

    def stop(self, status: str) -> None:
        """Leave it as it is."""
        ...


class ResponseTracker:
    """The time in which a response is told; whoever cancels it meanwhile has `last` written as the end."""

    def __init__(
        self, request: AsgiRequest, writer: ResponseWriter, state: ResponseState, *, last: Callable[[], bytes]
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._request = request
        self._writer = writer
        self._state = state
        self._last = last
        self._task = task
        self._in_progress = InProgressResponse(writer.history.scope, task, lambda: state.response)
        self._key: tuple[str, str] | None = None
        self._is_stored = False

    async def __aenter__(self) -> ResponseTracker:
        self.register()
        return self

    def register(self) -> None:
        """Let it be looked at and cancelled, if it has an id by now."""
        if self._key is None and self._state.id:
            self._key = (self._writer.history.scope.user, self._state.id)
            self._writer.context.in_progress[self._key] = self._in_progress

    async def store(self, *, upstream: str = "") -> None:
        """Keep it as it stands, unless that was done."""
        if not self._is_stored:
            self._is_stored = True
            await self._writer.store(self._state.response, upstream=upstream)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        is_cancelled = kind is asyncio.CancelledError and self._in_progress.is_cancelled
        try:
            if is_cancelled:
                self._task.uncancel()
                if not self._is_stored:
                    self._state.stop("cancelled")
                    await self.store()
                await self._request.write(self._last(), more=False)
            return is_cancelled
        finally:
            if self._key is not None:
                del self._writer.context.in_progress[self._key]
            if not self._is_stored and self._state.id:
                self._state.stop("incomplete")
                self._writer.start(self._state.response)
            self._in_progress.finished.set()
