"""What waits for a person: proposed, looked at, changed, approved or rejected."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect import remember
from recollect.deps import Deps
from recollect.errors import Backlog, RecollectError
from recollect.index.vector_store_index import last_index_error, sync_of
from recollect.ledger.llm_quota import quota_exceeded_reason
from recollect.maintenance import reviews, scheduler
from recollect.maintenance.embedding_migration import EmbeddingMigration
from recollect.maintenance.quota import is_over_quota
from recollect.maintenance.reviews import ReviewResult
from recollect.maintenance.scheduler import MaintenanceConfig, Scheduler
from recollect.maintenance.tasks import MaintenanceReport, MaintenanceRun, MaintenanceTask
from recollect.maintenance.worker import RetryPolicy, Worker
from recollect.model.change import Author, FinishJob, ModelUsage, Outcome
from recollect.model.erasure import Erasure, ErasureRequest, Receipt, Target
from recollect.model.job import Job, JobKind, JobState, JobStats, NewJob
from recollect.model.result import Page
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation
from recollect.model.usage import Part, SpentToday, Usage
from recollect.read.result_cache import ResultCache
from recollect.remember import LearningConfig
from recollect.service.erasure import ErasureService, MirrorFiles
from recollect.service.learning_models import LearningModels, deps_within_budget, learn_with_model
from recollect.sessions import lifecycle
from recollect.sessions.agent_runs import RunRecord as AgentRun
from recollect.sessions.resolve import SessionResolver
from recollect.write.embed import accept_vector
from recollect.write.metering import count_extraction
from recollect.write.redact import Redactor
from recollect.write.triggers import close_job

if TYPE_CHECKING:
    from recollect.model.change import Vector


class ReviewOperations:
    """Memories that are not used before somebody has looked at them."""

    def __init__(self, deps: Deps, redactor: Redactor) -> None:
        self._deps = deps
        self._ledger = deps.ledger
        self._redacting = redactor

    async def reviews(self, scope: Scope, *, limit: int = 100, cursor: str | None = None) -> Page:
        """What waits for a person to look at it, oldest first."""
        return await reviews.list_reviews(scope, ledger=self._ledger, limit=limit, cursor=cursor)

    async def propose(self, scope: Scope, content: str, fields: Mapping[str, Any], *, by: Author) -> Outcome:
        """Keep a memory that is not used before a person has looked at it."""
        return await reviews.propose(
            scope,
            content,
            fields,
            by=self._redacting.redact_author(by),
            ledger=self._ledger,
            embedder=self._deps.embedder,
            redactor=self._redacting,
        )

    async def approve(
        self, scope: Scope, id: str, *, by: Author, expected_version: int | None = None
    ) -> ReviewResult:
        """Let a memory that waited for review be recalled from now on; the door vouches that a person says so."""
        by = self._redacting.redact_author(by)
        return await reviews.approve(scope, id, by=by, ledger=self._ledger, expected_version=expected_version)

    async def edit_review(
        self, scope: Scope, id: str, fields: Mapping[str, Any], *, by: Author, expected_version: int | None = None
    ) -> ReviewResult:
        """Change what a memory that waits for review says; it goes on waiting."""
        return await reviews.edit(
            scope,
            id,
            fields,
            by=by,
            ledger=self._ledger,
            embedder=self._deps.embedder,
            redactor=self._redacting,
            expected_version=expected_version,
        )

    async def reject(self, scope: Scope, id: str, *, by: Author, expected_version: int | None = None) -> ReviewResult:
        """Forget a memory that waited for review, unused."""
        by = self._redacting.redact_author(by)
        return await reviews.reject(scope, id, by=by, ledger=self._ledger, expected_version=expected_version)


_log = logging.getLogger("recollect")

_JOB_POLL_S = 0.05
_MAX_AWAITED_TRIES = 3
_MAX_JOBS_AT_CLOSE = 100
_MAX_JOBS = 1000
_GRACE_S = 5.0
_RECENT_S = 60.0
_BACKLOG_CHECK_INTERVAL_S = 1.0
_MAX_BACKLOG_CHECKS = 10_000
_FINAL_STATES = (JobState.DONE, JobState.DEAD, JobState.CANCELLED)


class Operations(ReviewOperations):
    """The work behind the answers, and what people do to a memory as a whole."""

    def __init__(
        self,
        deps: Deps,
        learning: LearningConfig,
        maintenance: MaintenanceConfig | None = None,
        *,
        max_concurrent_jobs: int = 4,
        retry_policy: RetryPolicy | None = None,
        max_waiting_jobs: int = 1000,
        spill: Path | None = None,
        result_cache: ResultCache | None = None,
        models: LearningModels | None = None,
    ) -> None:
        super().__init__(deps, learning.redactor)
        self._learning = learning
        # Where jobs learn with models of their own: those of the chats that brought them.
        self.models = models
        self._maintenance = maintenance or MaintenanceConfig()
        self._max_waiting_jobs = max_waiting_jobs
        self._backlog_checked_at: dict[str, float] = {}
        # Where memories are files as well: what is erased goes there, too.
        self.mirror: MirrorFiles | None = None
        self._erasure = ErasureService(deps, learning, spill=spill, result_cache=result_cache)
        self.session_resolver = SessionResolver(deps.ledger)
        self.worker = Worker(
            deps.ledger, self._run_job, max_concurrent=max_concurrent_jobs, retry_policy=retry_policy
        )
        self.scheduler = Scheduler(deps.ledger, self._maintenance)
        self.embedding_migration: EmbeddingMigration | None = None
        self.feeder = sync_of(deps.index)

    def start(self) -> None:
        """Begin to do jobs and to keep the time, until this is closed."""
        self.worker.start()
        self.scheduler.start()
        if self.embedding_migration is not None:
            self.embedding_migration.start()
        if self.feeder is not None:
            self.feeder.start()

    async def enforce_quotas(self, scope: Scope) -> None:
        """Have what is too much forgotten before whoever added to it goes on, where there are quotas."""
        quotas = self._maintenance.quotas
        if not quotas.min_limit or not await is_over_quota(scope, ledger=self._ledger, quotas=quotas):
            return
        try:
            run = MaintenanceRun(since=now() - timedelta(seconds=_RECENT_S))
            if not (await self._run_task(MaintenanceTask.QUOTA, Scope(scope.user), run)).more:
                return
        except RecollectError as error:
            # What was added is kept, whatever becomes of this.
            _log.warning("what is over a quota goes later: %s", error)
        payload = {"chore": str(MaintenanceTask.QUOTA), "after": None}
        job = NewJob(kind=JobKind.UPKEEP, key=str(MaintenanceTask.QUOTA), payload=payload)
        await self._ledger.enqueue(Scope(scope.user), [job], existing_only=True)
        self.worker.wake()

    async def _run_job(self, job: Job) -> Mapping[str, Any]:
        match job.kind:
            case JobKind.EXTRACT | JobKind.SUMMARISE | JobKind.CLOSE:
                return await learn_with_model(job, self._deps, self._learning, self.models, self._run_learning_job)
            case JobKind.UPKEEP | JobKind.CONSOLIDATE | JobKind.REFLECT:
                return await self._run_maintenance_job(job)

    async def _run_learning_job(self, job: Job, deps: Deps, learning: LearningConfig) -> Mapping[str, Any]:
        if job.kind is JobKind.EXTRACT:
            with count_extraction():
                report = await remember.learn(job, deps, learning)
            await self.enforce_quotas(job.scope)
            return report
        if job.kind is JobKind.CLOSE and await remember.learn_from_agent_notes(job.scope, deps, learning):
            await self.enforce_quotas(job.scope)
        step = lifecycle.end_session if job.kind is JobKind.CLOSE else lifecycle.summarize_session
        return await step(job, await deps_within_budget(job.scope.user, deps, learning), learning.after)

    async def _run_maintenance_job(self, job: Job) -> Mapping[str, Any]:
        task = MaintenanceTask(job.payload.get("chore", str(job.kind)))
        after = job.payload.get("after")
        # What a job is queued for was written a moment before.
        since = job.created_at - timedelta(seconds=_RECENT_S)
        run = MaintenanceRun(effects=(FinishJob(job.id, job.lease or "", {"chore": str(task)}),), since=since)
        report = await self._run_task(task, job.scope, run, after=datetime.fromisoformat(after) if after else None)
        if (follow_up := scheduler.follow_up_job(job, report)) is not None:
            await self._ledger.enqueue(job.scope, [follow_up], existing_only=True)
        return report.to_dict()

    async def _run_task(
        self, task: MaintenanceTask, scope: Scope, run: MaintenanceRun, *, after: datetime | None = None
    ) -> MaintenanceReport:
        deps = await deps_within_budget(scope.user, self._deps, self._learning)
        return await scheduler.run_task(task, scope, run, self._maintenance, deps, after=after)

    @property
    def index_trouble(self) -> str:
        """Why vectors are searched in another way than they could be; empty if they are not."""
        return last_index_error(self._deps.index)

    # Jobs

    async def wait_for_job(self, user: str, id: str, *, within_s: float) -> Job:
        """The job once it is over or has failed a few times, or as it stands after so long.

        It is done now, whatever it was put off for. What goes on failing is tried again, but that can take minutes.
        """
        job = await self._ledger.job(user, id)
        if job.state is JobState.WAITING and not job.tries and job.due_at > now():
            await self._ledger.enqueue(job.scope, [NewJob(kind=job.kind, key=job.key)])
        self.worker.start()
        self.worker.wake()
        deadline = asyncio.get_running_loop().time() + within_s
        while True:
            job = await self._ledger.job(user, id)
            failed = job.state is JobState.WAITING and job.error is not None and job.tries >= _MAX_AWAITED_TRIES
            if failed or job.state in _FINAL_STATES or asyncio.get_running_loop().time() >= deadline:
                return job
            # Someone else may do it, so that we hear nothing of it.
            await self.worker.wait_for_job_end(within_s=_JOB_POLL_S)

    async def wait_for_job_chain(self, job: Job, *, within_s: float) -> Job:
        """The same for what may be done in several parts, a job each: the last of them."""
        deadline = asyncio.get_running_loop().time() + within_s
        while True:
            left_s = max(0.0, deadline - asyncio.get_running_loop().time())
            job = await self.wait_for_job(job.scope.user, job.id, within_s=left_s)
            more = job.state is JobState.DONE and (job.result or {}).get("more")
            rest = await self._next_in_chain(job) if more else None
            if rest is None:
                return job
            job = rest

    async def _next_in_chain(self, done: Job) -> Job | None:
        """The job that goes on with what a job did a part of."""
        jobs = await self._ledger.jobs(done.scope.user, limit=_MAX_JOBS)
        siblings = [job for job in jobs if (job.kind, job.key) == (done.kind, done.key) and job.id != done.id]
        # It was queued as this one ended. Where none is under way any more, the newest was the last.
        unfinished = (job for job in siblings if job.state not in _FINAL_STATES)
        return next(unfinished, next((job for job in siblings if job.id > done.id), None))

    async def job(self, user: str, id: str) -> Job:
        """One job."""
        return await self._ledger.job(user, id)

    async def jobs(
        self, user: str | None = None, *, states: Sequence[JobState] = (), limit: int = 100, before: str | None = None
    ) -> list[Job]:
        """Jobs of a user or of all, newest first."""
        return await self._ledger.jobs(user, states=states, limit=limit, before=before)

    async def replay(self, user: str, ids: Sequence[str]) -> list[Job]:
        """Have dead and cancelled jobs done after all."""
        replayed = await self._ledger.replay(user, ids)
        self.worker.wake()
        return replayed

    async def cancel(self, user: str, ids: Sequence[str]) -> list[Job]:
        """Keep jobs from having any effect."""
        return await self._ledger.cancel(user, ids)

    async def check_backlog(self, user: str) -> None:
        """Raise a Backlog if more is due for this user than may be; looked at now and then, for it takes a moment."""
        moment = asyncio.get_running_loop().time()
        if moment - self._backlog_checked_at.get(user, -_BACKLOG_CHECK_INTERVAL_S) < _BACKLOG_CHECK_INTERVAL_S:
            return
        if len(self._backlog_checked_at) > _MAX_BACKLOG_CHECKS:
            self._backlog_checked_at.clear()
        due = (await self._ledger.job_stats(user)).due
        if due >= self._max_waiting_jobs:
            raise Backlog(f"{due:,} jobs of this user are due already: let a worker do some, then try again")
        self._backlog_checked_at[user] = moment

    async def run_pending(self) -> int:
        """Do what is due now, chores and sessions that ended by themselves with it; gives how many jobs that were."""
        await self.scheduler.tick()
        done = await self.worker.run_pending()
        if self.feeder is not None:
            await self.feeder.catch_up()
        return done

    async def job_stats(self, user: str | None = None) -> JobStats:
        """How much work there is."""
        return await self._ledger.job_stats(user)

    async def trouble(self) -> str:
        """What is wrong with the work behind the answers; empty if nothing is."""
        return (await self._ledger.job_stats()).trouble

    # Conversations

    async def begin_session(self, scope: Scope, *, by: Author) -> Conversation:
        """A session that there is before anything is said in it; one that there was stays as it is."""
        return await lifecycle.begin_session(scope, ledger=self._ledger, by=by)

    async def session(self, scope: Scope) -> Conversation:
        """A session of which something was kept, or a NotFound."""
        return await lifecycle.require_session(scope, ledger=self._ledger)

    async def end_session(self, scope: Scope) -> Job:
        """Have a session ended: what is left is learned, its episode is written, what matters is promoted."""
        conversation = await self.session(scope)
        jobs = [close_job(scope)]
        if conversation.learned_to < conversation.turn_count and self._learning.by != "off":
            jobs.insert(0, remember.immediate_learning_job(scope))
        *_, job = await self._ledger.enqueue(scope, jobs)
        self.worker.wake()
        return job

    async def record_invocation(self, scope: Scope, invocation: Mapping[str, str]) -> None:
        """Add to a conversation what an invocation of an agent came to, as the agent tells it, but for secrets."""
        clean = {name: self._learning.redactor.redact_turn_text(text)[0] for name, text in invocation.items()}
        await lifecycle.record_invocation(scope, clean, self._deps)

    async def end_run(self, scope: Scope, run: AgentRun) -> tuple[Outcome, ...]:
        """Keep what an agent's run came to: an episode with goal, steps, outcome and lessons, if it was a task."""
        deps = await deps_within_budget(scope.user, self._deps, self._learning)
        return await lifecycle.end_run(scope, run, deps, self._learning.after)

    async def embed_queries(self, questions: Sequence[str]) -> list[Vector | None]:
        """The vectors of questions, made at once for several searches; None for each while the embedder is away."""
        try:
            return list(await self._deps.embedder.embed(questions, role="query"))
        except RecollectError:
            return [None] * len(questions)

    async def check_embedding(self, embedding: Sequence[float] | None) -> Vector | None:
        """A vector that a caller brings along, if it is of the model that is searched."""
        if embedding is None:
            return None
        return await accept_vector(embedding, self._deps.embedder.model, ledger=self._ledger)

    async def sessions(self, user: str, *, limit: int = 100, after: Conversation | None = None) -> list[Conversation]:
        """A user's conversations, the latest first; `after` ended the page before."""
        return await self._ledger.conversations(user, order="newest", limit=limit, after=after)

    # Upkeep

    async def run_maintenance(
        self,
        scope: Scope,
        tasks: Sequence[MaintenanceTask],
        *,
        by: Author,
        dry_run: bool = False,
        progress: Callable[[int], None] = lambda done: None,
    ) -> list[MaintenanceReport]:
        """Do chores now, one after the other; each is one change that can be undone."""
        return [
            await self._run_task(task, scope, MaintenanceRun(by=by, dry_run=dry_run, progress=progress))
            for task in tasks
        ]

    # Erasing

    async def import_spilled(self, user: str) -> None:
        """Have in the ledger what a server on this machine has spilled of the user, so that it is forgotten, too."""
        await self._erasure.import_spilled(user)

    async def erase(self, scope: Scope, request: ErasureRequest, *, by: Author) -> Receipt:
        """Remove something for good, with all that was derived from it, and what waits to be kept of it."""
        request.check(scope)
        await self._erasure.import_spilled(scope.user)
        if request.target is Target.SESSION:
            await self.session(scope)
        return await self._clear_user_state(await self._erasure.erase(scope, request, by=by))

    async def erasures(self, since: datetime | None = None) -> list[Erasure]:
        """What was erased of anyone, oldest first, to be done again on a copy that is older."""
        return await self._ledger.erasures(since)

    async def replay_erasures(self, erasures: Sequence[Erasure], *, by: Author) -> list[Receipt]:
        """Do those erasures again that this ledger does not know of: it was restored from an older copy."""
        return [await self._clear_user_state(receipt) for receipt in await self._erasure.replay(erasures, by=by)]

    async def _clear_user_state(self, receipt: Receipt) -> Receipt:
        self._backlog_checked_at.pop(receipt.scope.user, None)
        self.session_resolver.forget(receipt.scope.user)
        if self.models is not None:
            self.models.forget(receipt.scope.user)
        self.worker.wake()
        if self.mirror is None:
            return receipt
        return replace(receipt, stores=(*receipt.stores, await self.mirror.forget(receipt.scope.user)))

    # Cost

    async def refusal(self, user: str) -> str:
        """Why no LLM is to be asked for the user any more today; empty if one may be."""
        return await quota_exceeded_reason(self._ledger, user, self._learning.allowance)

    async def record_usage(self, spent: ModelUsage) -> None:
        """Put down what an LLM was asked for a user outside of our own steps."""
        await self._ledger.apply(Scope(spent.user), [], by=Author(spent.step), effects=[spent])

    async def usage(
        self, user: str | None = None, *, since: datetime | None = None, by: Sequence[Part] = ("day", "model", "step")
    ) -> list[Usage]:
        """What models were asked, and what that came to."""
        return await self._ledger.usage(user, since=since, by=by)

    async def spent_today(self, user: str | None = None) -> SpentToday:
        """What models cost since midnight, UTC, for a user or for all."""
        return await self._ledger.spent_today(user)

    async def close(self) -> None:
        """Let what is under way end, and take no more."""
        await self.scheduler.stop()
        if self.feeder is not None:
            await self.feeder.stop()
        if self.embedding_migration is not None:
            await self.embedding_migration.stop()
        if self.worker.is_running:
            await self._stop_worker()
        if self.mirror is not None:
            await self.mirror.close()

    async def _stop_worker(self) -> None:
        try:
            if self._deps.chat is None and not (self.models and self.models.is_ready):
                # Without a model it takes milliseconds, and whoever comes next finds it learned.
                async with asyncio.timeout(_GRACE_S):
                    await self.worker.run_pending(max_jobs=_MAX_JOBS_AT_CLOSE)
        except TimeoutError:
            pass
        except RecollectError as error:
            _log.warning("what is left to learn is left to the next one to open this: %s", error)
        finally:
            await self.worker.stop(grace_s=_GRACE_S)
