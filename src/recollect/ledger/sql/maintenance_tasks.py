"""Maintenance tasks of users: when they were queued and started, and queueing those that are due."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from recollect.ledger.sql.conversations import SESSION_TEST, session_params
from recollect.ledger.sql.jobs import job_slot, lock_jobs, put_job, replay, scope_exists
from recollect.ledger.sql.tx import Tx, fetch_one
from recollect.ledger.types import (
    MAINTENANCE_AUTHOR,
    MAINTENANCE_KINDS,
    MaintenanceState,
    TaskRun,
    maintenance_task_name,
)
from recollect.model.job import Job, NewJob
from recollect.model.query import validate_limit
from recollect.model.scope import Scope
from recollect.model.times import from_micros, now, time_or_none, to_micros


async def record_queued(tx: Tx, scope: Scope, new: NewJob, at: datetime) -> None:
    """Record that a task was queued, if the job is one."""
    if task := maintenance_task_name(new):
        await tx.run(
            "INSERT INTO chores (user_id, project_id, chore, queued_at) VALUES (:user, :project, :chore, :at) "
            "ON CONFLICT (user_id, project_id, chore) DO UPDATE SET queued_at = excluded.queued_at",
            {"user": scope.user, "project": scope.project, "chore": task, "at": to_micros(at)},
        )


async def record_started(tx: Tx, job: Job, at: int) -> None:
    """Record when a finished task started, if the job was one."""
    if task := maintenance_task_name(job):
        await tx.run(
            "INSERT INTO chores (user_id, project_id, chore, queued_at, started_at) "
            "VALUES (:user, :project, :chore, :now, :at) "
            "ON CONFLICT (user_id, project_id, chore) DO UPDATE SET started_at = excluded.started_at",
            {
                "user": job.scope.user,
                "project": job.scope.project,
                "chore": task,
                "now": to_micros(now()),
                "at": at,
            },
        )


_LAST_ACTIVE = (
    "SELECT u.user_id, (SELECT h.at FROM history h WHERE h.user_id = u.user_id AND h.who <> :upkeep "
    "ORDER BY h.id DESC LIMIT 1) FROM users u WHERE u.user_id > :after ORDER BY u.user_id LIMIT :limit"
)


async def maintenance_states(tx: Tx, *, after: str = "", limit: int = 100) -> list[MaintenanceState]:
    """Return the maintenance state of users in order, after one of them."""
    active_users = await tx.rows(
        _LAST_ACTIVE, {"after": after, "limit": validate_limit(limit), "upkeep": MAINTENANCE_AUTHOR}
    )
    users = {"users": [user for user, _ in active_users]}
    user_filter = tx.dialect.among("user_id", "users")
    projects: defaultdict[str, list[str]] = defaultdict(list)
    for user, project in await tx.rows(
        f"SELECT DISTINCT user_id, project_id FROM conversations WHERE {user_filter} ORDER BY user_id, project_id",
        users,
    ):
        projects[user].append(project)
    tasks: defaultdict[str, dict[tuple[str, str], TaskRun]] = defaultdict(dict)
    for user, project, task, queued, started in await tx.rows(
        f"SELECT user_id, project_id, chore, queued_at, started_at FROM chores WHERE {user_filter}", users
    ):
        tasks[user][project, task] = TaskRun(from_micros(queued), time_or_none(started))
    return [
        MaintenanceState(
            user=user,
            last_active_at=time_or_none(at),
            projects=tuple(projects[user]),
            tasks=tasks[user],
        )
        for user, at in active_users
    ]


async def enqueue_due(tx: Tx, due: Sequence[tuple[Scope, NewJob]]) -> int:
    """Enqueue jobs of many users and record which tasks were queued; return how many jobs that are.

    Only for existing users. A dead maintenance job is revived; any other dead job stays, and no new one is made until
    there are new turns in its session.
    """
    queued = 0
    # In a fixed order, to prevent deadlocks between two schedulers.
    for scope, new in sorted(due, key=lambda each: each[0].user):
        await tx.restrict_to(scope.user)
        if await scope_exists(tx, scope) and await _can_enqueue(tx, scope, new):
            await put_job(tx, await lock_jobs(tx, scope.user), scope, new)
            await record_queued(tx, scope, new, now())
            queued += 1
    return queued


async def _can_enqueue(tx: Tx, scope: Scope, new: NewJob) -> bool:
    """Return whether no dead job is in the way; that of a maintenance task is revived, to be joined."""
    dead = await fetch_one(
        tx,
        "SELECT id, updated_at FROM jobs WHERE user_id = :user AND state = 'dead' AND slot = :slot "
        "ORDER BY id DESC LIMIT 1",
        {"user": scope.user, "slot": job_slot(new.kind, new.key)},
    )
    if dead is None:
        return True
    if new.kind in MAINTENANCE_KINDS:
        await replay(tx, scope.user, [dead[0]])
        return True
    session_row = await fetch_one(
        tx,
        f"SELECT last_turn_at FROM conversations WHERE {SESSION_TEST}",
        session_params(scope),
    )
    return session_row is not None and (session_row[0] or 0) > dead[1]


async def maintenance_times(tx: Tx) -> dict[str, datetime]:
    """Return when each store-wide task last ran, by name; "written" is the time of the last history entry."""
    rows = await tx.rows(
        "SELECT name, at FROM moments UNION ALL "
        "SELECT 'written', at FROM history WHERE id = (SELECT max(id) FROM history)",
        {},
    )
    return {name: from_micros(at) for name, at in rows}


async def record_maintenance_times(tx: Tx, times: Mapping[str, datetime | None]) -> None:
    """Record when store-wide tasks ran; None removes the record."""
    for name, at in times.items():
        if at is None:
            await tx.run("DELETE FROM moments WHERE name = :name", {"name": name})
        else:
            await tx.run(
                "INSERT INTO moments (name, at) VALUES (:name, :at) "
                "ON CONFLICT (name) DO UPDATE SET at = excluded.at",
                {"name": name, "at": to_micros(at)},
            )
