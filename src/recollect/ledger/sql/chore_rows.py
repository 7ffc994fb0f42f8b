"""When chores were queued and begun."""

from __future__ import annotations

from datetime import datetime

from recollect.ledger.jobs import maintenance_task_name
from recollect.ledger.sql.tx import Tx
from recollect.model.job import Job, NewJob
from recollect.model.scope import Scope
from recollect.model.times import now, to_micros


async def record_queued(tx: Tx, scope: Scope, new: NewJob, at: datetime) -> None:
    """Note that a chore was queued, if the job is one."""
    if task := maintenance_task_name(new):
        await tx.run(
            "INSERT INTO chores (user_id, project_id, chore, queued_at) VALUES (:user, :project, :chore, :at) "
            "ON CONFLICT (user_id, project_id, chore) DO UPDATE SET queued_at = excluded.queued_at",
            {"user": scope.user, "project": scope.project, "chore": task, "at": to_micros(at)},
        )


async def record_started(tx: Tx, job: Job, at: int) -> None:
    """Note when a chore began that is done now, if the job was one."""
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
