"""Upkeep of many users as the ledger in memory knows of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from recollect.ledger.jobs import CHORES, UPKEEP, Begun, Tended, chore_of
from recollect.ledger.memory_replies import MemoryReplies
from recollect.ledger.memory_work import MemoryWork
from recollect.model.job import Job, JobState, NewJob
from recollect.model.query import checked_limit
from recollect.model.scope import Scope
from recollect.model.times import now


class MemoryChores(MemoryWork, MemoryReplies):
    """What is due is told by looking through everything."""

    def __init__(self) -> None:
        super().__init__()
        MemoryReplies.__init__(self)
        self._moments: dict[str, datetime] = {}

    def _is_known(self, scope: Scope) -> bool:
        if scope.user not in self._users:
            return False
        sessions = self._users[scope.user].conversations
        if scope.session:
            return (scope.project, scope.session) in sessions
        return not scope.project or any(project == scope.project for project, _ in sessions)

    async def tended(self, *, after: str = "", limit: int = 100) -> list[Tended]:
        self._check_open()
        found = []
        for name in sorted(name for name in self._users if name > after)[: checked_limit(limit)]:
            user = self._users[name]
            heard = next((entry.at for entry in reversed(user.entries) if entry.by.who != UPKEEP), None)
            chores = {place[1:]: begun for place, begun in self._chores.items() if place[0] == name}
            projects = sorted({project for project, _ in user.conversations})
            found.append(Tended(user=name, heard_at=heard, projects=tuple(projects), chores=chores))
        return found

    async def tend(self, due: Sequence[tuple[Scope, NewJob]]) -> int:
        self._check_open()
        queued = [each for each in due if self._is_known(each[0]) and self._may_be_made(*each)]
        for scope, new in queued:
            self._put(scope, new)
            if chore := chore_of(new):
                place = (scope.user, scope.project, chore)
                self._chores[place] = replace(self._chores.get(place, Begun(now())), queued_at=now())
        return len(queued)

    def _may_be_made(self, scope: Scope, new: NewJob) -> bool:
        """Whether no dead job stands in the way; a chore's is brought back to life, to be joined."""
        alike = (JobState.DEAD, scope.user, new.kind, new.key)
        same = [job for job in self._jobs.values() if (job.state, job.scope.user, job.kind, job.key) == alike]
        dead: Job | None = max(same, key=lambda job: job.id, default=None)
        if dead is None:
            return True
        if new.kind in CHORES:
            self._set(dead, state=JobState.WAITING, tries=0, due_at=now(), error=None)
            return True
        said = self._users[scope.user].conversations.get((scope.project, scope.session))
        return said is not None and said.last_turn_at is not None and said.last_turn_at > dead.updated_at

    async def moments(self) -> Mapping[str, datetime]:
        self._check_open()
        written = [user.entries[-1] for user in self._users.values() if user.entries]
        last = {"written": max(written, key=lambda entry: entry.id).at} if written else {}
        return {**self._moments, **last}

    async def note_moments(self, moments: Mapping[str, datetime | None]) -> None:
        self._check_open()
        known = {**self._moments, **moments}
        self._moments = {name: at for name, at in known.items() if at is not None}

    async def prune_replies(self, before: datetime) -> int:
        self._check_open()
        pruned = self._drop_old(before)
        for user in self._users.values():
            old = [key for key, (_, _, at) in user.done.items() if at < before]
            for key in old:
                del user.done[key]
            pruned += len(old)
        return pruned
