"""SqlJobs: the promise of `Jobs`, kept by the body of SQL on some engine."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from recollect.ledger.jobs import MaintenanceState
from recollect.ledger.sql import conversations as conversation_sql
from recollect.ledger.sql import jobs as job_sql
from recollect.ledger.sql import leases
from recollect.ledger.sql import maintenance_tasks as chore_sql
from recollect.ledger.sql import usage as usage_sql
from recollect.ledger.sql.tx import ALL_TENANTS, NO_TENANT, SqlEngine, Tx, tenant_or_all
from recollect.model.job import Job, JobKind, JobState, JobStats, NewJob
from recollect.model.query import validate_limit
from recollect.model.scope import Scope
from recollect.model.turn import Conversation
from recollect.model.usage import Part, SpentToday, Usage

# A page of so few rows, found by an index, takes less time than handing the question to another thread.
QUICK_LIMIT = 16


class SqlJobStore:
    """Jobs, conversations and usage on a SQL database."""

    _engine: SqlEngine

    async def enqueue(self, scope: Scope, jobs: Sequence[NewJob], *, existing_only: bool = False) -> tuple[Job, ...]:
        return await self._engine.write(
            lambda tx: job_sql.enqueue(tx, scope, jobs, existing_only=existing_only), tenant=scope.user
        )

    async def maintenance_states(self, *, after: str = "", limit: int = 100) -> list[MaintenanceState]:
        return await self._engine.read(
            lambda tx: chore_sql.maintenance_states(tx, after=after, limit=limit), tenant=ALL_TENANTS
        )

    async def enqueue_due(self, due: Sequence[tuple[Scope, NewJob]]) -> int:
        return await self._engine.write(lambda tx: chore_sql.enqueue_due(tx, due), tenant=NO_TENANT) if due else 0

    async def maintenance_times(self) -> Mapping[str, datetime]:
        return await self._engine.read(chore_sql.maintenance_times, tenant=ALL_TENANTS, quick=True)

    async def record_maintenance_times(self, times: Mapping[str, datetime | None]) -> None:
        await self._engine.write(lambda tx: chore_sql.record_maintenance_times(tx, times), tenant=NO_TENANT)

    async def lease(
        self, *, worker: str, limit: int, lease_s: float, kinds: Sequence[JobKind] | None = None
    ) -> list[Job]:
        validate_limit(limit)
        # Workers ask all the time: they keep no writer waiting when there is nothing to do.
        if not await self._engine.read(leases.anything_due, tenant=ALL_TENANTS, quick=True):
            return []
        return await self._engine.write(
            lambda tx: leases.lease(tx, worker=worker, limit=limit, lease_s=lease_s, kinds=kinds), tenant=ALL_TENANTS
        )

    async def renew(self, job: Job, *, lease_s: float) -> Job:
        return await self._engine.write(lambda tx: leases.renew(tx, job, lease_s=lease_s), tenant=job.scope.user)

    async def finish(self, job: Job, *, result: Mapping[str, Any] | None = None) -> Job:
        return await self._engine.write(
            lambda tx: leases.finish(tx, job.scope.user, job.id, job.lease, result=result), tenant=job.scope.user
        )

    async def fail(self, job: Job, *, error: str, retry_at: datetime | None) -> Job:
        return await self._engine.write(
            lambda tx: leases.fail(tx, job, error=error, retry_at=retry_at), tenant=job.scope.user
        )

    async def release(self, job: Job) -> Job:
        return await self._engine.write(lambda tx: leases.release(tx, job), tenant=job.scope.user)

    async def job(self, user: str, id: str) -> Job:
        return await self._engine.read(lambda tx: job_sql.job(tx, user, id), tenant=user, quick=True)

    async def jobs(
        self, user: str | None = None, *, states: Sequence[JobState] = (), limit: int = 100, before: str | None = None
    ) -> list[Job]:
        return await self._engine.read(
            lambda tx: job_sql.jobs(tx, user, states=states, limit=limit, before=before), tenant=tenant_or_all(user)
        )

    async def replay(self, user: str, ids: Sequence[str]) -> list[Job]:
        return await self._engine.write(lambda tx: job_sql.replay(tx, user, ids), tenant=user)

    async def cancel(self, user: str, ids: Sequence[str]) -> list[Job]:
        return await self._engine.write(lambda tx: job_sql.cancel(tx, user, ids), tenant=user)

    async def job_stats(self, user: str | None = None) -> JobStats:
        return await self._engine.read(
            lambda tx: job_sql.job_stats(tx, user), tenant=tenant_or_all(user), quick=user is not None
        )

    async def prune_jobs(self, before: datetime) -> int:
        return await self._prune_in_batches(job_sql.prune_jobs, before)

    async def prune_idempotency_keys(self, before: datetime) -> int:
        return await self._prune_in_batches(job_sql.prune_idempotency_keys, before)

    async def _prune_in_batches(
        self, prune: Callable[[Tx, datetime], Coroutine[Any, Any, int]], before: datetime
    ) -> int:
        pruned = batch_count = await self._engine.write(lambda tx: prune(tx, before), tenant=ALL_TENANTS)
        # A few at a time, so that nobody who writes waits for long.
        while batch_count == job_sql.PRUNE_BATCH:
            batch_count = await self._engine.write(lambda tx: prune(tx, before), tenant=ALL_TENANTS)
            pruned += batch_count
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
            tenant=tenant_or_all(user),
            quick=user is not None and open is None and limit <= QUICK_LIMIT,
        )

    async def usage(
        self,
        user: str | None = None,
        *,
        since: datetime | None = None,
        by: Sequence[Part] = ("day", "model", "step"),
    ) -> list[Usage]:
        return await self._engine.read(
            lambda tx: usage_sql.usage(tx, user, since=since, by=by), tenant=tenant_or_all(user)
        )

    async def spent_today(self, user: str | None) -> SpentToday:
        # The sum of all has no names in it.
        tenant = NO_TENANT if user is None else user
        return await self._engine.read(lambda tx: usage_sql.spent_today(tx, user), tenant=tenant, quick=True)
