"""Turn a session into episodes: ranges of its older turns while it lasts, and the whole of it when it ends.

The ranges follow from the number of turns alone. With `every` 20 and `keep` 10, the first 20 turns give one of turns
1 to 10, and each 20 more give one of 20 turns: 11 to 30, 31 to 50 and so on; the last 10 are never in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime

from recollect.errors import InvalidInput, ModelUnavailable
from recollect.model.change import Add, Change
from recollect.model.memory import Category, MemoryRecord, MemoryType
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Turn
from recollect.models.chat import Chat
from recollect.prompts.rendering import json_line
from recollect.sessions.step_output import StepOutput, evidence_ids, stable_id, step_position, turn_range
from recollect.sessions.summary_text import (
    Summary,
    check_summary,
    summarize_extractively,
    summarize_with_llm,
    turns_as_json,
)
from recollect.write.ask_llm import LlmCost
from recollect.write.screen import screen

EVERY = 20
KEEP = 10
SOURCE = "conversation"
_RANGE_IMPORTANCE = 0.5
_SESSION_IMPORTANCE = 0.6
_MAX_RANGE_EXTRACT_CHARS = 800
_MAX_SESSION_EXTRACT_CHARS = 500
_NO_MODEL = "there is no model to summarise it"
_NOTHING_LEFT = "nothing is left of these turns"
# A date that a summary names itself stands at its beginning.
_HEAD_CHARS = 60
# Not from the calendar module, whose names depend on the locale.
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def is_due(conversation: Conversation, *, every: int, keep: int) -> bool:
    """Return whether there may be turns to compress, judged by the turn count."""
    mark = step_position(conversation, "compress")
    return conversation.turn_count - mark >= every + (keep if mark else 0)


def due_ranges(turns: Sequence[Turn], *, done: int, every: int, keep: int) -> list[Sequence[Turn]]:
    """Return the ranges of turns after the position `done` that are to be compressed, the oldest first."""
    if not 0 <= keep < every:
        raise InvalidInput(f"`keep` must be at least 0 and less than `every`, got {keep} of {every}")
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
) -> StepOutput:
    """Return an episode for each range that is due; `turns` are those after the mark "compress", in order.

    If the model stops answering, the finished ranges stand and the rest is `left`; ModelUnavailable if there are
    none. Without `extracts` and without a model the ranges wait.
    """
    ranges = due_ranges(turns, done=step_position(conversation, "compress"), every=every, keep=keep)
    if ranges and chat is None and not extracts:
        return StepOutput(reasons=(_NO_MODEL,))
    changes: list[Change] = []
    reasons: list[str] = []
    cost, done = LlmCost(), 0
    for group in ranges:
        try:
            output = await range_episode(conversation.scope, group, chat=chat, now=now, extracts=extracts)
        except ModelUnavailable as error:
            if not done:
                raise
            reasons.append(f"the model stopped answering: {error}")
            break
        done += 1
        cost += output.cost
        changes += output.changes
        reasons += [f"turns {group[0].position}-{group[-1].position}: {reason}" for reason in output.reasons]
    return StepOutput(
        changes=tuple(changes),
        marks={"compress": ranges[done - 1][-1].position} if done else {},
        cost=cost,
        left=len(ranges) - done,
        reasons=tuple(reasons),
    )


async def range_episode(
    scope: Scope, turns: Sequence[Turn], *, chat: Chat | None, now: datetime, extracts: bool = True
) -> StepOutput:
    """Return the episode of a range of turns, or of those left of it after some were erased."""
    if not turns:
        return StepOutput(reasons=(_NOTHING_LEFT,))
    screened = screen(turns)
    # Small talk is not worth a call.
    chat = chat if screened.has_topic else None
    summary = await _summarize(screened.turns, "compress", chat=chat, max_chars=_MAX_RANGE_EXTRACT_CHARS)
    if summary.made == "extract" and not extracts:
        summary = replace(summary, text="", reason=summary.reason or screened.reason)
    elif not summary.text and not summary.reason:
        summary = replace(summary, reason="there is no sentence to quote")
    return _episode_output(scope, turns, summary, now=now, kind="range", importance=_RANGE_IMPORTANCE)


async def session_episode(
    scope: Scope, turns: Sequence[Turn], *, chat: Chat | None, now: datetime, running_summary: str = ""
) -> StepOutput:
    """Return the episode of an ended session, or of the turns left of it; small talk alone makes none."""
    if not turns:
        return StepOutput(reasons=(_NOTHING_LEFT,))
    screened = screen(turns)
    if not screened.has_content:
        return StepOutput(reasons=(f"no episode: {screened.reason}",))
    first, last = (pick(turn.said_at for turn in screened.turns).date() for pick in (min, max))
    days = _format_days(first, last)
    summary = await _summarize(
        screened.turns,
        "summary_session",
        chat=chat,
        max_chars=_MAX_SESSION_EXTRACT_CHARS,
        # It need not repeat all of the running summary, but may say what is in it.
        context=running_summary,
        day=days,
        summary=json_line({"summary so far": running_summary or None}),
    )
    text = summary.text
    if summary.made == "model":
        summary = replace(summary, text=_with_date(text, first, days))
    elif text:
        # "The user said" continues as a sentence that begins with its date.
        summary = replace(summary, text=f"On {days}, {text[0].lower()}{text[1:]}")
    return _episode_output(scope, turns, summary, now=now, kind="session", importance=_SESSION_IMPORTANCE)


async def _summarize(
    turns: Sequence[Turn], prompt_name: str, *, chat: Chat | None, max_chars: int, context: str = "", **inputs: str
) -> Summary:
    """Summarise with the model, or extractively if there is none or its summary fails the checks."""
    reason, cost = "", LlmCost()
    if chat is not None:
        summary = await summarize_with_llm(
            chat,
            prompt_name,
            check=lambda text: check_summary(text, "", turns, context=context),
            conversation=turns_as_json(turns),
            **inputs,
        )
        if summary.text:
            return summary
        reason, cost = f"the model's summary was not used: {summary.reason}", summary.cost
    return replace(summarize_extractively(turns, max_chars=max_chars), cost=cost, reason=reason)


def _format_days(first: date, last: date) -> str:
    """Return a day as "Dec 29 2024", or a span of two."""
    days = [f"{_MONTHS[day.month - 1]} {day.day} {day.year}" for day in (first, last)]
    return days[0] if first == last else " to ".join(days)


def _with_date(text: str, first: date, day: str) -> str:
    """Prefix the text with its date unless it names it."""
    head = text[:_HEAD_CHARS]
    return text if str(first.year) in head and str(first.day) in head else f"On {day}: {text}"


def episode_id(scope: Scope, kind: str, turns: Sequence[Turn]) -> str:
    """Return the id of the episode that stands for the turns; the same turns always make the same id."""
    return stable_id(scope, kind, at=max(turn.said_at for turn in turns), source_ids=[turn.id for turn in turns])


def _episode_output(
    scope: Scope, turns: Sequence[Turn], summary: Summary, *, now: datetime, kind: str, importance: float
) -> StepOutput:
    reasons = (summary.reason,) if summary.reason else ()
    if not summary.text:
        return StepOutput(cost=summary.cost, reasons=reasons)
    at = min(turn.said_at for turn in turns)
    until = max(turn.said_at for turn in turns)
    episode = MemoryRecord(
        id=episode_id(scope, kind, turns),
        scope=scope,
        level=scope.default_level,
        type=MemoryType.EPISODIC,
        category=Category.EPISODE,
        content=summary.text,
        created_at=now,
        updated_at=now,
        occurred_at=at,
        importance=importance,
        source=SOURCE,
        trust=summary.trust,
        evidence=evidence_ids(turns),
        detail={**turn_range(turns), "until": until.isoformat(), **summary.detail, "kind": kind},
        prompt_digest=summary.digest,
    )
    return StepOutput(changes=(Add(episode),), cost=summary.cost, reasons=reasons)
