"""Keyed facts: who the user is and what holds for them, given whatever the question."""

from __future__ import annotations

from datetime import datetime

from recollect.ledger.protocol import Ledger
from recollect.model.query import Filter
from recollect.model.result import Hit
from recollect.model.scope import Scope


async def keyed_facts(
    scope: Scope, filter: Filter, *, ledger: Ledger, limit: int, least: float, as_of: datetime | None = None
) -> list[Hit]:
    """The user's keyed facts that pass the filter and matter at least so much, most important first."""
    if not limit:
        return []
    facts = await ledger.keyed(scope, filter, least=least, limit=limit, as_of=as_of)
    return [
        Hit(fact, fact.importance, {"importance": fact.importance}, "a keyed fact, always given") for fact in facts
    ]
