"""Reading history."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from recollect.errors import NotFound
from recollect.ledger.sql.memories import scope_condition
from recollect.ledger.sql.tx import Row, Tx
from recollect.model.change import Author, ChangeKind, HistoryEntry
from recollect.model.query import validate_limit
from recollect.model.scope import Scope
from recollect.model.text import is_storable
from recollect.model.times import from_micros, to_micros

ENTRY_COLUMNS = "id, batch, memory_id, verb, at, who, why, version, before, after, undoes"


def entry_from_row(row: Row) -> HistoryEntry:
    """Convert a row of ENTRY_COLUMNS."""
    return HistoryEntry(
        id=row[0],
        batch=row[1],
        memory_id=row[2],
        verb=ChangeKind(row[3]),
        at=from_micros(row[4]),
        by=Author(row[5], row[6]),
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
        raise NotFound(f"no change {entry_id}")
    rows = await tx.rows(
        f"SELECT {ENTRY_COLUMNS} FROM history WHERE user_id = :user AND id = :id",
        {"user": scope.user, "id": entry_id},
    )
    if not rows:
        raise NotFound(f"no change {entry_id}")
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
