"""Pinned facts, which enter every prompt: keyed facts, and standing constraints and instructions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from recollect.ledger.ledger import Ledger
from recollect.model.memory import Category, Trust
from recollect.model.query import Filter, Op, Where, both
from recollect.model.result import Hit
from recollect.model.scope import Level, Scope
from recollect.read.select import statement_words
from recollect.text.tokens import MAX_CHARS_PER_TOKEN, count_tokens

_NARROWEST = (Level.USER, Level.PROJECT, Level.SESSION)
# The key of a file is its path; files are not pinned.
_FACTS: Filter = Where("category", Op.NE, str(Category.FILE))


async def pinned_facts(
    scope: Scope, filter: Filter, *, ledger: Ledger, limit: int, min_importance: float, as_of: datetime | None = None
) -> list[Hit]:
    """Return the keyed facts of at least this importance that pass the filter, then standing memories."""
    if not limit:
        return []
    facts = await ledger.keyed_facts(
        scope, both(filter, _FACTS), min_importance=min_importance, limit=limit, with_rules=True, as_of=as_of
    )
    return [
        Hit(
            fact,
            fact.importance,
            {"importance": fact.importance},
            f"a {'keyed fact' if fact.key else f'standing {fact.category}'}, always included",
        )
        for fact in facts
        if fact.key or fact.trust is Trust.HIGH
    ]


def merge_facts(facts: Sequence[Hit], hits: Sequence[Hit], *, per_source: int, tokens: int) -> tuple[Hit, ...]:
    """Return the keyed facts, the hits, then other pinned facts; a fact that is also a hit has the score of the hit.

    Facts take at most a third of the tokens, which leaves space for the hits. Of facts with the same key the one of
    the narrowest level is used. `per_source` limits the facts and hits from one turn; a turn that says no more than a
    keyed fact is left out, and so are other facts that a turn among the hits says.
    """
    scored = {hit.id: hit for hit in hits}
    turns = {hit.id: statement_words(hit.memory) for hit in hits if hit.record.category is Category.TURN}
    tokens_left = tokens // 3
    levels: dict[tuple[str, str], Level] = {}
    for fact in facts:
        slot = (fact.record.category, fact.record.key or fact.id)
        levels[slot] = max(levels.get(slot, fact.record.level), fact.record.level, key=_NARROWEST.index)
    sources: Counter[str] = Counter(turn for hit in hits for turn in hit.record.evidence)
    keyed: list[Hit] = []
    others: list[Hit] = []
    for fact in facts:
        record, cost = fact.record, count_tokens(fact.memory[: MAX_CHARS_PER_TOKEN * tokens])
        is_hit = fact.id in scored
        is_crowded = not is_hit and any(sources[turn] >= per_source for turn in record.evidence)
        if levels[record.category, record.key or fact.id] is not record.level or is_crowded or cost > tokens_left:
            continue
        words = statement_words(fact.memory)
        if record.key:
            keyed.append(scored.pop(fact.id, fact))
            for turn in record.evidence:
                if turns.get(turn) == words:
                    scored.pop(turn, None)
        elif not is_hit and not any(words in turns.get(turn, "") for turn in record.evidence):
            others.append(fact)
        else:
            continue
        tokens_left -= cost
        if not is_hit:
            sources.update(record.evidence)
    return (*keyed, *scored.values(), *others)
