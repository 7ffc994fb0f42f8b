"""Reading history, the evidence of memories, and chains of superseded memories."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from recollect.errors import NotFound
from recollect.ledger.plan import Plan
from recollect.ledger.sql.memories import (
    CATEGORIES,
    SELECTED_COLUMNS,
    STATUSES,
    TYPES,
    record_from_row,
    scope_condition,
)
from recollect.ledger.sql.tx import Row, Tx
from recollect.ledger.types import Derived, NumberedRecord
from recollect.model.change import Actor, Author, ChangeKind, HistoryEntry
from recollect.model.memory import MemoryRecord
from recollect.model.query import validate_limit
from recollect.model.scope import Scope
from recollect.model.text import is_storable
from recollect.model.times import from_micros, time_or_none, to_micros

ENTRY_COLUMNS = "id, batch, memory_id, verb, at, who, why, version, before, after, undoes, actor"


def entry_from_row(row: Row) -> HistoryEntry:
    """Convert a row of ENTRY_COLUMNS."""
    return HistoryEntry(
        id=row[0],
        batch=row[1],
        memory_id=row[2],
        verb=ChangeKind(row[3]),
        at=from_micros(row[4]),
        by=Author(row[5], row[6], actor=Actor(row[11] or Actor.AGENT)),
        version=row[7],
        before=None if row[8] is None else json.loads(row[8]),
        after=json.loads(row[9]) if row[9] else {},
        undoes=row[10],
    )


# The largest integer a database can store; higher ids cannot exist.
MAX_NUMBER = (1 << 63) - 1


async def entry(tx: Tx, scope: Scope, entry_id: int) -> HistoryEntry:
    """Return one entry of the user's history."""
    if not 0 < entry_id <= MAX_NUMBER:
        raise NotFound(f"no change {entry_id} for this user; the history shows their numbers")
    rows = await tx.rows(
        f"SELECT {ENTRY_COLUMNS} FROM history WHERE user_id = :user AND id = :id",
        {"user": scope.user, "id": entry_id},
    )
    if not rows:
        raise NotFound(f"no change {entry_id} for this user; the history shows their numbers")
    return entry_from_row(rows[0])


async def history(
    tx: Tx,
    scope: Scope,
    *,
    memory_id: str | None = None,
    limit: int = 100,
    before: int | None = None,
    after: int | None = None,
) -> list[HistoryEntry]:
    """Return the history of one memory, or of the scope, newest first; with `after`, later entries oldest first.

    Later entries have higher ids, so polling from the last one misses none.
    """
    params: dict[str, Any] = {"limit": validate_limit(limit)}
    inside = scope_condition(scope, params)
    sql = "user_id = :user"
    if memory_id is not None:
        # Unstorable ids cannot exist.
        params = {"user": scope.user, "limit": limit, "memory_id": memory_id if is_storable(memory_id) else ""}
        sql += " AND memory_id = :memory_id"
    elif scope.project or scope.session:
        sql += f" AND memory_id IN (SELECT id FROM memories WHERE {inside})"
    if before is not None:
        params["before"] = max(0, min(before, MAX_NUMBER))
        sql += " AND id < :before"
    if after is not None:
        params["after"] = max(0, min(after, MAX_NUMBER))
        sql += " AND id > :after"
    direction = "DESC" if after is None else "ASC"
    rows = await tx.rows(
        f"SELECT {ENTRY_COLUMNS} FROM history WHERE {sql} ORDER BY id {direction} LIMIT :limit", params
    )
    return [entry_from_row(row) for row in rows]


async def changes_since(tx: Tx, user: str, since: datetime) -> list[HistoryEntry]:
    """Return the entries after a time, oldest first, of memories that were not only added since."""
    test = "user_id = :user AND at > :since"
    rows = await tx.rows(
        f"SELECT {ENTRY_COLUMNS} FROM history WHERE {test} AND memory_id IN "
        f"(SELECT memory_id FROM history WHERE {test} AND verb <> 'add') ORDER BY id",
        {"user": user, "since": to_micros(since)},
    )
    return [entry_from_row(row) for row in rows]


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


async def update_evidence(tx: Tx, user: str, plan: Plan, rows: Mapping[str, int]) -> None:
    """Write the evidence of the memories whose evidence a plan changes."""
    changed = {rows[id]: new for id, new in plan.changed.items() if new.evidence != plan.originals[id].evidence}
    if changed:
        await drop_evidence(tx, user, list(changed))
        await add_evidence(tx, changed)


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
        f"DELETE FROM evidence WHERE user_id = :user AND {tx.dialect.among_numbers('row', 'rows')}",
        {"user": user, "rows": list(rows)},
    )
