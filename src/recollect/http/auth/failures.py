"""Whoever shows wrong keys again and again has to wait; how much is remembered of them is bounded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from recollect.http.auth.address import neighbourhood

_MOST_FAILURES = 10
_WINDOW_S = 60.0
_MOST_PEERS = 10_000


@dataclass(slots=True)
class _Count:
    began: float
    failures: int = 0


class Failures:
    """Counts failures of each peer in a window of time."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[str, _Count] = {}

    def wait_s(self, address: str) -> float:
        """How long the peer has to wait before it may try again; 0 if it may."""
        if not self._counts:
            return 0.0
        count = self._counts.get(neighbourhood(address))
        if count is None or count.failures < _MOST_FAILURES:
            return 0.0
        return max(0.0, count.began + _WINDOW_S - self._clock())

    def note(self, address: str) -> None:
        """The peer showed a wrong key."""
        peer, moment = neighbourhood(address), self._clock()
        count = self._counts.get(peer)
        if count is None or moment - count.began >= _WINDOW_S:
            # Anew, so that the oldest leave first when there are too many.
            self._counts.pop(peer, None)
            if len(self._counts) >= _MOST_PEERS:
                del self._counts[next(iter(self._counts))]
            count = self._counts[peer] = _Count(moment)
        count.failures += 1
