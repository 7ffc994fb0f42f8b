"""Reading memories: by id, by listing, by row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from recollect.ledger.cursors import page_of, read_cursor
from recollect.ledger.protocol import Numbered
from recollect.ledger.sql.records import SELECTED, from_row
from recollect.ledger.sql.tx import Tx
from recollect.ledger.sql.where import condition, held_at, seen_from, within
from recollect.model.memory import MemoryRecord
from recollect.model.query import EVERYTHING, Filter, Listing, checked_limit
from recollect.model.result import Page
from recollect.model.scope import Scope
from recollect.model.text import is_storable


async def by_ids(tx: Tx, scope: Scope, ids: Sequence[str]) -> dict[str, MemoryRecord]:
    """The user's memories of these ids."""
    # An id that no store can hold was never given to anyone.
    ids = [id for id in dict.fromkeys(ids) if is_storable(id)]
    if not ids:
        return {}
    rows = await tx.rows(
        f"SELECT {SELECTED} FROM memories WHERE user_id = :user AND {tx.dialect.among('id', 'ids')}",
        {"user": scope.user, "ids": ids},
    )
    return {record.id: record for record in map(from_row, rows)}


async def find(tx: Tx, scope: Scope, listing: Listing) -> Page:
    """One page of a listing."""
    params: dict[str, Any] = {}
    sql = _listed(tx, scope, listing, params)
    newest = listing.order == "newest"
    if listing.cursor is not None:
        params["at"], params["last"] = read_cursor(listing.cursor)
        sql += f" AND (created_at, id) {'<' if newest else '>'} (:at, :last)"
    way = "DESC" if newest else "ASC"
    params["limit"] = listing.limit + 1
    rows = await tx.rows(
        f"SELECT {SELECTED} FROM memories WHERE {sql} ORDER BY created_at {way}, id {way} LIMIT :limit", params
    )
    return page_of([from_row(row) for row in rows], listing.limit)


async def count(tx: Tx, scope: Scope, listing: Listing) -> int:
    """How many memories a listing has in all."""
    params: dict[str, Any] = {}
    rows = await tx.rows(f"SELECT count(*) FROM memories WHERE {_listed(tx, scope, listing, params)}", params)
    return int(rows[0][0])


async def at_least(tx: Tx, user: str, most: int) -> int:
    """How many memories a user has at least; not counted beyond so many."""
    rows = await tx.rows(
        "SELECT count(*) FROM (SELECT 1 FROM memories WHERE user_id = :user LIMIT :most) AS few",
        {"user": user, "most": most},
    )
    return int(rows[0][0])


def _listed(tx: Tx, scope: Scope, listing: Listing, params: dict[str, Any]) -> str:
    sql = seen_from(scope, tx.dialect, params) if listing.visible else within(scope, params)
    if listing.statuses:
        params["statuses"] = [str(status) for status in listing.statuses]
        sql += f" AND {tx.dialect.among('status', 'statuses')}"
    return f"{sql} AND ({condition(listing.filter, tx.dialect, params)})"


async def fetch(
    tx: Tx, scope: Scope, rows: Sequence[int], filter: Filter, *, as_of: datetime | None = None
) -> list[Numbered]:
    """The memories of those rows that recall may see from the scope and that pass the filter."""
    params: dict[str, Any] = {"rows": [int(row) for row in rows]}
    sql = _seen(tx, scope, filter, params, as_of=as_of)
    table = f"memories {tx.dialect.words['by_row']}"
    found = await tx.rows(
        f"SELECT {SELECTED}, row FROM {table} WHERE {tx.dialect.among('row', 'rows')} AND {sql}", params
    )
    return [Numbered(row[-1], from_row(row[:-1])) for row in found]


async def matching(tx: Tx, scope: Scope, filter: Filter, *, as_of: datetime | None = None) -> list[int]:
    """Every row recall may see from the scope that passes the filter."""
    params: dict[str, Any] = {}
    sql = _seen(tx, scope, filter, params, as_of=as_of)
    rows = await tx.rows(f"SELECT row FROM memories WHERE {sql}", params)
    return [row[0] for row in rows]


async def keyed(
    tx: Tx, scope: Scope, filter: Filter, *, least: float, limit: int, as_of: datetime | None = None
) -> list[MemoryRecord]:
    """The most important facts with a key; read by the index that keeps keys unique."""
    params: dict[str, Any] = {"least": least}
    # Most users have none, and sorting whole rows costs more than finding that out.
    found = await tx.rows(
        f"SELECT row, importance FROM memories WHERE {_seen(tx, scope, filter, params, as_of=as_of)} "
        'AND "key" IS NOT NULL AND importance >= :least',
        params,
    )
    best = sorted(found, key=lambda each: (-each[1], each[0]))[: checked_limit(limit)]
    places = {row: place for place, (row, _) in enumerate(best)}
    facts = await fetch(tx, scope, list(places), filter, as_of=as_of) if places else []
    return [each.record for each in sorted(facts, key=lambda each: places[each.row])]


def _seen(tx: Tx, scope: Scope, filter: Filter, params: dict[str, Any], *, as_of: datetime | None) -> str:
    sql = f"{seen_from(scope, tx.dialect, params)} AND {held_at(as_of, params)}"
    return sql if filter == EVERYTHING else f"{sql} AND ({condition(filter, tx.dialect, params)})"
