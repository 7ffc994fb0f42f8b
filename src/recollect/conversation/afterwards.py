"""What is done with a conversation beside learning from it: compress it, sum it up, keep its episode at the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recollect.conversation import compress as compressing
from recollect.conversation.close import close, close_anew
from recollect.conversation.episodes import episode_of_run, episode_of_talk, episode_of_told
from recollect.conversation.promote import promote
from recollect.conversation.run import Run
from recollect.conversation.summarise import invocations, summarise, summary_id
from recollect.conversation.told import mark_for, told_since
from recollect.conversation.written import Step, Written, check_unchanged, mark_of, noted, untold
from recollect.errors import Conflict
from recollect.ledger.protocol import Revision
from recollect.model.change import By, Change, Outcome
from recollect.model.effect import Effect, Finish, Note, Queue, Spent
from recollect.model.erase import Remade
from recollect.model.job import Job, JobKind, NewJob
from recollect.model.memory import Category
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation, Turn
from recollect.write.billed import billed
from recollect.write.deps import Deps
from recollect.write.embed import with_vectors
from recollect.write.related import STATEMENTS
from recollect.write.screening.redact import redact
from recollect.write.triggers import job_key

BY = "conversation"
_MOST_TURNS = 1000
_MOST_PROMOTED = 1000
# However much is said meanwhile, it is written in the end: each try takes no longer than a read and a write.
_TRIES = 50
_PAUSE_S = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Afterwards:
    """When a conversation is compressed and summed up, 0 for never; what of it stays when it ends.

    What matters from `promote_from` on goes to the long term then, nothing if it is None. With `extracts`, what no
    model compresses becomes episodes that repeat what was said word for word.
    """

    compress_every: int = 20
    compress_keep: int = 10
    extracts: bool = True
    summary_every: int = 0
    invocations: bool = False
    episode: bool = True
    tasks: bool = False
    promote_from: float | None = 0.6
    timeout_s: float | None = None

    def is_due(self, conversation: Conversation, *, has_model: bool = True) -> bool:
        """Whether there is anything to compress or to sum up."""
        compresses = self.compress_every and (has_model or self.extracts)
        compress = compresses and compressing.is_due(conversation, every=self.compress_every, keep=self.compress_keep)
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
    payload = {"first": first, "last": last, "at_end": lost.at_end}
    told = " at the end" if lost.at_end else ""
    return NewJob(kind=JobKind.SUMMARISE, key=f"{key} {first}-{last}{told}", payload=payload)


async def sum_up(job: Job, means: Deps, habits: Afterwards) -> Mapping[str, Any]:
    """Compress what is due, bring the running summary and the invocations up to date, and finish the job."""
    written: list[Written] = []
    async with billed(means.ledger, job.scope, lambda: _spent(job.scope, str(job.kind), written), by=By(BY)):
        return await _sum_up(job, written, means, habits)


async def _sum_up(job: Job, written: list[Written], means: Deps, habits: Afterwards) -> Mapping[str, Any]:
    scope, ledger = job.scope, means.ledger
    since = await ledger.revision(scope.user)
    conversation = await ledger.conversation(scope)
    if "first" in job.payload:
        turns = await _turns_after(scope, job.payload["first"] - 1, means)
        left = [turn for turn in turns if turn.position <= job.payload["last"]]
        remake = close_anew if job.payload.get("at_end") else compressing.remake
        written.append(await remake(scope, left, chat=means.chat, now=now(), timeout_s=habits.timeout_s))
        return await _finish(job, conversation, written, means, since=since)
    if habits.compress_every:
        written.append(await _compressed(conversation, means, habits))
    if habits.summary_every:
        turns = await _turns_after(
            scope, mark_of(conversation, "summary"), means, most=max(_MOST_TURNS, habits.summary_every)
        )
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
    return await _finish(job, conversation, written, means, since=since)


async def _compressed(conversation: Conversation, means: Deps, habits: Afterwards) -> Written:
    every, keep = habits.compress_every, habits.compress_keep
    most = max(_MOST_TURNS, every + keep)
    turns = await _turns_after(conversation.scope, mark_of(conversation, "compress"), means, most=most)
    written = await compressing.compress(
        conversation,
        turns,
        chat=means.chat,
        now=now(),
        every=every,
        keep=keep,
        extracts=habits.extracts,
        timeout_s=habits.timeout_s,
    )
    # There may be more turns than were read; as long as it gets on, it goes on.
    more = len(turns) == most and bool(written.marks)
    return replace(written, left=written.left + more)


async def end(job: Job, means: Deps, habits: Afterwards) -> Mapping[str, Any]:
    """End a conversation: its episode, what of it goes to the long-term level, and the end of the job.

    A very long one is ended part by part, a job and an episode each.
    """
    written: list[Written] = []
    async with billed(means.ledger, job.scope, lambda: _spent(job.scope, str(job.kind), written), by=By(BY)):
        return await _end(job, written, means, habits)


async def _end(job: Job, written: list[Written], means: Deps, habits: Afterwards) -> Mapping[str, Any]:
    scope, ledger = job.scope, means.ledger
    since = await ledger.revision(scope.user)
    conversation = await ledger.conversation(scope)
    turns: list[Turn] = []
    if habits.episode or habits.tasks:
        turns = await _turns_after(scope, mark_of(conversation, "close"), means)
    more = len(turns) == _MOST_TURNS
    told = [] if more else told_since(conversation)
    close_mark: dict[Step, int] = {"close": turns[-1].position} if turns else {}
    told_mark: dict[Step, int] = {"told": mark_for(told[-1])} if told else {}
    marked = Written(
        fields={} if more else {"closed_at": now()},
        marks={**close_mark, **told_mark},
        left=int(more),
    )
    written.append(marked)
    if habits.episode:
        closing = await close(conversation, turns, chat=means.chat, now=now(), timeout_s=habits.timeout_s)
        written.append(replace(closing, fields={}))
    if habits.tasks:
        written.append(
            await episode_of_talk(conversation, turns, chat=means.chat, now=now(), timeout_s=habits.timeout_s)
        )
    if told and (habits.episode or habits.tasks):
        written.append(
            await episode_of_told(
                conversation,
                told,
                chat=means.chat,
                now=now(),
                tasks_only=not habits.episode,
                timeout_s=habits.timeout_s,
            )
        )
    if habits.promote_from is not None and not more:
        listing = Listing(filter=STATEMENTS, visible=True, limit=_MOST_PROMOTED)
        memories = list(await ledger.find(scope, listing))
        promoted = promote(scope, memories, conversation, now=now(), least_importance=habits.promote_from)
        written.append(Written(changes=tuple(promoted)))
    return await _finish(job, conversation, written, means, since=since)


async def end_run(scope: Scope, run: Run, means: Deps, habits: Afterwards) -> tuple[Outcome, ...]:
    """Keep what a run came to with its conversation, and as an episode if it was a task; twice is once."""
    ledger = means.ledger
    since = await ledger.revision(scope.user)
    conversation = await ledger.conversation(scope)
    written = [await episode_of_run(conversation, run, chat=means.chat, now=now(), timeout_s=habits.timeout_s)]
    effects, by = _spent(scope, "run", written), By(BY, "the end of a run")
    async with billed(ledger, scope, lambda: effects, by=by):
        return await _write(conversation, written, means, by=by, effects=effects, since=since)


async def tell(scope: Scope, invocation: Mapping[str, Any], means: Deps) -> None:
    """Add what an invocation came to, as its agent tells it, to those of the conversation."""
    since = await means.ledger.revision(scope.user)
    conversation = await means.ledger.conversation(scope)
    written = [Written(invocations=(invocation,))]
    await _write(conversation, written, means, by=By(BY, "told by its agent"), effects=(), since=since)


async def _turns_after(scope: Scope, position: int, means: Deps, *, most: int = _MOST_TURNS) -> list[Turn]:
    return await means.ledger.turns(scope, after=position, limit=most)


async def _finish(
    job: Job, conversation: Conversation, written: Sequence[Written], means: Deps, *, since: Revision
) -> Mapping[str, Any]:
    """Write all of it with the end of the job, in one transaction; what is left is a job of its own."""
    scope = job.scope
    told: dict[str, Any] = {
        "changes": sum(len(each.changes) for each in written),
        # They quote what models and their servers wrote, whatever that was.
        "reasons": [redact(reason).text for each in written for reason in each.reasons],
    }
    effects = _spent(scope, str(job.kind), written)
    if any(each.left for each in written):
        told["more"] = True
        effects.append(Queue(scope, NewJob(kind=job.kind, key=job_key(scope))))
    effects.append(Finish(job.id, job.lease or "", told))
    await _write(conversation, written, means, by=By(BY, str(job.kind)), effects=effects, since=since)
    return told


async def _write(
    before: Conversation,
    written: Sequence[Written],
    means: Deps,
    *,
    by: By,
    effects: Sequence[Effect],
    since: Revision,
) -> tuple[Outcome, ...]:
    """Write it on top of what the conversation is by now, so that nothing is lost that others wrote meanwhile.

    `before` is what the conversation was when it was read.
    """
    scope, ledger = before.scope, means.ledger
    written = [replace(each, changes=await _embedded(each.changes, means)) for each in written]
    for tries_left in range(_TRIES - 1, -1, -1):
        held = await ledger.conversation(scope)
        check_unchanged(before, held, written)
        new = untold(held, written)
        changes = [change for each in new for change in each.changes]
        notes = _notes(before, held, new)
        try:
            applied = await ledger.apply(scope, changes, by=by, effects=[*notes, *effects], since=since)
        except Conflict:
            if not tries_left or (await ledger.conversation(scope)).version == held.version:
                raise
            await asyncio.sleep(random.uniform(0, _PAUSE_S * (_TRIES - tries_left)))
        else:
            return applied.outcomes
    raise AssertionError("the last try returns or raises")


async def _embedded(changes: Sequence[Change], means: Deps) -> tuple[Change, ...]:
    return tuple(await with_vectors(changes, embedder=means.embedder))


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


def _notes(before: Conversation, held: Conversation, written: Sequence[Written]) -> list[Effect]:
    fields = noted(held, written)
    if held.turn_count > before.turn_count:
        # It goes on: what was said meanwhile is for another end.
        fields.pop("closed_at", None)
    return [Note(held.scope, fields, expected_version=held.version)] if fields else []
