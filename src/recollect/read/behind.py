"""Write what was noted a moment later, behind the answer: nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

WAIT_S = 2.0


class Behind:
    """Has `write` called until it says that nothing is left, a moment after something was noted."""

    def __init__(self, write: Callable[[], Awaitable[bool]], *, wait_s: float = WAIT_S) -> None:
        self._write = write
        self._wait_s = wait_s
        self._task: asyncio.Task[None] | None = None
        self._asleep = False
        self._closing = False

    def nudge(self) -> None:
        """Something was noted."""
        if not self._is_under_way():
            self._task = asyncio.create_task(self._write_later())

    def _is_under_way(self) -> bool:
        """Whether a task of this loop will write; one of a loop that was left behind will not."""
        task = self._task
        return task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()

    async def close(self) -> None:
        """Write what waits, once."""
        self._closing = True
        if self._task is not None and self._is_under_way():
            # What it is writing it has to write to the end: nobody else has that any more.
            if self._asleep:
                self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._write()

    async def _write_later(self) -> None:
        # What is noted while it writes comes after, without anyone having to note more.
        more = True
        while more and not self._closing:
            self._asleep = True
            try:
                await asyncio.sleep(self._wait_s)
            finally:
                self._asleep = False
            more = await self._write()
