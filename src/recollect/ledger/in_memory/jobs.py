"""Jobs as the ledger in memory keeps them: looked through from end to end each time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, assert_never

from recollect.errors import Conflict, NotFound
from recollect.ledger.cascade import mentions_any
from recollect.ledger.idempotency import KeyClaim, key_reuse_error
from recollect.ledger.in_memory.rows import UserState, plain_copy
from recollect.ledger.jobs import (
    FAILURE_WINDOW,
    MAINTENANCE_AUTHOR,
    MAINTENANCE_KINDS,
    MaintenanceState,
    TaskRun,
    maintenance_task_name,
)
from recollect.model.change import ConversationUpdate, Effect, EnqueueJob, FinishJob, IdempotencyToken, ModelUsage
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
from recollect.model.turn import Conversation
from recollect.model.usage import Part, SpentToday, Usage, day_from_number, day_number, validate_parts

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


_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)


class MemoryEffects(MemoryJobs):
    """The plainest reading of `Jobs`."""

    _users: dict[str, UserState]

    def __init__(self) -> None:
        super().__init__()
        # Calls, tokens in, tokens out by user, day, model and step.
        self._spent: defaultdict[tuple[str, int, str, str], tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
        # What all users spent together, by day: it stays when one of them goes.
        self._spent_by_all: defaultdict[int, SpentToday] = defaultdict(SpentToday)

    async def conversations(
        self,
        user: str | None = None,
        *,
        open: bool | None = None,
        idle_before: datetime | None = None,
        order: Literal["oldest", "newest"] = "oldest",
        limit: int = 100,
        after: Conversation | None = None,
    ) -> list[Conversation]:
        self._check_open()
        newest = order == "newest"
        stored = [
            each
            for name, stored in self._users.items()
            if user in (None, name)
            for each in stored.conversations.values()
        ]
        selected = [
            each
            for each in sorted(stored, key=_sort_key, reverse=newest)
            if (open is None or open is (each.closed_at is None))
            and (idle_before is None or (each.last_turn_at is not None and each.last_turn_at < idle_before))
            and (
                after is None
                or (_sort_key(each) < _sort_key(after) if newest else _sort_key(each) > _sort_key(after))
            )
        ]
        return selected[: validate_limit(limit)]

    async def usage(
        self,
        user: str | None = None,
        *,
        since: datetime | None = None,
        by: Sequence[Part] = ("day", "model", "step"),
    ) -> list[Usage]:
        self._check_open()
        parts = validate_parts(by)
        sums: dict[tuple[Any, ...], tuple[int, int, int]] = {}
        for (who, day, model, step), (calls, tokens_in, tokens_out) in self._spent.items():
            if user in (None, who) and (since is None or day >= day_number(since)):
                fields = {"user": who, "day": day, "model": model, "step": step}
                key = tuple(fields[part] for part in parts)
                before = sums.get(key, (0, 0, 0))
                sums[key] = (before[0] + calls, before[1] + tokens_in, before[2] + tokens_out)
        return [_sum(parts, key, sums[key]) for key in sorted(sums)]

    async def spent_today(self, user: str | None) -> SpentToday:
        self._check_open()
        today = day_number(now())
        if user is None:
            return self._spent_by_all.get(today, SpentToday())
        mine = [spent for (who, day, _, _), spent in self._spent.items() if (who, day) == (user, today)]
        return SpentToday(sum(each[1] + each[2] for each in mine), sum(each[0] for each in mine))

    @contextmanager
    def _all_or_none(self, user: UserState) -> Iterator[None]:
        """Take back what was done to jobs, conversations and usage if something goes wrong inside."""
        before = (
            dict(self._jobs),
            self._failures.copy(),
            self._spent.copy(),
            self._spent_by_all.copy(),
            dict(user.conversations),
            dict(self._task_runs),
        )
        try:
            yield
        except BaseException:
            self._jobs, self._failures, self._spent, self._spent_by_all, user.conversations, self._task_runs = before
            raise

    def _apply_effects(self, scope: Scope, user: UserState, effects: Sequence[Effect]) -> None:
        # A job can outlive the session it was made for, which must not come back by it.
        from_job = any(isinstance(effect, FinishJob) for effect in effects)
        for effect in effects:
            match effect:
                case FinishJob():
                    self._finish(scope.user, effect.job_id, effect.lease, effect.result)
                case ConversationUpdate():
                    if not from_job or (effect.scope.project, effect.scope.session) in user.conversations:
                        _apply_note(user, effect)
                case EnqueueJob():
                    self._put_job(effect.scope, effect.job)
                case ModelUsage():
                    key = (effect.user, day_number(effect.at), repair_text(effect.model), repair_text(effect.step))
                    calls, tokens_in, tokens_out = self._spent[key]
                    self._spent[key] = (
                        calls + effect.calls,
                        tokens_in + effect.tokens_in,
                        tokens_out + effect.tokens_out,
                    )
                    self._add_to_daily_total([effect])
                case _:
                    assert_never(effect)

    def _add_to_daily_total(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ModelUsage):
                day = day_number(effect.at)
                before, tokens = self._spent_by_all[day], effect.tokens_in + effect.tokens_out
                self._spent_by_all[day] = SpentToday(before.tokens + tokens, before.calls + effect.calls)


def _apply_note(user: UserState, note: ConversationUpdate) -> None:
    session = (note.scope.project, note.scope.session)
    conversation = user.conversations.get(session, Conversation(scope=note.scope))
    if note.expected_version is not None and conversation.version != note.expected_version:
        raise Conflict(
            f"the conversation is at version {conversation.version}, not {note.expected_version}: "
            f"read it again and retry"
        )
    fields = dict(note.fields)
    if "invocations" in fields:
        fields["invocations"] = tuple(plain_copy(each) for each in fields["invocations"])
    if "metadata" in fields:
        fields["metadata"] = plain_copy(fields["metadata"])
    user.conversations[session] = replace(conversation, **fields, version=conversation.version + 1)


def _sort_key(conversation: Conversation) -> tuple[datetime, str, str, str]:
    scope = conversation.scope
    return conversation.last_turn_at or _EPOCH_START, scope.user, scope.project, scope.session


def _sum(parts: tuple[str, ...], key: tuple[Any, ...], sums: tuple[int, int, int]) -> Usage:
    fields = dict(zip(parts, key, strict=True))
    if "day" in fields:
        fields["day"] = day_from_number(fields["day"])
    return Usage(**fields, calls=sums[0], tokens_in=sums[1], tokens_out=sums[2])


class MemoryIdempotency:
    """A key holds nothing while its request is done, and then the answer."""

    def __init__(self) -> None:
        self._replies: dict[tuple[str, str], tuple[IdempotencyToken, dict[str, Any] | None, datetime]] = {}

    def _user(self, name: str) -> UserState:
        raise NotImplementedError

    async def claim_key(self, user: str, once: IdempotencyToken, *, stale_before: datetime | None = None) -> KeyClaim:
        owner = self._user(user)
        slot = (user, once.key)
        if once.key in owner.done:
            raise key_reuse_error(once)
        if slot in self._replies:
            first, answer, at = self._replies[slot]
            if first.digest != once.digest:
                raise key_reuse_error(once)
            if answer is not None:
                return KeyClaim(answer=plain_copy(answer))
            if stale_before is None or at >= stale_before:
                return KeyClaim()
        self._replies[slot] = (once, None, now())
        return KeyClaim(is_owner=True, epoch=owner.epoch)

    async def store_answer(
        self, user: str, once: IdempotencyToken, answer: Mapping[str, Any], *, since: int | None = None
    ) -> None:
        if since is not None and self._user(user).epoch != since:
            await self.release_key(user, once)
        elif (user, once.key) in self._replies:
            self._replies[user, once.key] = (once, plain_copy(answer), self._replies[user, once.key][2])

    async def release_key(self, user: str, once: IdempotencyToken) -> None:
        claim = self._replies.get((user, once.key))
        if claim is not None and claim[0] == once and claim[1] is None:
            del self._replies[user, once.key]

    def _check_key(self, user: str, once: IdempotencyToken) -> None:
        """Raise if the key was taken for a request of another kind."""
        if (user, once.key) in self._replies:
            raise key_reuse_error(once)

    def _drop_answers(self, user: str, ids: Collection[str] | None = None) -> int:
        """Drop the answers of a user that name one of these, or all; gives how many."""
        answers = {slot: answer for slot, (_, answer, _) in self._replies.items() if slot[0] == user}
        return self._drop([slot for slot, answer in answers.items() if ids is None or mentions_any(answer, ids)])

    def _drop_old(self, before: datetime) -> int:
        return self._drop([slot for slot, (_, _, at) in self._replies.items() if at < before])

    def _drop(self, slots: list[tuple[str, str]]) -> int:
        for slot in slots:
            del self._replies[slot]
        return len(slots)


class MemoryMaintenance(MemoryEffects, MemoryIdempotency):
    """What is due is told by looking through everything."""

    def __init__(self) -> None:
        super().__init__()
        MemoryIdempotency.__init__(self)
        self._maintenance_times: dict[str, datetime] = {}

    def _scope_exists(self, scope: Scope) -> bool:
        if scope.user not in self._users:
            return False
        sessions = self._users[scope.user].conversations
        if scope.session:
            return (scope.project, scope.session) in sessions
        return not scope.project or any(project == scope.project for project, _ in sessions)

    async def maintenance_states(self, *, after: str = "", limit: int = 100) -> list[MaintenanceState]:
        self._check_open()
        states = []
        for name in sorted(name for name in self._users if name > after)[: validate_limit(limit)]:
            user = self._users[name]
            last_active = next(
                (entry.at for entry in reversed(user.entries) if entry.by.who != MAINTENANCE_AUTHOR), None
            )
            tasks = {key[1:]: run for key, run in self._task_runs.items() if key[0] == name}
            projects = sorted({project for project, _ in user.conversations})
            states.append(
                MaintenanceState(user=name, last_active_at=last_active, projects=tuple(projects), tasks=tasks)
            )
        return states

    async def enqueue_due(self, due: Sequence[tuple[Scope, NewJob]]) -> int:
        self._check_open()
        queued = [each for each in due if self._scope_exists(each[0]) and self._can_enqueue(*each)]
        for scope, new in queued:
            self._put_job(scope, new)
            if task := maintenance_task_name(new):
                key = (scope.user, scope.project, task)
                self._task_runs[key] = replace(self._task_runs.get(key, TaskRun(now())), queued_at=now())
        return len(queued)

    def _can_enqueue(self, scope: Scope, new: NewJob) -> bool:
        """Whether no dead job stands in the way; a chore's is brought back to life, to be joined."""
        alike = (JobState.DEAD, scope.user, new.kind, new.key)
        same = [job for job in self._jobs.values() if (job.state, job.scope.user, job.kind, job.key) == alike]
        dead: Job | None = max(same, key=lambda job: job.id, default=None)
        if dead is None:
            return True
        if new.kind in MAINTENANCE_KINDS:
            self._set(dead, state=JobState.WAITING, tries=0, due_at=now(), error=None)
            return True
        conversation = self._users[scope.user].conversations.get((scope.project, scope.session))
        return (
            conversation is not None
            and conversation.last_turn_at is not None
            and conversation.last_turn_at > dead.updated_at
        )

    async def maintenance_times(self) -> Mapping[str, datetime]:
        self._check_open()
        latest_entries = [user.entries[-1] for user in self._users.values() if user.entries]
        last = {"written": max(latest_entries, key=lambda entry: entry.id).at} if latest_entries else {}
        return {**self._maintenance_times, **last}

    async def record_maintenance_times(self, times: Mapping[str, datetime | None]) -> None:
        self._check_open()
        merged = {**self._maintenance_times, **times}
        self._maintenance_times = {name: at for name, at in merged.items() if at is not None}

    async def prune_idempotency_keys(self, before: datetime) -> int:
        self._check_open()
        pruned = self._drop_old(before)
        for user in self._users.values():
            old = [key for key, (_, _, at) in user.done.items() if at < before]
            for key in old:
                del user.done[key]
            pruned += len(old)
        return pruned
