"""Keyed facts: who the user is and what holds for them, given whatever the question."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from recollect.ledger.protocol import Ledger
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import And, Listing, Not, Op, Where
from recollect.model.result import Hit
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.validity import valid_at

# Enough to choose the most important from, and no more than is read in a moment.
_LOOKED_THROUGH = 500
_HAS_KEY = Where("key", Op.CONTAINS, "")


async def keyed_facts(
    scope: Scope, ledger: Ledger, *, limit: int, least: float, as_of: datetime | None = None
) -> list[Hit]:
    """The user's most important keyed facts, those that matter at least so much, most important first."""
    if not limit:
        return []
    moment = as_of or now()
    listing = Listing(
        filter=And((_HAS_KEY, Where("importance", Op.GTE, least), Not(Where("expires_at", Op.LTE, moment)))),
        statuses=(Status.ACTIVE,) if as_of is None else (Status.ACTIVE, Status.SUPERSEDED),
        visible=True,
        limit=_LOOKED_THROUGH,
    )
    facts: Sequence[MemoryRecord] = (await ledger.find(scope, listing)).records
    if as_of is not None:
        facts = [fact for fact in facts if valid_at(fact, as_of)]
    first = sorted(facts, key=lambda fact: -fact.importance)[:limit]
    return [
        Hit(fact, fact.importance, {"importance": fact.importance}, "a keyed fact, always given") for fact in first
    ]
