"""The end of a session: one sentence or two about what happened in it, with its date, as an episode."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime

from recollect.conversation.asking import ask_text, sample_turns, turns_as_json
from recollect.conversation.compress import TurnSummary, episode_of_turns
from recollect.conversation.extracts import BY_ASSISTANT, BY_USER, summarize_extractively
from recollect.conversation.worth import check_summary
from recollect.conversation.written import Cost, StepOutput, step_position
from recollect.model.change import Add
from recollect.model.memory import Trust
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Turn
from recollect.models.chat import Chat
from recollect.prompts import prompt
from recollect.prompts.data import json_line, new_delimiter
from recollect.write.screening.screen import screen

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
