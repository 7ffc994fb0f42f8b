"""An engine that may be away or stand still: whoever asks waits a short time, and while it is away not at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from recollect.errors import IndexNotReady, IndexUnavailable
from recollect.index.engine import Engine, place_mark, user_mark
from recollect.ledger.protocol import Scored
from recollect.model.breaker import Breaker, Leave
from recollect.model.times import now
from recollect.observe.metrics import BREAKER_OPEN

if TYPE_CHECKING:
    from recollect.model.change import Vector

_log = logging.getLogger("recollect")


class Asked:
    """Asks an engine for the nearest rows, by marks if it is one that has to be fed."""

    def __init__(self, engine: Engine, *, timeout_s: float, by_marks: bool, breaker: Breaker | None = None) -> None:
        self._engine = engine
        self._timeout_s = timeout_s
        self._by_marks = by_marks
        self._breaker = breaker or Breaker()
        self.away_since: datetime | None = None

    @property
    def is_away(self) -> bool:
        """Whether asking now would be of no use, but for one who tries whether it is back."""
        return self._breaker.is_open

    @property
    def trouble(self) -> str:
        """What is wrong; empty if nothing is."""
        if self.away_since is None:
            return ""
        return f"{self._engine.name} does not answer since {self.away_since:%H:%M:%S} UTC: the ledger is searched"

    def leave(self) -> Leave:
        """What the caller may do now: ask, ask as the one who tries, or do without."""
        return self._breaker.leave()

    async def nearest(
        self, user: str, vector: Vector, *, places: Sequence[str], limit: int, leave: Leave = Leave.ASK
    ) -> Scored:
        """What the engine suggests, or an IndexUnavailable, soon."""
        if self._by_marks:
            user, places = user_mark(user), [place_mark(place) for place in places]
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await self._engine.nearest(user, vector, places=places, limit=limit)
        except IndexNotReady:
            # It answered: whoever has been taken in can go on asking.
            self._answered(leave)
            raise
        except (IndexUnavailable, TimeoutError) as error:
            self._failed(leave)
            raise IndexUnavailable(f"{self._engine.name} does not answer ({type(error).__name__})") from error
        self._answered(leave)
        return found

    def _answered(self, leave: Leave) -> None:
        self._breaker.went_well(leave)
        if self.away_since is not None and not self._breaker.is_open:
            self.away_since = None
            BREAKER_OPEN.set(0, "index")
            _log.info("%s answers again", self._engine.name)

    def _failed(self, leave: Leave) -> None:
        self._breaker.failed(leave)
        if self._breaker.is_open and self.away_since is None:
            self.away_since = now()
            BREAKER_OPEN.set(1, "index")
            _log.warning("%s", self.trouble)
