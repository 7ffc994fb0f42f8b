"""Whether more may be kept for a user: not more in a minute than may be, and not more in all."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass
from time import monotonic

from recollect.cache.rate_limiter import RateLimiter
from recollect.errors import QuotaReached, RecollectError, TooFast
from recollect.ledger.protocol import Ledger
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.observability.metrics import LIMITED

_log = logging.getLogger("recollect")
_MAX_CACHED_USERS = 10_000
# What other processes added is seen when it is counted again: sooner, the fuller it is.
_REFRESH_S, _REFRESH_NEAR_LIMIT_S, _REFRESH_AT_LIMIT_S = 600.0, 60.0, 1.0
_EVERYTHING = Listing(statuses=())


@dataclass(slots=True)
class _UserUsage:
    """What a user was counted to have, when, and what was let in since."""

    stored: int
    counted_at: float
    reserved: int = 0


class WriteQuota:
    """Lets in what may be kept. Memories are counted in the ledger now and then, not at every write.

    `pace` is how much a user may have kept in a minute; doors that are open to many set it. `most` counts everything
    the ledger holds of a user, what was said and what was forgotten with it; 0 is any number.
    """

    def __init__(self, ledger: Ledger, max_records: int) -> None:
        self.rate_limiter: RateLimiter | None = None
        self._ledger = ledger
        self._max_records = max_records
        # The ones who wrote last come last.
        self._usage: OrderedDict[str, _UserUsage] = OrderedDict()
        self._counting: dict[str, asyncio.Task[_UserUsage]] = {}

    @property
    def limit_message(self) -> str:
        """What is said where there is no room."""
        return (
            f"no more than {self._max_records:,} memories are kept for one user, "
            f"what was said and what was forgotten "
            "among them: erase some, or have user_memories_most raised"
        )

    async def admit(self, user: str, count: int) -> None:
        """Let in so many, or raise that they come too fast or are too many."""
        wait_s = await self.rate_limiter.acquire(user, count) if self.rate_limiter is not None else 0.0
        if wait_s:
            LIMITED.add("user_writes")
            raise TooFast("this user has more kept in a minute than may be: try again later", retry_after_s=wait_s)
        await self.reserve(user, count)

    async def reserve(self, user: str, count: int) -> None:
        """Let in so many, at whatever pace they come, or raise that they are too many."""
        if not self._max_records or not count:
            return
        usage = self._usage.get(user)
        if usage is None:
            usage = await self._await_count(user)
        elif self._exceeds_limit(usage, count) and monotonic() - usage.counted_at >= _REFRESH_AT_LIMIT_S:
            # Something may have been erased; but whoever is refused over and over is not counted every time.
            usage = await self._await_count(user)
        elif monotonic() - usage.counted_at > (
            _REFRESH_NEAR_LIMIT_S if usage.stored + usage.reserved > self._max_records / 2 else _REFRESH_S
        ):
            # There is room as far as we know: nobody waits for it to be counted again.
            self._start_count(user)
        if self._exceeds_limit(usage, count):
            LIMITED.add("user_memories")
            raise QuotaReached(self.limit_message)
        usage.reserved += count

    async def remaining(self, user: str, count: int) -> int:
        """How many of so many there is room for; before it is said that not all fit, they are counted again."""
        if not self._max_records:
            return count
        usage = self._usage.get(user) or await self._await_count(user)
        if self._exceeds_limit(usage, count):
            usage = await self._await_count(user)
        return max(0, min(count, self._max_records - usage.stored - usage.reserved))

    def _exceeds_limit(self, usage: _UserUsage, count: int) -> bool:
        return usage.stored + usage.reserved + count > self._max_records

    async def _await_count(self, user: str) -> _UserUsage:
        # Whoever goes away does not break off what others wait for, too.
        return await asyncio.shield(self._start_count(user))

    def _start_count(self, user: str) -> asyncio.Task[_UserUsage]:
        """Count in the ledger; all who ask for a user meanwhile wait for the same answer."""
        task = self._counting.get(user)
        if task is None:
            task = self._counting[user] = asyncio.get_running_loop().create_task(self._query_count(user))
            task.add_done_callback(lambda done: self._on_count_done(user, done))
        return task

    async def _query_count(self, user: str) -> _UserUsage:
        previous = self._usage.get(user)
        reserved = previous.reserved if previous is not None else 0
        count = await self._ledger.count(Scope(user), _EVERYTHING)
        # What was let in meanwhile may not have been there to be counted.
        usage = _UserUsage(count, monotonic(), previous.reserved - reserved if previous is not None else 0)
        self._usage[user] = usage
        self._usage.move_to_end(user)
        if len(self._usage) > _MAX_CACHED_USERS:
            self._usage.popitem(last=False)
        return usage

    def _on_count_done(self, user: str, task: asyncio.Task[_UserUsage]) -> None:
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
