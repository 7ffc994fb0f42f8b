"""The names that memories mention: written with the memories, and read to find memories by names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from recollect.ledger.plan import Plan
from recollect.ledger.sql.memories import SELECTED_COLUMNS, record_from_row, valid_condition, visible_condition
from recollect.ledger.sql.migrate import meta, set_meta
from recollect.ledger.sql.tx import Tx
from recollect.ledger.types import MentionRow
from recollect.model.memory import Category, MemoryRecord
from recollect.model.scope import Scope
from recollect.model.text import is_storable
from recollect.text.names import NAMES_VERSION, MentionKind, find_mentions

_FILL_ROWS = 1000
_KEY, _OPENING = str(MentionKind.KEY), str(MentionKind.OPENING)


# Writing ------------------------------------------------------------------------------------------------


async def update_mentions(tx: Tx, user: str, plan: Plan, rows: Mapping[str, int]) -> None:
    """Write the mentions of the memories whose text or key a plan changes."""
    changed = {rows[id]: new for id, new in plan.changed.items() if _source(new) != _source(plan.originals[id])}
    if changed:
        await tx.run(
            f"DELETE FROM mentions WHERE user_id = :user AND {tx.dialect.among_numbers('row', 'rows')}",
            {"user": user, "rows": list(changed)},
        )
        await add_mentions(tx, changed)


def _source(record: MemoryRecord) -> tuple[object, ...]:
    return record.category, record.content, record.key, record.value


async def add_mentions(tx: Tx, records: Mapping[int, MemoryRecord]) -> None:
    """Write the mentions of memories that have none yet, by row; those of turns are not stored."""
    found = [
        {"user": record.scope.user, "name": mention.name, "row": row, "kind": str(mention.kind)}
        for row, record in records.items()
        if record.category is not Category.TURN
        for mention in find_mentions(record.content, key=record.key, value=record.value)
    ]
    if found:
        await tx.many("INSERT INTO mentions (user_id, name, row, kind) VALUES (:user, :name, :row, :kind)", found)


async def is_filled(tx: Tx) -> bool:
    """Return whether the table was filled by the present rules."""
    return await meta(tx, "mentions") == str(NAMES_VERSION)


async def fill(tx: Tx) -> None:
    """Find the mentions of all memories of all users anew, while nobody writes."""
    await tx.dialect.block_writers(tx)
    await tx.run("DELETE FROM mentions", {})
    after = 0
    while rows := await tx.rows(
        f"SELECT row, {SELECTED_COLUMNS} FROM memories WHERE row > :after AND category <> 'turn' "
        "ORDER BY row LIMIT :limit",
        {"after": after, "limit": _FILL_ROWS},
    ):
        await add_mentions(tx, {row: record_from_row(columns) for row, *columns in rows})
        after = rows[-1][0]
    await set_meta(tx, "mentions", str(NAMES_VERSION))


# Reading ------------------------------------------------------------------------------------------------


async def mentions(tx: Tx, user: str, names: Collection[str], *, limit: int) -> list[MentionRow]:
    """Return the user's mentions of these names, whoever may see the memories; in the newest memories first.

    Words that begin sentences come last: "The" and "My" would take all places.
    """
    rows = await tx.rows(
        f"SELECT name, kind, row FROM mentions WHERE user_id = :user AND {tx.dialect.among('name', 'names')} "
        # The sign keeps SQLite from reading all mentions in the order of rows.
        "AND kind <> :key ORDER BY kind = :opening, +row DESC, name LIMIT :limit",
        {"user": user, "names": _storable(names), "key": _KEY, "opening": _OPENING, "limit": limit},
    )
    return [MentionRow(name, MentionKind(kind), row) for name, kind, row in rows]


async def mentioning(
    tx: Tx, scope: Scope, names: Collection[str], keys: Collection[str], *, superseded: bool, limit: int
) -> list[MemoryRecord]:
    """Return the visible memories that mention one of the names or have one of the keys, newest first."""
    params: dict[str, Any] = {"names": _storable(names), "keys": _storable(keys), "key": _KEY, "limit": limit}
    by_name = f"user_id = :user AND {tx.dialect.among('name', 'names')} AND kind <> :key"
    by_key = f"user_id = :user AND {tx.dialect.among('name', 'keys')} AND kind = :key"
    rows = f"SELECT row FROM mentions WHERE {by_name} UNION SELECT row FROM mentions WHERE {by_key}"
    return await _select(tx, scope, rows, params, superseded=superseded)


async def linked(
    tx: Tx, scope: Scope, ids: Collection[str], replaced_by: Collection[str], *, superseded: bool, limit: int
) -> list[MemoryRecord]:
    """Return the visible memories of these ids and those that were replaced by others, newest first."""
    params: dict[str, Any] = {"ids": _storable(ids), "limit": limit}
    rows = f"SELECT row FROM memories WHERE user_id = :user AND {tx.dialect.among('id', 'ids')}"
    if replaced_by:
        params["successors"] = _storable(replaced_by)
        replaced = tx.dialect.among(tx.dialect.in_body("superseded_by"), "successors")
        rows += f" UNION SELECT row FROM memories WHERE user_id = :user AND status = 'superseded' AND {replaced}"
    return await _select(tx, scope, rows, params, superseded=superseded)


async def certain_names(tx: Tx, scope: Scope, names: Collection[str], *, superseded: bool) -> set[str]:
    """Return those names that a visible memory mentions inside a sentence, where only names are capitalised."""
    params: dict[str, Any] = {"names": _storable(names), "key": _KEY, "opening": _OPENING}
    shown = _shown(tx, scope, params, superseded=superseded)
    rows = await tx.rows(
        f"SELECT DISTINCT name FROM mentions WHERE user_id = :user AND {tx.dialect.among('name', 'names')} "
        "AND kind <> :key AND kind <> :opening AND EXISTS "
        f"(SELECT 1 FROM memories {tx.dialect.fragments['by_row']} WHERE row = mentions.row AND {shown})",
        params,
    )
    return {name for (name,) in rows}


async def _select(tx: Tx, scope: Scope, rows: str, params: dict[str, Any], *, superseded: bool) -> list[MemoryRecord]:
    """Return the visible memories among the rows that a query selects, without turns, newest first."""
    shown = _shown(tx, scope, params, superseded=superseded)
    found = await tx.rows(
        f"SELECT {SELECTED_COLUMNS} FROM memories {tx.dialect.fragments['by_row']} "
        f"WHERE row IN ({rows}) AND {shown} AND category <> 'turn' ORDER BY row DESC LIMIT :limit",
        params,
    )
    return [record_from_row(row) for row in found]


def _shown(tx: Tx, scope: Scope, params: dict[str, Any], *, superseded: bool) -> str:
    valid = valid_condition(None, params)
    if superseded:
        valid = f"(({valid}) OR (status = 'superseded' AND (expires_at IS NULL OR expires_at > :now)))"
    return f"{visible_condition(scope, tx.dialect, params)} AND {valid}"


def _storable(values: Collection[str]) -> Sequence[str]:
    """Return the values that can be stored, in order; others cannot be found."""
    return sorted(value for value in values if is_storable(value))
