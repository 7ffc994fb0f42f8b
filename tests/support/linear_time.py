"""Checks that work on a text takes time in proportion to its length, on a busy machine too."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time

# Quadratic work on the long text takes many times as long, and linear work on it a tenth.
_SHORT_S = 0.05
_TRIES = 5


def assert_linear(work: Callable[[str], object], unit: str, *, chars: int = 100_000, end: str = "") -> None:
    """Fail if `work` on `unit` repeated to `chars` takes over ten times as long as on a quarter of it.

    Linear work takes four times as long, quadratic work sixteen times. Only the CPU time of this thread counts, and a
    slow measurement is repeated.
    """
    quarter, whole = (unit * (size // len(unit)) + end for size in (chars // 4, chars))
    measured = []
    for _ in range(_TRIES):
        took_s = cpu_seconds(lambda: work(whole))
        if took_s < _SHORT_S:
            return
        measured.append((took_s, cpu_seconds(lambda: work(quarter))))
        if took_s < 10 * measured[-1][1] + _SHORT_S:
            return
    raise AssertionError(f"{unit!r} x {chars}: seconds of the whole and of a quarter: {measured}")


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time that a call takes in this thread."""
    start = thread_time()
    work()
    return thread_time() - start
