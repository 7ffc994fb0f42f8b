"""The end of a session: one sentence or two about what happened in it, with its date, as an episode."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime

from recollect.conversation.asking import ask_text, spread, talk_lines
from recollect.conversation.compress import Summed, episode_of_turns
from recollect.conversation.extracts import BY_ASSISTANT, BY_USER, extracts
from recollect.conversation.worth import good_enough
from recollect.conversation.written import Cost, Written, mark_of
from recollect.model.change import Add
from recollect.model.memory import Trust
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Turn
from recollect.models.chat import Chat
from recollect.prompts import prompt
from recollect.prompts.data import json_line, new_fence
from recollect.write.screening.screen import screen

_IMPORTANCE = 0.6
_MOST_EXTRACT_CHARS = 500
# A date that is told is told at the beginning.
_HEAD_CHARS = 60
# Not from the calendar module: there they are in the language of the machine.
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


async def close(
    conversation: Conversation,
    turns: Sequence[Turn],
    *,
    chat: Chat | None,
    now: datetime,
    timeout_s: float | None = None,
) -> Written:
    """The episode of the session and the time it is closed at; `turns` are those after the mark "close", in order.

    A session that goes on after its end gets another episode of what was said then. Small talk alone makes none.
    """
    done = mark_of(conversation, "close")
    said = [turn for turn in turns if turn.position > done]
    fields = {"closed_at": now}
    if not said:
        return Written(fields=fields)
    screened = screen(said)
    if not screened.worth:
        return Written(fields=fields, marks={"close": said[-1].position}, reasons=(f"no episode: {screened.reason}",))
    # What was summed up before a session was opened again is about something else.
    summary = "" if done else conversation.summary
    summed = await _sum_up(screened.turns, summary, chat=chat, timeout_s=timeout_s)
    return Written(
        changes=_kept(conversation.scope, said, summed, now=now),
        fields=fields,
        marks={"close": said[-1].position},
        cost=summed.cost,
        reasons=(summed.why,) if summed.why else (),
    )


async def close_anew(
    scope: Scope, turns: Sequence[Turn], *, chat: Chat | None, now: datetime, timeout_s: float | None = None
) -> Written:
    """The episode of a session that has ended, of the turns that are left of it after some were erased."""
    screened = screen(turns)
    if not turns or not screened.worth:
        return Written(reasons=(f"no episode: {screened.reason}" if turns else "nothing is left of these turns",))
    summed = await _sum_up(screened.turns, "", chat=chat, timeout_s=timeout_s)
    return Written(
        changes=_kept(scope, turns, summed, now=now),
        cost=summed.cost,
        reasons=(summed.why,) if summed.why else (),
    )


def _kept(scope: Scope, said: Sequence[Turn], summed: Summed, *, now: datetime) -> tuple[Add, ...]:
    if not summed.text:
        return ()
    return (Add(episode_of_turns(scope, said, summed, now=now, kind="session", importance=_IMPORTANCE)),)


def told_day(first: date, last: date) -> str:
    """A day as an episode begins with it: Dec 29 2024; or from which to which."""
    told = [f"{_MONTHS[day.month - 1]} {day.day} {day.year}" for day in (first, last)]
    return told[0] if first == last else " to ".join(told)


async def _sum_up(turns: Sequence[Turn], summary: str, *, chat: Chat | None, timeout_s: float | None) -> Summed:
    first, last = min(turn.said_at for turn in turns).date(), max(turn.said_at for turn in turns).date()
    day = told_day(first, last)
    why, cost = "", Cost()
    if chat is not None:
        asked = prompt("summary_session")
        question = asked.fill(
            fence=new_fence(),
            day=day,
            summary=json_line({"summary so far": summary or None}),
            conversation=talk_lines(spread(turns)),
        )
        told = await ask_text(chat, question, judge=lambda text: _judged(text, turns, summary), timeout_s=timeout_s)
        if told.text:
            return Summed(_dated(told.text, first, day), "model", Trust.LOW, asked.digest, told.cost)
        why, cost = f"the model's summary was not used: {told.why}", told.cost
    picked = extracts(turns, most_chars=_MOST_EXTRACT_CHARS)
    trust = Trust.HIGH if picked.by_user else Trust.LOW
    by = BY_USER if picked.by_user else BY_ASSISTANT
    # "The user said" goes on as a sentence that begins with its date.
    text = f"On {day}, {by[0].lower()}{picked.text[1:]}" if picked.text else ""
    return Summed(text, "extract", trust, None, cost, why)


def _judged(text: str, turns: Sequence[Turn], summary: str) -> str:
    # It need not keep all of the running summary, but may say what is in it: that counts as said.
    return good_enough(text, "", turns, known=summary).reason


def _dated(text: str, first: date, day: str) -> str:
    """The text with its date before it, unless it tells it itself."""
    head = text[:_HEAD_CHARS]
    return text if str(first.year) in head and str(first.day) in head else f"On {day}: {text}"
