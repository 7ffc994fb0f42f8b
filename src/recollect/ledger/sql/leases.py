"""Leasing jobs and reporting their outcome, which only the holder of the lease can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from recollect.errors import Conflict
from recollect.ledger.sql.jobs import JOB_COLUMNS, UNLEASED, JobLock, job_from_row, lock_jobs, set_queue
from recollect.ledger.sql.maintenance_tasks import record_started
from recollect.ledger.sql.tx import ALL_TENANTS, Tx, fetch_one
from recollect.ledger.types import FAILURE_WINDOW
from recollect.model.ids import new_id
from recollect.model.job import Job, JobKind, as_json, truncate_error
from recollect.model.text import repair_text
from recollect.model.times import now, to_micros

# Clocks of machines that share a ledger may differ by so much.
_MAX_CLOCK_SKEW = timedelta(minutes=5)


def lease_end(lease_s: float) -> datetime:
    """Return when a lease of so many seconds expires."""
    return now() + timedelta(seconds=lease_s)


async def anything_due(tx: Tx) -> bool:
    """Return whether a job may be due; if none is, leasing need not wait for writers."""
    return bool(await tx.rows("SELECT 1 FROM jobs WHERE next_at <= :now LIMIT 1", {"now": to_micros(now())}))


async def anything_ahead(tx: Tx) -> bool:
    """Return whether a waiting job was written by a clock that is ahead of ours."""
    return bool(
        await tx.rows(
            "SELECT 1 FROM jobs WHERE next_at > :ahead AND updated_at > :ahead LIMIT 1",
            {"ahead": to_micros(now() + _MAX_CLOCK_SKEW)},
        )
    )


async def pull_back(tx: Tx) -> None:
    """Count the times of jobs from now on if they were written by a clock that has been set back since.

    Otherwise they would wait until the clock has caught up, and so would the jobs of a worker that died.
    """
    params = {"now": to_micros(now()), "ahead": to_micros(now() + _MAX_CLOCK_SKEW)}
    await tx.run(
        "UPDATE job_users SET served_at = :now, "
        "busy_until = CASE WHEN busy_until > served_at THEN :now + busy_until - served_at ELSE 0 END "
        "WHERE served_at > :ahead",
        params,
    )
    await tx.run(
        "UPDATE jobs SET next_at = :now + next_at - updated_at, due_at = :now + due_at - updated_at, "
        "leased_until = :now + leased_until - updated_at, updated_at = :now "
        "WHERE next_at > :ahead AND updated_at > :ahead",
        params,
    )
    earliest = "(SELECT min(j.next_at) FROM jobs j WHERE j.user_id = q.user_id AND j.priority = q.priority)"
    await tx.run(
        f"UPDATE job_queues AS q SET ready_at = {earliest} WHERE ready_at > :ahead AND {earliest} IS NOT NULL", params
    )


async def lease(
    tx: Tx, *, worker: str, limit: int, lease_s: float, kinds: Sequence[JobKind] | None = None
) -> list[Job]:
    """Lease jobs that are due, the highest priority first, each of a different user; take over expired leases."""
    taken: list[Job] = []
    level = await _next_level(tx, None)
    while level is not None and len(taken) < limit:
        users = await _users_in_turn(tx, level, limit - len(taken), kinds)
        for user in users:
            await tx.restrict_to(user)
            job = await _take(tx, user, level, worker=worker, lease_s=lease_s, kinds=kinds)
            taken += [job] if job else []
        if users:
            await tx.restrict_to(ALL_TENANTS)
        level = await _next_level(tx, level)
    return taken


async def _next_level(tx: Tx, below: int | None) -> int | None:
    """Return the next lower priority at which any user has a job, now or later."""
    lower = "" if below is None else " WHERE priority < :below"
    row = await fetch_one(
        tx, f"SELECT max(priority) FROM job_queues{lower}", {} if below is None else {"below": below}
    )
    return None if row is None else row[0]


def _of_kinds(tx: Tx, kinds: Sequence[JobKind] | None, params: dict[str, Any]) -> str:
    if kinds is None:
        return ""
    params["kinds"] = [str(kind) for kind in kinds]
    return f" AND {tx.dialect.among('j.kind', 'kinds')}"


async def _users_in_turn(tx: Tx, level: int, limit: int, kinds: Sequence[JobKind] | None) -> list[str]:
    """Return idle users with a job due at a priority, locked; users locked by others are skipped."""
    params: dict[str, Any] = {"level": level, "now": to_micros(now()), "limit": limit}
    kind_filter = _of_kinds(tx, kinds, params)
    if kind_filter:
        kind_filter = (
            " AND EXISTS (SELECT 1 FROM jobs j WHERE j.user_id = q.user_id AND j.priority = q.priority "
            f"AND j.next_at <= :now{kind_filter})"
        )
    rows = await tx.rows(
        "SELECT q.user_id FROM job_queues q JOIN job_users u ON u.user_id = q.user_id "
        f"WHERE q.priority = :level AND q.ready_at <= :now AND u.busy_until <= :now{kind_filter} "
        f"ORDER BY q.ready_at, q.user_id LIMIT :limit {tx.dialect.fragments['pass_over']}",
        params,
    )
    return [row[0] for row in rows]


async def _take(
    tx: Tx, user: str, level: int, *, worker: str, lease_s: float, kinds: Sequence[JobKind] | None
) -> Job | None:
    at, ends = now(), lease_end(lease_s)
    # The previous lease has expired; its job waits again, due since then.
    await tx.run(
        f"UPDATE jobs SET state = 'waiting', due_at = next_at, {UNLEASED} "
        "WHERE user_id = :user AND state = 'running'",
        {"user": user},
    )
    params: dict[str, Any] = {
        "user": user,
        "level": level,
        "now": to_micros(at),
        "until": to_micros(ends),
        "worker": repair_text(worker),
        "lease": new_id(),
    }
    rows = await tx.rows(
        "UPDATE jobs SET state = 'running', tries = tries + 1, worker = :worker, lease = :lease, "
        "leased_until = :until, next_at = :until, updated_at = :now WHERE user_id = :user AND id = ("
        "SELECT j.id FROM jobs j WHERE j.user_id = :user AND j.priority = :level AND j.next_at <= :now"
        f"{_of_kinds(tx, kinds, params)} ORDER BY j.next_at, j.id LIMIT 1) RETURNING {JOB_COLUMNS}",
        params,
    )
    # The job may be done by now.
    if rows:
        await tx.run(
            "UPDATE job_users SET served_at = :now, busy_until = :until WHERE user_id = :user",
            {"user": user, "now": to_micros(at), "until": to_micros(ends)},
        )
    await set_queue(tx, JobLock(user, to_micros(at)), level)
    return job_from_row(rows[0]) if rows else None


async def renew(tx: Tx, job: Job, *, lease_s: float) -> Job:
    """Extend a lease to so many seconds from now; raise Conflict if it is no longer the caller's."""
    lock, ends = await lock_jobs(tx, job.scope.user), to_micros(lease_end(lease_s))
    renewed = await _update_leased(
        tx, job.scope.user, job.id, job.lease, "leased_until = :until, next_at = :until", until=ends
    )
    await tx.run("UPDATE job_users SET busy_until = :until WHERE user_id = :user", {"user": lock.user, "until": ends})
    await set_queue(tx, lock, renewed.priority)
    return renewed


async def finish(tx: Tx, job: Job, *, result: Mapping[str, Any] | None = None) -> Job:
    """Mark a leased job as done; raise Conflict if it is no longer the caller's."""
    return await finish_by_id(tx, job.scope.user, job.id, job.lease, result=result)


async def finish_by_id(tx: Tx, user: str, id: str, lease: str | None, *, result: Mapping[str, Any] | None) -> Job:
    """Mark a job as done if `lease` is its current one."""
    result_json = None if result is None else as_json(result, name="the result of a job")
    lock = await lock_jobs(tx, user)
    done = f"state = 'done', next_at = NULL, error = NULL, result = :result, {UNLEASED}"
    job = await _update_leased(tx, user, id, lease, done, result=result_json)
    await tx.run("UPDATE job_users SET busy_until = 0, failures = 0 WHERE user_id = :user", {"user": user})
    await set_queue(tx, lock, job.priority)
    # One job of a user runs at a time, so this one started when the user was last served.
    await record_started(tx, job, lock.served_at)
    return job


async def release(tx: Tx, job: Job, *, due_at: datetime | None = None, error: str | None = None) -> Job:
    """Return a leased job to the queue as if it had not started; raise Conflict if it is not the caller's.

    It is due now, or at `due_at` because of an `error` that is not its own.
    """
    user = job.scope.user
    lock = await lock_jobs(tx, user)
    back = f"state = 'waiting', tries = tries - 1, due_at = :due, next_at = :due, error = :error, {UNLEASED}"
    params = {"due": to_micros(due_at or now()), "error": job.error if error is None else truncate_error(error)}
    after = await _update_leased(tx, user, job.id, job.lease, back, **params)
    await tx.run("UPDATE job_users SET busy_until = 0 WHERE user_id = :user", {"user": user})
    await set_queue(tx, lock, after.priority)
    return after


async def fail(tx: Tx, job: Job, *, error: str, retry_at: datetime | None) -> Job:
    """Mark a leased job as failed, to be retried at `retry_at` or never; raise Conflict if it is not leased."""
    user = job.scope.user
    lock = await lock_jobs(tx, user)
    if retry_at is None:
        failed, params = "state = 'dead', next_at = NULL", {}
    else:
        failed, params = "state = 'waiting', due_at = :due, next_at = :due", {"due": to_micros(retry_at)}
    failed += f", error = :error, {UNLEASED}"
    after = await _update_leased(tx, user, job.id, job.lease, failed, error=truncate_error(error), **params)
    # The count starts over if the last failure was long ago.
    await tx.run(
        "UPDATE job_users SET busy_until = 0, failed_at = :now, "
        "failures = CASE WHEN failed_at > :lately THEN failures ELSE 0 END + 1 WHERE user_id = :user",
        {"user": user, "now": to_micros(now()), "lately": to_micros(now() - FAILURE_WINDOW)},
    )
    await set_queue(tx, lock, after.priority)
    return after


async def _update_leased(tx: Tx, user: str, id: str, lease: str | None, changes: str, **params: Any) -> Job:
    """Update a running job if `lease` is its current one; raise Conflict if not."""
    rows = await tx.rows(
        f"UPDATE jobs SET {changes}, updated_at = :now WHERE user_id = :user AND id = :id AND state = 'running' "
        f"AND lease = :lease RETURNING {JOB_COLUMNS}",
        {"user": user, "id": id, "lease": lease or "", "now": to_micros(now()), **params},
    )
    if not rows:
        raise Conflict(
            f"job {id} is not leased by this worker: its lease expired and was taken over, or it was cancelled"
        )
    return job_from_row(rows[0])
