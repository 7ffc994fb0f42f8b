"""Turns of the event loop: of many who could begin in the same one, a few do in each."""

from __future__ import annotations

import asyncio
from collections import deque


class LoopThrottle:
    """Lets a few begin in each turn of the event loop, so that what else is ready comes between them.

    A search works a few milliseconds before it waits for anything. Of a hundred chats that arrive together many could
    begin theirs in the same moment, and every stream that is open would wait for all of them.
    """

    def __init__(self, per_cycle: int = 1) -> None:
        self._per_cycle = per_cycle
        # How many more may begin in this turn.
        self._remaining = per_cycle
        self._waiting: deque[asyncio.Future[None]] = deque()
        # The loop whose turn is taken; that of one which was closed meanwhile binds nobody.
        self._cycle_loop: asyncio.AbstractEventLoop | None = None

    async def acquire(self) -> None:
        """Go on at once where few did in this turn of the loop, else in a later one; first come, first served."""
        loop = asyncio.get_running_loop()
        if self._cycle_loop is not loop:
            self._cycle_loop, self._remaining = loop, self._per_cycle
            loop.call_soon(self._start_cycle)
        if self._remaining and not self._waiting:
            self._remaining -= 1
            return
        waiter = loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def _start_cycle(self) -> None:
        """Begin the next turn: let in who waits, and come again behind them."""
        if self._cycle_loop is not (loop := asyncio.get_running_loop()):
            return
        self._remaining = self._per_cycle
        while self._waiting and self._remaining:
            following = self._waiting.popleft()
            if not following.done():
                following.set_result(None)
                self._remaining -= 1
        if self._remaining < self._per_cycle:
            loop.call_soon(self._start_cycle)
        else:
            self._cycle_loop = None
