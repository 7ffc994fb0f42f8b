"""Tasks in the background: one that restarts, sets of tasks, writes that are deferred, and progress callbacks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from recollect.errors import RecollectError


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


@asynccontextmanager
async def report_in_thread(progress: Callable[[int], None]) -> AsyncIterator[Callable[[int], None]]:
    """Yield a function that calls `progress` in a thread; exceptions of `progress` are raised here."""
    loop, calls = asyncio.get_running_loop(), list[asyncio.Future[None]]()
    with ThreadPoolExecutor(1, thread_name_prefix="recollect-progress") as pool:

        def report(done: int) -> None:
            if calls and calls[-1].done():
                calls.pop().result()
            calls.append(loop.run_in_executor(pool, progress, done))

        try:
            yield report
        finally:
            await asyncio.gather(*calls)


WAIT_S = 2.0


class DeferredWriter:
    """Call `write` after `wait_s`, and repeatedly until it returns that nothing is left."""

    def __init__(self, write: Callable[[], Awaitable[bool]], *, wait_s: float = WAIT_S) -> None:
        self._write = write
        self._wait_s = wait_s
        self._task = BackgroundTask(self._write_later)
        self._is_sleeping = False
        self._is_closing = False

    def schedule(self) -> None:
        """Schedule a write."""
        self._task.start()

    async def close(self) -> None:
        """Write pending data, once."""
        self._is_closing = True
        # A running write must finish: it has taken the data.
        await (self._task.stop() if self._is_sleeping else self._task.wait())
        await self._write()

    async def _write_later(self) -> None:
        # Data noted during a write is written by the next round.
        has_more = True
        while has_more and not self._is_closing:
            self._is_sleeping = True
            try:
                await asyncio.sleep(self._wait_s)
            finally:
                self._is_sleeping = False
            has_more = await self._write()
