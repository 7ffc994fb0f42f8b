"""Queue maintenance tasks hourly and nightly, end idle sessions, and purge old rows.

`due_jobs` and `ended_sessions` are pure. Queueing twice, or from several servers, does no harm: a new job joins one
that waits already.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from recollect.aio.background import BackgroundTask
from recollect.config.fields import MaintenanceSettings
from recollect.deps import Deps
from recollect.errors import RecollectError
from recollect.ledger.ledger import Ledger
from recollect.ledger.types import MaintenanceState, TaskRun
from recollect.maintenance.consolidate import consolidate
from recollect.maintenance.embedding_migration import drop_old_vectors
from recollect.maintenance.forgetting import check_clock, enforce_quotas, expire, prune
from recollect.maintenance.reflect import reflect
from recollect.maintenance.tasks import MaintenanceReport, MaintenanceRun, MaintenanceTask
from recollect.model.change import EnqueueJob
from recollect.model.job import Job, JobKind, MaintenancePayload, NewJob
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation
from recollect.observability.tracing import format_traceback
from recollect.write.triggers import close_job

HOURLY = (MaintenanceTask.EXPIRE, MaintenanceTask.QUOTA)
NIGHTLY = (MaintenanceTask.PRUNE, MaintenanceTask.CONSOLIDATE, MaintenanceTask.REFLECT)
# When nightly tasks start, UTC.
_NIGHT_HOUR = 3
# Below 0: learning from turns comes first.
_HOURLY_PRIORITY, _NIGHTLY_PRIORITY = -10, -20
_KINDS: Mapping[MaintenanceTask, JobKind] = {
    MaintenanceTask.CONSOLIDATE: JobKind.CONSOLIDATE,
    MaintenanceTask.REFLECT: JobKind.REFLECT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSchedule:
    """Which tasks run, and when an idle session ends.

    Nightly tasks run only for users who were active since the last run. Jobs are spread over `spread_s`, so that
    those of all users are not due at once.
    """

    tasks: frozenset[MaintenanceTask] = frozenset(HOURLY)
    spread_s: float = 600.0
    idle_s: float = 1800.0


def due_jobs(
    users: Sequence[MaintenanceState], *, now: datetime, schedule: MaintenanceSchedule
) -> tuple[EnqueueJob, ...]:
    """Return the jobs of the tasks that are due now for these users."""
    jobs: list[EnqueueJob] = []
    for user in users:
        # Always at the same time for a user.
        fraction = zlib.crc32(user.user.encode(errors="replace")) / 0xFFFFFFFF
        at = now + timedelta(seconds=fraction * schedule.spread_s)
        for task in MaintenanceTask:
            for scope in _scopes(task, user) if task in schedule.tasks else ():
                last = user.tasks.get((scope.project, str(task)))
                if _is_due(task, last, user.last_active_at, now):
                    jobs.append(EnqueueJob(scope, _task_job(task, scope, _last_start(last, now), at)))
    return tuple(jobs)


def ended_sessions(
    conversations: Sequence[Conversation], *, now: datetime, schedule: MaintenanceSchedule
) -> tuple[EnqueueJob, ...]:
    """Return the jobs that end open sessions without a turn for `idle_s`."""
    idle = now - timedelta(seconds=schedule.idle_s)
    return tuple(
        EnqueueJob(each.scope, close_job(each.scope))
        for each in conversations
        if schedule.idle_s and each.closed_at is None and each.last_turn_at is not None and each.last_turn_at <= idle
    )


def _scopes(task: MaintenanceTask, user: MaintenanceState) -> list[Scope]:
    scopes = [Scope(user.user)]
    if task is MaintenanceTask.REFLECT:
        # Each project by itself: an insight must not carry facts of one project into another.
        scopes += [Scope(user.user, project) for project in user.projects if project]
    return scopes


def _is_due(task: MaintenanceTask, last: TaskRun | None, last_active_at: datetime | None, now: datetime) -> bool:
    if last is not None and last.queued_at <= now:
        if task in HOURLY:
            return now - last.queued_at >= timedelta(hours=1)
        if last.queued_at >= _night_start(now):
            return False
    # A run in the future is ignored: the clock was set back since.
    started = _last_start(last, now)
    return task in HOURLY or (last_active_at is not None and (started is None or last_active_at > started))


def _last_start(last: TaskRun | None, now: datetime) -> datetime | None:
    """Return when the last successful run started; None for one in the future."""
    return None if last is None or last.started_at is None or last.started_at > now else last.started_at


def _night_start(now: datetime) -> datetime:
    """Return when the last night began."""
    start = now.astimezone(UTC).replace(hour=_NIGHT_HOUR, minute=0, second=0, microsecond=0)
    return start if start <= now else start - timedelta(days=1)


def _task_job(task: MaintenanceTask, scope: Scope, after: datetime | None, at: datetime) -> NewJob:
    return NewJob(
        kind=_KINDS.get(task, JobKind.UPKEEP),
        key=f"{task}:{scope.project}" if scope.project else str(task),
        payload=MaintenancePayload(chore=str(task), after=after),
        priority=_HOURLY_PRIORITY if task in HOURLY else _NIGHTLY_PRIORITY,
        due_at=at,
    )


def follow_up_job(job: Job, report: MaintenanceReport) -> NewJob | None:
    """Return the job that continues a run; None if nothing is left, or the run made no progress."""
    if not report.more or not report.steps:
        return None
    return NewJob(kind=job.kind, key=job.key, payload=job.payload, priority=job.priority)


async def run_task(
    task: MaintenanceTask,
    scope: Scope,
    run: MaintenanceRun,
    settings: MaintenanceSettings,
    deps: Deps,
    *,
    after: datetime | None = None,
) -> MaintenanceReport:
    """Run one task; with `after`, tasks that ask an LLM only consider later changes."""
    ledger = deps.ledger
    match task:
        case MaintenanceTask.EXPIRE:
            return await expire(scope, ledger=ledger, run=run)
        case MaintenanceTask.QUOTA:
            return await enforce_quotas(scope, ledger=ledger, run=run, quotas=settings)
        case MaintenanceTask.PRUNE:
            return await prune(scope, ledger=ledger, run=run, unused_days=settings.prune_days)
        case MaintenanceTask.CONSOLIDATE:
            return await consolidate(scope, deps=deps, run=run, after=after)
        case MaintenanceTask.REFLECT:
            return await reflect(scope, deps=deps, run=run, after=after)


_log = logging.getLogger("recollect")
_EVERY_S = 60.0
_JOB_RETENTION = timedelta(days=7)
_REPLY_RETENTION = timedelta(days=7)
# Clients resend a conversation while it goes on: one that is resumed after this time is rare, and digests of what was
# forgotten should not outlive their use.
TOMBSTONE_RETENTION = timedelta(days=730)
# Until then one can go back to the previous embedding model without embedding again.
_VECTOR_RETENTION = timedelta(days=1)
# Small pages and batches, so that other requests do not wait for long; the next tick continues after `_PAGES`.
_PAGE = 200
_PAGES = 5
_BATCH = 100
# Names of maintenance times in the ledger, so that several schedulers do the work once.
_PURGED, _PURGE_EVERY = "cleared", timedelta(days=1)
_FINISHED, _FINISH_EVERY = "erasures finished", timedelta(hours=1)


class Scheduler:
    """Queues due jobs at an interval; several schedulers may share a ledger."""

    def __init__(
        self, ledger: Ledger, schedule: MaintenanceSchedule, *, forget_days: float = 30.0, every_s: float = _EVERY_S
    ) -> None:
        self._ledger = ledger
        self._schedule, self._forget_days = schedule, forget_days
        self._every_s = every_s
        self._task = BackgroundTask(self._run)
        # Where the next tick continues.
        self._last_user = ""
        self._last_idle: Conversation | None = None

    def start(self) -> None:
        """Tick now and then at the interval."""
        self._task.start()

    async def stop(self) -> None:
        await self._task.stop()

    async def tick(self) -> int:
        """Queue due jobs, purge old rows, and return the number of queued jobs."""
        moment = now()
        queued = await self._end_sessions(moment)
        queued += await self._queue_tasks(moment)
        if await self._is_time(_FINISHED, moment, _FINISH_EVERY):
            done = await self._ledger.finish_erasures()
            if not done.reached:
                _log.warning("bytes of erased memories are left: %s", done.note)
        await self._purge_old(moment)
        return queued

    async def _end_sessions(self, moment: datetime) -> int:
        schedule, queued = self._schedule, 0
        if not schedule.idle_s:
            return 0
        before = moment - timedelta(seconds=schedule.idle_s)
        for _ in range(_PAGES):
            page = await self._ledger.conversations(open=True, idle_before=before, limit=_PAGE, after=self._last_idle)
            queued += await self._queue(ended_sessions(page, now=moment, schedule=schedule))
            self._last_idle = page[-1] if len(page) == _PAGE else None
            if self._last_idle is None:
                break
        return queued

    async def _queue_tasks(self, moment: datetime) -> int:
        schedule, queued = self._schedule, 0
        if not schedule.tasks:
            return 0
        for _ in range(_PAGES):
            page = await self._ledger.maintenance_states(after=self._last_user, limit=_PAGE)
            queued += await self._queue(due_jobs(page, now=moment, schedule=schedule))
            self._last_user = page[-1].user if len(page) == _PAGE else ""
            if not self._last_user:
                break
        return queued

    async def _queue(self, jobs: Sequence[EnqueueJob]) -> int:
        queued = 0
        for start in range(0, len(jobs), _BATCH):
            batch = jobs[start : start + _BATCH]
            queued += await self._ledger.enqueue_due([(each.scope, each.job) for each in batch])
        return queued

    async def _purge_old(self, moment: datetime) -> None:
        if not await self._is_time(_PURGED, moment, _PURGE_EVERY):
            return
        if reason := await check_clock(moment, ledger=self._ledger):
            _log.warning("old rows are not purged: %s", reason)
            return
        await self._ledger.prune_jobs(moment - _JOB_RETENTION)
        await self._ledger.prune_idempotency_keys(moment - _REPLY_RETENTION)
        await self._ledger.prune_responses(moment)
        await self._ledger.prune_tombstones(moment - TOMBSTONE_RETENTION)
        await self._ledger.purge(moment - timedelta(days=self._forget_days))
        await drop_old_vectors(self._ledger, before=moment - _VECTOR_RETENTION)

    async def _is_time(self, name: str, moment: datetime, every: timedelta) -> bool:
        """Return whether something was not done for `every`, and record that it is done now."""
        last = (await self._ledger.maintenance_times()).get(name)
        # A time in the future is ignored: the clock was set back since.
        if last is not None and last <= moment < last + every:
            return False
        await self._ledger.record_maintenance_times({name: moment})
        return True

    async def _run(self) -> None:
        while True:
            try:
                await self.tick()
            except RecollectError as error:
                _log.warning("maintenance is delayed: %s", error)
            except Exception as error:
                _log.error("maintenance failed. %s", format_traceback(error))
            await asyncio.sleep(self._every_s)
