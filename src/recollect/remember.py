"""The write flow: from what is said to facts that stay true.

Said: listen -> embed -> append to the log with a job, durable when it returns.
Learned, in the background: screen -> extract, by an LLM or by rules -> neighbours -> resolve -> reconcile -> apply,
in one transaction with the end of the job. Every step is a file in `write/`; this one only conducts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from recollect.conversation.afterwards import Afterwards
from recollect.errors import BrokenAnswer, Conflict, InvalidInput, InvalidSettings
from recollect.ledger.protocol import Ledger, Revision
from recollect.model.change import Add, By, Change, Once, Outcome
from recollect.model.effect import Effect, Finish, Note, Queue, Spent
from recollect.model.job import Appended, Job, JobKind, NewJob
from recollect.model.learned import Learned
from recollect.model.memory import Category, Status
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation, Turn
from recollect.models.embedding import Embedder
from recollect.read.known_again import strip_recalled
from recollect.write.draft import draft
from recollect.write.embed import embed, with_vectors
from recollect.write.extraction.extract import Extracted, Limits, extract
from recollect.write.extraction.prompt import style_of
from recollect.write.listen import listen
from recollect.write.means import Means
from recollect.write.passed_over import passed_over, with_range, without_first
from recollect.write.rules.learn import find_by_rules
from recollect.write.screening.imperatives import review_reason
from recollect.write.screening.redact import redact
from recollect.write.screening.screen import screen
from recollect.write.screening.trust import said_by_user
from recollect.write.settling.neighbours import neighbours
from recollect.write.settling.reconcile import reconcile
from recollect.write.settling.resolution import Limits as Settling
from recollect.write.settling.resolve import Resolution, resolve
from recollect.write.speakers import by_speaker
from recollect.write.triggers import Triggers, closing, has_drifted, job_key, learning

if TYPE_CHECKING:
    from recollect.model.change import Vector

# Who it is in history that learned something.
BY = "extraction"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMemory:
    """What a caller wants kept, word for word."""

    content: str | None
    fields: Mapping[str, Any] = field(default_factory=dict)
    vector: Vector | None = None
    correction: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """How what was said is learned from; `by` is "llm", "rules", or "off" to keep the log alone."""

    by: str = "rules"
    triggers: Triggers = field(default_factory=Triggers)
    overlap: int = 4
    most_turns: int = 40
    mode: str = "chat"
    limits: Limits = field(default_factory=Limits)
    settling: Settling = field(default_factory=Settling)
    tokens_a_day: int = 0
    tries: int = 8
    redact: bool = True
    after: Afterwards = field(default_factory=Afterwards)


@dataclass(frozen=True, slots=True)
class Batch:
    """Turns to learn from, what was said before them, and whether that was tried before."""

    before: tuple[Turn, ...]
    turns: tuple[Turn, ...]
    again: bool = False

    @property
    def told(self) -> str:
        """Which turns they are."""
        return f"turns {self.turns[0].position} to {self.turns[-1].position}" if self.turns else ""


@dataclass(frozen=True, slots=True)
class Understood:
    """What some turns come to: changes to make, and what asking cost."""

    changes: tuple[Change, ...] = ()
    spent: tuple[Spent, ...] = ()


async def add(
    scope: Scope, new: NewMemory, *, ledger: Ledger, embedder: Embedder, by: By, once: Once | None = None
) -> Outcome:
    """Draft, embed, apply; the ledger settles it against whatever says the same or holds its key."""
    record = draft(scope, new.content, new.fields)
    vector = new.vector
    if vector is None:
        [vector] = await embed([record.content], embedder=embedder)
    change = Add(record, vector, new.correction)
    return (await ledger.apply(scope, [change], by=by, once=once)).outcomes[0]


async def remember(
    scope: Scope,
    messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
    means: Means,
    habits: Learning,
    *,
    by: By,
    mode: str | None = None,
) -> Appended:
    """Listen, embed, append to the session's log with a job that learns from it, in the mode that is said."""
    if mode is not None:
        style_of(mode)
    turns = _own_words(listen(scope, messages), habits)
    if not turns:
        return Appended()
    vectors = await embed([turn.content for turn in turns], embedder=means.embedder)
    jobs = [] if habits.by == "off" else [await _job(scope, turns, vectors, means, habits)]
    if mode is not None:
        jobs = [replace(job, payload={"mode": mode}) for job in jobs]
    return await means.ledger.append(scope, turns, vectors=vectors, by=by, jobs=jobs)


def _own_words(turns: Sequence[Turn], habits: Learning) -> list[Turn]:
    """The turns without what recall had put in: it would be found again as if it had been said."""
    texts = [strip_recalled(turn.content) for turn in turns]
    if habits.redact:
        texts = [redact(text).text for text in texts]
    return [replace(turn, content=text) for turn, text in zip(turns, texts, strict=True) if text.strip()]


async def _job(
    scope: Scope, turns: Sequence[Turn], vectors: Sequence[Vector | None], means: Means, habits: Learning
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


async def learn(job: Job, means: Means, habits: Learning) -> Mapping[str, Any]:
    """Learn from what was said in a conversation since the last time, and finish the job in the same transaction."""
    habits = replace(habits, mode=job.payload.get("mode", habits.mode))
    since = await means.ledger.revision(job.scope.user)
    conversation = await means.ledger.conversation(job.scope)
    batch = await _unlearned(conversation, means, habits)
    try:
        found, told = await _understood(job.scope, batch, means, habits)
    except (BrokenAnswer, InvalidInput) as error:
        if isinstance(error, InvalidSettings) or job.tries < habits.tries or batch.again:
            raise
        # What comes after must not wait behind it for ever: rules learn from it now, and a replay asks the LLM again.
        found, told = await _understood(job.scope, batch, replace(means, chat=None), replace(habits, by="rules"))
        effects = _progress(job, conversation, batch, habits, gives_up=True)
        await _apply(job.scope, batch, found, effects, means, since)
        raise
    effects = [*found.spent, *_progress(job, conversation, batch, habits), Finish(job.id, job.lease or "", told)]
    await _apply(job.scope, batch, found, effects, means, since)
    return told


async def learn_again(user: str, turn_ids: Sequence[str], means: Means) -> None:
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


async def _understood(
    scope: Scope, batch: Batch, means: Means, habits: Learning
) -> tuple[Understood, dict[str, Any]]:
    """What the turns come to beside what is known, and how that was found, as the job's result tells it."""
    screened = screen(batch.turns, before=batch.before)
    reason = screened.reason if batch.turns else "all that was said had been learned from before"
    told: dict[str, Any] = {"turns": len(batch.turns), "reason": reason}
    if not screened.worth:
        return Understood(), told
    found, how = await _extracted(scope, screened.turns, screen(batch.before).turns, means, habits)
    settled = await _settled(scope, found, screened.turns, means, habits)
    told |= {"by": how, "dropped": _told(found.dropped), "decisions": _told(settled.reasons)}
    spent = (*_spent(scope, "extract", found), *_spent(scope, "reconcile", settled))
    return Understood(settled.changes, spent), told


async def _apply(
    scope: Scope, batch: Batch, found: Understood, effects: Sequence[Effect], means: Means, since: Revision
) -> None:
    if found.changes:
        await _check_still_said(scope, batch.turns, means)
    await means.ledger.apply(scope, found.changes, by=By(BY, batch.told), effects=effects, since=since)


def _progress(
    job: Job, conversation: Conversation, batch: Batch, habits: Learning, *, gives_up: bool = False
) -> list[Effect]:
    """How far the conversation has been learned from after this batch, and what is to be done next."""
    if not batch.turns:
        return []
    if batch.again:
        left = [Queue(job.scope, NewJob(kind=JobKind.EXTRACT, key=job.key))] if passed_over(conversation)[1:] else []
        return [Note(job.scope, {"metadata": without_first(conversation)}), *left]
    last = batch.turns[-1].position
    fields: dict[str, Any] = {"learned_to": last}
    if gives_up:
        fields["metadata"] = with_range(conversation, batch.turns[0].position, last)
    queued = (Queue(job.scope, each) for each in _follow_ups(job, conversation, last, habits))
    return [Note(job.scope, fields), *queued]


def _told(reasons: Sequence[str]) -> list[str]:
    """Reasons as they may be kept: they quote what a model wrote, whatever that was."""
    return [redact(reason).text for reason in reasons]


async def _unlearned(conversation: Conversation, means: Means, habits: Learning) -> Batch:
    """The turns to learn from, and before them some that were learned from, to understand these by.

    Where nothing is new, what was passed over once is taken up again.
    """
    scope, learned_to = conversation.scope, conversation.learned_to
    again = conversation.turn_count <= learned_to and (ranges := passed_over(conversation))
    first, last = ranges[0] if again else (learned_to + 1, learned_to + habits.most_turns)
    start = max(0, first - 1 - habits.overlap)
    turns = await means.ledger.turns(scope, after=start, limit=last - start)
    before = tuple(turn for turn in turns if turn.position < first)
    return Batch(before, tuple(turns[len(before) :]), again=bool(again))


async def _check_still_said(scope: Scope, turns: Sequence[Turn], means: Means) -> None:
    """A Conflict if a person took some of it back while it was being understood: the next try does without that."""
    first, last = turns[0].position, turns[-1].position
    held = await means.ledger.turns(scope, after=first - 1, limit=last - first + 1)
    if {turn.id for turn in turns} - {turn.id for turn in held}:
        raise Conflict("some of what was said was taken back meanwhile")


async def _extracted(
    scope: Scope, turns: Sequence[Turn], before: Sequence[Turn], means: Means, habits: Learning
) -> tuple[Extracted, str]:
    """What the turns say, and who found it: the LLM, or rules where there is none or its budget is used up."""
    how = habits.by
    if how == "llm" and habits.tokens_a_day:
        spent = await means.ledger.spent_today(scope.user)
        if spent.tokens >= habits.tokens_a_day:
            how = f"rules, since the LLM has used today's {habits.tokens_a_day:,} tokens of this user"
    if means.chat is None or how != "llm":
        said = [*before, *turns]
        stated = find_by_rules(said, now=now())
        learned = [each for each in by_speaker(stated.learned, said) if _is_of(turns, each)]
        return Extracted(learned=tuple(_worth(learned, habits.limits)), dropped=tuple(stated.dropped)), how
    try:
        found = await extract(
            turns, chat=means.chat, context=before, mode=habits.mode, now=now(), limits=habits.limits
        )
    except BrokenAnswer as error:
        # It cost something all the same.
        await means.ledger.apply(scope, [], by=By(BY), effects=[_spent_on(scope, "extract", means.chat.model, error)])
        raise
    return found, how


def _is_of(turns: Sequence[Turn], learned: Learned) -> bool:
    """Whether it was said in these turns, and not in those that were only read to understand them."""
    ids = {turn.id for turn in turns}
    return any(id in ids for id in learned.evidence)


def _worth(learned: Sequence[Learned], limits: Limits) -> list[Learned]:
    return [
        each
        for each in learned
        if each.importance >= limits.min_importance and each.confidence >= limits.min_confidence
    ]


async def _settled(
    scope: Scope, found: Extracted, turns: Sequence[Turn], means: Means, habits: Learning
) -> Resolution:
    """The changes that what was found comes to, beside what is known."""
    said = {turn.id: turn.said_at for turn in turns}
    learned = [
        replace(
            each,
            review=review_reason(each, said_by_user(each, turns)),
            said_at=max((said[id] for id in each.evidence if id in said), default=None),
        )
        for each in found.learned
    ]
    near = await neighbours(scope, learned, ledger=means.ledger, index=means.index, embedder=means.embedder)
    digest = found.prompt_digest or None
    settled = resolve(scope, learned, near, limits=habits.settling, prompt_digest=digest)
    chat = means.chat if found.calls else None
    settled = await reconcile(scope, settled, chat=chat, limits=habits.settling, prompt_digest=digest)
    return replace(settled, changes=tuple(await with_vectors(settled.changes, embedder=means.embedder)))


def _spent(scope: Scope, step: str, cost: Extracted | Resolution) -> list[Spent]:
    """What a step asked of a model, if it did."""
    return [_spent_on(scope, step, cost.model, cost)] if cost.calls else []


def _spent_on(scope: Scope, step: str, model: str, cost: Extracted | Resolution | BrokenAnswer) -> Spent:
    return Spent(
        user=scope.user,
        step=step,
        model=model,
        calls=cost.calls,
        tokens_in=cost.tokens_in,
        tokens_out=cost.tokens_out,
        at=now(),
    )


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
