"""LangGraph's stores: items under namespaces, from a store in SQLite or PostgreSQL, or as JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from recollect.movein.item import Found, Item, Left
from recollect.movein.rows import has_tables, opened, rows_of
from recollect.movein.source import Source

# What in a value holds its words, as the tools that write memories call it.
_WORDS = ("content", "memory", "text", "data", "fact", "value")
_COLUMNS = {"prefix": "text", "key": "text", "value": "jsonb"}


def recognise(source: Source) -> str:
    """By the table of a store, or by items that name their namespace."""
    if source.is_database:
        from recollect.movein.tables import looked_at

        with looked_at(source) as tables:
            found = tables.like(_COLUMNS)
        return f"it has the table {', '.join(found)}" if found else ""
    for name in source.names:
        if has_tables(source, name, "store", "store_migrations"):
            return f"{name} is a SQLite store"
    for name in source.ending(".jsonl"):
        head = source.head(name)
        if b'"namespace"' in head and b'"key"' in head and b'"value"' in head:
            return f"{name} has items with a namespace"
    return ""


def read(source: Source) -> Iterator[Item]:
    """Every item: what its namespace says after `users` or `memories` is its user."""
    if source.is_database:
        yield from _of_tables(source)
        return
    for name in source.names:
        if has_tables(source, name, "store"):
            with opened(source, name) as connection:
                for row in rows_of(connection, "SELECT * FROM store ORDER BY prefix, key"):
                    yield _item(row["prefix"].split("."), row, f"{name}, {row['prefix']} {row['key']}")
    for name in source.ending(".jsonl"):
        for number, told in source.json_lines(name):
            where = f"{name}, line {number}"
            if isinstance(told, Left):
                yield told
            elif (
                not isinstance(told, Mapping)
                or not isinstance(told.get("namespace"), list | str)
                or "key" not in told
            ):
                yield Left(where, "it is no item: namespace, key and value are")
            else:
                space = told["namespace"]
                yield _item(space.split(".") if isinstance(space, str) else space, told, where)


def _of_tables(source: Source) -> Iterator[Item]:
    from recollect.movein.tables import looked_at

    with looked_at(source) as tables:
        found = tables.like(_COLUMNS)
        if wrong := tables.missing(found, product="LangGraph"):
            raise wrong
        for table in found:
            for row in tables.rows(table, order="prefix, key"):
                yield _item(row["prefix"].split("."), row, f"{table}, {row['prefix']} {row['key']}")


def _item(space: list[Any], told: Mapping[str, Any], where: str) -> Item:
    value = told.get("value")
    if isinstance(value, str | bytes):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = {"value": value if isinstance(value, str) else ""}
    words = _words(value)
    if not words:
        return Left(where, "its value is empty")
    names = [str(part) for part in space]
    return Found(
        id="\n".join((*names, str(told.get("key")))),
        text=words,
        where=where,
        at=told.get("created_at"),
        user=_user(names),
        fields={
            "updated_at": told.get("updated_at") or told.get("created_at"),
            "expires_at": told.get("expires_at"),
            "metadata": {"namespace": names, "key": str(told.get("key"))},
        },
    )


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        for name in _WORDS:
            held = value.get(name)
            if isinstance(held, str) and held.strip():
                return held
            if isinstance(held, Mapping) and (inner := _words(held)):
                return inner
        return json.dumps(value, ensure_ascii=False) if value else ""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _user(names: list[str]) -> str | None:
    """Who it belongs to: what follows a word for users, or the part that is no such word."""
    kinds = ("memories", "memory", "users", "user", "profile", "facts")
    for before, name in pairwise(names):
        if before.lower() in kinds[:4] and name.lower() not in kinds:
            return name
    return names[0] if names and names[0].lower() not in kinds else None
