"""Start a run: search facts, episodes and earlier invocations concurrently, and format them for the prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from recollect.agent.config import AgentConfig
from recollect.agent.tools.memory_tools import EPISODES, FACTS
from recollect.errors import RecollectError
from recollect.model.memory import Category
from recollect.model.result import Hit
from recollect.model.turn import Conversation
from recollect.service.tool_memory import ToolMemory

_STYLE = "react-mem"


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
            facts, episodes, conversation = await _fetch(memory, question, state, config)
    except TimeoutError:
        return StartContext(notes=(f"without memory: it took more than {config.recall_s:g} s",))
    except RecollectError as error:
        return StartContext(notes=(f"without memory: {error}",))
    episode_text = " ".join(hit.memory for hit in episodes)
    # Drop lessons that one of the episodes contains.
    facts = [hit for hit in facts if hit.record.category is not Category.LESSON or hit.memory not in episode_text]
    context = memory.service.format_context(
        _STYLE, [*facts, *episodes], budget_tokens=config.memory_tokens, conversation=conversation
    )
    return StartContext(
        block=context.text,
        facts=tuple(hit.id for hit in facts),
        episodes=tuple(hit.id for hit in episodes),
        notes=tuple(f"left out: {reason}" for reason in set(context.dropped.values())),
    )


async def _fetch(
    memory: ToolMemory, question: str, state: str, config: AgentConfig
) -> tuple[Sequence[Hit], Sequence[Hit], Conversation]:
    texts = [question, f"{question}\n{state}"] if state else [question]
    vectors = await memory.service.embed_queries(texts)
    return await asyncio.gather(
        memory.search(texts[0], config.facts, among=FACTS, turns=False, vector=vectors[0]),
        memory.search(texts[-1], config.episodes, among=EPISODES, turns=False, vector=vectors[-1]),
        memory.service.conversation(memory.scope),
    )
