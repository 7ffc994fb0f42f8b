"""Reading history."""

from __future__ import annotations

import json
from typing import Any

from recollect.errors import NotFound
from recollect.ledger.sql.tx import Row, Tx
from recollect.model.change import By, Entry, Verb
from recollect.model.scope import Scope
from recollect.model.times import from_micros

ENTRY_COLUMNS = "id, batch, memory_id, verb, at, who, why, version, before, after, undoes"


def entry_from_row(row: Row) -> Entry:
    """The line of history that a row of ENTRY_COLUMNS stands for."""
    return Entry(
        id=row[0],
        batch=row[1],
        memory_id=row[2],
        verb=Verb(row[3]),
        at=from_micros(row[4]),
        by=By(row[5], row[6]),
        version=row[7],
        before=None if row[8] is None else json.loads(row[8]),
        after=json.loads(row[9]) if row[9] else {},
        undoes=row[10],
    )


async def entry(tx: Tx, scope: Scope, entry_id: int) -> Entry:
    """One line of the user's history."""
    rows = await tx.rows(
        f"SELECT {ENTRY_COLUMNS} FROM history WHERE user_id = :user AND id = :id",
        {"user": scope.user, "id": entry_id},
    )
    if not rows:
        raise NotFound(f"no change {entry_id}")
    return entry_from_row(rows[0])


async def history(
    tx: Tx, scope: Scope, *, memory_id: str | None, batch: str | None = None, limit: int, before: int | None
) -> list[Entry]:
    """The user's history, or one memory's, or one batch's, newest first."""
    params: dict[str, Any] = {"user": scope.user, "limit": limit}
    sql = "user_id = :user"
    for column, sign, value in (("memory_id", "=", memory_id), ("batch", "=", batch), ("id", "<", before)):
        if value is not None:
            params[column] = value
            sql += f" AND {column} {sign} :{column}"
    rows = await tx.rows(f"SELECT {ENTRY_COLUMNS} FROM history WHERE {sql} ORDER BY id DESC LIMIT :limit", params)
    return [entry_from_row(row) for row in rows]
