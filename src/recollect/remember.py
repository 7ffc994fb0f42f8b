"""The write flow: from what is said to facts that stay true.

Said: listen -> embed -> append to the log with a job, durable when it returns.
Learned, in the background: screen -> related memories -> extract and reconcile in one LLM call, or select without an
LLM -> check -> apply, in one transaction with the end of the job. Every step is a file in `write/`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from recollect.conversation.afterwards import Afterwards
from recollect.conversation.resent import without_forgotten
from recollect.conversation.told import as_turns, told_since
from recollect.errors import BrokenAnswer, Conflict, InvalidInput, InvalidSettings
from recollect.ledger.protocol import Ledger, Revision
from recollect.model.change import Add, By, Change, Once, Outcome
from recollect.model.effect import Effect, Finish, Note, Queue
from recollect.model.job import Appended, Job, JobKind, NewJob
from recollect.model.memory import Category, Status
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation, Turn
from recollect.models.embedding import Embedder
from recollect.observe.traces import span
from recollect.read.known_again import strip_recalled
from recollect.write.batch import Batch
from recollect.write.billed import billed
from recollect.write.deps import Deps
from recollect.write.draft import draft
from recollect.write.embed import embed
from recollect.write.learn import BY, ExtractionConfig, Learned, learn_from
from recollect.write.listen import listen, names_turns
from recollect.write.modes import mode_named
from recollect.write.passed_over import passed_over, with_range, without_first
from recollect.write.screening.given import Redacting
from recollect.write.triggers import Triggers, closing, has_drifted, job_key, learning
from recollect.write.unsourced import without_sources

if TYPE_CHECKING:
    from recollect.model.change import Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMemory:
    """What a caller wants kept, word for word."""

    content: str | None
    fields: Mapping[str, Any] = field(default_factory=dict)
    vector: Vector | None = None
    correction: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning(ExtractionConfig):
    """When what was said is learned from, how it is understood, and what is made of conversations."""

    triggers: Triggers = field(default_factory=Triggers)
    overlap: int = 4
    most_turns: int = 40
    tries: int = 8
    redacting: Redacting = field(default_factory=Redacting)
    after: Afterwards = field(default_factory=Afterwards)


async def add(
    scope: Scope,
    new: NewMemory,
    *,
    ledger: Ledger,
    embedder: Embedder,
    redacting: Redacting,
    by: By,
    once: Once | None = None,
) -> Outcome:
    """Draft, redact, embed, apply; the ledger settles it against whatever says the same or holds its key."""
    given = draft(scope, new.content, new.fields)
    record, redacted = redacting.record(given)
    # A vector of words that are not kept would still tell of them.
    vector = new.vector if record.content == given.content else None
    if vector is None:
        [vector] = await embed([record.content], embedder=embedder)
    change = Add(record, vector, new.correction)
    [outcome] = (await ledger.apply(scope, [change], by=redacting.by(by), once=once)).outcomes
    return replace(outcome, redacted=redacted)


async def remember(
    scope: Scope,
    messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
    means: Deps,
    habits: Learning,
    *,
    by: By,
    mode: str | None = None,
    given_at: datetime | None = None,
) -> Appended:
    """Listen, embed, append to the session's log with a job that learns from it, in the mode that is said.

    Messages that name their `turn_id` can come again, and change nothing then; `given_at` is when they first came.
    """
    if mode is not None:
        mode_named(mode)
    if given_at is None and names_turns(messages):
        given_at = now()
    with span("recollect.listen"):
        turns, redacted = heard(scope, messages, habits.redacting)
        turns = await without_forgotten(scope.user, turns, means.ledger)
    if not turns:
        return Appended()
    with span("recollect.embed"):
        vectors = await embed([turn.content for turn in turns], embedder=means.embedder)
    jobs = [] if habits.by == "off" else [await _job(scope, turns, vectors, means, habits)]
    if mode is not None:
        jobs = [replace(job, payload={**job.payload, "mode": mode}) for job in jobs]
    with span("recollect.append"):
        appended = await means.ledger.append(scope, turns, vectors=vectors, by=by, jobs=jobs, given_at=given_at)
    return replace(appended, redacted=redacted)


def heard(
    scope: Scope, messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]], redacting: Redacting
) -> tuple[list[Turn], tuple[str, ...]]:
    """The turns as the log keeps them, without secrets, whose kinds are told, and without what recall had put in.

    That would be found again as if it had been said.
    """
    own: list[Turn] = []
    kinds: dict[str, None] = {}
    for turn in listen(scope, messages):
        text, found = redacting.said(strip_recalled(turn.content))
        kinds |= dict.fromkeys(found)
        if text.strip():
            own.append(replace(turn, content=text))
    return own, tuple(kinds)


async def _job(
    scope: Scope, turns: Sequence[Turn], vectors: Sequence[Vector | None], means: Deps, habits: Learning
) -> NewJob:
    triggers = habits.triggers
    conversation = Conversation(scope=scope)
    drifted = False
    if triggers.every > len(turns):
        conversation = await means.ledger.conversation(scope)
        if triggers.drift and conversation.turn_count:
            last = await means.ledger.turns(scope, after=conversation.turn_count - 2, limit=2)
            said = [turn.content for turn in last if turn.role == "user"]
            [before] = await embed(said[-1:], embedder=means.embedder) if said else [None]
            drifted = has_drifted(before, turns, vectors, triggers.drift)
    return learning(scope, conversation, turns, triggers, drifted=drifted, now=now())


def learning_now(scope: Scope) -> NewJob:
    """The job that learns from what is left of a conversation, at once and before anything else of the user's."""
    return NewJob(kind=JobKind.EXTRACT, key=job_key(scope), priority=1)


async def learn(job: Job, means: Deps, habits: Learning) -> Mapping[str, Any]:
    """Learn from what was said in a conversation since the last time, and finish the job in the same transaction."""
    habits = replace(habits, mode=job.payload.get("mode", habits.mode))
    since = await means.ledger.revision(job.scope.user)
    conversation = await means.ledger.conversation(job.scope)
    batch = await _unlearned(conversation, means, habits)
    try:
        found, told = await learn_from(job.scope, batch, means, habits)
    except (BrokenAnswer, InvalidInput) as error:
        if isinstance(error, InvalidSettings) or job.tries < habits.tries or batch.retry:
            raise
        # Later turns must not wait for it for ever: the selector learns from it now, and a replay asks the LLM again.
        found, told = await learn_from(job.scope, batch, replace(means, chat=None), replace(habits, by="selector"))
        effects = _progress(job, conversation, batch, habits, gives_up=True)
        await _apply(job.scope, batch, found, effects, means, since)
        error.args = (
            f"{error}; the built-in selector learned from it instead: {len(told.get('decisions') or ())} found",
        )
        raise
    effects = [*found.spent, *_progress(job, conversation, batch, habits), Finish(job.id, job.lease or "", told)]
    async with billed(means.ledger, job.scope, lambda: found.spent, by=By(BY)):
        await _apply(job.scope, batch, found, effects, means, since)
    return told


async def learn_told(scope: Scope, means: Deps, habits: Learning) -> int:
    """Learn from what agents told of a conversation that ends; gives how many changes that came to.

    What a user asked was said to the agent and is in no log, so nothing that is learned from it cites a turn.
    """
    if habits.by == "off":
        return 0
    since = await means.ledger.revision(scope.user)
    told = told_since(await means.ledger.conversation(scope))
    turns = as_turns(scope, told, now=now())
    ids = {turn.id for turn in turns}
    count = 0
    for start in range(0, len(turns), habits.most_turns):
        before = tuple(turns[max(0, start - habits.overlap) : start])
        found = await _understood(
            scope, Batch(tuple(turns[start : start + habits.most_turns]), before), means, habits
        )
        changes = [without_sources(change, ids) for change in found.changes]
        await _apply_told(scope, changes, found, means, since)
        count += len(changes)
    return count


async def _understood(scope: Scope, batch: Batch, means: Deps, habits: Learning) -> Learned:
    """What the turns come to; by the selector where a model's answer is of no use."""
    try:
        found, _ = await learn_from(scope, batch, means, habits)
    except (BrokenAnswer, InvalidInput) as error:
        if isinstance(error, InvalidSettings):
            raise
        found, _ = await learn_from(scope, batch, replace(means, chat=None), replace(habits, by="selector"))
    return found


async def _apply_told(scope: Scope, changes: Sequence[Change], found: Learned, means: Deps, since: Revision) -> None:
    async with billed(means.ledger, scope, lambda: found.spent, by=By(BY)):
        by = By(BY, "what its agent told")
        await means.ledger.apply(scope, changes, by=by, effects=found.spent, since=since)


async def learn_again(user: str, turn_ids: Sequence[str], means: Deps) -> None:
    """Have turns learned from once more: what was learned from them went with something that was erased."""
    by_session: dict[Scope, list[int]] = {}
    for turn in await means.ledger.get(Scope(user), turn_ids):
        if turn.category is Category.TURN and turn.status is Status.ACTIVE:
            by_session.setdefault(turn.scope, []).append(int(turn.detail["position"]))
    for scope, positions in by_session.items():
        conversation = await means.ledger.conversation(scope)
        for position in sorted(positions):
            metadata = with_range(conversation, position, position)
            conversation = replace(conversation, metadata=metadata)
        effects: list[Effect] = [
            Note(scope, {"metadata": conversation.metadata}),
            Queue(scope, learning_now(scope)),
        ]
        await means.ledger.apply(scope, [], by=By(BY, "learned again"), effects=effects)


async def _apply(
    scope: Scope, batch: Batch, found: Learned, effects: Sequence[Effect], means: Deps, since: Revision
) -> None:
    if found.changes:
        await _check_still_said(scope, batch.turns, means)
    with span("recollect.apply") as traced:
        traced.tell({"changes": len(found.changes)})
        await means.ledger.apply(scope, found.changes, by=By(BY, batch.described), effects=effects, since=since)


def _progress(
    job: Job, conversation: Conversation, batch: Batch, habits: Learning, *, gives_up: bool = False
) -> list[Effect]:
    """How far the conversation has been learned from after this batch, and what is to be done next."""
    if not batch.turns:
        return []
    if batch.retry:
        left = [Queue(job.scope, NewJob(kind=JobKind.EXTRACT, key=job.key))] if passed_over(conversation)[1:] else []
        return [Note(job.scope, {"metadata": without_first(conversation)}), *left]
    last = batch.turns[-1].position
    fields: dict[str, Any] = {"learned_to": last}
    if gives_up:
        fields["metadata"] = with_range(conversation, batch.turns[0].position, last)
    queued = (Queue(job.scope, each) for each in _follow_ups(job, conversation, last, habits))
    return [Note(job.scope, fields), *queued]


async def _unlearned(conversation: Conversation, means: Deps, habits: Learning) -> Batch:
    """The turns to learn from, and before them some that were learned from, to understand these by.

    Where nothing is new, what was passed over once is taken up again.
    """
    scope, learned_to = conversation.scope, conversation.learned_to
    again = conversation.turn_count <= learned_to and (ranges := passed_over(conversation))
    first, last = ranges[0] if again else (learned_to + 1, learned_to + habits.most_turns)
    start = max(0, first - 1 - habits.overlap)
    turns = await means.ledger.turns(scope, after=start, limit=last - start)
    before = tuple(turn for turn in turns if turn.position < first)
    return Batch(tuple(turns[len(before) :]), before, retry=bool(again))


async def _check_still_said(scope: Scope, turns: Sequence[Turn], means: Deps) -> None:
    """A Conflict if a person took some of it back while it was being understood: the next try does without that."""
    first, last = turns[0].position, turns[-1].position
    held = await means.ledger.turns(scope, after=first - 1, limit=last - first + 1)
    if {turn.id for turn in turns} - {turn.id for turn in held}:
        raise Conflict("some of what was said was taken back meanwhile")


def _follow_ups(job: Job, conversation: Conversation, learned_to: int, habits: Learning) -> list[NewJob]:
    """What is to be done next in a conversation that has been learned from up to a turn."""
    key = job_key(conversation.scope)
    # As urgent as the first part was: the end of a conversation waits until all of it is learned.
    rest = NewJob(kind=JobKind.EXTRACT, key=key, priority=job.priority, payload=job.payload)
    more = [rest] if conversation.turn_count > learned_to else []
    if conversation.closed_at is not None:
        # It ended before it was learned from: what matters of this is still to be promoted.
        more.append(closing(conversation.scope))
    return (
        [*more, NewJob(kind=JobKind.SUMMARISE, key=key)]
        if habits.after.is_due(conversation, has_model=habits.by == "llm")
        else more
    )
