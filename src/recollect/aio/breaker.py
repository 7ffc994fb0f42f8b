"""A circuit breaker: it opens after failures, and lets one probe at a time through until a call succeeds."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from enum import Enum

MAX_CONSECUTIVE_FAILURES = 5
WINDOW_SIZE = 20
OPEN_S = 5.0


class Permit(Enum):
    """The permission of a caller: call, call as the one probe, or do not call."""

    CALL = "ask"
    PROBE = "probe"
    DENY = "no"


class Breaker:
    """Opens after 5 failures in a row, or when half of the last 20 calls failed.

    While it is open nobody calls. After 5 seconds one caller may probe: it closes on success, and stays open for
    another 5 seconds on failure. A probe that is never reported does not block it: another may go after 5 more
    seconds. It belongs to one event loop.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._outcomes: deque[bool] = deque(maxlen=WINDOW_SIZE)
        self._consecutive_failures = 0
        # When the next probe may go; None while it is closed.
        self._probe_at: float | None = None
        self._opened: asyncio.Future[None] | None = None

    @property
    def opened(self) -> asyncio.Future[None]:
        """Return a future that is done once it is open, so that pending calls stop waiting; do not cancel it."""
        if self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()
            if self.is_open:
                self._opened.set_result(None)
        return self._opened

    @property
    def is_open(self) -> bool:
        """Return whether it is open."""
        return self._probe_at is not None

    @property
    def retry_after_s(self) -> float:
        """Return the time until the next probe may go; 0 if a call may go now."""
        return 0.0 if self._probe_at is None else max(self._probe_at - self._clock(), 0.0)

    def permit(self, *, yields: bool = False) -> Permit:
        """Return the permission of the caller; one that calls or probes must record the outcome.

        A caller that `yields` probes only if no other has done so for 5 seconds.
        """
        if self._probe_at is None:
            return Permit.CALL
        if self._clock() < self._probe_at + (OPEN_S if yields else 0.0):
            return Permit.DENY
        self._probe_at = self._clock() + OPEN_S
        return Permit.PROBE

    def record_success(self, permit: Permit = Permit.CALL) -> None:
        """Record a success; that of the probe closes the breaker."""
        if permit is Permit.PROBE:
            self._close()
        # A late answer to a call from before it opened is ignored.
        if self._probe_at is None:
            self._consecutive_failures = 0
            self._outcomes.append(True)

    def record_failure(self, permit: Permit = Permit.CALL) -> bool:
        """Record a failure or timeout; return whether it opened the breaker."""
        if permit is Permit.PROBE:
            self._probe_at = self._clock() + OPEN_S
        if self._probe_at is not None:
            return False
        self._consecutive_failures += 1
        self._outcomes.append(False)
        failures = self._outcomes.count(False)
        if self._consecutive_failures < MAX_CONSECUTIVE_FAILURES and (
            len(self._outcomes) < WINDOW_SIZE or failures * 2 < WINDOW_SIZE
        ):
            return False
        self.open()
        return True

    def open(self) -> None:
        """Open it, since a failure is known from elsewhere."""
        if self._probe_at is not None:
            return
        self._probe_at = self._clock() + OPEN_S
        self._consecutive_failures = 0
        self._outcomes.clear()
        if self._opened is not None:
            self._opened.set_result(None)

    def _close(self) -> None:
        self._probe_at = self._opened = None
        self._outcomes.clear()
