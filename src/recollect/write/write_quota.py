"""Per-user write quotas: a rate limit and a maximum number of stored records."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass
from time import monotonic

from recollect.cache.redis_client import RateLimiter
from recollect.errors import QuotaReached, RecollectError, TooFast
from recollect.ledger.ledger import Ledger
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.observability.metrics import LIMITED

_log = logging.getLogger("recollect")
_MAX_CACHED_USERS = 10_000
# Counts are refreshed, sooner near the limit, since other processes write too.
_REFRESH_S, REFRESH_NEAR_LIMIT_S, REFRESH_AT_LIMIT_S = 600.0, 60.0, 1.0
_EVERYTHING = Listing(statuses=())


@dataclass(slots=True)
class _UserUsage:
    """The last count of a user's records, its time, and the writes admitted since."""

    stored: int
    counted_at: float
    reserved: int = 0


class WriteQuota:
    """Admits or rejects writes of a user.

    Counts are cached per user and refreshed in the background, so that a write does not pay for a COUNT query.
    `max_records` includes turns and forgotten memories; 0 is no limit. Interfaces for many users set `rate_limiter`.
    """

    def __init__(self, ledger: Ledger, max_records: int) -> None:
        self.rate_limiter: RateLimiter | None = None
        self._ledger = ledger
        self._max_records = max_records
        # Least recently used first.
        self._usage: OrderedDict[str, _UserUsage] = OrderedDict()
        self._counting: dict[str, asyncio.Task[_UserUsage]] = {}

    @property
    def limit_message(self) -> str:
        """Return the error message of an exceeded quota."""
        return (
            f"a user may have at most {self._max_records:,} memories, including turns and forgotten ones; "
            "erase some, or raise user_max_records"
        )

    async def admit(self, user: str, count: int) -> None:
        """Reserve space for `count` records, or raise TooFast or QuotaReached."""
        wait_s = await self.rate_limiter.acquire(user, count) if self.rate_limiter is not None else 0.0
        if wait_s:
            LIMITED.add("user_writes")
            raise TooFast(
                f"write rate limit exceeded for user {user!r}; retry in {wait_s:.0f} s", retry_after_s=wait_s
            )
        await self.reserve(user, count)

    async def reserve(self, user: str, count: int) -> None:
        """Reserve space for `count` records without the rate limit, or raise QuotaReached."""
        if not self._max_records or not count:
            return
        usage = self._usage.get(user)
        if usage is None:
            usage = await self._await_count(user)
        elif self._exceeds_limit(usage, count) and monotonic() - usage.counted_at >= REFRESH_AT_LIMIT_S:
            # Records may have been erased; but not every rejected write pays for a count.
            usage = await self._await_count(user)
        elif monotonic() - usage.counted_at > (
            REFRESH_NEAR_LIMIT_S if usage.stored + usage.reserved > self._max_records / 2 else _REFRESH_S
        ):
            # By the cached count there is space, so refresh it in the background.
            self._start_count(user)
        if self._exceeds_limit(usage, count):
            LIMITED.add("user_memories")
            raise QuotaReached(self.limit_message)
        usage.reserved += count

    async def remaining(self, user: str, count: int) -> int:
        """Return how many of `count` records fit; count again before reporting that not all do."""
        if not self._max_records:
            return count
        usage = self._usage.get(user) or await self._await_count(user)
        if self._exceeds_limit(usage, count):
            usage = await self._await_count(user)
        return max(0, min(count, self._max_records - usage.stored - usage.reserved))

    def _exceeds_limit(self, usage: _UserUsage, count: int) -> bool:
        return usage.stored + usage.reserved + count > self._max_records

    async def _await_count(self, user: str) -> _UserUsage:
        # Shielded, since other callers may wait for the same count.
        return await asyncio.shield(self._start_count(user))

    def _start_count(self, user: str) -> asyncio.Task[_UserUsage]:
        """Start a count in the ledger; concurrent callers share it."""
        task = self._counting.get(user)
        if task is None:
            task = self._counting[user] = asyncio.get_running_loop().create_task(self._query_count(user))
            task.add_done_callback(lambda done: self._on_count_done(user, done))
        return task

    async def _query_count(self, user: str) -> _UserUsage:
        previous = self._usage.get(user)
        reserved = previous.reserved if previous is not None else 0
        count = await self._ledger.count(Scope(user), _EVERYTHING)
        # Writes admitted during the count may not be included in it.
        usage = _UserUsage(count, monotonic(), previous.reserved - reserved if previous is not None else 0)
        self._usage[user] = usage
        self._usage.move_to_end(user)
        if len(self._usage) > _MAX_CACHED_USERS:
            self._usage.popitem(last=False)
        return usage

    def _on_count_done(self, user: str, task: asyncio.Task[_UserUsage]) -> None:
        self._counting.pop(user, None)
        if not task.cancelled() and isinstance(error := task.exception(), RecollectError):
            _log.debug("counting the records of a user failed: %s", error)

    async def close(self) -> None:
        """Cancel running counts."""
        tasks = list(self._counting.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
