"""Start a run: search facts, episodes and earlier invocations concurrently, and format them for the prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.agent.config import AgentConfig
from recollect.agent.retrieval import EPISODES, FACTS, MemorySearch
from recollect.errors import RecollectError
from recollect.model.memory import Category, MemoryRecord, MemoryType
from recollect.model.result import Hit
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation
from recollect.prompts.rendering import shorten
from recollect.read.format import format_context
from recollect.service.service import Service

STYLE = "react-mem"
_MAX_INVOCATIONS = 10
_MAX_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class StartContext:
    """The memories that a run starts with; `notes` say what is missing and why."""

    block: str = ""
    facts: tuple[str, ...] = ()
    episodes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


async def start_run(
    service: Service, scope: Scope, question: str, *, state: str, config: AgentConfig
) -> StartContext:
    """Fetch memories for a run; without them if memory is unavailable. The question is embedded once."""
    notes: list[str] = []
    try:
        async with asyncio.timeout(config.recall_s):
            facts, episodes, invocations = await _fetch(service, scope, question, state, config)
    except TimeoutError:
        return StartContext(notes=(f"without memory: it took more than {config.recall_s:g} s",))
    except RecollectError as error:
        return StartContext(notes=(f"without memory: {error}",))
    episode_text = " ".join(hit.memory for hit in episodes)
    # Drop lessons that one of the episodes contains.
    facts = [hit for hit in facts if hit.record.category is not Category.LESSON or hit.memory not in episode_text]
    hits = [*facts, *episodes, *(_as_hit(scope, each) for each in invocations)]
    context = format_context(STYLE, hits, budget_tokens=config.memory_tokens, now=now())
    notes += [f"left out: {reason}" for reason in set(context.dropped.values())]
    return StartContext(
        block=context.text,
        facts=tuple(hit.id for hit in facts),
        episodes=tuple(hit.id for hit in episodes),
        notes=tuple(notes),
    )


async def _fetch(
    service: Service, scope: Scope, question: str, state: str, config: AgentConfig
) -> tuple[Sequence[Hit], Sequence[Hit], Sequence[Mapping[str, Any]]]:
    texts = [question] if not state else [question, f"{question}\n{state}"]
    vectors = await service.embed_queries(texts)

    search = MemorySearch(
        service=service,
        scope=scope,
        min_score=config.min_score,
        time_words=config.time_words,
        withheld=config.withheld,
    )

    async def load_conversation() -> Conversation | None:
        return await service.conversation(scope) if scope.session else None

    facts, episodes, session_state = await asyncio.gather(
        search.find(texts[0], FACTS, config.facts, vector=vectors[0]),
        search.find(texts[-1], EPISODES, config.episodes, vector=vectors[-1]),
        load_conversation(),
    )
    return facts, episodes, session_state.invocations[-_MAX_INVOCATIONS:] if session_state is not None else ()


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
