"""What is done with a conversation beside learning from it: compress it, sum it up, keep its episode at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.conversation import compress as compressing
from recollect.conversation.close import close
from recollect.conversation.episodes import episode_of_run, episode_of_talk
from recollect.conversation.promote import promote
from recollect.conversation.run import Run
from recollect.conversation.summarise import invocations, summarise, summary_id
from recollect.conversation.written import Written, mark_of, noted
from recollect.index.protocol import Index
from recollect.ledger.protocol import Ledger, Revision
from recollect.model.change import By, Change, Outcome
from recollect.model.effect import Effect, Finish, Note, Queue, Spent
from recollect.model.erase import Remade
from recollect.model.job import Job, JobKind, NewJob
from recollect.model.memory import Category
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation, Turn
from recollect.models.chat import Chat
from recollect.models.embedding import Embedder
from recollect.write.embed import with_vectors
from recollect.write.settling.neighbours import DISTILLED
from recollect.write.triggers import job_key

BY = "conversation"
_MOST_TURNS = 1000
_MOST_PROMOTED = 1000


@dataclass(frozen=True, slots=True)
class Means:
    """What writing needs: the ledger, the index for neighbours, an embedder, and a chat model if there is one."""

    ledger: Ledger
    index: Index
    embedder: Embedder
    chat: Chat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Afterwards:
    """When a conversation is compressed and summed up, 0 for never; what of it stays when it ends.

    What matters from `promote_from` on goes to the long term then, nothing if it is None.
    """

    compress_every: int = 20
    compress_keep: int = 10
    summary_every: int = 0
    invocations: bool = False
    episode: bool = True
    tasks: bool = False
    promote_from: float | None = 0.6
    timeout_s: float | None = None

    def is_due(self, conversation: Conversation) -> bool:
        """Whether there is anything to compress or to sum up."""
        compress = self.compress_every and compressing.is_due(
            conversation, every=self.compress_every, keep=self.compress_keep
        )
        unsummed = conversation.turn_count - mark_of(conversation, "summary")
        return bool(compress) or self.invocations or bool(self.summary_every and unsummed >= self.summary_every)


def remaking(lost: Remade) -> NewJob | None:
    """The job that makes anew what an erasure took along though some of its sources stay; None if none need be."""
    key = job_key(lost.scope)
    if lost.kind == "conversation":
        return NewJob(kind=JobKind.SUMMARISE, key=key)
    if lost.kind != Category.EPISODE or lost.turns is None:
        return None
    first, last = lost.turns
    return NewJob(kind=JobKind.SUMMARISE, key=f"{key} {first}-{last}", payload={"first": first, "last": last})


async def sum_up(job: Job, means: Means, habits: Afterwards) -> Mapping[str, Any]:
    """Compress what is due, bring the running summary and the invocations up to date, and finish the job."""
    scope, ledger = job.scope, means.ledger
    since = await ledger.revision(scope.user)
    conversation = await ledger.conversation(scope)
    written: list[Written] = []
    if "first" in job.payload:
        turns = await _turns_after(scope, job.payload["first"] - 1, means)
        left = [turn for turn in turns if turn.position <= job.payload["last"]]
        again = await compressing.remake(scope, left, chat=means.chat, now=now(), timeout_s=habits.timeout_s)
        return await _write(job, conversation, [again], means, since=since)
    if habits.compress_every:
        turns = await _turns_after(scope, mark_of(conversation, "compress"), means)
        written.append(
            await compressing.compress(
                conversation,
                turns,
                chat=means.chat,
                now=now(),
                every=habits.compress_every,
                keep=habits.compress_keep,
                timeout_s=habits.timeout_s,
            )
        )
    if habits.summary_every:
        turns = await _turns_after(scope, mark_of(conversation, "summary"), means)
        held = next(iter(await ledger.get(scope, [summary_id(scope)])), None)
        written.append(
            await summarise(
                conversation,
                turns,
                chat=means.chat,
                now=now(),
                held=held,
                every=habits.summary_every,
                timeout_s=habits.timeout_s,
            )
        )
    if habits.invocations:
        turns = await _turns_after(scope, max(0, conversation.turn_count - _MOST_TURNS), means)
        written.append(invocations(conversation, turns, now=now()))
    return await _write(job, conversation, written, means, since=since)


async def end(job: Job, means: Means, habits: Afterwards) -> Mapping[str, Any]:
    """End a conversation: its episode, what of it goes to the long-term level, and the end of the job."""
    scope, ledger = job.scope, means.ledger
    since = await ledger.revision(scope.user)
    conversation = await ledger.conversation(scope)
    turns = await _turns_after(scope, mark_of(conversation, "close"), means)
    written: list[Written] = [Written(fields={"closed_at": now()})]
    if habits.episode:
        written = [await close(conversation, turns, chat=means.chat, now=now(), timeout_s=habits.timeout_s)]
    if habits.tasks:
        written.append(
            await episode_of_talk(conversation, turns, chat=means.chat, now=now(), timeout_s=habits.timeout_s)
        )
    if habits.promote_from is not None:
        listing = Listing(filter=DISTILLED, visible=True, limit=_MOST_PROMOTED)
        memories = list(await ledger.find(scope, listing))
        promoted = promote(scope, memories, conversation, now=now(), least_importance=habits.promote_from)
        written.append(Written(changes=tuple(promoted)))
    return await _write(job, conversation, written, means, since=since)


async def end_run(scope: Scope, run: Run, means: Means, habits: Afterwards) -> tuple[Outcome, ...]:
    """Keep what a run came to with its conversation, and as an episode if it was a task; twice is once."""
    ledger = means.ledger
    since = await ledger.revision(scope.user)
    conversation = await ledger.conversation(scope)
    written = await episode_of_run(conversation, run, chat=means.chat, now=now(), timeout_s=habits.timeout_s)
    changes = await with_vectors(written.changes, embedder=means.embedder)
    effects = [*_spent(scope, "run", [written]), *_notes(scope, conversation, [written])]
    applied = await ledger.apply(scope, changes, by=By(BY, "the end of a run"), effects=effects, since=since)
    return applied.outcomes


async def _turns_after(scope: Scope, position: int, means: Means) -> list[Turn]:
    return await means.ledger.turns(scope, after=position, limit=_MOST_TURNS)


async def _write(
    job: Job, conversation: Conversation, written: Sequence[Written], means: Means, *, since: Revision
) -> Mapping[str, Any]:
    """Apply all of it with the end of the job, in one transaction."""
    scope = job.scope
    changes: list[Change] = [change for each in written for change in each.changes]
    told = {"changes": len(changes), "reasons": [reason for each in written for reason in each.reasons]}
    effects = [*_spent(scope, str(job.kind), written), *_notes(scope, conversation, written)]
    if any(each.left for each in written):
        effects.append(Queue(scope, NewJob(kind=JobKind.SUMMARISE, key=job_key(scope))))
    effects.append(Finish(job.id, job.lease or "", told))
    changes = await with_vectors(changes, embedder=means.embedder)
    await means.ledger.apply(scope, changes, by=By(BY, str(job.kind)), effects=effects, since=since)
    return told


def _spent(scope: Scope, step: str, written: Sequence[Written]) -> list[Effect]:
    return [
        Spent(
            user=scope.user,
            step=step,
            model=each.cost.model,
            calls=each.cost.calls,
            tokens_in=each.cost.tokens_in,
            tokens_out=each.cost.tokens_out,
            at=now(),
        )
        for each in written
        if each.cost.calls
    ]


def _notes(scope: Scope, conversation: Conversation, written: Sequence[Written]) -> list[Effect]:
    fields = noted(conversation, written)
    return [Note(scope, fields)] if fields else []
