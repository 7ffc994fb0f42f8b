"""Timing: percentiles of repeated calls, and tables of them."""

from __future__ import annotations

import resource
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter


@dataclass(frozen=True, slots=True)
class Timing:
    """What calls took, in microseconds."""

    p50_us: float
    p99_us: float

    def __str__(self) -> str:
        return f"p50 {self.p50_us:9,.0f} us   p99 {self.p99_us:9,.0f} us"


def summary(samples_s: list[float]) -> Timing:
    """The percentiles of some samples."""
    ranked = sorted(samples_s)
    return Timing(ranked[len(ranked) // 2] * 1e6, ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))] * 1e6)


async def timed(call: Callable[[int], Awaitable[object]], *, times: int, warm: int = 5) -> Timing:
    """Call it again and again, one after the other."""
    samples = []
    for number in range(-warm, times):
        start = perf_counter()
        await call(number)
        if number >= 0:
            samples.append(perf_counter() - start)
    return summary(samples)


def resident_mb() -> float:
    """The memory this process holds now."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 2**20
