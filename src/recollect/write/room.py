"""Whether more may be kept for a user: not more in a minute than may be, and not more in all."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass
from time import monotonic

from recollect.errors import QuotaReached, RecollectError, TooFast
from recollect.ledger.protocol import Ledger
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.observe.metrics import LIMITED
from recollect.shared.buckets import Buckets

_log = logging.getLogger("recollect")
_MOST_USERS = 10_000
# What other processes added is seen when it is counted again: sooner, the fuller it is.
_AGAIN_S, _AGAIN_NEAR_S, _AGAIN_FULL_S = 600.0, 60.0, 1.0
_EVERYTHING = Listing(statuses=())


@dataclass(slots=True)
class _Tally:
    """What a user was counted to have, when, and what was let in since."""

    counted: int
    at: float
    taken: int = 0


class Room:
    """Lets in what may be kept. Memories are counted in the ledger now and then, not at every write.

    `pace` is how much a user may have kept in a minute; doors that are open to many set it. `most` counts everything
    the ledger holds of a user, what was said and what was forgotten with it; 0 is any number.
    """

    def __init__(self, ledger: Ledger, most: int) -> None:
        self.pace: Buckets | None = None
        self._ledger = ledger
        self._most = most
        # The ones who wrote last come last.
        self._tallies: OrderedDict[str, _Tally] = OrderedDict()
        self._counting: dict[str, asyncio.Task[_Tally]] = {}

    @property
    def full(self) -> str:
        """What is said where there is no room."""
        return (
            f"no more than {self._most:,} memories are kept for one user, what was said and what was forgotten "
            "among them: erase some, or have user_memories_most raised"
        )

    async def take(self, user: str, count: int) -> None:
        """Let in so many, or raise that they come too fast or are too many."""
        wait_s = await self.pace.take(user, count) if self.pace is not None else 0.0
        if wait_s:
            LIMITED.add("user_writes")
            raise TooFast("this user has more kept in a minute than may be: try again later", retry_after_s=wait_s)
        await self.hold(user, count)

    async def hold(self, user: str, count: int) -> None:
        """Let in so many, at whatever pace they come, or raise that they are too many."""
        if not self._most or not count:
            return
        tally = self._tallies.get(user)
        if tally is None:
            tally = await self._counted(user)
        elif self._is_full(tally, count) and monotonic() - tally.at >= _AGAIN_FULL_S:
            # Something may have been erased; but whoever is refused over and over is not counted every time.
            tally = await self._counted(user)
        elif monotonic() - tally.at > (_AGAIN_NEAR_S if tally.counted + tally.taken > self._most / 2 else _AGAIN_S):
            # There is room as far as we know: nobody waits for it to be counted again.
            self._count(user)
        if self._is_full(tally, count):
            LIMITED.add("user_memories")
            raise QuotaReached(self.full)
        tally.taken += count

    async def left(self, user: str, wanted: int) -> int:
        """How many of so many there is room for; before it is said that not all fit, they are counted again."""
        if not self._most:
            return wanted
        tally = self._tallies.get(user) or await self._counted(user)
        if self._is_full(tally, wanted):
            tally = await self._counted(user)
        return max(0, min(wanted, self._most - tally.counted - tally.taken))

    def _is_full(self, tally: _Tally, count: int) -> bool:
        return tally.counted + tally.taken + count > self._most

    async def _counted(self, user: str) -> _Tally:
        # Whoever goes away does not break off what others wait for, too.
        return await asyncio.shield(self._count(user))

    def _count(self, user: str) -> asyncio.Task[_Tally]:
        """Count in the ledger; all who ask for a user meanwhile wait for the same answer."""
        task = self._counting.get(user)
        if task is None:
            task = self._counting[user] = asyncio.get_running_loop().create_task(self._look(user))
            task.add_done_callback(lambda done: self._ended(user, done))
        return task

    async def _look(self, user: str) -> _Tally:
        before = self._tallies.get(user)
        taken = before.taken if before is not None else 0
        count = await self._ledger.count(Scope(user), _EVERYTHING)
        # What was let in meanwhile may not have been there to be counted.
        tally = _Tally(count, monotonic(), before.taken - taken if before is not None else 0)
        self._tallies[user] = tally
        self._tallies.move_to_end(user)
        if len(self._tallies) > _MOST_USERS:
            self._tallies.popitem(last=False)
        return tally

    def _ended(self, user: str, task: asyncio.Task[_Tally]) -> None:
        self._counting.pop(user, None)
        if not task.cancelled() and isinstance(error := task.exception(), RecollectError):
            _log.debug("the memories of a user could not be counted: %s", error)

    async def close(self) -> None:
        """Wait for no count any more."""
        tasks = list(self._counting.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
