"""What an agent looks for in memory: facts, and episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recollect.language.when import TimeWords, spoken_of
from recollect.model.memory import Category
from recollect.model.query import Filter, Not, Op, Where, both
from recollect.model.result import Hit
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.read.withhold import withhold
from recollect.recall import Search
from recollect.service import Service

if TYPE_CHECKING:
    from recollect.model.change import Vector

_TALK = (str(Category.EPISODE), str(Category.SUMMARY), str(Category.TURN))
FACTS: Filter = Not(Where("category", Op.IN, _TALK))
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
    """The facts or the episodes that fit best, without those that no prompt may hold."""
    times = spoken_of(query, at=now(), mode=time_words)
    found = await service.search(
        scope,
        Search(
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
    return withhold(tuple(found), withheld)[0]
