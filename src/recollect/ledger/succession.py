"""Chains of superseded memories, shared by all ledgers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recollect.ledger.protocol import NumberedRecord

# Longer chains are cut: their end is taken for one that is not known.
MAX_LINKS = 64


def successions(ids: Sequence[str], records: Mapping[str, NumberedRecord]) -> dict[str, tuple[NumberedRecord, ...]]:
    """Each memory of these ids with those that superseded it, in order; a chain that returns to itself ends there."""
    chains: dict[str, tuple[NumberedRecord, ...]] = {}
    for id in ids:
        chain: dict[str, NumberedRecord] = {}
        following: str | None = id
        while following is not None and following in records and following not in chain and len(chain) < MAX_LINKS:
            chain[following] = records[following]
            following = records[following].record.superseded_by
        if chain:
            chains[id] = tuple(chain.values())
    return chains
