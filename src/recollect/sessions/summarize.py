"""The running summary of a conversation, and an invocation for each exchange in it.

The summary is stored with the conversation and as a memory of its own, so that other sessions find it. A model's
text replaces the old summary only if it passes the checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from recollect.model.change import Add, Change, Restore, Update
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Role, Turn
from recollect.models.chat import Chat
from recollect.prompts.rendering import json_line, shorten
from recollect.sessions.compress import SOURCE
from recollect.sessions.step_output import EPOCH, SessionStep, StepOutput, stable_id, step_position, turn_range
from recollect.sessions.summary_text import (
    BY_USER,
    MAX_TURNS,
    Summary,
    check_summary,
    split_extractive_summary,
    summarize_extractively,
    summarize_with_llm,
    turns_as_json,
)
from recollect.write.screen import Screened, screen

_MAX_QUERY_CHARS = 300
_MAX_RESULT_CHARS = 500
_MAX_EXTRACT_CHARS = 1_200
_IMPORTANCE = 0.5
# In the detail of a summary that was forgotten because all its turns were: the next summary restores it.
RETRACTED = "retracted"


def summary_id(scope: Scope) -> str:
    """Return the id of the memory that is a conversation's summary; it stays the same when the summary changes."""
    return stable_id(scope, "summary", at=EPOCH, source_ids=())


async def update_summary(
    conversation: Conversation,
    turns: Sequence[Turn],
    *,
    chat: Chat | None,
    now: datetime,
    stored: MemoryRecord | None = None,
    every: int = 1,
) -> StepOutput:
    """Update the summary with `turns`, those after the mark "summary", once there are `every` of them.

    `stored` is the memory of `summary_id`, if there is one. What a person wrote into it is continued; if they forgot
    it, only the conversation has a summary.
    """
    done = step_position(conversation, "summary")
    new = [turn for turn in turns if turn.position > done]
    if len(new) < max(1, every):
        return StepOutput()
    covered, screened, left = _next_turns(new)
    marks: Mapping[SessionStep, int] = {"summary": covered[-1].position}
    old = stored.content if stored is not None and stored.status is Status.ACTIVE else conversation.summary
    if not screened.has_content:
        return StepOutput(marks=marks if old else {}, reasons=(f"nothing to add: {screened.reason}",))
    updated = _extend_summary(old, screened.turns)
    if chat is not None:
        written = await summarize_with_llm(
            chat,
            "summary",
            check=lambda text: check_summary(text, old, screened.turns),
            summary=json_line({"summary so far": old or None}),
            conversation=turns_as_json(screened.turns),
        )
        if not written.text and old:
            return StepOutput(cost=written.cost, reasons=(f"the summary stays as it was: {written.reason}",))
        if not written.text:
            # The extract is temporary: the next update asks the model about all turns.
            marks, left, reason = {}, 0, f"the model's summary was not used: {written.reason}"
            written = replace(updated, cost=written.cost, reason=reason)
        updated = written
    if not updated.text:
        return StepOutput(cost=updated.cost, reasons=("there is no sentence to quote",))
    start = 1 if old else covered[0].position
    detail = {"turn_start": start, "turn_end": covered[-1].position, **updated.detail, "kind": "running"}
    return StepOutput(
        changes=_summary_changes(conversation.scope, updated, detail, at=covered[-1].said_at, stored=stored, now=now),
        fields={"summary": updated.text},
        marks=marks,
        cost=updated.cost,
        left=left,
        reasons=(updated.reason,) if updated.reason else (),
    )


def build_invocations(conversation: Conversation, turns: Sequence[Turn], *, now: datetime) -> StepOutput:
    """Return an invocation for each exchange that ended since the last one; no model is asked."""
    done = max(
        (each["turn_end"] for each in conversation.invocations if isinstance(each.get("turn_end"), int)), default=0
    )
    new = [
        _invocation(exchange, now)
        for exchange in _exchanges([turn for turn in turns if turn.position > done])
        if exchange[-1].role is Role.ASSISTANT
    ]
    return StepOutput(invocations=tuple(new))


def extract_summary(turns: Sequence[Turn]) -> Summary:
    """Return a summary of quotations, without a model; empty if there is nothing to quote."""
    return _extend_summary("", screen(turns).turns)


def _next_turns(turns: Sequence[Turn]) -> tuple[Sequence[Turn], Screened, int]:
    """Return the first turns with content, at most as many as a prompt shows, and how many follow them."""
    for start in range(0, len(turns), MAX_TURNS):
        covered = turns[start : start + MAX_TURNS]
        left = len(turns) - start - len(covered)
        screened = screen(covered)
        if screened.has_content or not left:
            break
    return covered, screened, left


def _extend_summary(old: str, turns: Sequence[Turn]) -> Summary:
    """Append quotes of the user to the old summary without a model; its prose stays unchanged."""
    prose, earlier = split_extractive_summary(old)
    picked = summarize_extractively(turns, max_chars=_MAX_EXTRACT_CHARS, earlier=earlier)
    if not prose:
        return picked
    text = f"{prose}\n{picked.text}" if picked.text.startswith(BY_USER) else prose
    return Summary(text, "model and extract")


def _summary_changes(
    scope: Scope, new: Summary, detail: Mapping[str, Any], *, at: datetime, stored: MemoryRecord | None, now: datetime
) -> tuple[Change, ...]:
    retracted = stored is not None and stored.status is Status.FORGOTTEN and RETRACTED in stored.detail
    if stored is not None and stored.status is not Status.ACTIVE and not retracted:
        return ()
    fields: dict[str, Any] = {
        "content": new.text,
        "detail": detail,
        "occurred_at": at,
        "trust": new.trust,
        "prompt_digest": new.digest,
    }
    if stored is not None:
        update = Update(stored.id, fields, expected_version=stored.version)
        return (update, Restore(stored.id)) if retracted else (update,)
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


def _exchanges(turns: Sequence[Turn]) -> list[list[Turn]]:
    """Split turns where the user speaks after an answer; drop answers without a question."""
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
