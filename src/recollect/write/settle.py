"""Settle what a new memory does to the one that holds its key.

A key has one active value. A new one wins if we are at least as sure of it, or if it is a correction; the old
one stays in history. Otherwise the old one stays and the new one is not kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.ledger.protocol import Ledger
from recollect.model.change import Add, Supersede
from recollect.model.filters import where
from recollect.model.memory import MemoryRecord
from recollect.model.query import And, Listing, Op

if TYPE_CHECKING:
    from recollect.model.change import Vector


async def settle(
    record: MemoryRecord, vector: Vector | None, *, ledger: Ledger, correction: bool
) -> Add | Supersede | MemoryRecord:
    """The change to make, or the memory that stays as it is."""
    held = await holder(record, ledger=ledger) if record.key is not None else None
    if held is None or held.fingerprint == record.fingerprint:
        return Add(record, vector)
    if correction or record.confidence >= held.confidence:
        return Supersede(held.id, record, expected_version=held.version, vector=vector)
    return held


async def holder(record: MemoryRecord, *, ledger: Ledger) -> MemoryRecord | None:
    """The active memory that holds the record's key in its place."""
    same_key = And(
        (
            where("key", Op.EQ, record.key),
            where("category", Op.EQ, str(record.category)),
            where("level", Op.EQ, str(record.level)),
        )
    )
    page = await ledger.find(record.scope, Listing(filter=same_key, visible=True, limit=1000))
    return next((held for held in page if held.place == record.place), None)
