"""The evidence of memories, and chains of superseded memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recollect.ledger.plan import Plan
from recollect.ledger.sql.memories import CATEGORIES, SELECTED_COLUMNS, STATUSES, TYPES, record_from_row
from recollect.ledger.sql.tx import Tx
from recollect.ledger.types import Derived, NumberedRecord
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope
from recollect.model.text import is_storable
from recollect.model.times import time_or_none

# Longer chains are cut.
MAX_LINKS = 64


def successions(ids: Sequence[str], records: Mapping[str, NumberedRecord]) -> dict[str, tuple[NumberedRecord, ...]]:
    """Return each memory of these ids followed by its successors in order; a cycle ends where it closes."""
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


async def derived(tx: Tx, scope: Scope, turn_ids: Sequence[str]) -> dict[str, list[Derived]]:
    """Return, for each turn that has any, the active or superseded memories it is evidence of, oldest first."""
    sources = list(turn_ids)
    if not is_storable("".join(sources)):
        # Unstorable ids cannot exist.
        sources = [id for id in sources if is_storable(id)]
    if not sources:
        return {}
    rows = await tx.rows(
        "SELECT e.source_id, m.id, m.row, m.status, m.type, m.category, m.valid_to, "
        # Most are active, and their bodies need not be parsed.
        f"CASE WHEN m.status = 'superseded' THEN {tx.dialect.in_body('superseded_by')} END FROM evidence e "
        f"JOIN memories m {tx.dialect.fragments['by_row']} ON m.row = e.row AND m.user_id = e.user_id "
        f"WHERE e.user_id = :user AND {tx.dialect.among('e.source_id', 'sources')} "
        "AND m.status IN ('active', 'superseded') ORDER BY e.source_id, e.row",
        {"user": scope.user, "sources": sources},
    )
    result: dict[str, list[Derived]] = {}
    for source, id, row, status, type, category, valid_to, successor in rows:
        ended = time_or_none(valid_to)
        each = Derived(id, row, STATUSES[status], TYPES[type], CATEGORIES[category], ended, successor)
        result.setdefault(source, []).append(each)
    return result


async def succession(tx: Tx, scope: Scope, ids: Sequence[str]) -> dict[str, tuple[NumberedRecord, ...]]:
    """Return each of the user's memories of these ids, followed by its chain of successors.

    The last one may be of any status.
    """
    records: dict[str, NumberedRecord] = {}
    pending = {id for id in ids if is_storable(id)}
    for _ in range(MAX_LINKS):
        if not pending:
            break
        rows = await tx.rows(
            f"SELECT {SELECTED_COLUMNS}, row FROM memories WHERE user_id = :user AND {tx.dialect.among('id', 'ids')}",
            {"user": scope.user, "ids": sorted(pending)},
        )
        batch = [NumberedRecord(row[-1], record_from_row(row[:-1])) for row in rows]
        records |= {each.record.id: each for each in batch}
        pending = {each.record.superseded_by for each in batch if each.record.superseded_by} - records.keys()
    return successions(ids, records)


async def put_evidence(tx: Tx, user: str, plan: Plan, rows: Mapping[str, int]) -> None:
    """Write the evidence of a plan's new memories, and of those whose evidence it changes."""
    changed = [id for id, record in plan.changed.items() if record.evidence != plan.originals[id].evidence]
    if changed:
        await drop_evidence(tx, user, [rows[id] for id in changed])
    to_add = [*plan.added.values(), *(plan.changed[id] for id in changed)]
    await add_evidence(tx, {rows[record.id]: record for record in to_add})


async def add_evidence(tx: Tx, records: Mapping[int, MemoryRecord]) -> None:
    """Write the evidence of memories that have none yet, by row."""
    pairs = [
        {"user": record.scope.user, "source": source, "row": row}
        for row, record in records.items()
        for source in dict.fromkeys(record.evidence)
    ]
    if pairs:
        await tx.many("INSERT INTO evidence (user_id, source_id, row) VALUES (:user, :source, :row)", pairs)


async def drop_evidence(tx: Tx, user: str, rows: Sequence[int]) -> None:
    """Remove the evidence of a user's memories."""
    await tx.run(
        f"DELETE FROM evidence WHERE user_id = :user AND {tx.dialect.among('row', 'rows')}",
        {"user": user, "rows": list(rows)},
    )
