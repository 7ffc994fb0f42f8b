"""The chat model of each learning job, and the fallback to extraction without one.

A server without an `llm` of its own may use the model of the chat that the turns came from
(`http/upstream/learning.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from recollect.deps import Deps
from recollect.errors import BrokenAnswer, InvalidInput, ModelUnavailable
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.ledger import Ledger, quota_exceeded_reason
from recollect.model.change import Author, ModelUsage
from recollect.model.job import Job
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.usage import LlmQuota
from recollect.models.chat import LearningChat
from recollect.remember import LearningConfig

# How many tries a model that does not answer gets before the job is done without it.
_MAX_TRIES = 3
# `learn` does not fall back by itself here; `learn_with_model` does.
_UNLIMITED = 1 << 30
_BY = Author("extraction")

# Returns the latest jobs of a user, or of all users, newest first.
RecentJobs: TypeAlias = Callable[[str | None], Awaitable[list[Job]]]
Learn: TypeAlias = Callable[[Job, Deps, LearningConfig], Awaitable[Mapping[str, Any]]]


@frozen_dataclass(kw_only=True)
class ModelChoice:
    """The model of one job, or the reason why there is none."""

    chat: LearningChat | None = None
    reason: str = ""


class LearningModels(Protocol):
    """Choose the model of each learning job, and track which ones fail."""

    @property
    def is_ready(self) -> bool:
        """Whether the next job is likely to have a model."""
        ...

    @property
    def allowance(self) -> LlmQuota:
        """The daily limits of these models."""
        ...

    @property
    def wait_s(self) -> float:
        """How long a job waits for more turns, so that one LLM call covers them."""
        ...

    async def choose(self, job: Job, recent_jobs: RecentJobs) -> ModelChoice:
        """Return the model for a job; `recent_jobs` record which models chats used."""
        ...

    def accept(self, scope: Scope, chat: LearningChat) -> None:
        """Record that the model worked for a job."""
        ...

    def reject(self, scope: Scope, chat: LearningChat, error: Exception) -> str:
        """Skip the model for some minutes; return the reason, without secrets."""
        ...

    def forget(self, user: str) -> None:
        """Drop the model recorded for a user."""
        ...


def with_chat_model(learning: LearningConfig, model: str, models: LearningModels | None) -> LearningConfig:
    """Return the config with the model of the chat in its jobs, and a delay while models are ready."""
    if models is None:
        return learning
    triggers = replace(learning.triggers, model=model)
    if models.is_ready:
        triggers = replace(triggers, wait_s=models.wait_s)
    return replace(learning, triggers=triggers)


async def learn_with_model(
    job: Job, deps: Deps, learning: LearningConfig, models: LearningModels | None, learn: Learn
) -> Mapping[str, Any]:
    """Run a learning job with the model that `models` chooses, or without one if that fails."""
    if models is None or learning.by == "off":
        return await learn(job, deps, learning)
    choice = await models.choose(job, deps.ledger.jobs)
    chat = choice.chat
    if chat is None:
        return await learn(job, deps, _without_model(learning, choice.reason))
    with_llm = replace(
        learning, by="llm", small=chat.is_small, allowance=models.allowance, tries=max(learning.tries, _UNLIMITED)
    )
    try:
        result = await learn(job, replace(deps, chat=chat), with_llm)
    except (InvalidInput, ModelUnavailable) as error:
        if chat.error is None and not (chat.calls and isinstance(error, BrokenAnswer)):
            # The embedder or the ledger failed.
            raise
        is_temporary = chat.rejected is None and not isinstance(error, BrokenAnswer | InvalidInput)
        if is_temporary and job.tries < _MAX_TRIES:
            # An open circuit breaker counts as a try too: the selector learns in place of a model that stays away.
            raise ModelUnavailable(str(error)) from error
        reason = models.reject(job.scope, chat, error)
    else:
        if chat.calls and chat.error is None:
            models.accept(job.scope, chat)
        return result
    await _record_cost(job, chat, deps.ledger)
    return await learn(job, deps, _without_model(learning, reason))


async def deps_within_budget(user: str, deps: Deps, learning: LearningConfig) -> Deps:
    """Return the dependencies without the chat model if the daily limit is reached or the model is small."""
    if deps.chat is not None and (
        learning.small or await quota_exceeded_reason(deps.ledger, user, learning.allowance)
    ):
        return replace(deps, chat=None)
    return deps


def _without_model(learning: LearningConfig, reason: str) -> LearningConfig:
    """Return a config for built-in extraction; the job's result has the reason."""
    if not reason:
        return learning
    sessions = learning.sessions
    if not sessions.compress_without_llm:
        sessions = sessions.model_copy(update={"compress_every": 0})
    return replace(learning, by="llm", small=False, allowance=LlmQuota(refusal=reason), sessions=sessions)


async def _record_cost(job: Job, chat: LearningChat, ledger: Ledger) -> None:
    """Record the cost of the rejected answer; the steps record all others."""
    if (answer := chat.rejected) is not None:
        spent = ModelUsage(
            user=job.scope.user,
            step=str(job.kind),
            model=chat.model,
            calls=1,
            tokens_in=answer.tokens_in,
            tokens_out=answer.tokens_out,
            at=now(),
        )
        await ledger.apply(job.scope, [], by=_BY, effects=[spent])
