"""Background work: the worker, the scheduler, the handlers of each kind of job, and maintenance on demand."""

from __future__ import annotations

import asyncio
import builtins
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias

from recollect import remember
from recollect.config.fields import MaintenanceSettings
from recollect.deps import Deps
from recollect.errors import Backlog, BrokenAnswer, InvalidInput, ModelUnavailable, RecollectError
from recollect.index.vector_store_index import sync_of
from recollect.ledger.ledger import Ledger, quota_exceeded_reason
from recollect.maintenance import scheduler
from recollect.maintenance.embedding_migration import EmbeddingMigration
from recollect.maintenance.forgetting import is_over_quota, min_quota
from recollect.maintenance.scheduler import MaintenanceSchedule, Scheduler
from recollect.maintenance.tasks import MaintenanceReport, MaintenanceRun, MaintenanceTask, parse_tasks
from recollect.maintenance.worker import RetryPolicy, Worker
from recollect.model.change import Author, FinishJob, ModelUsage
from recollect.model.job import Job, JobKind, JobState, JobStats, MaintenancePayload, NewJob
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.usage import LlmQuota
from recollect.models.chat import GuardedChat, LearningChat
from recollect.observability import metrics
from recollect.observability.tracing import span
from recollect.remember import LearningConfig
from recollect.sessions import lifecycle

__all__ = ["JobService", "MaintenanceReport", "MaintenanceTask", "RetryPolicy", "Worker", "parse_tasks"]
_log = logging.getLogger("recollect")
# How many tries a model that does not answer gets before the job is done without it.
_MAX_TRIES = 3
# `learn` does not fall back by itself here; `learn_with_model` does.
_UNLIMITED = 1 << 30
_BY = Author("extraction")

# Returns the latest jobs of a user, or of all users, newest first.
RecentJobs: TypeAlias = Callable[[str | None], Awaitable[list[Job]]]
Learn: TypeAlias = Callable[[Job, Deps, LearningConfig], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """The model of one job, or the reason why there is none."""

    chat: LearningChat | None = None
    reason: str = ""


class LearningModels(Protocol):
    """Choose the model of each learning job, and track which ones fail."""

    @property
    def is_ready(self) -> bool:
        """Whether the next job is likely to have a model."""

    @property
    def allowance(self) -> LlmQuota:
        """The daily limits of these models."""

    @property
    def wait_s(self) -> float:
        """How long a job waits for more turns, so that one LLM call covers them."""

    async def choose(self, job: Job, recent_jobs: RecentJobs) -> ModelChoice:
        """Return the model for a job; `recent_jobs` record which models chats used."""

    def accept(self, scope: Scope, chat: LearningChat) -> None:
        """Record that the model worked for a job."""

    def reject(self, scope: Scope, chat: LearningChat, error: Exception) -> str:
        """Skip the model for some minutes; return the reason, without secrets."""

    def forget(self, user: str) -> None:
        """Drop the model recorded for a user."""


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


_JOB_POLL_S = 0.05
MAX_AWAITED_TRIES = 3
_MAX_JOBS_AT_CLOSE = 100
_MAX_JOBS = 1000
_GRACE_S = 5.0
_RECENT_S = 60.0
BACKLOG_CHECK_INTERVAL_S = 1.0
_MAX_BACKLOG_CHECKS = 10_000
_FINAL_STATES = (JobState.DONE, JobState.DEAD, JobState.CANCELLED)


class JobService:
    """Run jobs in the background, list them, and wait for them."""

    def __init__(
        self,
        deps: Deps,
        learning: LearningConfig,
        settings: MaintenanceSettings | None = None,
        *,
        schedule: MaintenanceSchedule | None = None,
        retry_policy: RetryPolicy | None = None,
        models: LearningModels | None = None,
        migration: EmbeddingMigration | None = None,
    ) -> None:
        self._deps, self._ledger = deps, deps.ledger
        self._learning = learning
        self._settings = settings = settings or MaintenanceSettings()
        # The models of the chats that the turns came from, for servers without an LLM of their own.
        self._models = models
        self._migration = migration
        self._backlog_checked_at: dict[str, float] = {}
        self.worker = Worker(
            deps.ledger,
            self._run_job,
            max_concurrent=settings.worker_jobs,
            retry_policy=retry_policy or RetryPolicy(lease_s=settings.job_lease_s, tries=settings.job_tries),
            kinds=self._runnable_kinds,
        )
        self.scheduler = Scheduler(deps.ledger, schedule or MaintenanceSchedule(), forget_days=settings.forget_days)
        self.index_sync = sync_of(deps.index)

    def start(self) -> None:
        """Start the worker, the scheduler, the index synchronisation and the embedding migration."""
        self.worker.start()
        self.scheduler.start()
        if self._migration is not None:
            self._migration.start()
        if self.index_sync is not None:
            self.index_sync.start()

    async def stop(self) -> None:
        """Stop them; running jobs get a moment to finish."""
        await self.scheduler.stop()
        if self.index_sync is not None:
            await self.index_sync.stop()
        if self._migration is not None:
            await self._migration.stop()
        if self.worker.is_running:
            await self._stop_worker()

    async def _stop_worker(self) -> None:
        try:
            if self._deps.chat is None and not (self._models and self._models.is_ready):
                # Without a model the pending jobs take milliseconds, and the next process finds them done.
                async with asyncio.timeout(_GRACE_S):
                    await self.worker.run_pending(max_jobs=_MAX_JOBS_AT_CLOSE)
        except TimeoutError:
            pass
        except RecollectError as error:
            _log.warning("pending jobs are left to the next process: %s", error)
        finally:
            await self.worker.stop(grace_s=_GRACE_S)

    async def run_pending(self) -> int:
        """Run the jobs that are due now, with scheduled maintenance and ended sessions; return their number."""
        await self.scheduler.tick()
        done = await self.worker.run_pending()
        if self.index_sync is not None:
            await self.index_sync.catch_up()
        return done

    # Handlers of jobs

    def _runnable_kinds(self) -> Sequence[JobKind] | None:
        """Return the kinds that need no LLM while its circuit breaker is open, with the others as its probes."""
        return [JobKind.UPKEEP] if self._llm_wait_s else None

    @property
    def _llm_wait_s(self) -> float:
        chat = self._deps.chat
        return chat.breaker.retry_after_s if isinstance(chat, GuardedChat) else 0.0

    async def _run_job(self, job: Job) -> Mapping[str, Any]:
        match job.kind:
            case JobKind.EXTRACT | JobKind.SUMMARISE | JobKind.CLOSE:
                return await learn_with_model(job, self._deps, self._learning, self._models, self._run_learning_job)
            case JobKind.UPKEEP | JobKind.CONSOLIDATE | JobKind.REFLECT:
                return await self._run_maintenance_job(job)

    async def _run_learning_job(self, job: Job, deps: Deps, learning: LearningConfig) -> Mapping[str, Any]:
        if job.kind is JobKind.EXTRACT:
            with _count_extraction():
                report = await remember.learn(job, deps, learning)
            await self.enforce_quotas(job.scope)
            return report
        if job.kind is JobKind.CLOSE and await remember.learn_from_agent_notes(job.scope, deps, learning):
            await self.enforce_quotas(job.scope)
        step = lifecycle.end_session if job.kind is JobKind.CLOSE else lifecycle.summarize_session
        return await step(job, await deps_within_budget(job.scope.user, deps, learning), learning.sessions)

    async def _run_maintenance_job(self, job: Job) -> Mapping[str, Any]:
        payload = job.payload if isinstance(job.payload, MaintenancePayload) else MaintenancePayload(chore=job.kind)
        task = MaintenanceTask(payload.chore)
        # The records that a job was enqueued for were written shortly before it.
        since = job.created_at - timedelta(seconds=_RECENT_S)
        run = MaintenanceRun(effects=(FinishJob(job.id, job.lease or "", {"chore": str(task)}),), since=since)
        report = await self._run_task(task, job.scope, run, after=payload.after)
        if (follow_up := scheduler.follow_up_job(job, report)) is not None:
            await self._ledger.enqueue(job.scope, [follow_up], existing_only=True)
        return report.to_dict()

    async def _run_task(
        self, task: MaintenanceTask, scope: Scope, run: MaintenanceRun, *, after: datetime | None = None
    ) -> MaintenanceReport:
        deps = await deps_within_budget(scope.user, self._deps, self._learning)
        return await scheduler.run_task(task, scope, run, self._settings, deps, after=after)

    async def run_maintenance(
        self, scope: Scope, tasks: Sequence[MaintenanceTask], *, by: Author, dry_run: bool = False
    ) -> builtins.list[MaintenanceReport]:
        """Run maintenance tasks now, one after the other; each is one change that can be undone."""
        return [await self._run_task(task, scope, MaintenanceRun(by=by, dry_run=dry_run)) for task in tasks]

    async def enforce_quotas(self, scope: Scope) -> Set[str]:
        """Forget memories over the quotas now, and the rest, if there are too many, in a job; return their ids."""
        quotas, forgotten = self._settings, set[str]()
        if not min_quota(quotas) or not await is_over_quota(scope, ledger=self._ledger, quotas=quotas):
            return forgotten
        try:
            run = MaintenanceRun(since=now() - timedelta(seconds=_RECENT_S))
            report = await self._run_task(MaintenanceTask.QUOTA, scope, run)
            forgotten = {step.id for step in report.steps}
            if not report.more:
                return forgotten
        except RecollectError as error:
            # The write that exceeded the quota succeeded.
            _log.warning("the memory quota is enforced later: %s", error)
        quota = str(MaintenanceTask.QUOTA)
        job = NewJob(kind=JobKind.UPKEEP, key=quota, payload=MaintenancePayload(chore=quota))
        await self._ledger.enqueue(Scope(scope.user), [job], existing_only=True)
        self.worker.wake()
        return forgotten

    # Jobs of users

    async def get(self, user: str, id: str) -> Job:
        return await self._ledger.job(user, id)

    async def list(
        self, user: str | None = None, *, states: Sequence[JobState] = (), limit: int = 100, before: str | None = None
    ) -> builtins.list[Job]:
        """Return the jobs of a user or of all users, newest first."""
        return await self._ledger.jobs(user, states=states, limit=limit, before=before)

    async def replay(self, user: str, ids: Sequence[str]) -> builtins.list[Job]:
        """Queue dead and cancelled jobs."""
        replayed = await self._ledger.replay(user, ids)
        self.worker.wake()
        return replayed

    async def cancel(self, user: str, ids: Sequence[str]) -> builtins.list[Job]:
        """Cancel jobs; they have no effect."""
        return await self._ledger.cancel(user, ids)

    async def stats(self, user: str | None = None) -> JobStats:
        """Return the numbers of jobs by state, and recent failures."""
        return await self._ledger.job_stats(user)

    async def wait(self, user: str, id: str, *, within_s: float) -> Job:
        """Run a job now and return it when it ended or failed several times, or its state after `within_s`."""
        job = await self._ledger.job(user, id)
        if job.state is JobState.WAITING and not job.tries and job.due_at > now():
            await self._ledger.enqueue(job.scope, [NewJob(kind=job.kind, key=job.key)])
        self.worker.start()
        self.worker.wake()
        clock = asyncio.get_running_loop().time
        deadline = clock() + within_s
        while True:
            job = await self._ledger.job(user, id)
            has_failed = job.tries >= MAX_AWAITED_TRIES or self._llm_wait_s > 0
            failed = job.state is JobState.WAITING and job.error is not None and has_failed
            if failed or job.state in _FINAL_STATES or clock() >= deadline:
                return job
            # Another process may run it, which this worker does not notice.
            await self.worker.wait_for_job_end(within_s=_JOB_POLL_S)

    async def wait_for_chain(self, job: Job, *, within_s: float) -> Job:
        """Wait for a job and for those that continue it; return the last one."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + within_s
        while True:
            job = await self.wait(job.scope.user, job.id, within_s=max(0.0, deadline - clock()))
            is_continued = job.state is JobState.DONE and (job.result or {}).get("more")
            following = await self._next_in_chain(job) if is_continued else None
            if following is None:
                return job
            job = following

    async def _next_in_chain(self, done: Job) -> Job | None:
        jobs = await self._ledger.jobs(done.scope.user, limit=_MAX_JOBS)
        siblings = [job for job in jobs if (job.kind, job.key) == (done.kind, done.key) and job.id != done.id]
        # It was enqueued when this one ended. If none is unfinished, the newest one is the last.
        unfinished = (job for job in siblings if job.state not in _FINAL_STATES)
        return next(unfinished, next((job for job in siblings if job.id > done.id), None))

    async def check_backlog(self, user: str) -> None:
        """Raise `Backlog` if too many jobs of the user are due; checked at most once a second."""
        moment = asyncio.get_running_loop().time()
        if moment - self._backlog_checked_at.get(user, -BACKLOG_CHECK_INTERVAL_S) < BACKLOG_CHECK_INTERVAL_S:
            return
        if len(self._backlog_checked_at) > _MAX_BACKLOG_CHECKS:
            self._backlog_checked_at.clear()
        due = (await self._ledger.job_stats(user)).due
        if due >= (limit := self._settings.max_waiting_jobs):
            raise Backlog(f"{due:,} jobs of this user are due, the limit is {limit:,}: start a worker, or retry")
        self._backlog_checked_at[user] = moment

    def forget_user(self, user: str) -> None:
        """Clear the caches of a user, after an erasure."""
        self._backlog_checked_at.pop(user, None)
        if self._models is not None:
            self._models.forget(user)
        self.worker.wake()


@contextmanager
def _count_extraction() -> Iterator[None]:
    """Count the block as one extraction, and an exception as its error."""
    metrics.EXTRACTIONS.add()
    try:
        with span("recollect.learn"):
            yield
    except Exception:
        metrics.EXTRACTION_ERRORS.add()
        raise
    metrics.EXTRACTED.add()
