"""Compress a long session: ranges of its older turns become an episode each, the latest stay as they are.

The ranges follow from the number of turns alone. With 20 and 10, the first 20 turns give one of turns 1 to 10, and
each 20 more give one of 20 turns: 11 to 30, 31 to 50 and so on; the last 10 are never in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from recollect.errors import InvalidInput, ModelUnavailable
from recollect.model.change import Add
from recollect.model.memory import Category, MemoryRecord, MemoryType, Trust
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Turn
from recollect.models.chat import Chat
from recollect.prompts import prompt
from recollect.prompts.rendering import json_line, new_delimiter
from recollect.sessions.ask_llm import ask_text, check_summary, sample_turns, turns_as_json
from recollect.sessions.extractive_summary import BY_ASSISTANT, BY_USER, summarize_extractively
from recollect.sessions.extractive_summary import summarize_extractively as extracts_of
from recollect.sessions.step_output import Cost, StepOutput, evidence_ids, stable_id, step_position, turn_range
from recollect.write.screen import screen

EVERY = 20
KEEP = 10
SOURCE = "conversation"
_RANGE_IMPORTANCE = 0.5
_MAX_RANGE_EXTRACT_CHARS = 800
_NO_MODEL = "there is no model to sum it up"


@dataclass(frozen=True, slots=True)
class TurnSummary:
    """What some turns come to; `made` by a "model", or as an "extract" of what was said. Empty if nothing was."""

    text: str
    made: str
    trust: Trust
    digest: str | None
    cost: Cost
    why: str = ""


def is_due(conversation: Conversation, *, every: int = EVERY, keep: int = KEEP) -> bool:
    """Whether there may be something to compress, as far as can be told without reading a turn."""
    mark = step_position(conversation, "compress")
    return conversation.turn_count - mark >= every + (keep if mark else 0)


def due_ranges(turns: Sequence[Turn], *, done: int, every: int, keep: int) -> list[Sequence[Turn]]:
    """The ranges of turns after the position `done` that are to be compressed, the oldest first."""
    if not 0 <= keep < every:
        raise InvalidInput(f"of every {every} turns {keep} cannot be kept; keep fewer than are compressed")
    left = [turn for turn in turns if turn.position > done]
    ranges: list[Sequence[Turn]] = []
    first = not done
    while len(left) >= every + (0 if first else keep):
        size = every - keep if first else every
        ranges.append(left[:size])
        left, first = left[size:], False
    return ranges


async def compress(
    conversation: Conversation,
    turns: Sequence[Turn],
    *,
    chat: Chat | None,
    now: datetime,
    every: int = EVERY,
    keep: int = KEEP,
    extracts: bool = True,
    timeout_s: float | None = None,
) -> StepOutput:
    """An episode for each range that is due; `turns` are those after the mark "compress", in order.

    If the model stops answering, what was made stands and the rest is `left`; a ModelUnavailable if nothing was made.
    Without `extracts` only a model makes episodes: where there is none, the ranges wait for one.
    """
    ranges = due_ranges(turns, done=step_position(conversation, "compress"), every=every, keep=keep)
    if ranges and chat is None and not extracts:
        return StepOutput(reasons=(_NO_MODEL,))
    changes: list[Add] = []
    reasons: list[str] = []
    cost, done = Cost(), 0
    for turn_group in ranges:
        try:
            summed = await summarize_turns(turn_group, chat=chat, extracts=extracts, timeout_s=timeout_s)
        except ModelUnavailable as error:
            if not done:
                raise
            reasons.append(f"the model stopped answering: {error}")
            break
        done += 1
        cost += summed.cost
        if summed.why:
            reasons.append(f"turns {turn_group[0].position}-{turn_group[-1].position}: {summed.why}")
        if summed.text:
            changes.append(Add(episode_of_turns(conversation.scope, turn_group, summed, now=now)))
    return StepOutput(
        changes=tuple(changes),
        marks={"compress": ranges[done - 1][-1].position} if done else {},
        cost=cost,
        left=len(ranges) - done,
        reasons=tuple(reasons),
    )


async def rebuild_episode(
    scope: Scope, turns: Sequence[Turn], *, chat: Chat | None, now: datetime, timeout_s: float | None = None
) -> StepOutput:
    """The episode of exactly these turns: what is left of a range after some of it was erased."""
    if not turns:
        return StepOutput(reasons=("nothing is left of these turns",))
    summed = await summarize_turns(turns, chat=chat, timeout_s=timeout_s)
    changes = (Add(episode_of_turns(scope, turns, summed, now=now)),) if summed.text else ()
    return StepOutput(changes=changes, cost=summed.cost, reasons=(summed.why,) if summed.why else ())


async def summarize_turns(
    turns: Sequence[Turn], *, chat: Chat | None, extracts: bool = True, timeout_s: float | None = None
) -> TurnSummary:
    """What the turns come to, by the model; by `extracts` if there is none or its answer is no good, or nothing."""
    screened = screen(turns)
    clean = screened.turns
    why, cost = "", Cost()
    # Small talk is not worth a question.
    if chat is not None and screened.has_content:
        template = prompt("compress")
        question = template.fill(fence=new_delimiter(), conversation=turns_as_json(sample_turns(clean)))
        answer = await ask_text(
            chat, question, judge=lambda text: check_summary(text, "", clean).reason, timeout_s=timeout_s
        )
        if answer.text:
            return TurnSummary(answer.text, "model", Trust.LOW, template.digest, answer.cost)
        why, cost = f"the model's summary was not used: {answer.why}", answer.cost
    if not extracts:
        why = why or (_NO_MODEL if chat is None else screened.reason)
        return TurnSummary("", "extract", Trust.LOW, None, cost, why)
    extract = extracts_of(clean, max_chars=_MAX_RANGE_EXTRACT_CHARS)
    why = why or ("" if extract.text else "nothing was said that could be kept")
    return TurnSummary(extract.text, "extract", Trust.HIGH if extract.by_user else Trust.LOW, None, cost, why)


def episode_of_turns(
    scope: Scope,
    turns: Sequence[Turn],
    summed: TurnSummary,
    *,
    now: datetime,
    kind: str = "range",
    importance: float = _RANGE_IMPORTANCE,
) -> MemoryRecord:
    """The memory that stands for some turns; of one kind, the same turns always make the same one."""
    at = min(turn.said_at for turn in turns)
    until = max(turn.said_at for turn in turns)
    return MemoryRecord(
        id=stable_id(scope, kind, at=until, source_ids=[turn.id for turn in turns]),
        scope=scope,
        level=scope.default_level,
        type=MemoryType.EPISODIC,
        category=Category.EPISODE,
        content=summed.text,
        created_at=now,
        updated_at=now,
        occurred_at=at,
        importance=importance,
        source=SOURCE,
        trust=summed.trust,
        evidence=evidence_ids(turns),
        detail={**turn_range(turns), "until": until.isoformat(), "made": summed.made, "kind": kind},
        prompt_digest=summed.digest,
    )


_SESSION_IMPORTANCE = 0.6
_MAX_SESSION_EXTRACT_CHARS = 500
# A date that is told is told at the beginning.
_HEAD_CHARS = 60
# Not from the calendar module: there they are in the language of the machine.
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


async def close_session(
    conversation: Conversation,
    turns: Sequence[Turn],
    *,
    chat: Chat | None,
    now: datetime,
    timeout_s: float | None = None,
) -> StepOutput:
    """The episode of the session and the time it is closed at; `turns` are those after the mark "close", in order.

    A session that goes on after its end gets another episode of what was said then. Small talk alone makes none.
    """
    done = step_position(conversation, "close")
    new_turns = [turn for turn in turns if turn.position > done]
    fields = {"closed_at": now}
    if not new_turns:
        return StepOutput(fields=fields)
    screened = screen(new_turns)
    if not screened.has_content:
        return StepOutput(
            fields=fields, marks={"close": new_turns[-1].position}, reasons=(f"no episode: {screened.reason}",)
        )
    # What was summed up before a session was opened again is about something else.
    summary = "" if done else conversation.summary
    summed = await _summarize_session(screened.turns, summary, chat=chat, timeout_s=timeout_s)
    return StepOutput(
        changes=_episode_changes(conversation.scope, new_turns, summed, now=now),
        fields=fields,
        marks={"close": new_turns[-1].position},
        cost=summed.cost,
        reasons=(summed.why,) if summed.why else (),
    )


async def rebuild_session_episode(
    scope: Scope, turns: Sequence[Turn], *, chat: Chat | None, now: datetime, timeout_s: float | None = None
) -> StepOutput:
    """The episode of a session that has ended, of the turns that are left of it after some were erased."""
    screened = screen(turns)
    if not turns or not screened.has_content:
        return StepOutput(reasons=(f"no episode: {screened.reason}" if turns else "nothing is left of these turns",))
    summed = await _summarize_session(screened.turns, "", chat=chat, timeout_s=timeout_s)
    return StepOutput(
        changes=_episode_changes(scope, turns, summed, now=now),
        cost=summed.cost,
        reasons=(summed.why,) if summed.why else (),
    )


def _episode_changes(
    scope: Scope, new_turns: Sequence[Turn], summed: TurnSummary, *, now: datetime
) -> tuple[Add, ...]:
    if not summed.text:
        return ()
    return (Add(episode_of_turns(scope, new_turns, summed, now=now, kind="session", importance=_SESSION_IMPORTANCE)),)


def format_days(first: date, last: date) -> str:
    """A day as an episode begins with it: Dec 29 2024; or from which to which."""
    days = [f"{_MONTHS[day.month - 1]} {day.day} {day.year}" for day in (first, last)]
    return days[0] if first == last else " to ".join(days)


async def _summarize_session(
    turns: Sequence[Turn], summary: str, *, chat: Chat | None, timeout_s: float | None
) -> TurnSummary:
    first, last = min(turn.said_at for turn in turns).date(), max(turn.said_at for turn in turns).date()
    day = format_days(first, last)
    why, cost = "", Cost()
    if chat is not None:
        template = prompt("summary_session")
        question = template.fill(
            fence=new_delimiter(),
            day=day,
            summary=json_line({"summary so far": summary or None}),
            conversation=turns_as_json(sample_turns(turns)),
        )
        answer = await ask_text(
            chat, question, judge=lambda text: _check_text(text, turns, summary), timeout_s=timeout_s
        )
        if answer.text:
            return TurnSummary(_with_date(answer.text, first, day), "model", Trust.LOW, template.digest, answer.cost)
        why, cost = f"the model's summary was not used: {answer.why}", answer.cost
    picked = summarize_extractively(turns, max_chars=_MAX_SESSION_EXTRACT_CHARS)
    trust = Trust.HIGH if picked.by_user else Trust.LOW
    prefix = BY_USER if picked.by_user else BY_ASSISTANT
    # "The user said" goes on as a sentence that begins with its date.
    text = f"On {day}, {prefix[0].lower()}{picked.text[1:]}" if picked.text else ""
    return TurnSummary(text, "extract", trust, None, cost, why)


def _check_text(text: str, turns: Sequence[Turn], summary: str) -> str:
    # It need not keep all of the running summary, but may say what is in it: that counts as said.
    return check_summary(text, "", turns, context=summary).reason


def _with_date(text: str, first: date, day: str) -> str:
    """The text with its date before it, unless it tells it itself."""
    head = text[:_HEAD_CHARS]
    return text if str(first.year) in head and str(first.day) in head else f"On {day}: {text}"
