"""A response that is told bit by bit: it can be looked at and cancelled meanwhile, and is kept however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from recollect.http.responses.asgi import Request
from recollect.http.responses.asked import Json
from recollect.http.responses.keeping import Keeper
from recollect.http.responses.parts import UnderWay


class Told(Protocol):
    """A response as it stands."""

    response: Json

    @property
    def id(self) -> str:
        """Its id; empty as long as it has none."""
        ...

    def stop(self, status: str) -> None:
        """Leave it as it is."""
        ...


class Telling:
    """The time in which a response is told; whoever cancels it meanwhile has `last` written as the end."""

    def __init__(self, request: Request, keeper: Keeper, told: Told, *, last: Callable[[], bytes]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._request = request
        self._keeper = keeper
        self._told = told
        self._last = last
        self._task = task
        self._under_way = UnderWay(keeper.before.scope, task, lambda: told.response)
        self._key: tuple[str, str] | None = None
        self._is_kept = False

    async def __aenter__(self) -> Telling:
        self.show()
        return self

    def show(self) -> None:
        """Let it be looked at and cancelled, if it has an id by now."""
        if self._key is None and self._told.id:
            self._key = (self._keeper.before.scope.user, self._told.id)
            self._keeper.parts.under_way[self._key] = self._under_way

    async def keep(self, *, upstream: str = "") -> None:
        """Keep it as it stands, unless that was done."""
        if not self._is_kept:
            self._is_kept = True
            await self._keeper.keep(self._told.response, upstream=upstream)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        is_cancelled = kind is asyncio.CancelledError and self._under_way.is_cancelled
        try:
            if is_cancelled:
                self._task.uncancel()
                if not self._is_kept:
                    self._told.stop("cancelled")
                    await self.keep()
                await self._request.write(self._last(), more=False)
            return is_cancelled
        finally:
            if self._key is not None:
                del self._keeper.parts.under_way[self._key]
            if not self._is_kept and self._told.id:
                self._told.stop("incomplete")
                self._keeper.start(self._told.response)
            self._under_way.over.set()
