"""Memory as tools: retrieve, recall, store, correct, forget.

What an agent writes has low trust, and what reads like an instruction waits for review. An agent may change memories
that its scope sees, a few times in a run, and every change can be undone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AliasChoices

from recollect.agent.tools.tool import Tool, function_tool
from recollect.errors import NotFound, ToolFailed
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import Filter, Not, Op, Where
from recollect.service.tool_memory import REVIEW_NOTICE, ToolMemory, quoted_line

FACTS: Filter = Not(Where("category", Op.IN, tuple(map(str, (Category.EPISODE, Category.SUMMARY, Category.TURN)))))
EPISODES: Filter = Where("category", Op.EQ, str(Category.EPISODE))
MEMORY_TOOLS = ("RetrieveFacts", "RecallEpisodes", "StoreFact", "CorrectFact", "ForgetFact")
_NON_FACT_CATEGORIES = (Category.EPISODE, Category.SUMMARY, Category.TURN, Category.FILE)
_CONFIDENCE = 0.7

_QUERY = Annotated[str, "What to look for, in words."]
_NUMBER = Annotated[str, "The fact's number, such as f1, from RetrieveFacts."]


@frozen_dataclass(kw_only=True)
class MemoryLimits:
    """The limits of one run: results per call, and the number of calls of each kind."""

    facts: int = 5
    episodes: int = 3
    retrievals: int = 20
    stores: int = 10
    corrections: int = 3
    forgets: int = 3
    max_chars: int = 1000


def memory_tools(memory: ToolMemory, limits: MemoryLimits | None = None) -> tuple[Tool, ...]:
    tools = _MemoryToolset(memory, limits or MemoryLimits())
    functions: Sequence[Callable[..., Any]] = (
        tools.retrieve_facts,
        tools.recall_episodes,
        tools.store_fact,
        tools.correct_fact,
        tools.forget_fact,
    )
    return tuple(function_tool(each, name=name) for name, each in zip(MEMORY_TOOLS, functions, strict=True))


@dataclass(slots=True)
class _MemoryToolset:
    memory: ToolMemory
    limits: MemoryLimits
    counts: Counter[str] = field(default_factory=Counter)
    # Short numbers, since models make mistakes in long ids.
    ids_by_number: dict[str, str] = field(default_factory=dict)

    async def retrieve_facts(self, query: _QUERY) -> str:
        """Retrieve more facts from long-term memory."""
        self._count("retrievals")
        hits = await self.memory.search(query, self.limits.facts, among=FACTS, turns=False)
        lines = [f"{self._number(hit.id)}: {quoted_line(hit.record)}" for hit in hits]
        return "\n".join(lines) or "No fact fits."

    async def recall_episodes(self, query: _QUERY) -> str:
        """Search for similar tasks of the past: what was tried, what came of it, what was learned."""
        self._count("retrievals")
        hits = await self.memory.search(query, self.limits.episodes, among=EPISODES, turns=False)
        lines = [f"Episode {at}: {quoted_line(hit.record)}" for at, hit in enumerate(hits, 1)]
        return "\n".join(lines) or "No episode fits."

    async def store_fact(
        self, fact_content: Annotated[str, "The fact, as one sentence that stands alone.", AliasChoices("content")]
    ) -> str:
        """Store a fact for the future: something true that will matter again."""
        self._count("stores")
        outcome = await self.memory.store(self._check_length(fact_content), {"confidence": _CONFIDENCE})
        return f"Stored as {self._number(outcome.id)}." if outcome is not None else REVIEW_NOTICE

    async def correct_fact(
        self, number: _NUMBER, content: Annotated[str, "What is true instead, as one sentence."]
    ) -> str:
        """Correct a fact that turned out to be wrong; the old words stay in its history."""
        self._count("corrections")
        record = await self._get_fact(number)
        content = self._check_length(content)
        outcome = await self.memory.correct(record.id, content, expected_version=record.version)
        return f"Corrected {number}." if outcome is not None else REVIEW_NOTICE

    async def forget_fact(self, number: _NUMBER) -> str:
        """Forget a fact that is wrong or that the user wants forgotten; a person can bring it back."""
        self._count("forgets")
        record = await self._get_fact(number)
        await self.memory.forget(record.id, expected_version=record.version)
        return f"Forgot {number}."

    async def _get_fact(self, number: str) -> MemoryRecord:
        """Return a fact that the scope sees, or raise ToolFailed."""
        if (id := self.ids_by_number.get(number.strip().casefold())) is not None:
            with suppress(NotFound):
                record = await self.memory.get(id)
                if record.status is Status.ACTIVE and record.category not in _NON_FACT_CATEGORIES:
                    return record
        raise ToolFailed(f"there is no fact {number[:20]!r}; RetrieveFacts returns the numbers")

    def _number(self, id: str) -> str:
        label = next((number for number, memory_id in self.ids_by_number.items() if memory_id == id), None)
        if label is None:
            label = f"f{len(self.ids_by_number) + 1}"
            self.ids_by_number[label] = id
        return label

    def _count(self, action: str) -> None:
        max_count = getattr(self.limits, action)
        if self.counts[action] >= max_count:
            raise ToolFailed(f"no more {action} in this run: {max_count} are the limit")
        self.counts[action] += 1

    def _check_length(self, content: str) -> str:
        if len(content) > self.limits.max_chars:
            raise ToolFailed(f"a fact has at most {self.limits.max_chars} characters; say it shorter")
        return content
