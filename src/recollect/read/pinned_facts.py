"""Keyed facts: who the user is and what holds for them, given whatever the question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from recollect.ledger.ledger import Ledger
from recollect.model.memory import Category
from recollect.model.query import Filter, Op, Where, both
from recollect.model.result import Hit
from recollect.model.scope import Level, Scope
from recollect.text.tokens import MAX_CHARS_PER_TOKEN, count_tokens

_NARROWEST = (Level.USER, Level.PROJECT, Level.SESSION)
# A file has its path for a key; it is given where it fits, not always.
_FACTS: Filter = Where("category", Op.NE, str(Category.FILE))


async def keyed_facts(
    scope: Scope, filter: Filter, *, ledger: Ledger, limit: int, min_importance: float, as_of: datetime | None = None
) -> list[Hit]:
    """The user's keyed facts that pass the filter and matter at least so much, most important first."""
    if not limit:
        return []
    facts = await ledger.keyed_facts(
        scope, both(filter, _FACTS), min_importance=min_importance, limit=limit, as_of=as_of
    )
    return [
        Hit(fact, fact.importance, {"importance": fact.importance}, "a keyed fact, always given") for fact in facts
    ]


def merge_facts(facts: Sequence[Hit], hits: Sequence[Hit], *, per_source: int, tokens: int) -> tuple[Hit, ...]:
    """What is always given, then what was found; a fact that was found keeps its score.

    Facts take no more than a third of the tokens, so that there is room for what was asked. Of one key the narrowest
    level holds, and one turn gives no more of them than it may of hits.
    """
    scored = {hit.id: hit for hit in hits}
    tokens_left = tokens // 3
    keys: dict[tuple[str, str | None], Level] = {}
    for fact in facts:
        slot = (fact.record.category, fact.record.key)
        keys[slot] = max(keys.get(slot, fact.record.level), fact.record.level, key=_NARROWEST.index)
    sources: Counter[str] = Counter(turn for hit in hits for turn in hit.record.evidence)
    first: list[Hit] = []
    for fact in facts:
        record, cost = fact.record, count_tokens(fact.memory[: MAX_CHARS_PER_TOKEN * tokens])
        is_crowded = fact.id not in scored and any(sources[turn] >= per_source for turn in record.evidence)
        if keys[record.category, record.key] is not record.level or is_crowded or cost > tokens_left:
            continue
        tokens_left -= cost
        if fact.id not in scored:
            sources.update(record.evidence)
        first.append(scored.get(fact.id, fact))
    fact_ids = {hit.id for hit in first}
    return (*first, *(hit for hit in hits if hit.id not in fact_ids))
