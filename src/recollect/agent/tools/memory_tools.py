"""Memory as tools: retrieve, recall, store, correct, forget.

What an agent writes has low trust, and what reads like an instruction waits for review. An agent may change memories
that its scope sees, a few times in a run, and every change can be undone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from recollect.agent.retrieval import EPISODES, FACTS, MemorySearch
from recollect.agent.tools.tool import Tool, function_tool
from recollect.errors import NotFound, ToolFailed
from recollect.model.change import Author
from recollect.model.memory import Category, MemoryRecord, Status, Trust
from recollect.model.scope import Scope
from recollect.read.sanitize import defang, one_line, remove_invisible
from recollect.remember import MemoryInput
from recollect.service.service import Service
from recollect.write.instructions import REVIEW_NOTICE, REVIEW_REASON, find_instruction

SOURCE = "agent"
MEMORY_TOOLS = ("RetrieveFacts", "RecallEpisodes", "StoreFact", "CorrectFact", "ForgetFact")
_NON_FACT_CATEGORIES = (Category.EPISODE, Category.SUMMARY, Category.TURN, Category.FILE)
_CONFIDENCE = 0.7

_QUERY = Annotated[str, "What to look for, in words."]
_NUMBER = Annotated[str, "The fact's number, such as f1, from RetrieveFacts."]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimits:
    """The limits of one run: results per call, and the number of calls of each kind."""

    facts: int = 5
    episodes: int = 3
    retrievals: int = 20
    stores: int = 10
    corrections: int = 3
    forgets: int = 3
    max_chars: int = 1000


def memory_tools(
    service: Service,
    scope: Scope,
    *,
    by: str = SOURCE,
    limits: MemoryLimits | None = None,
    withheld: frozenset[str] = frozenset(),
) -> tuple[Tool, ...]:
    """Return the memory tools of one run in a scope."""
    search = MemorySearch(service=service, scope=scope, withheld=withheld)
    toolset = _MemoryToolset(service, scope, Author(by), limits or MemoryLimits(), search)
    functions: Sequence[Callable[..., Any]] = (
        toolset.retrieve_facts,
        toolset.recall_episodes,
        toolset.store_fact,
        toolset.correct_fact,
        toolset.forget_fact,
    )
    return tuple(function_tool(each, name=name) for name, each in zip(MEMORY_TOOLS, functions, strict=True))


@dataclass(slots=True)
class _MemoryToolset:
    service: Service
    scope: Scope
    by: Author
    limits: MemoryLimits
    search: MemorySearch
    counts: Counter[str] = field(default_factory=Counter)
    # Short numbers, since models make mistakes in long ids.
    ids_by_number: dict[str, str] = field(default_factory=dict)

    async def retrieve_facts(self, query: _QUERY) -> str:
        """Retrieve more facts from long-term memory."""
        self._count("retrievals")
        hits = await self.search.find(query, FACTS, self.limits.facts)
        lines = [f"{self._number(hit.id)}: {_sanitize(hit.memory)}" for hit in hits]
        return "\n".join(lines) or "No fact fits."

    async def recall_episodes(self, query: _QUERY) -> str:
        """Search for similar tasks of the past: what was tried, what came of it, what was learned."""
        self._count("retrievals")
        hits = await self.search.find(query, EPISODES, self.limits.episodes)
        return (
            "\n".join(f"Episode {at}: {_sanitize(hit.memory)}" for at, hit in enumerate(hits, 1))
            or "No episode fits."
        )

    async def store_fact(self, content: Annotated[str, "The fact, as one sentence that stands alone."]) -> str:
        """Store a fact for the future: something true that will matter again."""
        self._count("stores")
        content = self._check_length(content)
        fields = {"source": SOURCE, "trust": str(Trust.LOW), "confidence": _CONFIDENCE}
        if phrase := find_instruction(content):
            return await self._propose(content, fields, phrase)
        outcome = await self.service.add(self.scope, MemoryInput(content=content, fields=fields), by=self.by)
        return f"Stored as {self._number(outcome.id)}."

    async def correct_fact(
        self, number: _NUMBER, content: Annotated[str, "What is true instead, as one sentence."]
    ) -> str:
        """Correct a fact that turned out to be wrong; the old words stay in its history."""
        self._count("corrections")
        record = await self._get_fact(number)
        content = self._check_length(content)
        if phrase := find_instruction(content):
            fields = {"source": SOURCE, "trust": str(Trust.LOW), "detail": {"corrects": record.id}}
            return await self._propose(content, fields, phrase)
        fields = {"content": content, "trust": str(Trust.LOW)}
        await self.service.update(self.scope, record.id, fields, by=self.by, expected_version=record.version)
        return f"Corrected {number}."

    async def forget_fact(self, number: _NUMBER) -> str:
        """Forget a fact that is wrong or that the user wants forgotten; a person can bring it back."""
        self._count("forgets")
        record = await self._get_fact(number)
        await self.service.forget(self.scope, record.id, by=self.by, expected_version=record.version)
        return f"Forgot {number}."

    async def _propose(self, content: str, fields: dict[str, Any], phrase: str) -> str:
        await self.service.reviews.propose(
            self.scope, content, fields, by=replace(self.by, why=REVIEW_REASON.format(phrase=phrase))
        )
        return REVIEW_NOTICE

    async def _get_fact(self, number: str) -> MemoryRecord:
        """Return a fact that the scope sees, or raise ToolFailed."""
        id = self.ids_by_number.get(number.strip().casefold())
        if id is not None:
            try:
                record = await self.service.get(self.scope, id)
            except NotFound:
                record = None
            if (
                record is not None
                and record.status is Status.ACTIVE
                and record.visibility_key in self.scope.visible_keys
                and record.category not in _NON_FACT_CATEGORIES
            ):
                return record
        raise ToolFailed(f"there is no fact {number[:20]!r}; RetrieveFacts tells the numbers")

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


def _sanitize(text: str) -> str:
    return one_line(defang(remove_invisible(text)).text)
