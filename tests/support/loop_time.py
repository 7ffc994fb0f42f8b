"""Checks that a coroutine lets the event loop run, on a busy machine too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import thread_time

# Computations up to this long do not count: the clock of a thread is coarse.
_SHORT_S = 0.02
_TRIES = 5


@dataclass(frozen=True, slots=True)
class LoopTime:
    """The CPU time that a coroutine took in the thread of the loop: in all, and at most between two iterations."""

    total_s: float
    longest_s: float


def measure_loop_time(work: Callable[[], Awaitable[object]]) -> LoopTime:
    """Run a coroutine in a new event loop, and measure the CPU time between iterations of the loop."""

    async def measured() -> LoopTime:
        loop, longest_s, last = asyncio.get_running_loop(), 0.0, thread_time()

        def tick() -> None:
            nonlocal longest_s, last
            now = thread_time()
            longest_s, last = max(longest_s, now - last), now
            handle[0] = loop.call_soon(tick)

        handle = [loop.call_soon(tick)]
        await asyncio.sleep(0)
        start = last = thread_time()
        longest_s = 0.0
        await work()
        tick()
        handle[0].cancel()
        return LoopTime(thread_time() - start, longest_s)

    return asyncio.run(measured())


def assert_loop_runs(work: Callable[[], Awaitable[object]], *, share: float = 0.25) -> None:
    """Fail if one iteration of the loop takes more than a `share` of the CPU time of the whole coroutine.

    Only the CPU time of this thread counts, and a slow measurement is repeated.
    """
    measured = []
    for _ in range(_TRIES):
        measured.append(measure_loop_time(work))
        if measured[-1].longest_s < max(_SHORT_S, share * measured[-1].total_s):
            return
    raise AssertionError(f"the loop did not run: {measured}")
