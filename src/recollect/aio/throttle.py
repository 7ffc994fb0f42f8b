"""A throttle that lets a few callers through per iteration of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque


class LoopThrottle:
    """Lets `per_cycle` callers through per iteration of the event loop, so that other callbacks run in between.

    A search computes for a few milliseconds before it awaits anything. If a hundred chats arrive together and all
    start in the same iteration, every open stream waits for all of them.
    """

    def __init__(self, per_cycle: int = 1) -> None:
        self._per_cycle = per_cycle
        # How many more callers may pass in this iteration.
        self._remaining = per_cycle
        self._waiting: deque[asyncio.Future[None]] = deque()
        # The loop of the current iteration; a closed loop is ignored.
        self._cycle_loop: asyncio.AbstractEventLoop | None = None

    async def acquire(self) -> None:
        """Pass at once, or in a later iteration if `per_cycle` callers have passed; first come, first served."""
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
        """Start the next iteration: let waiting callers pass, and schedule the one after it."""
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
