"""SqlJobs: the promise of `Jobs`, kept by the body of SQL on some engine."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from recollect.ledger.jobs import Tended
from recollect.ledger.sql import chores as chore_sql
from recollect.ledger.sql import conversations as conversation_sql
from recollect.ledger.sql import jobs as job_sql
from recollect.ledger.sql import leases
from recollect.ledger.sql import usage as usage_sql
from recollect.ledger.sql.tx import EVERYONE, NOBODY, Engine, Tx, whose
from recollect.model.job import Job, JobKind, JobState, JobStats, NewJob
from recollect.model.query import checked_limit
from recollect.model.scope import Scope
from recollect.model.turn import Conversation
from recollect.model.usage import Part, SpentToday, Usage

# A page of so few rows, found by an index, takes less time than handing the question to another thread.
QUICK_LIMIT = 16


class SqlJobs:
    """Jobs, conversations and usage on a SQL database."""

    _engine: Engine

    async def enqueue(self, scope: Scope, jobs: Sequence[NewJob], *, known_only: bool = False) -> tuple[Job, ...]:
        return await self._engine.write(
            lambda tx: job_sql.enqueue(tx, scope, jobs, known_only=known_only), of=scope.user
        )

    async def tended(self, *, after: str = "", limit: int = 100) -> list[Tended]:
        return await self._engine.read(lambda tx: chore_sql.tended(tx, after=after, limit=limit), of=EVERYONE)

    async def tend(self, due: Sequence[tuple[Scope, NewJob]]) -> int:
        return await self._engine.write(lambda tx: chore_sql.tend(tx, due), of=NOBODY) if due else 0

    async def moments(self) -> Mapping[str, datetime]:
        return await self._engine.read(chore_sql.moments, of=EVERYONE, quick=True)

    async def note_moments(self, moments: Mapping[str, datetime | None]) -> None:
        await self._engine.write(lambda tx: chore_sql.note_moments(tx, moments), of=NOBODY)

    async def lease(
        self, *, worker: str, limit: int, lease_s: float, kinds: Sequence[JobKind] | None = None
    ) -> list[Job]:
        checked_limit(limit)
        # Workers ask all the time: they keep no writer waiting when there is nothing to do.
        if not await self._engine.read(leases.anything_due, of=EVERYONE, quick=True):
            return []
        return await self._engine.write(
            lambda tx: leases.lease(tx, worker=worker, limit=limit, lease_s=lease_s, kinds=kinds), of=EVERYONE
        )

    async def renew(self, job: Job, *, lease_s: float) -> Job:
        return await self._engine.write(lambda tx: leases.renew(tx, job, lease_s=lease_s), of=job.scope.user)

    async def finish(self, job: Job, *, result: Mapping[str, Any] | None = None) -> Job:
        return await self._engine.write(
            lambda tx: leases.finish(tx, job.scope.user, job.id, job.lease, result=result), of=job.scope.user
        )

    async def fail(self, job: Job, *, error: str, retry_at: datetime | None) -> Job:
        return await self._engine.write(
            lambda tx: leases.fail(tx, job, error=error, retry_at=retry_at), of=job.scope.user
        )

    async def release(self, job: Job) -> Job:
        return await self._engine.write(lambda tx: leases.release(tx, job), of=job.scope.user)

    async def job(self, user: str, id: str) -> Job:
        return await self._engine.read(lambda tx: job_sql.job(tx, user, id), of=user, quick=True)

    async def jobs(
        self, user: str | None = None, *, states: Sequence[JobState] = (), limit: int = 100, before: str | None = None
    ) -> list[Job]:
        return await self._engine.read(
            lambda tx: job_sql.jobs(tx, user, states=states, limit=limit, before=before), of=whose(user)
        )

    async def replay(self, user: str, ids: Sequence[str]) -> list[Job]:
        return await self._engine.write(lambda tx: job_sql.replay(tx, user, ids), of=user)

    async def cancel(self, user: str, ids: Sequence[str]) -> list[Job]:
        return await self._engine.write(lambda tx: job_sql.cancel(tx, user, ids), of=user)

    async def job_stats(self, user: str | None = None) -> JobStats:
        return await self._engine.read(lambda tx: job_sql.job_stats(tx, user), of=whose(user), quick=user is not None)

    async def prune_jobs(self, before: datetime) -> int:
        return await self._pruned(job_sql.prune, before)

    async def prune_replies(self, before: datetime) -> int:
        return await self._pruned(job_sql.prune_replies, before)

    async def _pruned(self, some_of: Callable[[Tx, datetime], Coroutine[Any, Any, int]], before: datetime) -> int:
        pruned = some = await self._engine.write(lambda tx: some_of(tx, before), of=EVERYONE)
        # A few at a time, so that nobody who writes waits for long.
        while some == job_sql.PRUNED_AT_ONCE:
            some = await self._engine.write(lambda tx: some_of(tx, before), of=EVERYONE)
            pruned += some
        return pruned

    async def conversations(
        self,
        user: str | None = None,
        *,
        open: bool | None = None,
        idle_before: datetime | None = None,
        order: Literal["oldest", "newest"] = "oldest",
        limit: int = 100,
        after: Conversation | None = None,
    ) -> list[Conversation]:
        return await self._engine.read(
            lambda tx: conversation_sql.conversations(
                tx, user, open=open, idle_before=idle_before, order=order, limit=limit, after=after
            ),
            of=whose(user),
            quick=user is not None and open is None and limit <= QUICK_LIMIT,
        )

    async def usage(
        self,
        user: str | None = None,
        *,
        since: datetime | None = None,
        by: Sequence[Part] = ("day", "model", "step"),
    ) -> list[Usage]:
        return await self._engine.read(lambda tx: usage_sql.usage(tx, user, since=since, by=by), of=whose(user))

    async def spent_today(self, user: str | None) -> SpentToday:
        # The sum of all has no names in it.
        of = NOBODY if user is None else user
        return await self._engine.read(lambda tx: usage_sql.spent_today(tx, user), of=of, quick=True)
