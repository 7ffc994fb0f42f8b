"""Maintenance jobs, and the state of a user by which they are scheduled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from recollect.model.job import Job, JobKind, MaintenancePayload, NewJob

# The author of what maintenance writes, which does not count as activity of the user.
MAINTENANCE_AUTHOR = "upkeep"
MAINTENANCE_KINDS = frozenset({JobKind.UPKEEP, JobKind.CONSOLIDATE, JobKind.REFLECT})
# Failures longer ago than this do not count as in a row with later ones.
FAILURE_WINDOW = timedelta(minutes=10)


def maintenance_task_name(job: Job | NewJob) -> str | None:
    """Return the name of the maintenance task that a job does, if it does one."""
    if job.kind not in MAINTENANCE_KINDS:
        return None
    return job.payload.chore if isinstance(job.payload, MaintenancePayload) else str(job.kind)


@dataclass(frozen=True, slots=True)
class TaskRun:
    """When a task was last queued, and when its last successful run started."""

    queued_at: datetime
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceState:
    """What the scheduler needs to know of a user: the last activity, the projects, and the tasks so far.

    Activity is whatever was written by anyone but maintenance. Tasks are keyed by project and name.
    """

    user: str
    last_active_at: datetime | None = None
    projects: tuple[str, ...] = ()
    tasks: Mapping[tuple[str, str], TaskRun] = field(default_factory=dict)
