"""Search facts and episodes for an agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recollect.model.memory import Category
from recollect.model.query import Filter, Not, Op, Where, both
from recollect.model.result import Hit
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.read.policy import exclude_tagged
from recollect.search import SearchRequest
from recollect.service.service import Service
from recollect.text.time_expressions import TimeWords, parse_time_filter

if TYPE_CHECKING:
    from recollect.model.change import Vector


_CONVERSATION_CATEGORIES = (str(Category.EPISODE), str(Category.SUMMARY), str(Category.TURN))
FACTS: Filter = Not(Where("category", Op.IN, _CONVERSATION_CATEGORIES))
EPISODES: Filter = Where("category", Op.EQ, str(Category.EPISODE))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySearch:
    """Searches the memories of a scope for a prompt, without those with a `withheld` tag."""

    service: Service
    scope: Scope
    min_score: float = 0.0
    time_words: TimeWords = "prefer"
    withheld: frozenset[str] = frozenset()

    async def find(self, query: str, among: Filter, limit: int, *, vector: Vector | None = None) -> Sequence[Hit]:
        """Return the best facts or episodes."""
        if not limit:
            return []
        times = parse_time_filter(query, at=now(), mode=self.time_words)
        request = SearchRequest(
            query=query,
            limit=limit,
            min_score=self.min_score,
            filter=both(among, times.filter),
            vector=vector,
            periods=times.periods,
            turns=False,
            for_prompt=True,
        )
        return exclude_tagged(tuple(await self.service.search(self.scope, request)), self.withheld)[0]
