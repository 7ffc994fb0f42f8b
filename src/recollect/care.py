"""What keeps a memory in order behind the doors: jobs and who does them, conversations, review, erasure, upkeep."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect import remember
from recollect.conversation import afterwards, begun
from recollect.conversation.run import Run as AgentRun
from recollect.conversation.thread import Threads
from recollect.erasing import Erasing, Mirrored
from recollect.errors import Backlog, RecollectError
from recollect.index.engine_index import feeder_of, trouble_of
from recollect.learning_model import LearningModels, affordable, learn_with_model
from recollect.ledger.allowance import refusal
from recollect.model.change import By, Outcome
from recollect.model.effect import Finish, Spent
from recollect.model.erase import Erase, Erasure, Receipt, Target
from recollect.model.job import Job, JobKind, JobState, JobStats, NewJob
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation
from recollect.model.usage import Part, SpentToday, Usage
from recollect.read.again import Again
from recollect.remember import Learning
from recollect.reviewing import Reviewing
from recollect.upkeep import chores
from recollect.upkeep.chores import Housekeeping
from recollect.upkeep.model_change import ModelChange
from recollect.upkeep.quota import is_over
from recollect.upkeep.report import Chore, Report
from recollect.upkeep.run import Run
from recollect.upkeep.timekeeper import Timekeeper
from recollect.upkeep.worker import Patience, Worker
from recollect.write.counted import counted_extraction
from recollect.write.deps import Deps
from recollect.write.embed import given_vector
from recollect.write.triggers import closing

if TYPE_CHECKING:
    from recollect.model.change import Vector

_log = logging.getLogger("recollect")

_LOOK_AGAIN_S = 0.05
_TRIES_AWAITED = 3
_LAST_JOBS = 100
_MOST_JOBS = 1000
_GRACE_S = 5.0
_JUST_S = 60.0
_LOOK_EVERY_S = 1.0
_MOST_LOOKED_AT = 10_000
_OVER = (JobState.DONE, JobState.DEAD, JobState.CANCELLED)


class Care(Reviewing):
    """The work behind the answers, and what people do to a memory as a whole."""

    def __init__(
        self,
        means: Deps,
        learning: Learning,
        house: Housekeeping | None = None,
        *,
        jobs_at_once: int = 4,
        patience: Patience | None = None,
        most_waiting: int = 1000,
        spill: Path | None = None,
        again: Again | None = None,
        models: LearningModels | None = None,
    ) -> None:
        super().__init__(means, learning.redacting)
        self._learning = learning
        # Where jobs learn with models of their own: those of the chats that brought them.
        self.models = models
        self._house = house or Housekeeping()
        self._most_waiting = most_waiting
        self._looked_at: dict[str, float] = {}
        # Where memories are files as well: what is erased goes there, too.
        self.mirror: Mirrored | None = None
        self._erasing = Erasing(means, learning, spill=spill, again=again)
        self.threads = Threads(means.ledger)
        self.worker = Worker(means.ledger, self._do, at_once=jobs_at_once, patience=patience)
        self.timekeeper = Timekeeper(means.ledger, self._house)
        self.model_change: ModelChange | None = None
        self.feeder = feeder_of(means.index)

    def start(self) -> None:
        """Begin to do jobs and to keep the time, until this is closed."""
        self.worker.start()
        self.timekeeper.start()
        if self.model_change is not None:
            self.model_change.start()
        if self.feeder is not None:
            self.feeder.start()

    async def keep_within_quotas(self, scope: Scope) -> None:
        """Have what is too much forgotten before whoever added to it goes on, where there are quotas."""
        quotas = self._house.quotas
        if not quotas.least or not await is_over(scope, ledger=self._ledger, quotas=quotas):
            return
        try:
            just = Run(since=now() - timedelta(seconds=_JUST_S))
            if not (await self._chore(Chore.QUOTA, Scope(scope.user), just)).more:
                return
        except RecollectError as error:
            # What was added is kept, whatever becomes of this.
            _log.warning("what is over a quota goes later: %s", error)
        payload = {"chore": str(Chore.QUOTA), "after": None}
        job = NewJob(kind=JobKind.UPKEEP, key=str(Chore.QUOTA), payload=payload)
        await self._ledger.enqueue(Scope(scope.user), [job], known_only=True)
        self.worker.nudge()

    async def _do(self, job: Job) -> Mapping[str, Any]:
        match job.kind:
            case JobKind.EXTRACT | JobKind.SUMMARISE | JobKind.CLOSE:
                return await learn_with_model(job, self._means, self._learning, self.models, self._learn)
            case JobKind.UPKEEP | JobKind.CONSOLIDATE | JobKind.REFLECT:
                return await self._do_chore(job)

    async def _learn(self, job: Job, means: Deps, learning: Learning) -> Mapping[str, Any]:
        if job.kind is JobKind.EXTRACT:
            with counted_extraction():
                told = await remember.learn(job, means, learning)
            await self.keep_within_quotas(job.scope)
            return told
        if job.kind is JobKind.CLOSE and await remember.learn_told(job.scope, means, learning):
            await self.keep_within_quotas(job.scope)
        step = afterwards.end if job.kind is JobKind.CLOSE else afterwards.sum_up
        return await step(job, await affordable(job.scope.user, means, learning), learning.after)

    async def _do_chore(self, job: Job) -> Mapping[str, Any]:
        chore = Chore(job.payload.get("chore", str(job.kind)))
        after = job.payload.get("after")
        # What a job is queued for was written a moment before.
        since = job.created_at - timedelta(seconds=_JUST_S)
        run = Run(effects=(Finish(job.id, job.lease or "", {"chore": str(chore)}),), since=since)
        report = await self._chore(chore, job.scope, run, after=datetime.fromisoformat(after) if after else None)
        if (more := chores.again(job, report)) is not None:
            await self._ledger.enqueue(job.scope, [more], known_only=True)
        return report.to_dict()

    async def _chore(self, chore: Chore, scope: Scope, run: Run, *, after: datetime | None = None) -> Report:
        means = await affordable(scope.user, self._means, self._learning)
        return await chores.do(
            chore,
            scope,
            run,
            self._house,
            ledger=means.ledger,
            index=means.index,
            embedder=means.embedder,
            chat=means.chat,
            after=after,
        )

    @property
    def index_trouble(self) -> str:
        """Why vectors are searched in another way than they could be; empty if they are not."""
        return trouble_of(self._means.index)

    # Jobs

    async def finished(self, user: str, id: str, *, within_s: float) -> Job:
        """The job once it is over or has failed a few times, or as it stands after so long.

        It is done now, whatever it was put off for. What goes on failing is tried again, but that can take minutes.
        """
        job = await self._ledger.job(user, id)
        if job.state is JobState.WAITING and not job.tries and job.due_at > now():
            await self._ledger.enqueue(job.scope, [NewJob(kind=job.kind, key=job.key)])
        self.worker.start()
        self.worker.nudge()
        deadline = asyncio.get_running_loop().time() + within_s
        while True:
            job = await self._ledger.job(user, id)
            failed = job.state is JobState.WAITING and job.error is not None and job.tries >= _TRIES_AWAITED
            if failed or job.state in _OVER or asyncio.get_running_loop().time() >= deadline:
                return job
            # Someone else may do it, so that we hear nothing of it.
            await self.worker.next_end(within_s=_LOOK_AGAIN_S)

    async def all_finished(self, job: Job, *, within_s: float) -> Job:
        """The same for what may be done in several parts, a job each: the last of them."""
        deadline = asyncio.get_running_loop().time() + within_s
        while True:
            left_s = max(0.0, deadline - asyncio.get_running_loop().time())
            job = await self.finished(job.scope.user, job.id, within_s=left_s)
            more = job.state is JobState.DONE and (job.result or {}).get("more")
            rest = await self._rest_of(job) if more else None
            if rest is None:
                return job
            job = rest

    async def _rest_of(self, done: Job) -> Job | None:
        """The job that goes on with what a job did a part of."""
        jobs = await self._ledger.jobs(done.scope.user, limit=_MOST_JOBS)
        others = [job for job in jobs if (job.kind, job.key) == (done.kind, done.key) and job.id != done.id]
        # It was queued as this one ended. Where none is under way any more, the newest was the last.
        under_way = (job for job in others if job.state not in _OVER)
        return next(under_way, next((job for job in others if job.id > done.id), None))

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
        self.worker.nudge()
        return replayed

    async def cancel(self, user: str, ids: Sequence[str]) -> list[Job]:
        """Keep jobs from having any effect."""
        return await self._ledger.cancel(user, ids)

    async def check_backlog(self, user: str) -> None:
        """Raise a Backlog if more is due for this user than may be; looked at now and then, for it takes a moment."""
        moment = asyncio.get_running_loop().time()
        if moment - self._looked_at.get(user, -_LOOK_EVERY_S) < _LOOK_EVERY_S:
            return
        if len(self._looked_at) > _MOST_LOOKED_AT:
            self._looked_at.clear()
        due = (await self._ledger.job_stats(user)).due
        if due >= self._most_waiting:
            raise Backlog(f"{due:,} jobs of this user are due already: let a worker do some, then try again")
        self._looked_at[user] = moment

    async def work_off(self) -> int:
        """Do what is due now, chores and sessions that ended by themselves with it; gives how many jobs that were."""
        await self.timekeeper.tick()
        done = await self.worker.work_off()
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

    async def begin_session(self, scope: Scope, *, by: By) -> Conversation:
        """A session that there is before anything is said in it; one that there was stays as it is."""
        return await begun.begin(scope, ledger=self._ledger, by=by)

    async def session(self, scope: Scope) -> Conversation:
        """A session of which something was kept, or a NotFound."""
        return await begun.check_begun(scope, ledger=self._ledger)

    async def end_session(self, scope: Scope) -> Job:
        """Have a session ended: what is left is learned, its episode is written, what matters is promoted."""
        conversation = await self.session(scope)
        jobs = [closing(scope)]
        if conversation.learned_to < conversation.turn_count and self._learning.by != "off":
            jobs.insert(0, remember.learning_now(scope))
        *_, job = await self._ledger.enqueue(scope, jobs)
        self.worker.nudge()
        return job

    async def tell_invocation(self, scope: Scope, invocation: Mapping[str, str]) -> None:
        """Add to a conversation what an invocation of an agent came to, as the agent tells it, but for secrets."""
        clean = {name: self._learning.redacting.said(text)[0] for name, text in invocation.items()}
        await afterwards.tell(scope, clean, self._means)

    async def end_run(self, scope: Scope, run: AgentRun) -> tuple[Outcome, ...]:
        """Keep what an agent's run came to: an episode with goal, steps, outcome and lessons, if it was a task."""
        means = await affordable(scope.user, self._means, self._learning)
        return await afterwards.end_run(scope, run, means, self._learning.after)

    async def vectors_of(self, questions: Sequence[str]) -> list[Vector | None]:
        """The vectors of questions, made at once for several searches; None for each while the embedder is away."""
        try:
            return list(await self._means.embedder.embed(questions, role="query"))
        except RecollectError:
            return [None] * len(questions)

    async def given_vector(self, embedding: Sequence[float] | None) -> Vector | None:
        """A vector that a caller brings along, if it is of the model that is searched."""
        if embedding is None:
            return None
        return await given_vector(embedding, self._means.embedder.model, ledger=self._ledger)

    async def sessions(self, user: str, *, limit: int = 100, after: Conversation | None = None) -> list[Conversation]:
        """A user's conversations, the latest first; `after` ended the page before."""
        return await self._ledger.conversations(user, order="newest", limit=limit, after=after)

    # Upkeep

    async def upkeep(
        self,
        scope: Scope,
        wanted: Sequence[Chore],
        *,
        by: By,
        dry_run: bool = False,
        progress: Callable[[int], None] = lambda done: None,
    ) -> list[Report]:
        """Do chores now, one after the other; each is one change that can be undone."""
        return [await self._chore(chore, scope, Run(by=by, dry_run=dry_run, progress=progress)) for chore in wanted]

    # Erasing

    async def bring_in_spilled(self, user: str) -> None:
        """Have in the ledger what a server on this machine has spilled of the user, so that it is forgotten, too."""
        await self._erasing.bring_in_spilled(user)

    async def erase(self, scope: Scope, what: Erase, *, by: By) -> Receipt:
        """Remove something for good, with all that was derived from it, and what waits to be kept of it."""
        what.check(scope)
        await self._erasing.bring_in_spilled(scope.user)
        if what.target is Target.SESSION:
            await self.session(scope)
        return await self._let_go(await self._erasing.erase(scope, what, by=by))

    async def erasures(self, since: datetime | None = None) -> list[Erasure]:
        """What was erased of anyone, oldest first, to be done again on a copy that is older."""
        return await self._ledger.erasures(since)

    async def replay_erasures(self, erasures: Sequence[Erasure], *, by: By) -> list[Receipt]:
        """Do those erasures again that this ledger does not know of: it was restored from an older copy."""
        return [await self._let_go(receipt) for receipt in await self._erasing.replay(erasures, by=by)]

    async def _let_go(self, receipt: Receipt) -> Receipt:
        self._looked_at.pop(receipt.scope.user, None)
        self.threads.forget(receipt.scope.user)
        if self.models is not None:
            self.models.forget(receipt.scope.user)
        self.worker.nudge()
        if self.mirror is None:
            return receipt
        return replace(receipt, stores=(*receipt.stores, await self.mirror.forget(receipt.scope.user)))

    # Cost

    async def refusal(self, user: str) -> str:
        """Why no LLM is to be asked for the user any more today; empty if one may be."""
        return await refusal(self._ledger, user, self._learning.allowance)

    async def put_down(self, spent: Spent) -> None:
        """Put down what an LLM was asked for a user outside of our own steps."""
        await self._ledger.apply(Scope(spent.user), [], by=By(spent.step), effects=[spent])

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
        await self.timekeeper.stop()
        if self.feeder is not None:
            await self.feeder.stop()
        if self.model_change is not None:
            await self.model_change.stop()
        if self.worker.is_running:
            await self._stop_working()
        if self.mirror is not None:
            await self.mirror.close()

    async def _stop_working(self) -> None:
        try:
            if self._means.chat is None and not (self.models and self.models.is_ready):
                # Without a model it takes milliseconds, and whoever comes next finds it learned.
                async with asyncio.timeout(_GRACE_S):
                    await self.worker.work_off(most=_LAST_JOBS)
        except TimeoutError:
            pass
        except RecollectError as error:
            _log.warning("what is left to learn is left to the next one to open this: %s", error)
        finally:
            await self.worker.stop(grace_s=_GRACE_S)
