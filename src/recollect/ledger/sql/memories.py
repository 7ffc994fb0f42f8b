"""Reading memories: by id, by listing, by row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from recollect.ledger.cursors import make_page, parse_cursor
from recollect.ledger.protocol import NumberedRecord
from recollect.ledger.sql.records import SELECTED_COLUMNS, record_from_row
from recollect.ledger.sql.tx import Tx
from recollect.ledger.sql.where import filter_condition, scope_condition, valid_condition, visible_condition
from recollect.model.memory import MemoryRecord
from recollect.model.query import EVERYTHING, Filter, Listing, validate_limit
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
        f"SELECT {SELECTED_COLUMNS} FROM memories WHERE user_id = :user AND {tx.dialect.among('id', 'ids')}",
        {"user": scope.user, "ids": ids},
    )
    return {record.id: record for record in map(record_from_row, rows)}


async def find(tx: Tx, scope: Scope, listing: Listing) -> Page:
    """One page of a listing."""
    params: dict[str, Any] = {}
    sql = _listing_condition(tx, scope, listing, params)
    newest = listing.order == "newest"
    if listing.cursor is not None:
        params["at"], params["last"] = parse_cursor(listing.cursor)
        sql += f" AND (created_at, id) {'<' if newest else '>'} (:at, :last)"
    direction = "DESC" if newest else "ASC"
    params["limit"] = listing.limit + 1
    rows = await tx.rows(
        f"SELECT {SELECTED_COLUMNS} FROM memories WHERE {sql} ORDER BY created_at {direction}, id {direction} LIMIT :limit",
        params,
    )
    return make_page([record_from_row(row) for row in rows], listing.limit)


async def count(tx: Tx, scope: Scope, listing: Listing) -> int:
    """How many memories a listing has in all."""
    params: dict[str, Any] = {}
    rows = await tx.rows(
        f"SELECT count(*) FROM memories WHERE {_listing_condition(tx, scope, listing, params)}", params
    )
    return int(rows[0][0])


async def count_up_to(tx: Tx, user: str, max_count: int) -> int:
    """How many memories a user has at least; not counted beyond so many."""
    rows = await tx.rows(
        "SELECT count(*) FROM (SELECT 1 FROM memories WHERE user_id = :user LIMIT :most) AS few",
        {"user": user, "most": max_count},
    )
    return int(rows[0][0])


def _listing_condition(tx: Tx, scope: Scope, listing: Listing, params: dict[str, Any]) -> str:
    sql = visible_condition(scope, tx.dialect, params) if listing.visible else scope_condition(scope, params)
    if listing.statuses:
        params["statuses"] = [str(status) for status in listing.statuses]
        sql += f" AND {tx.dialect.among('status', 'statuses')}"
    return f"{sql} AND ({filter_condition(listing.filter, tx.dialect, params)})"


async def fetch(
    tx: Tx, scope: Scope, rows: Sequence[int], filter: Filter, *, as_of: datetime | None = None
) -> list[NumberedRecord]:
    """The memories of those rows that recall may see from the scope and that pass the filter."""
    params: dict[str, Any] = {"rows": [int(row) for row in rows]}
    sql = _recall_condition(tx, scope, filter, params, as_of=as_of)
    table = f"memories {tx.dialect.fragments['by_row']}"
    fetched = await tx.rows(
        f"SELECT {SELECTED_COLUMNS}, row FROM {table} WHERE {tx.dialect.among('row', 'rows')} AND {sql}", params
    )
    return [NumberedRecord(row[-1], record_from_row(row[:-1])) for row in fetched]


async def matching(tx: Tx, scope: Scope, filter: Filter, *, as_of: datetime | None = None) -> list[int]:
    """Every row recall may see from the scope that passes the filter."""
    params: dict[str, Any] = {}
    sql = _recall_condition(tx, scope, filter, params, as_of=as_of)
    rows = await tx.rows(f"SELECT row FROM memories WHERE {sql}", params)
    return [row[0] for row in rows]


async def keyed_facts(
    tx: Tx, scope: Scope, filter: Filter, *, min_importance: float, limit: int, as_of: datetime | None = None
) -> list[MemoryRecord]:
    """The most important facts with a key; read by the index that keeps keys unique."""
    params: dict[str, Any] = {"least": min_importance}
    # Most users have none, and sorting whole rows costs more than finding that out.
    candidates = await tx.rows(
        f"SELECT row, importance FROM memories WHERE {_recall_condition(tx, scope, filter, params, as_of=as_of)} "
        'AND "key" IS NOT NULL AND importance >= :least',
        params,
    )
    best = sorted(candidates, key=lambda each: (-each[1], each[0]))[: validate_limit(limit)]
    ranks = {row: rank for rank, (row, _) in enumerate(best)}
    facts = await fetch(tx, scope, list(ranks), filter, as_of=as_of) if ranks else []
    return [each.record for each in sorted(facts, key=lambda each: ranks[each.row])]


def _recall_condition(tx: Tx, scope: Scope, filter: Filter, params: dict[str, Any], *, as_of: datetime | None) -> str:
    sql = f"{visible_condition(scope, tx.dialect, params)} AND {valid_condition(as_of, params)}"
    return sql if filter == EVERYTHING else f"{sql} AND ({filter_condition(filter, tx.dialect, params)})"
