"""The start of a run: facts, episodes and the conversation so far, side by side, as a block for the prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.agent.finding import EPISODES, FACTS, find
from recollect.agent.habits import AgentHabits
from recollect.errors import RecollectError
from recollect.model.memory import Category, MemoryRecord, MemoryType
from recollect.model.result import Hit
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation
from recollect.prompts.data import shortened
from recollect.read.format import format_context
from recollect.service import Service

STYLE = "react-mem"
_MOST_INVOCATIONS = 10
_MOST_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What a run begins with; `block` is empty where nothing fits, `notes` tell what could not be had."""

    block: str = ""
    facts: tuple[str, ...] = ()
    episodes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


async def begin(service: Service, scope: Scope, question: str, *, state: str, habits: AgentHabits) -> Begun:
    """Fetch what helps; the question is embedded once. While memory is away, the run goes on without it."""
    notes: list[str] = []
    try:
        async with asyncio.timeout(habits.recall_s):
            facts, episodes, invocations = await _fetched(service, scope, question, state, habits)
    except TimeoutError:
        return Begun(notes=(f"without memory: it took more than {habits.recall_s:g} s",))
    except RecollectError as error:
        return Begun(notes=(f"without memory: {error}",))
    told = " ".join(hit.memory for hit in episodes)
    # A lesson that an episode here tells already need not be told twice.
    facts = [hit for hit in facts if hit.record.category is not Category.LESSON or hit.memory not in told]
    hits = [*facts, *episodes, *(_as_hit(scope, each) for each in invocations)]
    context = format_context(STYLE, hits, budget_tokens=habits.memory_tokens, now=now())
    notes += [f"left out: {why}" for why in set(context.dropped.values())]
    return Begun(
        block=context.text,
        facts=tuple(hit.id for hit in facts),
        episodes=tuple(hit.id for hit in episodes),
        notes=tuple(notes),
    )


async def _fetched(
    service: Service, scope: Scope, question: str, state: str, habits: AgentHabits
) -> tuple[Sequence[Hit], Sequence[Hit], Sequence[Mapping[str, Any]]]:
    texts = [question] if not state else [question, f"{question}\n{state}"]
    vectors = await service.care.vectors_of(texts)

    async def found(text: str, limit: int, **more: Any) -> Sequence[Hit]:
        if not limit:
            return []
        return await find(
            service,
            scope,
            text,
            limit=limit,
            min_score=habits.min_score,
            time_words=habits.time_words,
            withheld=habits.withheld,
            **more,
        )

    async def conversation() -> Conversation | None:
        return await service.conversation(scope) if scope.session else None

    facts, episodes, held = await asyncio.gather(
        found(texts[0], habits.facts, among=FACTS, vector=vectors[0]),
        found(texts[-1], habits.episodes, among=EPISODES, vector=vectors[-1]),
        conversation(),
    )
    return facts, episodes, held.invocations[-_MOST_INVOCATIONS:] if held is not None else ()


def _as_hit(scope: Scope, invocation: Mapping[str, Any]) -> Hit:
    """What an invocation came to, as a block takes it."""
    told = str(invocation.get("summary") or invocation.get("query", ""))
    at = now()
    record = MemoryRecord(
        id=str(invocation.get("run_id") or invocation.get("timestamp", "")),
        scope=scope,
        level=scope.natural_level,
        type=MemoryType.EPISODIC,
        category=Category.SUMMARY,
        content=shortened(told, _MOST_CHARS),
        created_at=at,
        updated_at=at,
    )
    return Hit(record, 1.0)
