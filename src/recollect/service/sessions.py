"""Sessions: begin, end, list; runs and invocations of agents in them."""

from __future__ import annotations

import builtins
from collections.abc import Mapping

from recollect import remember
from recollect.deps import Deps
from recollect.model.change import Author, ConversationUpdate, Outcome
from recollect.model.job import Job
from recollect.model.scope import Scope
from recollect.model.turn import Conversation
from recollect.remember import LearningConfig
from recollect.service.jobs import JobService
from recollect.service.learning_models import deps_within_budget
from recollect.sessions import lifecycle
from recollect.sessions.agent_runs import RunRecord
from recollect.sessions.resolve import SessionResolver
from recollect.write.triggers import close_job


class SessionService:
    """The conversations of users. `resolver` matches the messages of a chat to a session."""

    def __init__(self, deps: Deps, learning: LearningConfig, jobs: JobService) -> None:
        self._deps, self._ledger = deps, deps.ledger
        self._learning = learning
        self._jobs = jobs
        self.resolver = SessionResolver(deps.ledger)

    async def begin(self, scope: Scope, *, by: Author) -> Conversation:
        """Return the session, created if it does not exist."""
        return await lifecycle.begin_session(scope, ledger=self._ledger, by=by)

    async def get(self, scope: Scope) -> Conversation:
        """Return an existing session, or raise `NotFound`."""
        return await lifecycle.require_session(scope, ledger=self._ledger)

    async def list(
        self, user: str, *, session: str | None = None, limit: int = 100, after: Conversation | None = None
    ) -> builtins.list[Conversation]:
        """Return the sessions of a user, latest first; `after` is the last of the page before.

        With `session`, those with this id in any project.
        """
        return await self._ledger.conversations(user, session=session, order="newest", limit=limit, after=after)

    async def end(self, scope: Scope) -> Job:
        """Enqueue the end of a session: extraction from its last turns, its episode, promotion."""
        conversation = await self.get(scope)
        jobs = [close_job(scope)]
        if conversation.learned_to < conversation.turn_count and self._learning.by != "off":
            jobs.insert(0, remember.immediate_learning_job(scope))
        *_, job = await self._ledger.enqueue(scope, jobs)
        self._jobs.worker.wake()
        return job

    async def set_summary(self, scope: Scope, summary: str, *, by: Author) -> None:
        """Replace the running summary of a session; the next turns are summarised on top of it."""
        update = ConversationUpdate(scope, {"summary": summary})
        await self._ledger.apply(scope, [], by=by, effects=[update])

    async def record_invocation(self, scope: Scope, invocation: Mapping[str, str]) -> None:
        """Add an agent's report of an invocation to a session, without secrets."""
        redactor = self._learning.redactor
        clean = {name: (await redactor.redact_turn_text(text))[0] for name, text in invocation.items()}
        await lifecycle.record_invocation(scope, clean, self._deps)

    async def end_run(self, scope: Scope, run: RunRecord) -> tuple[Outcome, ...]:
        """Store an agent's run as an episode with goal, steps, outcome and lessons, if it was a task."""
        deps = await deps_within_budget(scope.user, self._deps, self._learning)
        return await lifecycle.end_run(scope, run, deps, self._learning.sessions)
