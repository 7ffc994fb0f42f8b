"""The running summary of a conversation, and what came of each exchange in it.

The summary is kept with the conversation and as a memory of its own, one for each conversation, so that it is found
from elsewhere. What a model writes only takes the place of what there is if it is good enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recollect.conversation.asking import MAX_TURNS, ask_text, talk_lines
from recollect.conversation.compress import SOURCE
from recollect.conversation.extracts import BY_USER, extracts, split_extracts
from recollect.conversation.worth import good_enough
from recollect.conversation.written import NO_TIME, Cost, Step, Written, mark_of, range_of, stable_id
from recollect.model.change import Add, Change, Update
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Role, Turn
from recollect.models.chat import Chat
from recollect.prompts import prompt
from recollect.prompts.data import json_line, new_fence, shortened
from recollect.write.screening.screen import Screened, screen

_MOST_QUERY_CHARS = 300
_MOST_RESULT_CHARS = 500
_MOST_EXTRACT_CHARS = 1_200
_IMPORTANCE = 0.5


@dataclass(frozen=True, slots=True)
class _New:
    """A summary that takes the place of the old one."""

    text: str
    made: str
    trust: Trust
    digest: str | None = None


def summary_id(scope: Scope) -> str:
    """The id of the memory that is a conversation's summary; it does not change while the summary does."""
    return stable_id(scope, "summary", at=NO_TIME, of=())


def unsummed(conversation: Conversation, turns: Sequence[Turn]) -> list[Turn]:
    """The turns that the summary does not cover."""
    done = mark_of(conversation, "summary")
    return [turn for turn in turns if turn.position > done]


async def summarise(
    conversation: Conversation,
    turns: Sequence[Turn],
    *,
    chat: Chat | None,
    now: datetime,
    held: MemoryRecord | None = None,
    every: int = 1,
    timeout_s: float | None = None,
) -> Written:
    """The summary brought up to date with `turns`, those after the mark "summary", once there are `every` of them.

    `held` is the memory of `summary_id`, if there is one. What a person wrote into it is what the new one goes on
    from; if they forgot it, only the conversation keeps its summary.
    """
    new = unsummed(conversation, turns)
    if len(new) < max(1, every):
        return Written()
    covered, screened, left = _worth_telling(new)
    marks: Mapping[Step, int] = {"summary": covered[-1].position}
    old = held.content if held is not None and held.status is Status.ACTIVE else conversation.summary
    if not screened.worth:
        return Written(marks=marks if old else {}, reasons=(f"nothing to add: {screened.reason}",))
    better, cost, why = _extended(old, screened.turns), Cost(), ""
    if chat is not None:
        rewritten, cost, why = await _rewritten(old, screened.turns, chat, timeout_s)
        if rewritten is None and old:
            return Written(cost=cost, reasons=(f"the summary stays as it was: {why}",))
        if rewritten is None:
            # An extract is only lent where nothing was: the next time all of it is put to the model again.
            marks, left, why = {}, 0, f"the model's summary was not used: {why}"
        better = rewritten or better
    if not better.text:
        return Written(cost=cost, reasons=("nothing was said that could be kept",))
    since = 1 if old else covered[0].position
    detail = {"turn_start": since, "turn_end": covered[-1].position, "made": better.made, "kind": "running"}
    change = _kept(conversation.scope, better, detail, at=covered[-1].said_at, held=held, now=now)
    return Written(
        changes=change,
        fields={"summary": better.text},
        marks=marks,
        cost=cost,
        left=left,
        reasons=(why,) if why else (),
    )


def invocations(conversation: Conversation, turns: Sequence[Turn], *, now: datetime) -> Written:
    """An invocation more for each exchange that ended since the conversation's last; no model is asked."""
    done = max((each["turn_end"] for each in conversation.invocations if _has_end(each)), default=0)
    new = [
        _invocation(exchange, now)
        for exchange in _exchanges([turn for turn in turns if turn.position > done])
        if exchange[-1].role is Role.ASSISTANT
    ]
    return Written(invocations=tuple(new))


def _worth_telling(turns: Sequence[Turn]) -> tuple[Sequence[Turn], Screened, int]:
    """The first turns, as many as a model reads at once, in which something is said; and how many come after them."""
    for start in range(0, len(turns), MAX_TURNS):
        covered = turns[start : start + MAX_TURNS]
        left = len(turns) - start - len(covered)
        screened = screen(covered)
        if screened.worth or not left:
            break
    return covered, screened, left


async def _rewritten(
    old: str, turns: Sequence[Turn], chat: Chat, timeout_s: float | None
) -> tuple[_New | None, Cost, str]:
    """What the model makes of the old summary and the turns, if that is good enough; what it cost; why not."""
    asked = prompt("summary")
    question = asked.fill(
        fence=new_fence(), summary=json_line({"summary so far": old or None}), conversation=talk_lines(turns)
    )
    told = await ask_text(
        chat, question, judge=lambda text: good_enough(text, old, turns).reason, timeout_s=timeout_s
    )
    return (_New(told.text, "model", Trust.LOW, asked.digest) if told.text else None), told.cost, told.why


def _extended(old: str, turns: Sequence[Turn]) -> _New:
    """The old summary with what the user said since; what was written about them stays word for word."""
    prose, earlier = split_extracts(old)
    picked = extracts(turns, most_chars=_MOST_EXTRACT_CHARS, earlier=earlier)
    if not prose:
        return _New(picked.text, "extract", Trust.HIGH if picked.by_user else Trust.LOW)
    text = f"{prose}\n{picked.text}" if picked.text.startswith(BY_USER) else prose
    return _New(text, "model and extract", Trust.LOW)


def _kept(
    scope: Scope,
    new: _New,
    detail: Mapping[str, Any],
    *,
    at: datetime,
    held: MemoryRecord | None,
    now: datetime,
) -> tuple[Change, ...]:
    if held is not None and held.status is not Status.ACTIVE:
        return ()
    fields: dict[str, Any] = {
        "content": new.text,
        "detail": detail,
        "occurred_at": at,
        "trust": new.trust,
        "prompt_digest": new.digest,
    }
    if held is not None:
        return (Update(held.id, fields, expected_version=held.version),)
    record = MemoryRecord(
        id=summary_id(scope),
        scope=scope,
        level=scope.natural_level,
        type=MemoryType.EPISODIC,
        category=Category.SUMMARY,
        created_at=now,
        updated_at=now,
        importance=_IMPORTANCE,
        source=SOURCE,
        **fields,
    )
    return (Add(record),)


def _has_end(invocation: Mapping[str, Any]) -> bool:
    return isinstance(invocation.get("turn_end"), int)


def _exchanges(turns: Sequence[Turn]) -> list[list[Turn]]:
    """Turns parted where the user speaks again after an answer; an answer to nothing is left out."""
    exchanges: list[list[Turn]] = []
    for turn in turns:
        if turn.role is Role.USER and (not exchanges or exchanges[-1][-1].role is Role.ASSISTANT):
            exchanges.append([])
        if exchanges:
            exchanges[-1].append(turn)
    return exchanges


def _invocation(exchange: Sequence[Turn], now: datetime) -> dict[str, Any]:
    clean = screen(exchange).turns
    query = _said(clean, Role.USER, _MOST_QUERY_CHARS)
    result = _said(clean, Role.ASSISTANT, _MOST_RESULT_CHARS)
    summary = f"The user said “{query}”; " + (f"the answer was “{result}”" if result else "it was not answered")
    return {
        "query": query,
        "summary": summary,
        "result": result,
        "timestamp": max((turn.said_at for turn in exchange), default=now).isoformat(),
        **range_of(exchange),
    }


def _said(turns: Sequence[Turn], role: Role, chars: int) -> str:
    return shortened(" ".join(" ".join(turn.content.split()) for turn in turns if turn.role is role), chars)
