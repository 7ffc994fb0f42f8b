"""The job queue as rows, with summary tables so that leasing need not read every job.

Jobs of one user run one at a time, in order of priority and due time. Users of the same priority take turns: the one
served longest ago, or never, comes first, however many jobs the others have waiting.

A user's jobs are changed only while the user's row in `job_users` is locked. A row of `job_queues` says from when on
a user has a job at a priority, which is no earlier than the user was last served, so that users take turns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2s
from typing import Any

from recollect.errors import NotFound
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.sql.tx import PRUNE_BATCH, Row, Tx, fetch_one
from recollect.ledger.types import FAILURE_WINDOW
from recollect.model.job import (
    Job,
    JobKind,
    JobState,
    JobStats,
    NewJob,
    create_job,
    join_job,
    parse_payload,
    payload_to_dict,
)
from recollect.model.query import validate_limit
from recollect.model.scope import Scope
from recollect.model.text import is_storable
from recollect.model.times import from_micros, now, time_or_none, to_micros

JOB_COLUMNS = (
    'id, user_id, project_id, session_id, kind, "key", state, priority, payload, tries, due_at, created_at, '
    "updated_at, worker, lease, leased_until, error, result"
)
# Assignments for a job that nobody runs any more.
UNLEASED = "worker = NULL, lease = NULL, leased_until = NULL"


def job_from_row(row: Row) -> Job:
    """Convert a row of JOB_COLUMNS."""
    return Job(
        id=row[0],
        scope=Scope(row[1], row[2], row[3]),
        kind=JobKind(row[4]),
        key=row[5],
        state=JobState(row[6]),
        priority=row[7],
        payload=parse_payload(JobKind(row[4]), json.loads(row[8])),
        tries=row[9],
        due_at=from_micros(row[10]),
        created_at=from_micros(row[11]),
        updated_at=from_micros(row[12]),
        worker=row[13],
        lease=row[14],
        leased_until=time_or_none(row[15]),
        error=row[16],
        result=None if row[17] is None else json.loads(row[17]),
    )


@frozen_dataclass
class JobLock:
    """A user whose jobs are locked, and when they were last served."""

    user: str
    served_at: int


async def lock_jobs(tx: Tx, user: str) -> JobLock:
    """Lock the user's jobs until the transaction ends."""
    row = await fetch_one(
        tx,
        "INSERT INTO job_users (user_id) VALUES (:user) "
        "ON CONFLICT (user_id) DO UPDATE SET failures = job_users.failures RETURNING served_at",
        {"user": user},
    )
    assert row is not None
    return JobLock(user, row[0])


async def set_queue(tx: Tx, lock: JobLock, priority: int) -> None:
    """Update from when on the user has a job at a priority."""
    where = {"user": lock.user, "priority": priority}
    row = await fetch_one(
        tx,
        "SELECT min(next_at) FROM jobs WHERE user_id = :user AND priority = :priority AND next_at IS NOT NULL",
        where,
    )
    if row is None or row[0] is None:
        await tx.run("DELETE FROM job_queues WHERE user_id = :user AND priority = :priority", where)
        return
    await tx.run(
        "INSERT INTO job_queues (user_id, priority, ready_at) VALUES (:user, :priority, :ready) "
        "ON CONFLICT (user_id, priority) DO UPDATE SET ready_at = excluded.ready_at",
        {**where, "ready": max(row[0], lock.served_at)},
    )


def job_slot(kind: JobKind, key: str) -> str:
    """Return a digest of kind and key."""
    return blake2s(f"{kind}\0{key}".encode(), digest_size=16).hexdigest()


async def put_job(tx: Tx, lock: JobLock, scope: Scope, new: NewJob) -> Job:
    """Create a job, or let it join one that waits."""
    at = now()
    slot = job_slot(new.kind, new.key)
    row = await fetch_one(
        tx,
        f"SELECT {JOB_COLUMNS} FROM jobs WHERE user_id = :user AND state = 'waiting' AND slot = :slot "
        "ORDER BY id DESC LIMIT 1",
        {"user": scope.user, "slot": slot},
    )
    if row is not None:
        waiting = job_from_row(row)
        after = join_job(waiting, scope, new, at=at)
        if after is waiting:
            return waiting
        await tx.run(
            "UPDATE jobs SET project_id = :project, session_id = :session, priority = :priority, due_at = :due, "
            "next_at = :due, payload = :payload, updated_at = :at WHERE user_id = :user AND id = :id",
            _waiting_params(after),
        )
        for level in {waiting.priority, after.priority}:
            await set_queue(tx, lock, level)
        return after
    job = create_job(scope, new, at=at)
    await tx.run(
        'INSERT INTO jobs (user_id, id, project_id, session_id, kind, "key", slot, state, priority, due_at, next_at, '
        "created_at, updated_at, payload) VALUES (:user, :id, :project, :session, :kind, :key, :slot, 'waiting', "
        ":priority, :due, :due, :at, :at, :payload)",
        {**_waiting_params(job), "kind": str(job.kind), "key": job.key, "slot": slot},
    )
    due = to_micros(job.due_at)
    await tx.run(
        "INSERT INTO job_queues (user_id, priority, ready_at) VALUES (:user, :priority, :ready) "
        "ON CONFLICT (user_id, priority) DO UPDATE SET ready_at = excluded.ready_at "
        "WHERE excluded.ready_at < job_queues.ready_at",
        {"user": lock.user, "priority": job.priority, "ready": max(due, lock.served_at)},
    )
    return job


def _waiting_params(job: Job) -> dict[str, Any]:
    """Return parameters for what can change while a job waits."""
    return {
        "user": job.scope.user,
        "id": job.id,
        "project": job.scope.project,
        "session": job.scope.session,
        "priority": job.priority,
        "due": to_micros(job.due_at),
        "at": to_micros(job.updated_at),
        "payload": json.dumps(payload_to_dict(job.payload)),
    }


async def enqueue(tx: Tx, scope: Scope, jobs: Sequence[NewJob], *, existing_only: bool = False) -> tuple[Job, ...]:
    """Enqueue jobs; return each as it was created, or the waiting job it joined.

    With `existing_only` nothing happens if the user, session or project does not exist: what was erased meanwhile
    does not come back by its jobs.
    """
    if not jobs or (existing_only and not await scope_exists(tx, scope)):
        return ()
    lock = await lock_jobs(tx, scope.user)
    return tuple([await put_job(tx, lock, scope, job) for job in jobs])


async def scope_exists(tx: Tx, scope: Scope) -> bool:
    """Return whether the user, and the session or project, exist; the user cannot be erased meanwhile."""
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
    """Return one job of the user."""
    row = None
    if is_storable(id):
        row = await fetch_one(
            tx, f"SELECT {JOB_COLUMNS} FROM jobs WHERE user_id = :user AND id = :id", {"user": user, "id": id}
        )
    if row is None:
        raise NotFound(f"no job {id} for this user; the list of jobs shows their ids")
    return job_from_row(row)


async def jobs(
    tx: Tx,
    user: str | None = None,
    *,
    states: Sequence[JobState] = (),
    limit: int = 100,
    before: str | None = None,
) -> list[Job]:
    """Return the jobs of a user or of all, newest first; `before` is the last id of the previous page."""
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
    """Requeue dead and cancelled jobs as if new; return those that were."""
    requeue = "state = 'waiting', tries = 0, due_at = :now, next_at = :now, error = NULL"
    return await _move(tx, user, ids, "state IN ('dead', 'cancelled')", requeue)


async def cancel(tx: Tx, user: str, ids: Sequence[str]) -> list[Job]:
    """Cancel waiting and running jobs, which then have no effect; return those that were."""
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


async def job_stats(tx: Tx, user: str | None = None) -> JobStats:
    """Return counts of one user's or all jobs, by indexes; called before every write."""
    at = now()
    params: dict[str, Any] = {"now": to_micros(at), "lately": to_micros(at - FAILURE_WINDOW)}
    user_filter = ""
    if user is not None:
        user_filter, params["user"] = "user_id = :user AND ", user
    rows = await tx.rows(
        f"SELECT state, count(*) FROM jobs WHERE {user_filter}state IN ('waiting', 'running', 'dead') GROUP BY state "
        f"UNION ALL SELECT 'due', count(*) FROM jobs WHERE {user_filter}next_at IS NOT NULL AND next_at <= :now "
        f"UNION ALL SELECT 'oldest', min(next_at) FROM jobs WHERE {user_filter}next_at IS NOT NULL AND priority >= 0 "
        f"UNION ALL SELECT 'failures', max(failures) FROM job_users WHERE {user_filter}failures > 0 "
        "AND failed_at > :lately",
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
    """Remove a batch of the jobs that were done or cancelled before a time; return how many."""
    # Ids begin with the creation time, so that younger jobs are not read.
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
    """Remove a batch of the idempotency keys from before a time; return how many."""
    rows = await tx.rows(
        'DELETE FROM idempotency WHERE (user_id, "key") IN (SELECT user_id, "key" FROM idempotency '
        "WHERE created_at < :before ORDER BY created_at LIMIT :limit) RETURNING 1",
        {"before": to_micros(before), "limit": PRUNE_BATCH},
    )
    return len(rows)
