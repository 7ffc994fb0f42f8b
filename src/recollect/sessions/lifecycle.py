"""Whether a session has begun, and how one begins before anything is said in it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from recollect.deps import Deps
from recollect.errors import Conflict, NotFound
from recollect.ledger.protocol import Ledger, Revision
from recollect.model.change import (
    Author,
    Change,
    ConversationUpdate,
    Effect,
    EnqueueJob,
    FinishJob,
    ModelUsage,
    Outcome,
)
from recollect.model.erasure import Remade
from recollect.model.job import Job, JobKind, NewJob
from recollect.model.memory import Category
from recollect.model.query import Listing, Op, Where
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.model.turn import Conversation, Turn
from recollect.sessions import compress as compressing
from recollect.sessions.agent_runs import RunRecord, note_digest, unprocessed_notes
from recollect.sessions.compress import close_session, rebuild_session_episode
from recollect.sessions.episodes import episode_of_notes, episode_of_run, episode_of_turns_as_task
from recollect.sessions.promote import promote
from recollect.sessions.step_output import (
    SessionStep,
    StepOutput,
    drop_recorded_runs,
    ensure_unchanged,
    merge_fields,
    step_position,
)
from recollect.sessions.summarize import build_invocations, summary_id, update_summary
from recollect.write.embed import embed_changes
from recollect.write.metering import record_cost_on_error
from recollect.write.redact import redact
from recollect.write.related import STATEMENTS
from recollect.write.triggers import job_key

_STARTED_KEY = "begun_at"
_SESSION_MEMORIES = Listing(filter=Where("level", Op.EQ, str(Level.SESSION)), limit=1000)


async def begin_session(scope: Scope, *, ledger: Ledger, by: Author) -> Conversation:
    """The session, which there is from now on, as empty as it may be; one that there was stays as it is."""
    conversation = await ledger.conversation(scope)
    if not await _session_exists(conversation, ledger):
        metadata = {**conversation.metadata, _STARTED_KEY: now().isoformat()}
        note = ConversationUpdate(scope, {"metadata": metadata}, conversation.version)
        # Where someone was quicker, it has begun with that.
        with suppress(Conflict):
            await ledger.apply(scope, [], by=by, effects=[note])
    return await ledger.conversation(scope)


async def require_session(scope: Scope, *, ledger: Ledger) -> Conversation:
    """The session, or a NotFound for one of which nothing was ever kept: a name may be mistyped."""
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


SESSION_AUTHOR = "conversation"
_MAX_TURNS = 1000
_MAX_PROMOTED = 1000
# However much is said meanwhile, it is written in the end: each try takes no longer than a read and a write.
_MAX_TRIES = 50
_PAUSE_S = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
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
        unsummarized = conversation.turn_count - step_position(conversation, "summary")
        return bool(compress) or self.invocations or bool(self.summary_every and unsummarized >= self.summary_every)


def rebuild_job(lost: Remade) -> NewJob | None:
    """The job that makes anew what an erasure took along though some of its sources stay; None if none need be."""
    key = job_key(lost.scope)
    if lost.kind == "conversation":
        return NewJob(kind=JobKind.SUMMARISE, key=key)
    if lost.kind != Category.EPISODE or lost.turns is None:
        return None
    first, last = lost.turns
    payload = {"first": first, "last": last, "at_end": lost.at_end}
    suffix = " at the end" if lost.at_end else ""
    return NewJob(kind=JobKind.SUMMARISE, key=f"{key} {first}-{last}{suffix}", payload=payload)


async def summarize_session(job: Job, deps: Deps, config: SessionConfig) -> Mapping[str, Any]:
    """Compress what is due, bring the running summary and the invocations up to date, and finish the job."""
    outputs: list[StepOutput] = []
    async with record_cost_on_error(
        deps.ledger, job.scope, lambda: _costs(job.scope, str(job.kind), outputs), by=Author(SESSION_AUTHOR)
    ):
        return await _run_summary_steps(job, outputs, deps, config)


async def _run_summary_steps(
    job: Job, outputs: list[StepOutput], deps: Deps, config: SessionConfig
) -> Mapping[str, Any]:
    scope, ledger = job.scope, deps.ledger
    since = await ledger.revision(scope.user)
    conversation = await ledger.conversation(scope)
    if "first" in job.payload:
        turns = await _turns_after(scope, job.payload["first"] - 1, deps)
        left = [turn for turn in turns if turn.position <= job.payload["last"]]
        remake = rebuild_session_episode if job.payload.get("at_end") else compressing.rebuild_episode
        outputs.append(await remake(scope, left, chat=deps.chat, now=now(), timeout_s=config.timeout_s))
        return await _finish(job, conversation, outputs, deps, since=since)
    if config.compress_every:
        outputs.append(await _compress(conversation, deps, config))
    if config.summary_every:
        turns = await _turns_after(
            scope, step_position(conversation, "summary"), deps, max_turns=max(_MAX_TURNS, config.summary_every)
        )
        summary_record = next(iter(await ledger.get(scope, [summary_id(scope)])), None)
        outputs.append(
            await update_summary(
                conversation,
                turns,
                chat=deps.chat,
                now=now(),
                stored=summary_record,
                every=config.summary_every,
                timeout_s=config.timeout_s,
            )
        )
    if config.invocations:
        turns = await _turns_after(scope, max(0, conversation.turn_count - _MAX_TURNS), deps)
        outputs.append(build_invocations(conversation, turns, now=now()))
    return await _finish(job, conversation, outputs, deps, since=since)


async def _compress(conversation: Conversation, deps: Deps, config: SessionConfig) -> StepOutput:
    every, keep = config.compress_every, config.compress_keep
    max_turns = max(_MAX_TURNS, every + keep)
    turns = await _turns_after(conversation.scope, step_position(conversation, "compress"), deps, max_turns=max_turns)
    output = await compressing.compress(
        conversation,
        turns,
        chat=deps.chat,
        now=now(),
        every=every,
        keep=keep,
        extracts=config.extracts,
        timeout_s=config.timeout_s,
    )
    # There may be more turns than were read; as long as it gets on, it goes on.
    more = len(turns) == max_turns and bool(output.marks)
    return replace(output, left=output.left + more)


async def end_session(job: Job, deps: Deps, config: SessionConfig) -> Mapping[str, Any]:
    """End a conversation: its episode, what of it goes to the long-term level, and the end of the job.

    A very long one is ended part by part, a job and an episode each.
    """
    outputs: list[StepOutput] = []
    async with record_cost_on_error(
        deps.ledger, job.scope, lambda: _costs(job.scope, str(job.kind), outputs), by=Author(SESSION_AUTHOR)
    ):
        return await _run_end_steps(job, outputs, deps, config)


async def _run_end_steps(job: Job, outputs: list[StepOutput], deps: Deps, config: SessionConfig) -> Mapping[str, Any]:
    scope, ledger = job.scope, deps.ledger
    since = await ledger.revision(scope.user)
    conversation = await ledger.conversation(scope)
    turns: list[Turn] = []
    if config.episode or config.tasks:
        turns = await _turns_after(scope, step_position(conversation, "close"), deps)
    more = len(turns) == _MAX_TURNS
    notes = [] if more else unprocessed_notes(conversation)
    close_mark: dict[SessionStep, int] = {"close": turns[-1].position} if turns else {}
    note_mark: dict[SessionStep, int] = {"told": note_digest(notes[-1])} if notes else {}
    marked = StepOutput(
        fields={} if more else {"closed_at": now()},
        marks={**close_mark, **note_mark},
        left=int(more),
    )
    outputs.append(marked)
    if config.episode:
        closing = await close_session(conversation, turns, chat=deps.chat, now=now(), timeout_s=config.timeout_s)
        outputs.append(replace(closing, fields={}))
    if config.tasks:
        outputs.append(
            await episode_of_turns_as_task(conversation, turns, chat=deps.chat, now=now(), timeout_s=config.timeout_s)
        )
    if notes and (config.episode or config.tasks):
        outputs.append(
            await episode_of_notes(
                conversation,
                notes,
                chat=deps.chat,
                now=now(),
                tasks_only=not config.episode,
                timeout_s=config.timeout_s,
            )
        )
    if config.promote_from is not None and not more:
        listing = Listing(filter=STATEMENTS, visible=True, limit=_MAX_PROMOTED)
        memories = list(await ledger.find(scope, listing))
        promoted = promote(scope, memories, conversation, now=now(), min_importance=config.promote_from)
        outputs.append(StepOutput(changes=tuple(promoted)))
    return await _finish(job, conversation, outputs, deps, since=since)


async def end_run(scope: Scope, run: RunRecord, deps: Deps, config: SessionConfig) -> tuple[Outcome, ...]:
    """Keep what a run came to with its conversation, and as an episode if it was a task; twice is once."""
    ledger = deps.ledger
    since = await ledger.revision(scope.user)
    conversation = await ledger.conversation(scope)
    outputs = [await episode_of_run(conversation, run, chat=deps.chat, now=now(), timeout_s=config.timeout_s)]
    effects, by = _costs(scope, "run", outputs), Author(SESSION_AUTHOR, "the end of a run")
    async with record_cost_on_error(ledger, scope, lambda: effects, by=by):
        return await _apply_outputs(conversation, outputs, deps, by=by, effects=effects, since=since)


async def record_invocation(scope: Scope, invocation: Mapping[str, Any], deps: Deps) -> None:
    """Add what an invocation came to, as its agent tells it, to those of the conversation."""
    since = await deps.ledger.revision(scope.user)
    conversation = await deps.ledger.conversation(scope)
    outputs = [StepOutput(invocations=(invocation,))]
    await _apply_outputs(
        conversation, outputs, deps, by=Author(SESSION_AUTHOR, "told by its agent"), effects=(), since=since
    )


async def _turns_after(scope: Scope, position: int, deps: Deps, *, max_turns: int = _MAX_TURNS) -> list[Turn]:
    return await deps.ledger.turns(scope, after=position, limit=max_turns)


async def _finish(
    job: Job, conversation: Conversation, outputs: Sequence[StepOutput], deps: Deps, *, since: Revision
) -> Mapping[str, Any]:
    """Write all of it with the end of the job, in one transaction; what is left is a job of its own."""
    scope = job.scope
    report: dict[str, Any] = {
        "changes": sum(len(each.changes) for each in outputs),
        # They quote what models and their servers wrote, whatever that was.
        "reasons": [redact(reason).text for each in outputs for reason in each.reasons],
    }
    effects = _costs(scope, str(job.kind), outputs)
    if any(each.left for each in outputs):
        report["more"] = True
        effects.append(EnqueueJob(scope, NewJob(kind=job.kind, key=job_key(scope))))
    effects.append(FinishJob(job.id, job.lease or "", report))
    await _apply_outputs(
        conversation, outputs, deps, by=Author(SESSION_AUTHOR, str(job.kind)), effects=effects, since=since
    )
    return report


async def _apply_outputs(
    before: Conversation,
    outputs: Sequence[StepOutput],
    deps: Deps,
    *,
    by: Author,
    effects: Sequence[Effect],
    since: Revision,
) -> tuple[Outcome, ...]:
    """Write it on top of what the conversation is by now, so that nothing is lost that others wrote meanwhile.

    `before` is what the conversation was when it was read.
    """
    scope, ledger = before.scope, deps.ledger
    outputs = [replace(each, changes=await _with_vectors(each.changes, deps)) for each in outputs]
    for tries_left in range(_MAX_TRIES - 1, -1, -1):
        current = await ledger.conversation(scope)
        ensure_unchanged(before, current, outputs)
        new = drop_recorded_runs(current, outputs)
        changes = [change for each in new for change in each.changes]
        notes = _notes(before, current, new)
        try:
            applied = await ledger.apply(scope, changes, by=by, effects=[*notes, *effects], since=since)
        except Conflict:
            if not tries_left or (await ledger.conversation(scope)).version == current.version:
                raise
            await asyncio.sleep(random.uniform(0, _PAUSE_S * (_MAX_TRIES - tries_left)))
        else:
            return applied.outcomes
    raise AssertionError("the last try returns or raises")


async def _with_vectors(changes: Sequence[Change], deps: Deps) -> tuple[Change, ...]:
    return tuple(await embed_changes(changes, embedder=deps.embedder))


def _costs(scope: Scope, step: str, outputs: Sequence[StepOutput]) -> list[Effect]:
    return [
        ModelUsage(
            user=scope.user,
            step=step,
            model=each.cost.model,
            calls=each.cost.calls,
            tokens_in=each.cost.tokens_in,
            tokens_out=each.cost.tokens_out,
            at=now(),
        )
        for each in outputs
        if each.cost.calls
    ]


def _notes(before: Conversation, current: Conversation, outputs: Sequence[StepOutput]) -> list[Effect]:
    fields = merge_fields(current, outputs)
    if current.turn_count > before.turn_count:
        # It goes on: what was said meanwhile is for another end.
        fields.pop("closed_at", None)
    return [ConversationUpdate(current.scope, fields, expected_version=current.version)] if fields else []
