"""Whoever shows wrong keys again and again has to wait; how much is remembered of them is bounded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from recollect.http.auth.address import client_network

_MAX_FAILURES = 10
_WINDOW_S = 60.0
_MAX_PEERS = 10_000


@dataclass(slots=True)
class _FailureWindow:
    started: float
    failures: int = 0


class Lockout:
    """Counts failures of each peer in a window of time."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, _FailureWindow] = {}

    def wait_s(self, address: str) -> float:
        """How long the peer has to wait before it may try again; 0 if it may."""
        if not self._windows:
            return 0.0
        window = self._windows.get(client_network(address))
        if window is None or window.failures < _MAX_FAILURES:
            return 0.0
        return max(0.0, window.started + _WINDOW_S - self._clock())

    def record_failure(self, address: str) -> None:
        """The peer showed a wrong key."""
        peer, moment = client_network(address), self._clock()
        window = self._windows.get(peer)
        if window is None or moment - window.started >= _WINDOW_S:
            # Anew, so that the oldest leave first when there are too many.
            self._windows.pop(peer, None)
            if len(self._windows) >= _MAX_PEERS:
                del self._windows[next(iter(self._windows))]
            window = self._windows[peer] = _FailureWindow(moment)
        window.failures += 1
