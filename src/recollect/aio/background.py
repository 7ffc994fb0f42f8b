"""Work that goes on behind: begun once, stopped in the event loop that it was begun in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any


class BackgroundTask:
    """Runs `work` until that ends or is stopped; in one event loop after another, as callers of `asyncio.run` do."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None

    @property
    def was_started(self) -> bool:
        """Whether it was begun in this event loop, and not stopped since."""
        return self._task is not None and self._task.get_loop() is asyncio.get_running_loop()

    @property
    def is_running(self) -> bool:
        """Whether it is under way in this event loop."""
        return self._task is not None and not self._task.done() and self.was_started

    def start(self) -> None:
        """Begin, unless it is under way here."""
        if not self.is_running:
            self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Cancel it, and return once it has ended."""
        # One of an event loop that has ended is not to be waited for.
        if self._task is not None and self.is_running:
            self._task.cancel()
            # Not by awaiting the task itself: its end and that of who waits here would look the same.
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()
        self._task = None

    async def wait(self) -> None:
        """Return once it has ended by itself, however it did."""
        if self._task is not None and self.is_running:
            await asyncio.gather(self._task, return_exceptions=True)


class UseCount:
    """Counts those who are at work; it belongs to one event loop."""

    def __init__(self) -> None:
        self._count = 0

    def __bool__(self) -> bool:
        return self._count > 0

    @contextmanager
    def track(self) -> Iterator[None]:
        """One more is at work until this ends."""
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
