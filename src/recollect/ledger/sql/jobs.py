"""Jobs from outside: made, looked at, replayed, cancelled, counted, cleared away."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from recollect.errors import NotFound
from recollect.ledger.jobs import FAILURE_WINDOW
from recollect.ledger.sql.job_rows import JOB_COLUMNS, UNLEASED, job_from_row, lock_jobs, put_job, set_queue
from recollect.ledger.sql.tx import Tx, fetch_one
from recollect.model.job import Job, JobState, JobStats, NewJob
from recollect.model.query import validate_limit
from recollect.model.scope import Scope
from recollect.model.text import is_storable
from recollect.model.times import now, to_micros

PRUNE_BATCH = 1000


async def enqueue(tx: Tx, scope: Scope, jobs: Sequence[NewJob], *, existing_only: bool = False) -> tuple[Job, ...]:
    """Make jobs, each of which may join one that waits."""
    if not jobs or (existing_only and not await scope_exists(tx, scope)):
        return ()
    lock = await lock_jobs(tx, scope.user)
    return tuple([await put_job(tx, lock, scope, job) for job in jobs])


async def scope_exists(tx: Tx, scope: Scope) -> bool:
    """Whether there is such a user, and such a session or project of theirs; nobody can erase the user meanwhile."""
    if not await tx.rows(
        f"SELECT 1 FROM users WHERE user_id = :user {tx.dialect.fragments['hold_row']}", {"user": scope.user}
    ):
        return False
    tests, params = ["user_id = :user"], {"user": scope.user}
    if scope.project or scope.session:
        tests.append("project_id = :project")
        params["project"] = scope.project
    if scope.session:
        tests.append("session_id = :session")
        params["session"] = scope.session
    return len(tests) == 1 or bool(
        await tx.rows(f"SELECT 1 FROM conversations WHERE {' AND '.join(tests)} LIMIT 1", params)
    )


async def job(tx: Tx, user: str, id: str) -> Job:
    """One job of the user."""
    row = None
    if is_storable(id):
        row = await fetch_one(
            tx, f"SELECT {JOB_COLUMNS} FROM jobs WHERE user_id = :user AND id = :id", {"user": user, "id": id}
        )
    if row is None:
        raise NotFound(f"no job {id}")
    return job_from_row(row)


async def jobs(tx: Tx, user: str | None, *, states: Sequence[JobState], limit: int, before: str | None) -> list[Job]:
    """Jobs of a user or of all, newest first."""
    params: dict[str, Any] = {"limit": validate_limit(limit)}
    tests = ["1 = 1"]
    if user is not None:
        params["user"] = user
        tests.append("user_id = :user")
    if states:
        params["states"] = [str(state) for state in states]
        tests.append(tx.dialect.among("state", "states"))
    if before is not None:
        params["before"] = before if is_storable(before) else ""
        tests.append("id < :before")
    rows = await tx.rows(
        f"SELECT {JOB_COLUMNS} FROM jobs WHERE {' AND '.join(tests)} ORDER BY id DESC LIMIT :limit", params
    )
    return [job_from_row(row) for row in rows]


async def replay(tx: Tx, user: str, ids: Sequence[str]) -> list[Job]:
    """Have dead and cancelled jobs done after all."""
    requeue = "state = 'waiting', tries = 0, due_at = :now, next_at = :now, error = NULL"
    return await _move(tx, user, ids, "state IN ('dead', 'cancelled')", requeue)


async def cancel(tx: Tx, user: str, ids: Sequence[str]) -> list[Job]:
    """Take jobs out of the queue, and from whoever runs one."""
    cancelled = "state = 'cancelled', next_at = NULL"
    return await _move(tx, user, ids, "state IN ('waiting', 'running')", cancelled)


async def _move(tx: Tx, user: str, ids: Sequence[str], which: str, changes: str) -> list[Job]:
    valid_ids = [id for id in ids if is_storable(id)]
    if not valid_ids:
        return []
    lock = await lock_jobs(tx, user)
    rows = await tx.rows(
        f"UPDATE jobs SET {changes}, {UNLEASED}, updated_at = :now WHERE user_id = :user AND {which} "
        f"AND {tx.dialect.among('id', 'ids')} RETURNING {JOB_COLUMNS}",
        {"user": user, "ids": valid_ids, "now": to_micros(now())},
    )
    moved = {job.id: job for job in map(job_from_row, rows)}
    await tx.run(
        "UPDATE job_users SET busy_until = 0 WHERE user_id = :user "
        "AND NOT EXISTS (SELECT 1 FROM jobs WHERE user_id = :user AND state = 'running')",
        {"user": user},
    )
    for level in {job.priority for job in moved.values()}:
        await set_queue(tx, lock, level)
    return [moved[id] for id in dict.fromkeys(valid_ids) if id in moved]


async def job_stats(tx: Tx, user: str | None) -> JobStats:
    """Counted over indexes: what is done is not looked at."""
    at = now()
    params: dict[str, Any] = {"now": to_micros(at), "lately": to_micros(at - FAILURE_WINDOW)}
    user_filter = ""
    if user is not None:
        user_filter, params["user"] = "user_id = :user AND ", user
    rows = await tx.rows(
        f"SELECT state, count(*) FROM jobs WHERE {user_filter}state IN ('waiting', 'running', 'dead') GROUP BY state "
        f"UNION ALL SELECT 'due', count(*) FROM jobs WHERE {user_filter}next_at IS NOT NULL AND next_at <= :now "
        f"UNION ALL SELECT 'oldest', min(next_at) FROM jobs WHERE {user_filter}next_at IS NOT NULL AND priority >= 0 "
        f"UNION ALL SELECT 'failures', max(failures) FROM job_users WHERE {user_filter}failures > 0 AND failed_at > :lately",
        params,
    )
    counts = {name: number for name, number in rows if number is not None}
    return JobStats(
        waiting=counts.get("waiting", 0),
        running=counts.get("running", 0),
        dead=counts.get("dead", 0),
        oldest_due_age_s=max(params["now"] - counts.get("oldest", params["now"]), 0) / 1e6,
        failures_in_a_row=counts.get("failures", 0),
        due=counts.get("due", 0),
    )


async def prune_jobs(tx: Tx, before: datetime) -> int:
    """Remove some of the jobs that were over before a time; gives how many."""
    # Ids begin with the time they were made, so that younger jobs need not be looked at.
    first_later = f"{max(to_micros(before), 0) // 1000:012x}"
    rows = await tx.rows(
        "DELETE FROM jobs WHERE (user_id, id) IN (SELECT user_id, id FROM jobs "
        "WHERE state IN ('done', 'cancelled') AND id < :made AND updated_at < :before LIMIT :limit) RETURNING id",
        {
            "made": f"{first_later[:8]}-{first_later[8:]}-8",
            "before": to_micros(before),
            "limit": PRUNE_BATCH,
        },
    )
    return len(rows)


async def prune_idempotency_keys(tx: Tx, before: datetime) -> int:
    """Forget some of what requests with a key came to before a time; gives how many."""
    rows = await tx.rows(
        'DELETE FROM idempotency WHERE (user_id, "key") IN (SELECT user_id, "key" FROM idempotency '
        "WHERE created_at < :before ORDER BY created_at LIMIT :limit) RETURNING 1",
        {"before": to_micros(before), "limit": PRUNE_BATCH},
    )
    return len(rows)
