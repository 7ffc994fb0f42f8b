"""Start a run: search facts, episodes and earlier invocations concurrently, and format them for the prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.agent.config import AgentConfig
from recollect.agent.tools.memory_tools import EPISODES, FACTS
from recollect.errors import RecollectError
from recollect.model.memory import Category, MemoryRecord, MemoryType
from recollect.model.result import Hit
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.prompts.rendering import shorten
from recollect.service.tool_memory import ToolMemory

_STYLE = "react-mem"
_MAX_INVOCATIONS = 10
_MAX_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class StartContext:
    """The memories that a run starts with; `notes` say what is missing and why."""

    block: str = ""
    facts: tuple[str, ...] = ()
    episodes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


async def start_run(memory: ToolMemory, question: str, *, state: str, config: AgentConfig) -> StartContext:
    """Fetch memories for a run; without them if memory is unavailable. The question is embedded once."""
    try:
        async with asyncio.timeout(config.recall_s):
            facts, episodes, invocations = await _fetch(memory, question, state, config)
    except TimeoutError:
        return StartContext(notes=(f"without memory: it took more than {config.recall_s:g} s",))
    except RecollectError as error:
        return StartContext(notes=(f"without memory: {error}",))
    episode_text = " ".join(hit.memory for hit in episodes)
    # Drop lessons that one of the episodes contains.
    facts = [hit for hit in facts if hit.record.category is not Category.LESSON or hit.memory not in episode_text]
    hits = [*facts, *episodes, *(_as_hit(memory.scope, each) for each in invocations)]
    context = memory.service.format_context(_STYLE, hits, budget_tokens=config.memory_tokens)
    return StartContext(
        block=context.text,
        facts=tuple(hit.id for hit in facts),
        episodes=tuple(hit.id for hit in episodes),
        notes=tuple(f"left out: {reason}" for reason in set(context.dropped.values())),
    )


async def _fetch(
    memory: ToolMemory, question: str, state: str, config: AgentConfig
) -> tuple[Sequence[Hit], Sequence[Hit], Sequence[Mapping[str, Any]]]:
    texts = [question, f"{question}\n{state}"] if state else [question]
    vectors = await memory.service.embed_queries(texts)
    facts, episodes, conversation = await asyncio.gather(
        memory.search(texts[0], config.facts, among=FACTS, turns=False, vector=vectors[0]),
        memory.search(texts[-1], config.episodes, among=EPISODES, turns=False, vector=vectors[-1]),
        memory.service.conversation(memory.scope),
    )
    return facts, episodes, conversation.invocations[-_MAX_INVOCATIONS:]


def _as_hit(scope: Scope, invocation: Mapping[str, Any]) -> Hit:
    """Return an invocation as a hit that can be formatted."""
    summary = str(invocation.get("summary") or invocation.get("query", ""))
    at = now()
    record = MemoryRecord(
        id=str(invocation.get("run_id") or invocation.get("timestamp", "")),
        scope=scope,
        level=scope.default_level,
        type=MemoryType.EPISODIC,
        category=Category.SUMMARY,
        content=shorten(summary, _MAX_CHARS),
        created_at=at,
        updated_at=at,
    )
    return Hit(record, 1.0)
