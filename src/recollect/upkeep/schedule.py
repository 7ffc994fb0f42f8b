"""What is due when: chores by the hour and by the night, and sessions that have ended by themselves.

Pure: whoever keeps the time asks `due` and `ended` now and then and queues what they say. Asking twice, or from
several servers, does no harm, for a job that is waiting already is joined.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from recollect.errors import InvalidInput
from recollect.ledger.jobs import MaintenanceState, TaskRun
from recollect.model.job import JobKind, NewJob
from recollect.model.scope import Scope
from recollect.model.turn import Conversation
from recollect.upkeep.report import MaintenanceTask
from recollect.write.triggers import close_job

HOURLY = (MaintenanceTask.EXPIRE, MaintenanceTask.QUOTA)
NIGHTLY = (MaintenanceTask.PRUNE, MaintenanceTask.CONSOLIDATE, MaintenanceTask.REFLECT)
# LearningConfig from what people say comes first.
_PRIORITY: Mapping[MaintenanceTask, int] = {
    MaintenanceTask.EXPIRE: -10,
    MaintenanceTask.QUOTA: -10,
    MaintenanceTask.PRUNE: -20,
    MaintenanceTask.CONSOLIDATE: -20,
    MaintenanceTask.REFLECT: -20,
}
_KINDS: Mapping[MaintenanceTask, JobKind] = {
    MaintenanceTask.CONSOLIDATE: JobKind.CONSOLIDATE,
    MaintenanceTask.REFLECT: JobKind.REFLECT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSchedule:
    """Which chores are done, how often, and when a session counts as ended.

    Nightly ones begin at `night_hour`, UTC, and only for users of whom something was heard since the last time. Jobs
    are spread over `spread_s`, each user at a time of their own, so that not all of them are due at once.
    """

    tasks: frozenset[MaintenanceTask] = frozenset(HOURLY)
    every_s: float = 3600.0
    night_hour: int = 3
    spread_s: float = 600.0
    idle_s: float = 1800.0

    def __post_init__(self) -> None:
        if not 0 <= self.night_hour <= 23:
            raise InvalidInput(f"night_hour is an hour of the day from 0 to 23, not {self.night_hour}")
        if self.every_s <= 0 or self.spread_s < 0 or self.idle_s < 0:
            raise InvalidInput("every_s must be more than 0, spread_s and idle_s at least 0")


@dataclass(frozen=True, slots=True)
class DueJob:
    """A job to be queued for a scope."""

    scope: Scope
    job: NewJob


def due_jobs(
    users: Sequence[MaintenanceState], *, now: datetime, schedule: MaintenanceSchedule
) -> tuple[DueJob, ...]:
    """Which chores are to be done now for these users."""
    jobs: list[DueJob] = []
    for user in users:
        at = now + timedelta(seconds=_user_fraction(user.user) * schedule.spread_s)
        for task in MaintenanceTask:
            for scope in _scopes(task, user) if task in schedule.tasks else ():
                last = user.tasks.get((scope.project, str(task)))
                if _is_due(task, last, user.last_active_at, now, schedule):
                    jobs.append(DueJob(scope, _task_job(task, scope, _last_start(last, now), at)))
    return tuple(jobs)


def ended_sessions(
    conversations: Sequence[Conversation], *, now: datetime, schedule: MaintenanceSchedule
) -> tuple[DueJob, ...]:
    """The ends of open sessions in which nothing was said for long enough."""
    idle = now - timedelta(seconds=schedule.idle_s)
    return tuple(
        DueJob(each.scope, close_job(each.scope))
        for each in conversations
        if schedule.idle_s and each.closed_at is None and each.last_turn_at is not None and each.last_turn_at <= idle
    )


def _scopes(task: MaintenanceTask, user: MaintenanceState) -> list[Scope]:
    scopes = [Scope(user.user)]
    if task is MaintenanceTask.REFLECT:
        # An insight must not carry what one project knows into another: each is thought about by itself.
        scopes += [Scope(user.user, project) for project in user.projects if project]
    return scopes


def _is_due(
    task: MaintenanceTask,
    last: TaskRun | None,
    last_active_at: datetime | None,
    now: datetime,
    schedule: MaintenanceSchedule,
) -> bool:
    if last is not None and last.queued_at <= now:
        if task in HOURLY:
            return now - last.queued_at >= timedelta(seconds=schedule.every_s)
        if last.queued_at >= _night_start(now, schedule.night_hour):
            return False
    # After a clock was put back, what was done in a future that never came is no reason to wait.
    started = _last_start(last, now)
    return task in HOURLY or (last_active_at is not None and (started is None or last_active_at > started))


def _last_start(last: TaskRun | None, now: datetime) -> datetime | None:
    """When the last run that went well had begun; what lies ahead of now never was."""
    return None if last is None or last.started_at is None or last.started_at > now else last.started_at


def _night_start(now: datetime, hour: int) -> datetime:
    """When the last night began."""
    start = now.astimezone(UTC).replace(hour=hour, minute=0, second=0, microsecond=0)
    return start if start <= now else start - timedelta(days=1)


def _task_job(task: MaintenanceTask, scope: Scope, after: datetime | None, at: datetime) -> NewJob:
    return NewJob(
        kind=_KINDS.get(task, JobKind.UPKEEP),
        key=f"{task}:{scope.project}" if scope.project else str(task),
        payload={"chore": str(task), "after": None if after is None else after.isoformat()},
        priority=_PRIORITY[task],
        due_at=at,
    )


def _user_fraction(user: str) -> float:
    """A number from 0 to 1 that is always the same for a user."""
    return zlib.crc32(user.encode(errors="replace")) / 0xFFFFFFFF
