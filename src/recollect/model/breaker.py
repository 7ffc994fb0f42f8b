"""Stop asking what does not answer: open after failures, one probe at a time until it answers again."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from enum import Enum

IN_A_ROW = 5
LAST = 20
OPEN_S = 5.0


class Leave(Enum):
    """What a caller may do: ask, ask as the one probe, or not at all."""

    ASK = "ask"
    PROBE = "probe"
    NO = "no"


class Breaker:
    """Counts how calls to one thing end. It opens after 5 failures in a row, or when half of the last 20 failed.

    While it is open nobody asks. After 5 seconds one caller may probe: if that goes well it closes, else it stays
    open for another 5. A probe whose end is never told does not block it: after 5 more seconds another may go. It
    belongs to one event loop.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends: deque[bool] = deque(maxlen=LAST)
        self._in_a_row = 0
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

    def leave(self) -> Leave:
        """What the caller may do now; one who may ask or probe tells how it ended."""
        if self._probe_at is None:
            return Leave.ASK
        if self._clock() < self._probe_at:
            return Leave.NO
        self._probe_at = self._clock() + OPEN_S
        return Leave.PROBE

    def went_well(self, leave: Leave = Leave.ASK) -> None:
        """A call was answered; if it was the probe, others may ask again."""
        if leave is Leave.PROBE:
            self._close()
        # What was asked before it opened and answered late says nothing about now.
        if self._probe_at is None:
            self._in_a_row = 0
            self._ends.append(True)

    def failed(self, leave: Leave = Leave.ASK) -> bool:
        """A call failed or took too long; errors that its caller swallowed count as well. Says if that opened it."""
        if leave is Leave.PROBE:
            self._probe_at = self._clock() + OPEN_S
        if self._probe_at is not None:
            return False
        self._in_a_row += 1
        self._ends.append(False)
        failures = self._ends.count(False)
        if self._in_a_row < IN_A_ROW and (len(self._ends) < LAST or failures * 2 < LAST):
            return False
        self.open()
        return True

    def open(self) -> None:
        """Have nobody ask for a while: from elsewhere it is known that there is no answer."""
        if self._probe_at is not None:
            return
        self._probe_at = self._clock() + OPEN_S
        self._in_a_row = 0
        self._ends.clear()
        if self._opened is not None:
            self._opened.set_result(None)

    def _close(self) -> None:
        self._probe_at = self._opened = None
        self._ends.clear()
