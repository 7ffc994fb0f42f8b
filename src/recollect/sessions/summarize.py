"""The running summary of a conversation, and what came of each exchange in it.

The summary is kept with the conversation and as a memory of its own, one for each conversation, so that it is found
from elsewhere. What a model writes only takes the place of what there is if it is good enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recollect.model.change import Add, Change, Update
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Role, Turn
from recollect.models.chat import Chat
from recollect.prompts import prompt
from recollect.prompts.rendering import json_line, new_delimiter, shorten
from recollect.sessions.ask_llm import MAX_TURNS, ask_text, check_summary, turns_as_json
from recollect.sessions.compress import SOURCE
from recollect.sessions.extractive_summary import BY_USER, split_extractive_summary, summarize_extractively
from recollect.sessions.step_output import EPOCH, Cost, SessionStep, StepOutput, stable_id, step_position, turn_range
from recollect.write.screen import Screened, screen

_MAX_QUERY_CHARS = 300
_MAX_RESULT_CHARS = 500
_MAX_EXTRACT_CHARS = 1_200
_IMPORTANCE = 0.5


@dataclass(frozen=True, slots=True)
class _NewSummary:
    """A summary that takes the place of the old one."""

    text: str
    made: str
    trust: Trust
    digest: str | None = None


def summary_id(scope: Scope) -> str:
    """The id of the memory that is a conversation's summary; it does not change while the summary does."""
    return stable_id(scope, "summary", at=EPOCH, source_ids=())


def uncovered_turns(conversation: Conversation, turns: Sequence[Turn]) -> list[Turn]:
    """The turns that the summary does not cover."""
    done = step_position(conversation, "summary")
    return [turn for turn in turns if turn.position > done]


async def update_summary(
    conversation: Conversation,
    turns: Sequence[Turn],
    *,
    chat: Chat | None,
    now: datetime,
    stored: MemoryRecord | None = None,
    every: int = 1,
    timeout_s: float | None = None,
) -> StepOutput:
    """The summary brought up to date with `turns`, those after the mark "summary", once there are `every` of them.

    `held` is the memory of `summary_id`, if there is one. What a person wrote into it is what the new one goes on
    from; if they forgot it, only the conversation keeps its summary.
    """
    new = uncovered_turns(conversation, turns)
    if len(new) < max(1, every):
        return StepOutput()
    covered, screened, left = _next_turns(new)
    marks: Mapping[SessionStep, int] = {"summary": covered[-1].position}
    old = stored.content if stored is not None and stored.status is Status.ACTIVE else conversation.summary
    if not screened.has_content:
        return StepOutput(marks=marks if old else {}, reasons=(f"nothing to add: {screened.reason}",))
    updated, cost, why = _extend_summary(old, screened.turns), Cost(), ""
    if chat is not None:
        rewritten, cost, why = await _rewrite_summary(old, screened.turns, chat, timeout_s)
        if rewritten is None and old:
            return StepOutput(cost=cost, reasons=(f"the summary stays as it was: {why}",))
        if rewritten is None:
            # An extract is only lent where nothing was: the next time all of it is put to the model again.
            marks, left, why = {}, 0, f"the model's summary was not used: {why}"
        updated = rewritten or updated
    if not updated.text:
        return StepOutput(cost=cost, reasons=("nothing was said that could be kept",))
    since = 1 if old else covered[0].position
    detail = {"turn_start": since, "turn_end": covered[-1].position, "made": updated.made, "kind": "running"}
    change = _summary_changes(conversation.scope, updated, detail, at=covered[-1].said_at, stored=stored, now=now)
    return StepOutput(
        changes=change,
        fields={"summary": updated.text},
        marks=marks,
        cost=cost,
        left=left,
        reasons=(why,) if why else (),
    )


def build_invocations(conversation: Conversation, turns: Sequence[Turn], *, now: datetime) -> StepOutput:
    """An invocation more for each exchange that ended since the conversation's last; no model is asked."""
    done = max((each["turn_end"] for each in conversation.invocations if _has_end(each)), default=0)
    new = [
        _invocation(exchange, now)
        for exchange in _exchanges([turn for turn in turns if turn.position > done])
        if exchange[-1].role is Role.ASSISTANT
    ]
    return StepOutput(invocations=tuple(new))


def _next_turns(turns: Sequence[Turn]) -> tuple[Sequence[Turn], Screened, int]:
    """The first turns, as many as a model reads at once, in which something is said; and how many come after them."""
    for start in range(0, len(turns), MAX_TURNS):
        covered = turns[start : start + MAX_TURNS]
        left = len(turns) - start - len(covered)
        screened = screen(covered)
        if screened.has_content or not left:
            break
    return covered, screened, left


async def _rewrite_summary(
    old: str, turns: Sequence[Turn], chat: Chat, timeout_s: float | None
) -> tuple[_NewSummary | None, Cost, str]:
    """What the model makes of the old summary and the turns, if that is good enough; what it cost; why not."""
    template = prompt("summary")
    question = template.fill(
        fence=new_delimiter(), summary=json_line({"summary so far": old or None}), conversation=turns_as_json(turns)
    )
    answer = await ask_text(
        chat, question, judge=lambda text: check_summary(text, old, turns).reason, timeout_s=timeout_s
    )
    return (
        (_NewSummary(answer.text, "model", Trust.LOW, template.digest) if answer.text else None),
        answer.cost,
        answer.why,
    )


def _extend_summary(old: str, turns: Sequence[Turn]) -> _NewSummary:
    """The old summary with what the user said since; what was written about them stays word for word."""
    prose, earlier = split_extractive_summary(old)
    picked = summarize_extractively(turns, max_chars=_MAX_EXTRACT_CHARS, earlier=earlier)
    if not prose:
        return _NewSummary(picked.text, "extract", Trust.HIGH if picked.by_user else Trust.LOW)
    text = f"{prose}\n{picked.text}" if picked.text.startswith(BY_USER) else prose
    return _NewSummary(text, "model and extract", Trust.LOW)


def _summary_changes(
    scope: Scope,
    new: _NewSummary,
    detail: Mapping[str, Any],
    *,
    at: datetime,
    stored: MemoryRecord | None,
    now: datetime,
) -> tuple[Change, ...]:
    if stored is not None and stored.status is not Status.ACTIVE:
        return ()
    fields: dict[str, Any] = {
        "content": new.text,
        "detail": detail,
        "occurred_at": at,
        "trust": new.trust,
        "prompt_digest": new.digest,
    }
    if stored is not None:
        return (Update(stored.id, fields, expected_version=stored.version),)
    record = MemoryRecord(
        id=summary_id(scope),
        scope=scope,
        level=scope.default_level,
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
    query = _text_by_role(clean, Role.USER, _MAX_QUERY_CHARS)
    result = _text_by_role(clean, Role.ASSISTANT, _MAX_RESULT_CHARS)
    summary = f"The user said “{query}”; " + (f"the answer was “{result}”" if result else "it was not answered")
    return {
        "query": query,
        "summary": summary,
        "result": result,
        "timestamp": max((turn.said_at for turn in exchange), default=now).isoformat(),
        **turn_range(exchange),
    }


def _text_by_role(turns: Sequence[Turn], role: Role, chars: int) -> str:
    return shorten(" ".join(" ".join(turn.content.split()) for turn in turns if turn.role is role), chars)
