"""Background tasks, and a count of current users."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any


class BackgroundTask:
    """Runs `work` until it ends or is stopped; may be started in one event loop after another."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None

    @property
    def was_started(self) -> bool:
        """Return whether it was started in this event loop, and not stopped since."""
        return self._task is not None and self._task.get_loop() is asyncio.get_running_loop()

    @property
    def is_running(self) -> bool:
        """Return whether it runs in this event loop."""
        return self._task is not None and not self._task.done() and self.was_started

    def start(self) -> None:
        """Start, unless it runs in this event loop."""
        if not self.is_running:
            self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Cancel it, and wait until it has ended."""
        # A task of a closed event loop cannot be awaited.
        if self._task is not None and self.is_running:
            self._task.cancel()
            # Awaiting the task itself would not distinguish its cancellation from that of the caller.
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()
        self._task = None

    async def wait(self) -> None:
        """Wait until it has ended by itself, with or without an error."""
        if self._task is not None and self.is_running:
            await asyncio.gather(self._task, return_exceptions=True)


class UseCount:
    """Counts current users of something; it belongs to one event loop."""

    def __init__(self) -> None:
        self._count = 0

    def __bool__(self) -> bool:
        return self._count > 0

    @contextmanager
    def track(self) -> Iterator[None]:
        """Count one more user during the block."""
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
