"""Jobs as rows, and what is kept beside them so that leasers need not look at every job.

A user's jobs are touched only by who holds the user's row in `job_users`. A queue says from when on a user has
something to do at a priority; it is no earlier than the user was last served, so that users take turns.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any

from recollect.ledger.sql.tx import Row, Tx, fetch_one
from recollect.model.job import Job, JobKind, JobState, NewJob, as_json, create_job, join_job
from recollect.model.scope import Scope
from recollect.model.times import from_micros, now, to_micros

JOB_COLUMNS = (
    'id, user_id, project_id, session_id, kind, "key", state, priority, payload, tries, due_at, created_at, '
    "updated_at, worker, lease, leased_until, error, result"
)
# What a job is left with when nobody runs it any more.
UNLEASED = "worker = NULL, lease = NULL, leased_until = NULL"


def job_from_row(row: Row) -> Job:
    """The job that a row of COLUMNS stands for."""
    return Job(
        id=row[0],
        scope=Scope(row[1], row[2], row[3]),
        kind=JobKind(row[4]),
        key=row[5],
        state=JobState(row[6]),
        priority=row[7],
        payload=json.loads(row[8]),
        tries=row[9],
        due_at=from_micros(row[10]),
        created_at=from_micros(row[11]),
        updated_at=from_micros(row[12]),
        worker=row[13],
        lease=row[14],
        leased_until=None if row[15] is None else from_micros(row[15]),
        error=row[16],
        result=None if row[17] is None else json.loads(row[17]),
    )


@dataclass(frozen=True, slots=True)
class JobLock:
    """The user whose jobs a transaction touches, and when they were last served."""

    user: str
    served_at: int


async def lock_jobs(tx: Tx, user: str) -> JobLock:
    """The user's jobs, held until the transaction ends."""
    row = await fetch_one(
        tx,
        "INSERT INTO job_users (user_id) VALUES (:user) "
        "ON CONFLICT (user_id) DO UPDATE SET failures = job_users.failures RETURNING served_at",
        {"user": user},
    )
    assert row is not None
    return JobLock(user, row[0])


async def set_queue(tx: Tx, lock: JobLock, priority: int) -> None:
    """Note from when on the user has something to do at a priority, if ever."""
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


async def _advance_queue(tx: Tx, lock: JobLock, priority: int, due: int) -> None:
    """The same after a job was added, which can only bring the time forward."""
    await tx.run(
        "INSERT INTO job_queues (user_id, priority, ready_at) VALUES (:user, :priority, :ready) "
        "ON CONFLICT (user_id, priority) DO UPDATE SET ready_at = excluded.ready_at "
        "WHERE excluded.ready_at < job_queues.ready_at",
        {"user": lock.user, "priority": priority, "ready": max(due, lock.served_at)},
    )


def job_slot(kind: JobKind, key: str) -> str:
    """What stands for kind and key."""
    return blake2s(f"{kind}\0{key}".encode(), digest_size=16).hexdigest()


async def put_job(tx: Tx, lock: JobLock, scope: Scope, new: NewJob) -> Job:
    """Make a job, or have it join one that waits."""
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
        return await _join(tx, lock, waiting, join_job(waiting, scope, new, at=at))
    job = create_job(scope, new, at=at)
    await tx.run(
        'INSERT INTO jobs (user_id, id, project_id, session_id, kind, "key", slot, state, priority, due_at, next_at, '
        "created_at, updated_at, payload) VALUES (:user, :id, :project, :session, :kind, :key, :slot, 'waiting', "
        ":priority, :due, :due, :at, :at, :payload)",
        {**_waiting_params(job), "kind": str(job.kind), "key": job.key, "slot": slot},
    )
    await _advance_queue(tx, lock, job.priority, to_micros(job.due_at))
    return job


async def _join(tx: Tx, lock: JobLock, waiting: Job, after: Job) -> Job:
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


def _waiting_params(job: Job) -> dict[str, Any]:
    """Parameters for what can change while a job waits."""
    return {
        "user": job.scope.user,
        "id": job.id,
        "project": job.scope.project,
        "session": job.scope.session,
        "priority": job.priority,
        "due": to_micros(job.due_at),
        "at": to_micros(job.updated_at),
        "payload": as_json(job.payload, name="the payload of a job"),
    }
