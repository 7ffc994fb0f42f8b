"""The write flow: from chat messages to memories.

`remember` stores the messages as turns: parse -> strip injected context -> redact -> embed -> append with a job. The
turns are durable when it returns.

`learn` runs the job in the background: next turns -> `write/learn.py` (screen, extract facts with one LLM call or
select them without one, reconcile them with the stored memories) -> apply the changes and finish the job in one
transaction.

`add` stores one memory as the caller wrote it. Each step is a file in `write/`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from recollect.aio.slices import TimeSlice, run_off_loop
from recollect.config.fields import SessionSettings
from recollect.deps import Deps
from recollect.errors import BrokenAnswer, Conflict, InvalidInput, InvalidSettings, NotFound, StaleVersion
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.types import Revision
from recollect.model.arguments import MessagesInput
from recollect.model.change import (
    Add,
    Author,
    ConversationUpdate,
    Effect,
    EnqueueJob,
    FinishJob,
    IdempotencyToken,
    Outcome,
)
from recollect.model.job import Appended, ExtractPayload, Job, JobKind, NewJob
from recollect.model.memory import Category, Status, Trust
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation, Role, Turn
from recollect.observability.tracing import span
from recollect.quotes.quoted_text import quotes_instruction
from recollect.read.strip_context import strip_context
from recollect.sessions.agent_runs import notes_as_turns, unprocessed_notes
from recollect.sessions.lifecycle import is_due
from recollect.sessions.resolve import drop_forgotten_turns
from recollect.text.instruction_rule import hold_for_review
from recollect.write.ask_llm import record_cost_on_error
from recollect.write.batch import Batch, skipped_ranges, with_skipped_range, without_first_skipped
from recollect.write.draft import draft
from recollect.write.embed import embed
from recollect.write.extract import get_extraction_mode
from recollect.write.learn import (
    EXTRACTION_AUTHOR,
    ExtractedChanges,
    ExtractionConfig,
    extract_changes,
    merge_with_similar,
)
from recollect.write.parse import has_turn_ids, parse_messages
from recollect.write.reconcile import drop_turn_evidence
from recollect.write.redact import Redactor
from recollect.write.triggers import Triggers, close_job, extraction_job, has_drifted, job_key, topic_texts

if TYPE_CHECKING:
    from recollect.model.change import Vector


@frozen_dataclass(kw_only=True)
class MemoryInput:
    """A memory to store as the caller wrote it; `merge` says whether it may be merged with a similar one."""

    content: str | None
    fields: Mapping[str, Any] = field(default_factory=dict)
    vector: Vector | None = None
    correction: bool = False
    merge: bool = True


@frozen_dataclass(kw_only=True)
class LearningConfig(ExtractionConfig):
    """When and how to extract facts, and what to derive from sessions.

    A batch has at most `max_turns` turns, with `overlap` processed ones before them as context. After `tries`
    unusable answers of the LLM, the selector extracts instead.
    """

    triggers: Triggers = field(default_factory=Triggers)
    overlap: int = 4
    max_turns: int = 40
    tries: int = 8
    redactor: Redactor = field(default_factory=Redactor)
    sessions: SessionSettings = field(default_factory=SessionSettings)


# How often a merge is retried after concurrent changes of the similar memory.
_MAX_MERGES = 10
# The LLM answered, but not usably; `InvalidSettings` is an `InvalidInput` too, and stays an error.
_UNUSABLE_ANSWER = (BrokenAnswer, InvalidInput)


async def remember(
    scope: Scope,
    messages: MessagesInput,
    deps: Deps,
    config: LearningConfig,
    *,
    by: Author,
    mode: str | None = None,
    received_at: datetime | None = None,
) -> Appended:
    """Parse, redact, embed and append messages to the session, with a job that extracts facts in the given mode.

    A message whose `turn_id` is already stored changes nothing; `received_at` is the time of its first arrival.
    """
    if mode is not None:
        get_extraction_mode(mode)
    if received_at is None and has_turn_ids(messages):
        received_at = now()
    with span("recollect.listen"):
        turns, redacted = await normalize_turns(scope, messages, config.redactor)
        turns = await drop_forgotten_turns(scope.user, turns, deps.ledger)
    if not turns:
        return Appended()
    with span("recollect.embed"):
        vectors = await embed([turn.content for turn in turns], embedder=deps.embedder)
    jobs = [] if config.by == "off" else [await _learning_job(scope, turns, vectors, deps, config, mode)]
    with span("recollect.append"):
        appended = await deps.ledger.append(scope, turns, vectors=vectors, by=by, jobs=jobs, received_at=received_at)
    return replace(appended, redacted=redacted)


async def normalize_turns(
    scope: Scope, messages: MessagesInput, redactor: Redactor
) -> tuple[list[Turn], tuple[str, ...]]:
    """Return the turns of messages without secrets and injected context, and the kinds of the secrets.

    Injected context would be learned as if the user had said it. A turn with an instruction that the user only pasted
    has low trust.
    """
    normalized: list[Turn] = []
    kinds: dict[str, None] = {}
    time_slice = TimeSlice()
    for turn in parse_messages(scope, messages):
        await time_slice.pause()
        clean, secrets = await redactor.redact_turn(replace(turn, content=strip_context(turn.content)))
        kinds |= dict.fromkeys(secrets)
        if clean.content.strip():
            quotes = turn.role is Role.USER and await run_off_loop(
                partial(quotes_instruction, clean.content), chars=len(clean.content)
            )
            normalized.append(replace(clean, trust=Trust.LOW if quotes else None))
    return normalized, tuple(kinds)


async def _learning_job(
    scope: Scope,
    turns: Sequence[Turn],
    vectors: Sequence[Vector | None],
    deps: Deps,
    config: LearningConfig,
    mode: str | None,
) -> NewJob:
    """Return the job that extracts facts from the turns, due when the triggers say."""
    triggers = config.triggers
    is_due = triggers.every == 1 or await _is_time_to_learn(scope, turns, vectors, deps, triggers)
    job = extraction_job(scope, triggers, is_due=is_due, now=now())
    return replace(job, payload=ExtractPayload(mode=mode or "", model=triggers.model))


async def _is_time_to_learn(
    scope: Scope, turns: Sequence[Turn], vectors: Sequence[Vector | None], deps: Deps, triggers: Triggers
) -> bool:
    """Return whether there are enough new turns, or the topic changes with them."""
    conversation = await deps.ledger.conversation(scope)
    stored = await deps.ledger.turns(
        scope, after=max(0, conversation.turn_count - triggers.max_turns), limit=triggers.max_turns
    )
    pending = [turn for turn in stored if turn.position > conversation.learned_to]
    if triggers.are_enough([*pending, *turns]):
        return True
    if not triggers.drift:
        return False
    # If all turns of a topic were learned from, its end is no reason to learn.
    topic = topic_texts(stored) if topic_texts(pending) else []
    before = await embed(topic, embedder=deps.embedder) if topic else []
    return has_drifted(before, turns, vectors, triggers.drift)


def immediate_learning_job(scope: Scope) -> NewJob:
    """Return a job that extracts from the rest of a session now, before other jobs of the user."""
    return NewJob(kind=JobKind.EXTRACT, key=job_key(scope), priority=1)


async def learn(job: Job, deps: Deps, config: LearningConfig) -> Mapping[str, Any]:
    """Extract facts from the next turns of a session, and apply them and finish the job in one transaction."""
    if isinstance(job.payload, ExtractPayload) and job.payload.mode:
        config = replace(config, mode=job.payload.mode)
    since = await deps.ledger.revision(job.scope.user)
    conversation = await deps.ledger.conversation(job.scope)
    batch = await _next_batch(conversation, deps, config)
    try:
        extracted, report = await extract_changes(job.scope, batch, deps, config)
    except _UNUSABLE_ANSWER as error:
        if isinstance(error, InvalidSettings) or job.tries < config.tries or batch.retry:
            raise
        # Later turns must not wait forever: the selector extracts now, and a replay of the job asks the LLM.
        extracted, report = await extract_changes(job.scope, batch, *_without_llm(deps, config))
        effects = _progress_effects(job, conversation, batch, config, skips=True)
        await _apply(job.scope, batch, extracted, effects, deps, since)
        count = len(report.get("decisions") or ())
        error.args = (f"{error}; the built-in selector learned from it instead: {count} found",)
        raise
    progress = _progress_effects(job, conversation, batch, config)
    effects = [*extracted.usage, *progress, FinishJob(job.id, job.lease or "", report)]
    async with record_cost_on_error(deps.ledger, job.scope, lambda: extracted.usage, by=Author(EXTRACTION_AUTHOR)):
        await _apply(job.scope, batch, extracted, effects, deps, since)
    return report


def _without_llm(deps: Deps, config: LearningConfig) -> tuple[Deps, LearningConfig]:
    return replace(deps, chat=None), replace(config, by="selector")


async def _next_batch(conversation: Conversation, deps: Deps, config: LearningConfig) -> Batch:
    """Return the next turns with some processed ones before them as context; skipped turns if none are new."""
    scope, learned_to = conversation.scope, conversation.learned_to
    is_retry = conversation.turn_count <= learned_to and (ranges := skipped_ranges(conversation))
    first, last = ranges[0] if is_retry else (learned_to + 1, learned_to + config.max_turns)
    start = max(0, first - 1 - config.overlap)
    turns = await deps.ledger.turns(scope, after=start, limit=last - start)
    before = tuple(turn for turn in turns if turn.position < first)
    return Batch(tuple(turns[len(before) :]), before, retry=bool(is_retry))


async def _apply(
    scope: Scope, batch: Batch, extracted: ExtractedChanges, effects: Sequence[Effect], deps: Deps, since: Revision
) -> None:
    """Apply the changes and effects in one transaction; raise Conflict if turns were undone during extraction."""
    if extracted.changes:
        first, last = batch.turns[0].position, batch.turns[-1].position
        stored = await deps.ledger.turns(scope, after=first - 1, limit=last - first + 1)
        if {turn.id for turn in batch.turns} - {turn.id for turn in stored}:
            raise Conflict("turns were undone during extraction; the retry omits them")
    with span("recollect.apply") as trace:
        trace.set_attributes({"changes": len(extracted.changes)})
        by = batch.author(EXTRACTION_AUTHOR)
        await deps.ledger.apply(scope, extracted.changes, by=by, effects=effects, since=since)


def _progress_effects(
    job: Job, conversation: Conversation, batch: Batch, config: LearningConfig, *, skips: bool = False
) -> list[Effect]:
    """Return the effects that record the progress of extraction and enqueue the next jobs.

    `skips` records the turns as skipped, so that a replay of the job extracts from them.
    """
    if not batch.turns:
        return []
    if batch.retry:
        remaining = skipped_ranges(conversation)[1:]
        next_job = [EnqueueJob(job.scope, NewJob(kind=JobKind.EXTRACT, key=job.key))] if remaining else []
        return [ConversationUpdate(job.scope, {"metadata": without_first_skipped(conversation)}), *next_job]
    last = batch.turns[-1].position
    fields: dict[str, Any] = {"learned_to": last}
    if skips:
        fields["metadata"] = with_skipped_range(conversation, batch.turns[0].position, last)
    next_jobs = (EnqueueJob(job.scope, each) for each in _next_jobs(job, conversation, last, config))
    return [ConversationUpdate(job.scope, fields), *next_jobs]


def _next_jobs(job: Job, conversation: Conversation, learned_to: int, config: LearningConfig) -> list[NewJob]:
    """Return the jobs that follow an extraction up to a turn."""
    key = job_key(conversation.scope)
    # Turns that came after the conversation was read are in the batch, too.
    conversation = replace(conversation, turn_count=max(conversation.turn_count, learned_to))
    jobs: list[NewJob] = []
    if conversation.turn_count > learned_to:
        # With the same priority: the end of a session waits for the whole extraction.
        jobs.append(NewJob(kind=JobKind.EXTRACT, key=key, priority=job.priority, payload=job.payload))
    if conversation.closed_at is not None:
        # The session ended before this extraction, whose facts are still to be promoted.
        jobs.append(close_job(conversation.scope))
    if is_due(conversation, config.sessions, has_model=config.by == "llm"):
        jobs.append(NewJob(kind=JobKind.SUMMARISE, key=key))
    return jobs


async def learn_from_agent_notes(scope: Scope, deps: Deps, config: LearningConfig) -> int:
    """Extract facts from the invocations that agents reported for a session; return the number of changes.

    The questions in them were put to the agent and are not stored as turns, so the facts cite none.
    """
    if config.by == "off":
        return 0
    since = await deps.ledger.revision(scope.user)
    notes = unprocessed_notes(await deps.ledger.conversation(scope))
    turns = notes_as_turns(scope, notes, now=now())
    count = 0
    for start in range(0, len(turns), config.max_turns):
        before = tuple(turns[max(0, start - config.overlap) : start])
        batch = Batch(tuple(turns[start : start + config.max_turns]), before)
        count += await _learn_from_note_batch(scope, batch, deps, config, since)
    return count


async def _learn_from_note_batch(
    scope: Scope, batch: Batch, deps: Deps, config: LearningConfig, since: Revision
) -> int:
    try:
        extracted, _ = await extract_changes(scope, batch, deps, config)
    except _UNUSABLE_ANSWER as error:
        if isinstance(error, InvalidSettings):
            raise
        extracted, _ = await extract_changes(scope, batch, *_without_llm(deps, config))
    note_ids = {turn.id for turn in (*batch.context, *batch.turns)}
    changes = [drop_turn_evidence(change, note_ids) for change in extracted.changes]
    by = Author(EXTRACTION_AUTHOR, "reported by an agent")
    async with record_cost_on_error(deps.ledger, scope, lambda: extracted.usage, by=by):
        await deps.ledger.apply(scope, changes, by=by, effects=extracted.usage, since=since)
    return len(changes)


async def relearn_turns(user: str, turn_ids: Sequence[str], deps: Deps) -> None:
    """Enqueue extraction from turns whose facts were removed by an erasure."""
    by_session: dict[Scope, list[int]] = {}
    for turn in await deps.ledger.get(Scope(user), turn_ids):
        if turn.category is Category.TURN and turn.status is Status.ACTIVE:
            by_session.setdefault(turn.scope, []).append(int(turn.detail["position"]))
    for scope, positions in by_session.items():
        conversation = await deps.ledger.conversation(scope)
        for position in sorted(positions):
            metadata = with_skipped_range(conversation, position, position)
            conversation = replace(conversation, metadata=metadata)
        effects: list[Effect] = [
            ConversationUpdate(scope, {"metadata": conversation.metadata}),
            EnqueueJob(scope, immediate_learning_job(scope)),
        ]
        await deps.ledger.apply(
            scope, [], by=Author(EXTRACTION_AUTHOR, "extracted again after an erasure"), effects=effects
        )


async def add(
    scope: Scope,
    new: MemoryInput,
    deps: Deps,
    config: LearningConfig,
    *,
    by: Author,
    idempotency: IdempotencyToken | None = None,
) -> Outcome:
    """Draft, redact and embed a memory, and add it or merge it with a similar one; the ledger resolves keys."""
    drafted = draft(scope, new.content, new.fields)
    record, redacted = await config.redactor.redact_record(drafted)
    # A vector of the unredacted text would reveal what was redacted.
    vector = new.vector if record.content == drafted.content else None
    if vector is None:
        [vector] = await embed([record.content], embedder=deps.embedder)
    addition, by = Add(record, vector, new.correction), config.redactor.redact_author(by)
    for tries_left in range(_MAX_MERGES - 1, -1, -1):
        # The last try adds it: duplicates are better than a refused memory. One for review changes no other.
        merges = new.merge and tries_left > 0 and hold_for_review(record) is record
        change = await merge_with_similar(addition, deps, config.reconciling) if merges else addition
        try:
            [outcome] = (await deps.ledger.apply(scope, [change], by=by, once=idempotency)).outcomes
        except (StaleVersion, NotFound):
            # Another merge changed the similar memory meanwhile.
            if change is addition:
                raise
        else:
            return replace(outcome, redacted=redacted)
    raise AssertionError("the last try returns or raises")
