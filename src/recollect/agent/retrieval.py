"""Search facts and episodes for an agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recollect.model.memory import Category
from recollect.model.query import Filter, Not, Op, Where, both
from recollect.model.result import Hit
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.read.policy import exclude_tagged
from recollect.recall import SearchRequest
from recollect.service.service import Service
from recollect.text.time_expressions import TimeWords, parse_time_filter

if TYPE_CHECKING:
    from recollect.model.change import Vector


_CONVERSATION_CATEGORIES = (str(Category.EPISODE), str(Category.SUMMARY), str(Category.TURN))
FACTS: Filter = Not(Where("category", Op.IN, _CONVERSATION_CATEGORIES))
EPISODES: Filter = Where("category", Op.EQ, str(Category.EPISODE))


async def find(
    service: Service,
    scope: Scope,
    query: str,
    *,
    among: Filter,
    limit: int,
    min_score: float = 0.0,
    vector: Vector | None = None,
    time_words: TimeWords = "prefer",
    withheld: frozenset[str] = frozenset(),
) -> Sequence[Hit]:
    """Return the best facts or episodes, without those whose tags keep them out of prompts."""
    times = parse_time_filter(query, at=now(), mode=time_words)
    hits = await service.search(
        scope,
        SearchRequest(
            query=query,
            limit=limit,
            min_score=min_score,
            filter=both(among, times.filter),
            vector=vector,
            periods=times.periods,
            turns=False,
            for_prompt=True,
        ),
    )
    return exclude_tagged(tuple(hits), withheld)[0]
