"""Stop asking what does not answer: open after failures, one probe at a time until it answers again."""

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
    """What a caller may do: ask, ask as the one probe, or not at all."""

    CALL = "ask"
    PROBE = "probe"
    DENY = "no"


class Breaker:
    """Counts how calls to one thing end. It opens after 5 failures in a row, or when half of the last 20 failed.

    While it is open nobody asks. After 5 seconds one caller may probe: if that goes well it closes, else it stays
    open for another 5. A probe whose end is never told does not block it: after 5 more seconds another may go. It
    belongs to one event loop.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._outcomes: deque[bool] = deque(maxlen=WINDOW_SIZE)
        self._consecutive_failures = 0
        # When the next probe may go, while it is open.
        self._probe_at: float | None = None
        self._opened: asyncio.Future[None] | None = None

    @property
    def opened(self) -> asyncio.Future[None]:
        """Done once it is open, for those who asked before and need not wait any longer; not to be cancelled."""
        if self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()
            if self.is_open:
                self._opened.set_result(None)
        return self._opened

    @property
    def is_open(self) -> bool:
        """Whether callers are told not to ask."""
        return self._probe_at is not None

    def permit(self) -> Permit:
        """What the caller may do now; one who may ask or probe tells how it ended."""
        if self._probe_at is None:
            return Permit.CALL
        if self._clock() < self._probe_at:
            return Permit.DENY
        self._probe_at = self._clock() + OPEN_S
        return Permit.PROBE

    def record_success(self, permit: Permit = Permit.CALL) -> None:
        """A call was answered; if it was the probe, others may ask again."""
        if permit is Permit.PROBE:
            self._close()
        # What was asked before it opened and answered late says nothing about now.
        if self._probe_at is None:
            self._consecutive_failures = 0
            self._outcomes.append(True)

    def record_failure(self, permit: Permit = Permit.CALL) -> bool:
        """A call failed or took too long; errors that its caller swallowed count as well. Says if that opened it."""
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
        """Have nobody ask for a while: from elsewhere it is known that there is no answer."""
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
