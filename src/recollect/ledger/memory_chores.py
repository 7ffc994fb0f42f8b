"""Upkeep of many users as the ledger in memory knows of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from recollect.ledger.jobs import (
    MAINTENANCE_AUTHOR,
    MAINTENANCE_KINDS,
    MaintenanceState,
    TaskRun,
    maintenance_task_name,
)
from recollect.ledger.memory_replies import MemoryIdempotency
from recollect.ledger.memory_work import MemoryEffects
from recollect.model.job import Job, JobState, NewJob
from recollect.model.query import validate_limit
from recollect.model.scope import Scope
from recollect.model.times import now


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
