"""The life of a session: it begins, is compressed and summarised, ends, and its important memories are promoted."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias

from recollect.config.fields import SessionSettings
from recollect.deps import Deps
from recollect.errors import Conflict, NotFound
from recollect.ledger.ledger import Ledger, read_pages
from recollect.ledger.types import Revision
from recollect.model.change import (
    Author,
    Change,
    ConversationUpdate,
    Effect,
    EnqueueJob,
    FinishJob,
    Forget,
    Outcome,
    Supersede,
    Update,
)
from recollect.model.erasure import Remade
from recollect.model.job import Job, JobKind, NewJob, RebuildPayload
from recollect.model.memory import MODEL, Category, MemoryRecord, Status, Trust, is_valid_now
from recollect.model.query import And, Listing, Op, Where, any_of
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.model.turn import Conversation, Turn
from recollect.sessions import compress as compressing
from recollect.sessions.agent_runs import RunRecord, note_digest, unprocessed_notes
from recollect.sessions.compress import episode_id, range_episode, session_episode
from recollect.sessions.episodes import episode_of_notes, episode_of_run, episode_of_turns_as_task
from recollect.sessions.step_output import (
    RETRACTIONS,
    SessionStep,
    StepOutput,
    drop_recorded_runs,
    ensure_unchanged,
    merge_fields,
    merge_marks,
    retraction_count,
    stable_id,
    step_position,
)
from recollect.sessions.summarize import RETRACTED, build_invocations, extract_summary, summary_id, update_summary
from recollect.write.ask_llm import record_cost_on_error
from recollect.write.embed import embed_changes
from recollect.write.redact import redact
from recollect.write.related import STATEMENTS
from recollect.write.triggers import job_key

_log = logging.getLogger("recollect")
MIN_IMPORTANCE = 0.6
MIN_CONFIDENCE = 0.5

# The log, summaries and episodes outlive the session anyway.
_NO_FACTS = frozenset({Category.TURN, Category.SUMMARY, Category.EPISODE})


def promote(
    scope: Scope,
    memories: Sequence[MemoryRecord],
    conversation: Conversation,
    *,
    now: datetime,
    min_importance: float = MIN_IMPORTANCE,
) -> list[Change]:
    """Return changes that move important memories of a session to its project, or to the user without one.

    `memories` are those that the scope sees. A promoted memory supersedes the original, and has its session and
    evidence. A keyed fact is not promoted if the long-term level has another value with a higher confidence. A second
    call finds nothing to do.
    """
    session = conversation.scope
    level = session.default_level
    if not session.session or scope.user != session.user:
        return []
    long_term = _long_term_by_key(memories, session, level)
    changes: list[Change] = []
    for record in _promotable(memories, session, min_importance, now):
        other = long_term.get((record.category, record.key)) if record.key is not None else None
        if other is not None and other.value != record.value and other.confidence > record.confidence:
            continue
        changes.append(Supersede(record.id, _promoted(record, level, now=now), expected_version=record.version))
    return changes


def _promotable(
    memories: Sequence[MemoryRecord], session: Scope, min_importance: float, now: datetime
) -> list[MemoryRecord]:
    return [
        record
        for record in memories
        if record.level is Level.SESSION
        and record.scope == session
        and record.category not in _NO_FACTS
        and record.trust is not Trust.NONE
        and record.importance >= min_importance
        and record.confidence >= MIN_CONFIDENCE
        and is_valid_now(record, now)
    ]


def _long_term_by_key(
    memories: Sequence[MemoryRecord], session: Scope, level: Level
) -> Mapping[tuple[Category, str | None], MemoryRecord]:
    place = session.visibility_key(level)
    return {
        (record.category, record.key): record
        for record in memories
        if record.key is not None and record.status is Status.ACTIVE and record.visibility_key == place
    }


def _promoted(record: MemoryRecord, level: Level, *, now: datetime) -> MemoryRecord:
    return replace(
        record,
        id=stable_id(record.scope, "promoted", at=record.created_at, source_ids=[record.id]),
        level=level,
        detail={**record.detail, "promoted_from_id": record.id},
        created_at=now,
        updated_at=now,
        version=1,
        superseded_by=None,
        last_accessed_at=None,
        access_count=0,
    )


SESSION_AUTHOR = "conversation"
_STARTED_KEY = "begun_at"
_SESSION_MEMORIES = Listing(filter=Where("level", Op.EQ, str(Level.SESSION)), limit=1000)
# The turns that one job reads; another job continues.
MAX_TURNS = 1000
_MAX_PROMOTED = 1000
# Many tries, so that the step is stored however much is said in the meantime: each takes only a read and a write.
_MAX_TRIES = 50
_PAUSE_S = 0.002


async def begin_session(scope: Scope, *, ledger: Ledger, by: Author) -> Conversation:
    """Create the session if it does not exist, and return it."""
    conversation = await ledger.conversation(scope)
    if not await _session_exists(conversation, ledger):
        metadata = {**conversation.metadata, _STARTED_KEY: now().isoformat()}
        update = ConversationUpdate(scope, {"metadata": metadata}, conversation.version)
        # On a conflict somebody else has just started it.
        with suppress(Conflict):
            await ledger.apply(scope, [], by=by, effects=[update])
    return await ledger.conversation(scope)


async def require_session(scope: Scope, *, ledger: Ledger) -> Conversation:
    """Return the session, or raise NotFound if nothing was ever stored for it."""
    conversation = await ledger.conversation(scope)
    if not await _session_exists(conversation, ledger):
        within = f" in project {scope.project}" if scope.project else ""
        raise NotFound(f"user {scope.user} has no session {scope.session}{within}")
    return conversation


async def _session_exists(conversation: Conversation, ledger: Ledger) -> bool:
    if conversation.turn_count or conversation.invocations or _STARTED_KEY in conversation.metadata:
        return True
    # A session of the same name in another project is another one.
    records = await ledger.find(conversation.scope, _SESSION_MEMORIES)
    return any(record.scope == conversation.scope for record in records)


def is_due(conversation: Conversation, config: SessionSettings, *, has_model: bool = True) -> bool:
    """Return whether there is anything to compress or to summarise."""
    compresses = config.compress_every and (has_model or config.compress_without_llm)
    compress = compresses and compressing.is_due(conversation, every=config.compress_every, keep=config.compress_keep)
    unsummarized = conversation.turn_count - step_position(conversation, "summary")
    summarize = config.summary_every and unsummarized >= config.summary_every
    return bool(compress or summarize or config.store_invocations)


def rebuild_job(lost: Remade) -> NewJob | None:
    """Return the job that rebuilds an erased record from its remaining sources; None if there is no such job."""
    key = job_key(lost.scope)
    if lost.kind == "conversation":
        return NewJob(kind=JobKind.SUMMARISE, key=key)
    if lost.kind != Category.EPISODE or lost.turns is None:
        return None
    first, last = lost.turns
    payload = RebuildPayload(first=first, last=last, at_end=lost.at_end)
    suffix = " at the end" if lost.at_end else ""
    return NewJob(kind=JobKind.SUMMARISE, key=f"{key} {first}-{last}{suffix}", payload=payload)


async def summarize_session(job: Job, deps: Deps, config: SessionSettings) -> Mapping[str, Any]:
    """Compress the ranges that are due, update the running summary and the invocations, and finish the job."""
    steps = _rebuild_step if isinstance(job.payload, RebuildPayload) else _summary_steps
    return await _run_steps(job, steps, deps, config)


async def end_session(job: Job, deps: Deps, config: SessionSettings) -> Mapping[str, Any]:
    """End a conversation: write its episode, promote its memories, and finish the job.

    A very long one is ended part by part, with a job and an episode each.
    """
    return await _run_steps(job, _end_steps, deps, config)


async def _run_steps(job: Job, steps: _Steps, deps: Deps, config: SessionSettings) -> Mapping[str, Any]:
    """Run steps, and store their outputs with the end of the job in one transaction."""
    scope, outputs = job.scope, list[StepOutput]()

    def costs() -> list[Effect]:
        return [usage for each in outputs for usage in each.cost.usage(scope.user, str(job.kind))]

    async with record_cost_on_error(deps.ledger, scope, costs, by=Author(SESSION_AUTHOR)):
        since = await deps.ledger.revision(scope.user)
        conversation = await deps.ledger.conversation(scope)
        await steps(job, conversation, outputs, deps, config)
        report: dict[str, Any] = {
            "changes": sum(len(each.changes) for each in outputs),
            # They quote models and their servers.
            "reasons": [redact(reason).text for each in outputs for reason in each.reasons],
        }
        effects = costs()
        if any(each.left for each in outputs):
            report["more"] = True
            effects.append(EnqueueJob(scope, NewJob(kind=job.kind, key=job_key(scope))))
        effects.append(FinishJob(job.id, job.lease or "", report))
        by = Author(SESSION_AUTHOR, str(job.kind))
        await _apply_outputs(conversation, outputs, deps, by=by, effects=effects, since=since)
        return report


_Steps = Callable[[Job, Conversation, list[StepOutput], Deps, SessionSettings], Awaitable[None]]


async def _rebuild_step(
    job: Job, conversation: Conversation, outputs: list[StepOutput], deps: Deps, config: SessionSettings
) -> None:
    scope, payload = job.scope, job.payload
    assert isinstance(payload, RebuildPayload)
    turns = await deps.ledger.turns(scope, after=payload.first - 1, limit=MAX_TURNS)
    left = [turn for turn in turns if turn.position <= payload.last]
    rebuild = session_episode if payload.at_end else range_episode
    outputs.append(await rebuild(scope, left, chat=deps.chat, now=now()))


async def _summary_steps(
    job: Job, conversation: Conversation, outputs: list[StepOutput], deps: Deps, config: SessionSettings
) -> None:
    scope, ledger = job.scope, deps.ledger
    if config.compress_every:
        outputs.append(await _compress(conversation, deps, config))
    if config.summary_every:
        done = step_position(conversation, "summary")
        turns = await ledger.turns(scope, after=done, limit=max(MAX_TURNS, config.summary_every))
        outputs.append(
            await update_summary(
                conversation,
                turns,
                chat=deps.chat,
                now=now(),
                stored=next(iter(await ledger.get(scope, [summary_id(scope)])), None),
                every=config.summary_every,
            )
        )
    if config.store_invocations:
        turns = await ledger.turns(scope, after=max(0, conversation.turn_count - MAX_TURNS), limit=MAX_TURNS)
        outputs.append(build_invocations(conversation, turns, now=now()))


async def _compress(conversation: Conversation, deps: Deps, config: SessionSettings) -> StepOutput:
    every, keep = config.compress_every, config.compress_keep
    limit = max(MAX_TURNS, every + keep)
    done = step_position(conversation, "compress")
    turns = await deps.ledger.turns(conversation.scope, after=done, limit=limit)
    output = await compressing.compress(
        conversation,
        turns,
        chat=deps.chat,
        now=now(),
        every=every,
        keep=keep,
        extracts=config.compress_without_llm,
    )
    # There may be more turns than were read; another job continues as long as this one made progress.
    more = len(turns) == limit and bool(output.marks)
    return replace(output, left=output.left + more)


async def _end_steps(
    job: Job, conversation: Conversation, outputs: list[StepOutput], deps: Deps, config: SessionSettings
) -> None:
    scope, chat = job.scope, deps.chat
    turns: list[Turn] = []
    if config.session_episode or config.task_episodes:
        done = step_position(conversation, "close")
        turns = await deps.ledger.turns(scope, after=done, limit=MAX_TURNS)
    more = len(turns) == MAX_TURNS
    notes = [] if more else unprocessed_notes(conversation)
    marks: dict[SessionStep, int] = {"close": turns[-1].position} if turns else {}
    if notes:
        marks["told"] = note_digest(notes[-1])
    outputs.append(StepOutput(fields={} if more else {"closed_at": now()}, marks=marks, left=int(more)))
    if config.session_episode and turns:
        # The running summary of a reopened session is about the earlier part.
        summary = "" if step_position(conversation, "close") else conversation.summary
        outputs.append(await session_episode(scope, turns, chat=chat, now=now(), running_summary=summary))
    if config.task_episodes:
        outputs.append(await episode_of_turns_as_task(conversation, turns, chat=chat, now=now()))
    if notes and (config.session_episode or config.task_episodes):
        tasks_only = not config.session_episode
        outputs.append(await episode_of_notes(conversation, notes, chat=chat, now=now(), tasks_only=tasks_only))
    if config.promote and not more:
        memories = await deps.ledger.find(scope, Listing(filter=STATEMENTS, visible=True, limit=_MAX_PROMOTED))
        promoted = promote(
            scope, list(memories), conversation, now=now(), min_importance=config.promote_min_importance
        )
        outputs.append(StepOutput(changes=tuple(promoted)))


async def end_run(scope: Scope, run: RunRecord, deps: Deps, config: SessionSettings) -> tuple[Outcome, ...]:
    """Store a run's invocation, and its episode if it was a task; a run is stored once however often it ends."""
    since = await deps.ledger.revision(scope.user)
    conversation = await deps.ledger.conversation(scope)
    output = await episode_of_run(conversation, run, chat=deps.chat, now=now())
    effects, by = output.cost.usage(scope.user, "run"), Author(SESSION_AUTHOR, "the end of a run")
    async with record_cost_on_error(deps.ledger, scope, lambda: effects, by=by):
        return await _apply_outputs(conversation, [output], deps, by=by, effects=effects, since=since)


async def record_invocation(scope: Scope, invocation: Mapping[str, Any], deps: Deps) -> None:
    """Append an invocation that an agent reports to its conversation."""
    since = await deps.ledger.revision(scope.user)
    conversation = await deps.ledger.conversation(scope)
    output, by = StepOutput(invocations=(invocation,)), Author(SESSION_AUTHOR, "reported by its agent")
    await _apply_outputs(conversation, [output], deps, by=by, effects=(), since=since)


async def _apply_outputs(
    before: Conversation,
    outputs: Sequence[StepOutput],
    deps: Deps,
    *,
    by: Author,
    effects: Sequence[Effect],
    since: Revision,
) -> tuple[Outcome, ...]:
    """Store the outputs on top of the current conversation; `before` is the one that the steps read."""
    scope, ledger = before.scope, deps.ledger
    outputs = [
        replace(each, changes=tuple(await embed_changes(each.changes, embedder=deps.embedder))) for each in outputs
    ]
    for tries_left in range(_MAX_TRIES - 1, -1, -1):
        current = await ledger.conversation(scope)
        ensure_unchanged(before, current, outputs)
        new = drop_recorded_runs(current, outputs)
        fields = merge_fields(current, new)
        if current.turn_count > before.turn_count:
            # The conversation goes on, so it is not closed.
            fields.pop("closed_at", None)
        updates: list[Effect] = (
            [ConversationUpdate(scope, fields, expected_version=current.version)] if fields else []
        )
        changes = [change for each in new for change in each.changes]
        try:
            applied = await ledger.apply(scope, changes, by=by, effects=[*updates, *effects], since=since)
        except Conflict:
            if not tries_left or (await ledger.conversation(scope)).version == current.version:
                raise
            await asyncio.sleep(random.uniform(0, _PAUSE_S * (_MAX_TRIES - tries_left)))  # noqa: S311 - no secret
        else:
            return applied.outcomes
    raise AssertionError("the last try returns or raises")


_TurnRange: TypeAlias = tuple[int, int]
_MAX_RETRACT_TRIES = 20
_PAGE = 1000


async def retract_turns(records: Collection[MemoryRecord], deps: Deps) -> None:
    """Retract the forgotten turns among some records; jobs remake the summaries and episodes from the others.

    The changes are no part of the forgetting, so that its undo does not depend on what was remade since.
    """
    by_session: dict[Scope, set[int]] = {}
    for record in records:
        if record.category is Category.TURN and record.status is Status.FORGOTTEN:
            by_session.setdefault(record.scope, set()).add(int(record.detail["position"]))
    for scope, positions in by_session.items():
        for tries_left in range(_MAX_RETRACT_TRIES - 1, -1, -1):
            try:
                # The last try overwrites what others wrote: nothing forgotten may stay in a summary.
                await _retract(scope, positions, deps, is_forced=not tries_left)
                break
            except Conflict as error:
                # The turns are forgotten already, so this must not fail.
                if not tries_left:
                    _log.error("a summary may still repeat forgotten turns, summarise the session: %s", error)


async def _retract(scope: Scope, positions: Collection[int], deps: Deps, *, is_forced: bool) -> None:
    conversation = await deps.ledger.conversation(scope)
    if not conversation.turn_count:
        return
    fields, changes = await _retract_from_summary(conversation, positions, deps.ledger)
    jobs = [NewJob(kind=JobKind.SUMMARISE, key=job_key(scope))] if fields else []
    for episode in await _covering_episodes(scope, positions, deps.ledger):
        changes.append(Forget(episode.id, episode.version))
        at_end = episode.detail.get("kind") == "session"
        job = rebuild_job(Remade(str(episode.category), scope, (), _turn_range(episode.detail), at_end))
        jobs += [job] if job is not None else []
    metadata = {
        **conversation.metadata,
        **fields.get("metadata", {}),
        RETRACTIONS: retraction_count(conversation) + 1,
    }
    version = None if is_forced else conversation.version
    update = ConversationUpdate(scope, {**fields, "metadata": metadata}, version)
    effects: list[Effect] = [update, *(EnqueueJob(scope, job) for job in jobs)]
    embedded = await embed_changes(changes, embedder=deps.embedder)
    await deps.ledger.apply(scope, embedded, by=Author(SESSION_AUTHOR, "turns were forgotten"), effects=effects)


async def _retract_from_summary(
    conversation: Conversation, positions: Collection[int], ledger: Ledger
) -> tuple[dict[str, Any], list[Change]]:
    """Return the fields of the conversation, and the changes of its summary, without these turns."""
    scope, done = conversation.scope, step_position(conversation, "summary")
    fields: dict[str, Any] = {}
    left = [each for each in conversation.invocations if not _overlaps(_turn_range(each), positions)]
    if len(left) < len(conversation.invocations):
        fields["invocations"] = left
    summaries = await ledger.get(scope, [summary_id(scope)])
    stored = next((each for each in summaries if each.status is Status.ACTIVE), None)
    # A summary without a position was set by a client, and may be about any turn.
    if not (conversation.summary or stored) or (done and min(positions) > done):
        return fields, []
    turns = await ledger.turns(scope, after=0, limit=MAX_TURNS)
    extract = extract_summary([turn for turn in turns if not done or turn.position <= done])
    # From position 0 on, the next update summarises all turns.
    fields |= {"summary": extract.text, "metadata": merge_marks(conversation, {"summary": 0})}
    if stored is None:
        return fields, []
    detail = {name: value for name, value in stored.detail.items() if name != MODEL} | extract.detail
    new = {"content": extract.text, "trust": extract.trust, "prompt_digest": None, "detail": detail}
    if extract.text:
        return fields, [Update(stored.id, new, stored.version)]
    marked = {"detail": {**stored.detail, RETRACTED: True}}
    return fields, [Update(stored.id, marked, stored.version), Forget(stored.id)]


async def _covering_episodes(scope: Scope, positions: Collection[int], ledger: Ledger) -> list[MemoryRecord]:
    in_session = And((any_of("category", str(Category.EPISODE)), any_of("session_id", scope.session)))
    pages = read_pages(ledger, Scope(scope.user), Listing(filter=in_session, limit=_PAGE))
    episodes = [record async for page in pages for record in page if record.scope == scope]
    covering = [each for each in episodes if _overlaps(_turn_range(each.detail), positions)]
    return [each for each in covering if not await _is_remade(each, ledger)]


async def _is_remade(episode: MemoryRecord, ledger: Ledger) -> bool:
    """Return whether it was made from the turns that are left: made again, it would have the same id."""
    first, last = _turn_range(episode.detail) or (1, 0)
    turns = await ledger.turns(episode.scope, after=first - 1, limit=MAX_TURNS)
    left = [turn for turn in turns if turn.position <= last]
    return bool(left) and episode.id == episode_id(episode.scope, str(episode.detail.get("kind")), left)


def _turn_range(detail: Mapping[str, Any]) -> _TurnRange | None:
    first, last = detail.get("turn_start"), detail.get("turn_end")
    return (first, last) if isinstance(first, int) and isinstance(last, int) else None


def _overlaps(turns: _TurnRange | None, positions: Collection[int]) -> bool:
    return turns is not None and any(turns[0] <= position <= turns[1] for position in positions)
