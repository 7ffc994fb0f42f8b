"""Write noted data a moment later in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from recollect.aio.background import BackgroundTask

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
