"""Write what was noted a moment later, behind the answer: nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from recollect.aio.background import BackgroundTask

WAIT_S = 2.0


class DeferredWriter:
    """Has `write` called until it says that nothing is left, a moment after something was noted."""

    def __init__(self, write: Callable[[], Awaitable[bool]], *, wait_s: float = WAIT_S) -> None:
        self._write = write
        self._wait_s = wait_s
        self._task = BackgroundTask(self._write_later)
        self._is_sleeping = False
        self._is_closing = False

    def schedule(self) -> None:
        """Something was noted."""
        self._task.start()

    async def close(self) -> None:
        """Write what waits, once."""
        self._is_closing = True
        # What it is writing it has to write to the end: nobody else has that any more.
        await (self._task.stop() if self._is_sleeping else self._task.wait())
        await self._write()

    async def _write_later(self) -> None:
        # What is noted while it writes comes after, without anyone having to note more.
        has_more = True
        while has_more and not self._is_closing:
            self._is_sleeping = True
            try:
                await asyncio.sleep(self._wait_s)
            finally:
                self._is_sleeping = False
            has_more = await self._write()
