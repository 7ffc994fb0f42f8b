"""Background tasks that outlive the request that started them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from recollect.errors import RecollectError

_log = logging.getLogger("recollect")
T = TypeVar("T")


class TaskSet:
    """Running tasks; the set prevents their garbage collection, and logs their errors."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine to its end, whether or not anybody awaits the task."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, RecollectError):
            _log.debug("a background task failed: %r", error)
        else:
            _log.error("a background task failed", exc_info=error)

    async def close(self, *, grace_s: float | None = None) -> None:
        """Wait for all tasks, including those started meanwhile; cancel them if that takes longer than `grace_s`."""
        while self._running:
            _, late = await asyncio.wait(set(self._running), timeout=grace_s)
            for task in late:
                task.cancel()
