"""Jobs as the ledger in memory keeps them: looked through from end to end each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from recollect.errors import Conflict, NotFound
from recollect.ledger.jobs import FAILURE_WINDOW, TaskRun, maintenance_task_name
from recollect.ledger.memory_rows import plain_copy
from recollect.model.ids import new_id
from recollect.model.job import (
    Job,
    JobKind,
    JobState,
    JobStats,
    NewJob,
    as_json,
    create_job,
    join_job,
    truncate_error,
)
from recollect.model.query import validate_limit
from recollect.model.scope import Scope
from recollect.model.text import repair_text
from recollect.model.times import now

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_IDLE: dict[str, Any] = {"worker": None, "lease": None, "leased_until": None}


class MemoryJobs:
    """Who waits, who is served, and in what order."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._served: dict[str, datetime] = {}
        self._failures: Counter[str] = Counter()
        self._failed_at: dict[str, datetime] = {}
        # By user, project and name.
        self._task_runs: dict[tuple[str, str, str], TaskRun] = {}

    def _check_open(self) -> None:
        raise NotImplementedError

    def _scope_exists(self, scope: Scope) -> bool:
        raise NotImplementedError

    async def enqueue(self, scope: Scope, jobs: Sequence[NewJob], *, existing_only: bool = False) -> tuple[Job, ...]:
        self._check_open()
        if existing_only and not self._scope_exists(scope):
            return ()
        return tuple(_copy_job(self._put_job(scope, new)) for new in jobs)

    def _put_job(self, scope: Scope, new: NewJob) -> Job:
        at = now()
        alike = (JobState.WAITING, scope.user, new.kind, new.key)
        same = [job for job in self._jobs.values() if (job.state, job.scope.user, job.kind, job.key) == alike]
        job = (
            join_job(max(same, key=lambda job: job.id), scope, new, at=at) if same else create_job(scope, new, at=at)
        )
        self._jobs[job.id] = job
        return job

    def _set(self, job: Job, **fields: Any) -> Job:
        self._jobs[job.id] = changed = replace(job, **fields, updated_at=now())
        return changed

    async def lease(
        self, *, worker: str, limit: int, lease_s: float, kinds: Sequence[JobKind] | None = None
    ) -> list[Job]:
        self._check_open()
        validate_limit(limit)
        taken: list[Job] = []
        for user, level in self._users_in_turn(kinds):
            if len(taken) < limit and all(job.scope.user != user for job in taken):
                taken.append(self._take(user, level, worker=worker, lease_s=lease_s, kinds=kinds))
        return [_copy_job(job) for job in taken]

    def _users_in_turn(self, kinds: Sequence[JobKind] | None) -> list[tuple[str, int]]:
        """Users and priorities at which they have something to do now, in the order they are served in."""
        at = now()
        busy = {job.scope.user for job in self._jobs.values() if job.leased_until and job.leased_until > at}
        ready: dict[tuple[str, int], datetime] = {}
        eligible: set[tuple[str, int]] = set()
        for job in self._jobs.values():
            user, due = job.scope.user, _next_at(job)
            if due is None or due > at or user in busy:
                continue
            key = user, job.priority
            ready[key] = max(min(due, ready.get(key, due)), self._served.get(user, _NEVER))
            if kinds is None or job.kind in kinds:
                eligible.add(key)
        return sorted(eligible, key=lambda key: (-key[1], ready[key], key[0]))

    def _take(self, user: str, level: int, *, worker: str, lease_s: float, kinds: Sequence[JobKind] | None) -> Job:
        at = now()
        mine = [job for job in self._jobs.values() if job.scope.user == user]
        for job in mine:
            if job.state is JobState.RUNNING:
                self._jobs[job.id] = replace(job, state=JobState.WAITING, due_at=job.leased_until or at, **_IDLE)
        due = [
            job
            for job in (self._jobs[job.id] for job in mine)
            if job.state is JobState.WAITING
            and job.priority == level
            and job.due_at <= at
            and (kinds is None or job.kind in kinds)
        ]
        first = min(due, key=lambda job: (job.due_at, job.id))
        self._served[user] = at
        return self._set(
            first,
            state=JobState.RUNNING,
            tries=first.tries + 1,
            worker=repair_text(worker),
            lease=new_id(),
            leased_until=at + timedelta(seconds=lease_s),
        )

    def _leased_job(self, user: str, id: str, lease: str | None) -> Job:
        self._check_open()
        job = self._jobs.get(id)
        if job is None or job.scope.user != user or job.state is not JobState.RUNNING or job.lease != lease:
            raise Conflict(f"job {id} is no longer ours: its lease ran out and another took it, or it was cancelled")
        return job

    async def renew(self, job: Job, *, lease_s: float) -> Job:
        ours = self._leased_job(job.scope.user, job.id, job.lease)
        return _copy_job(self._set(ours, leased_until=now() + timedelta(seconds=lease_s)))

    async def finish(self, job: Job, *, result: Mapping[str, Any] | None = None) -> Job:
        return _copy_job(self._finish(job.scope.user, job.id, job.lease, result))

    def _finish(self, user: str, id: str, lease: str | None, result: Mapping[str, Any] | None) -> Job:
        as_json(result or {}, name="the result of a job")
        ours = self._leased_job(user, id, lease)
        self._failures[user] = 0
        result_copy = None if result is None else plain_copy(result)
        if task := maintenance_task_name(ours):
            key = (user, ours.scope.project, task)
            queued_at = self._task_runs[key].queued_at if key in self._task_runs else now()
            self._task_runs[key] = TaskRun(queued_at, self._served[user])
        return self._set(ours, state=JobState.DONE, error=None, result=result_copy, **_IDLE)

    async def fail(self, job: Job, *, error: str, retry_at: datetime | None) -> Job:
        ours = self._leased_job(job.scope.user, job.id, job.lease)
        user = job.scope.user
        self._failures[user] = self._failures_of(user) + 1
        self._failed_at[user] = now()
        state = JobState.DEAD if retry_at is None else JobState.WAITING
        return _copy_job(
            self._set(ours, state=state, due_at=retry_at or ours.due_at, error=truncate_error(error), **_IDLE)
        )

    def _failures_of(self, user: str) -> int:
        """Those that are lately enough to be in a row with the next."""
        return self._failures[user] if self._failed_at.get(user, _NEVER) > now() - FAILURE_WINDOW else 0

    async def release(self, job: Job) -> Job:
        ours = self._leased_job(job.scope.user, job.id, job.lease)
        return _copy_job(self._set(ours, state=JobState.WAITING, tries=ours.tries - 1, due_at=now(), **_IDLE))

    async def job(self, user: str, id: str) -> Job:
        self._check_open()
        job = self._jobs.get(id)
        if job is None or job.scope.user != user:
            raise NotFound(f"no job {id}")
        return _copy_job(job)

    async def jobs(
        self, user: str | None = None, *, states: Sequence[JobState] = (), limit: int = 100, before: str | None = None
    ) -> list[Job]:
        self._check_open()
        matching = [
            _copy_job(job)
            for job in sorted(self._jobs.values(), key=lambda job: job.id, reverse=True)
            if user in (None, job.scope.user)
            and (not states or job.state in states)
            and (before is None or job.id < before)
        ]
        return matching[: validate_limit(limit)]

    async def replay(self, user: str, ids: Sequence[str]) -> list[Job]:
        requeue = {"state": JobState.WAITING, "tries": 0, "due_at": now(), "error": None}
        return self._move(user, ids, (JobState.DEAD, JobState.CANCELLED), requeue)

    async def cancel(self, user: str, ids: Sequence[str]) -> list[Job]:
        return self._move(user, ids, (JobState.WAITING, JobState.RUNNING), {"state": JobState.CANCELLED})

    def _move(self, user: str, ids: Sequence[str], which: Sequence[JobState], fields: Mapping[str, Any]) -> list[Job]:
        self._check_open()
        candidates = (self._jobs[id] for id in dict.fromkeys(ids) if id in self._jobs)
        selected = [job for job in candidates if job.scope.user == user and job.state in which]
        return [_copy_job(self._set(job, **fields, **_IDLE)) for job in selected]

    async def job_stats(self, user: str | None = None) -> JobStats:
        self._check_open()
        mine = [job for job in self._jobs.values() if user in (None, job.scope.user)]
        counts = Counter(job.state for job in mine)
        at = now()
        oldest = min((due for job in mine if (due := _next_at(job)) and job.priority >= 0), default=at)
        failures = [self._failures_of(name) for name in (list(self._failures) if user is None else [user])]
        return JobStats(
            waiting=counts[JobState.WAITING],
            running=counts[JobState.RUNNING],
            dead=counts[JobState.DEAD],
            oldest_due_age_s=max((at - oldest).total_seconds(), 0.0),
            failures_in_a_row=max(failures, default=0),
            due=sum((due := _next_at(job)) is not None and due <= at for job in mine),
        )

    async def prune_jobs(self, before: datetime) -> int:
        self._check_open()
        over = (JobState.DONE, JobState.CANCELLED)
        pruned = [job.id for job in self._jobs.values() if job.state in over and job.updated_at < before]
        for id in pruned:
            del self._jobs[id]
        return len(pruned)


def _next_at(job: Job) -> datetime | None:
    """When it is worth looking at the job again."""
    return job.leased_until or (job.due_at if job.state is JobState.WAITING else None)


def _copy_job(job: Job) -> Job:
    result = None if job.result is None else plain_copy(job.result)
    return replace(job, payload=plain_copy(job.payload), result=result)
