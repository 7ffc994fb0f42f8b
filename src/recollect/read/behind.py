"""Write what was noted a moment later, behind the answer: nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from recollect.model.background import BackgroundTask

WAIT_S = 2.0


class Behind:
    """Has `write` called until it says that nothing is left, a moment after something was noted."""

    def __init__(self, write: Callable[[], Awaitable[bool]], *, wait_s: float = WAIT_S) -> None:
        self._write = write
        self._wait_s = wait_s
        self._writing = BackgroundTask(self._write_later)
        self._asleep = False
        self._closing = False

    def nudge(self) -> None:
        """Something was noted."""
        self._writing.start()

    async def close(self) -> None:
        """Write what waits, once."""
        self._closing = True
        # What it is writing it has to write to the end: nobody else has that any more.
        await (self._writing.stop() if self._asleep else self._writing.wait())
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
