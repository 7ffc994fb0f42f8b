"""Long computations in slices, so that the event loop keeps answering other requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from time import perf_counter
from typing import TypeVar
from weakref import WeakKeyDictionary

from recollect.aio.throttle import LoopThrottle

T = TypeVar("T")
# How long a computation may run before other callbacks of the event loop do.
SLICE_S = 0.001
# How many iterations of the event loop others have between two slices: a small request takes dozens.
_ITERATIONS = 24
_FEW_CHARS = 1 << 12
# Of several computations, one runs per iteration of the loop.
_throttles: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopThrottle] = WeakKeyDictionary()
# One thread at a time: each that computes makes the event loop wait for its turn.
_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class TimeSlice:
    """The time that a computation has had since it last let others run."""

    def __init__(self) -> None:
        self._started_at = perf_counter()

    @property
    def is_over(self) -> bool:
        return perf_counter() - self._started_at >= SLICE_S

    async def pause(self) -> None:
        """Let other callbacks run if the slice is over; call it between small steps."""
        if not self.is_over:
            return
        for _ in range(_ITERATIONS):
            await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        await _throttles.setdefault(loop, LoopThrottle()).acquire()
        self._started_at = perf_counter()


async def run_in_slices(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end and return its result; others run between its steps when a slice is over."""
    time_slice = TimeSlice()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await time_slice.pause()


def run_at_once(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end and return its result, without letting others run."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def run_off_loop(compute: Callable[[], T], *, chars: int) -> T:
    """Run a computation on so many characters in a thread, or at once if they are few.

    A switch between threads costs more than work on a few characters.
    """
    if chars <= _FEW_CHARS:
        return compute()
    async with _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        return await asyncio.to_thread(compute)
