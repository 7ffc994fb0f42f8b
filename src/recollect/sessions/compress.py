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
from recollect.model.memory import Category, MemoryRecord, MemoryType, Trust
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Turn
from recollect.models.chat import Chat
from recollect.prompts.rendering import json_line
from recollect.sessions.extractive_summary import BY_ASSISTANT, BY_USER, summarize_extractively
from recollect.sessions.step_output import StepOutput, evidence_ids, stable_id, step_position, turn_range
from recollect.sessions.summary_text import Summary, check_summary, summarize_with_llm, turns_as_json
from recollect.write.ask_llm import LlmCost
from recollect.write.screen import screen

EVERY = 20
KEEP = 10
SOURCE = "conversation"
_RANGE_IMPORTANCE = 0.5
_SESSION_IMPORTANCE = 0.6
_MAX_RANGE_EXTRACT_CHARS = 800
_MAX_SESSION_EXTRACT_CHARS = 500
_NO_MODEL = "there is no model to sum it up"
_NOT_USED = "the model's summary was not used: {reason}"
# A date that a summary names itself stands at its beginning.
_HEAD_CHARS = 60
# Not from the calendar module, whose names depend on the locale.
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def is_due(conversation: Conversation, *, every: int = EVERY, keep: int = KEEP) -> bool:
    """Return whether there may be turns to compress, as far as the turn count tells."""
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
    timeout_s: float | None = None,
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
            output = await rebuild_episode(
                conversation.scope, group, chat=chat, now=now, extracts=extracts, timeout_s=timeout_s
            )
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


async def rebuild_episode(
    scope: Scope,
    turns: Sequence[Turn],
    *,
    chat: Chat | None,
    now: datetime,
    extracts: bool = True,
    timeout_s: float | None = None,
) -> StepOutput:
    """Return the episode of exactly these turns, such as those left of a range after some were erased."""
    if not turns:
        return StepOutput(reasons=("nothing is left of these turns",))
    summary = await _summarize_range(turns, chat=chat, extracts=extracts, timeout_s=timeout_s)
    return _episode_output(scope, turns, summary, now=now, kind="range", importance=_RANGE_IMPORTANCE)


async def _summarize_range(
    turns: Sequence[Turn], *, chat: Chat | None, extracts: bool, timeout_s: float | None
) -> Summary:
    """Summarise with the model, else extractively if `extracts` allows it."""
    screened = screen(turns)
    clean = screened.turns
    reason, cost = "", LlmCost()
    # Small talk is not worth a call.
    if chat is not None and screened.has_content:
        summary = await summarize_with_llm(
            chat,
            "compress",
            check=lambda text: check_summary(text, "", clean),
            timeout_s=timeout_s,
            conversation=turns_as_json(clean),
        )
        if summary.text:
            return summary
        reason, cost = _NOT_USED.format(reason=summary.reason), summary.cost
    if not extracts:
        return Summary(cost=cost, reason=reason or (_NO_MODEL if chat is None else screened.reason))
    extract = summarize_extractively(clean, max_chars=_MAX_RANGE_EXTRACT_CHARS)
    reason = reason or ("" if extract.text else "nothing was said that could be kept")
    return Summary(extract.text, trust=Trust.HIGH if extract.by_user else Trust.LOW, cost=cost, reason=reason)


async def close_session(
    conversation: Conversation,
    turns: Sequence[Turn],
    *,
    chat: Chat | None,
    now: datetime,
    timeout_s: float | None = None,
) -> StepOutput:
    """Return the episode of a session that ends; `turns` are those after the mark "close", in order.

    A session that goes on after its end gets another episode for the later turns. Small talk alone makes none.
    """
    done = step_position(conversation, "close")
    new_turns = [turn for turn in turns if turn.position > done]
    if not new_turns:
        return StepOutput(fields={"closed_at": now})
    # The running summary of a session that was opened again is about the earlier part.
    output = await rebuild_session_episode(
        conversation.scope,
        new_turns,
        chat=chat,
        now=now,
        summary="" if done else conversation.summary,
        timeout_s=timeout_s,
    )
    return replace(output, fields={"closed_at": now}, marks={"close": new_turns[-1].position})


async def rebuild_session_episode(
    scope: Scope,
    turns: Sequence[Turn],
    *,
    chat: Chat | None,
    now: datetime,
    summary: str = "",
    timeout_s: float | None = None,
) -> StepOutput:
    """Return the episode of the turns of an ended session, such as those left after some were erased."""
    if not turns:
        return StepOutput(reasons=("nothing is left of these turns",))
    screened = screen(turns)
    if not screened.has_content:
        return StepOutput(reasons=(f"no episode: {screened.reason}",))
    text = await _summarize_session(screened.turns, summary, chat=chat, timeout_s=timeout_s)
    return _episode_output(scope, turns, text, now=now, kind="session", importance=_SESSION_IMPORTANCE)


async def _summarize_session(
    turns: Sequence[Turn], running: str, *, chat: Chat | None, timeout_s: float | None
) -> Summary:
    first, last = min(turn.said_at for turn in turns).date(), max(turn.said_at for turn in turns).date()
    day = _format_days(first, last)
    reason, cost = "", LlmCost()
    if chat is not None:
        # It need not repeat all of the running summary, but may say what is in it.
        summary = await summarize_with_llm(
            chat,
            "summary_session",
            check=lambda text: check_summary(text, "", turns, context=running),
            timeout_s=timeout_s,
            day=day,
            summary=json_line({"summary so far": running or None}),
            conversation=turns_as_json(turns),
        )
        if summary.text:
            return replace(summary, text=_with_date(summary.text, first, day))
        reason, cost = _NOT_USED.format(reason=summary.reason), summary.cost
    picked = summarize_extractively(turns, max_chars=_MAX_SESSION_EXTRACT_CHARS)
    prefix = BY_USER if picked.by_user else BY_ASSISTANT
    # "The user said" continues as a sentence that begins with its date.
    text = f"On {day}, {prefix[0].lower()}{picked.text[1:]}" if picked.text else ""
    return Summary(text, trust=Trust.HIGH if picked.by_user else Trust.LOW, cost=cost, reason=reason)


def _format_days(first: date, last: date) -> str:
    """Return a day as "Dec 29 2024", or a span of two."""
    days = [f"{_MONTHS[day.month - 1]} {day.day} {day.year}" for day in (first, last)]
    return days[0] if first == last else " to ".join(days)


def _with_date(text: str, first: date, day: str) -> str:
    """Prefix the text with its date unless it names it."""
    head = text[:_HEAD_CHARS]
    return text if str(first.year) in head and str(first.day) in head else f"On {day}: {text}"


def _episode_output(
    scope: Scope, turns: Sequence[Turn], summary: Summary, *, now: datetime, kind: str, importance: float
) -> StepOutput:
    """Return the episode that stands for the turns; the same turns always make the same id."""
    reasons = (summary.reason,) if summary.reason else ()
    if not summary.text:
        return StepOutput(cost=summary.cost, reasons=reasons)
    at = min(turn.said_at for turn in turns)
    until = max(turn.said_at for turn in turns)
    episode = MemoryRecord(
        id=stable_id(scope, kind, at=until, source_ids=[turn.id for turn in turns]),
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
        detail={**turn_range(turns), "until": until.isoformat(), "made": summary.made, "kind": kind},
        prompt_digest=summary.digest,
    )
    return StepOutput(changes=(Add(episode),), cost=summary.cost, reasons=reasons)
