"""LangGraph's stores: items under namespaces, from a store in SQLite or PostgreSQL, or as JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from recollect.transfer.importers.items import SkippedItem, SourceItem, SourceRecord
from recollect.transfer.importers.source import ImportSource, has_tables, iter_rows, open_sqlite

# What in a value holds its words, as the tools that write memories call it.
_TEXT_FIELDS = ("content", "memory", "text", "data", "fact", "value")
_COLUMNS = {"prefix": "text", "key": "text", "value": "jsonb"}


def recognise(source: ImportSource) -> str:
    """By the table of a store, or by items that name their namespace."""
    if source.is_database:
        from recollect.transfer.importers.postgres import open_tables

        with open_tables(source) as tables:
            names = tables.tables_with(_COLUMNS)
        return f"it has the table {', '.join(names)}" if names else ""
    for name in source.names:
        if has_tables(source, name, "store", "store_migrations"):
            return f"{name} is a SQLite store"
    for name in source.files_ending(".jsonl"):
        head = source.head(name)
        if b'"namespace"' in head and b'"key"' in head and b'"value"' in head:
            return f"{name} has items with a namespace"
    return ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Every item: what its namespace says after `users` or `memories` is its user."""
    if source.is_database:
        yield from _read_tables(source)
        return
    for name in source.names:
        if has_tables(source, name, "store"):
            with open_sqlite(source, name) as connection:
                for row in iter_rows(connection, "SELECT * FROM store ORDER BY prefix, key"):
                    yield _item(row["prefix"].split("."), row, f"{name}, {row['prefix']} {row['key']}")
    for name in source.files_ending(".jsonl"):
        for number, data in source.json_lines(name):
            where = f"{name}, line {number}"
            if isinstance(data, SkippedItem):
                yield data
            elif (
                not isinstance(data, Mapping)
                or not isinstance(data.get("namespace"), list | str)
                or "key" not in data
            ):
                yield SkippedItem(where, "it is no item: namespace, key and value are")
            else:
                namespace = data["namespace"]
                yield _item(namespace.split(".") if isinstance(namespace, str) else namespace, data, where)


def _read_tables(source: ImportSource) -> Iterator[SourceItem]:
    from recollect.transfer.importers.postgres import open_tables

    with open_tables(source) as tables:
        names = tables.tables_with(_COLUMNS)
        if error := tables.missing_error(names, product="LangGraph"):
            raise error
        for table in names:
            for row in tables.rows(table, order="prefix, key"):
                yield _item(row["prefix"].split("."), row, f"{table}, {row['prefix']} {row['key']}")


def _item(namespace: list[Any], data: Mapping[str, Any], where: str) -> SourceItem:
    value = data.get("value")
    if isinstance(value, str | bytes):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = {"value": value if isinstance(value, str) else ""}
    text = _value_text(value)
    if not text:
        return SkippedItem(where, "its value is empty")
    names = [str(part) for part in namespace]
    return SourceRecord(
        id="\n".join((*names, str(data.get("key")))),
        text=text,
        where=where,
        at=data.get("created_at"),
        user=_namespace_user(names),
        fields={
            "updated_at": data.get("updated_at") or data.get("created_at"),
            "expires_at": data.get("expires_at"),
            "metadata": {"namespace": names, "key": str(data.get("key"))},
        },
    )


def _value_text(value: Any) -> str:
    if isinstance(value, Mapping):
        for name in _TEXT_FIELDS:
            field = value.get(name)
            if isinstance(field, str) and field.strip():
                return field
            if isinstance(field, Mapping) and (inner := _value_text(field)):
                return inner
        return json.dumps(value, ensure_ascii=False) if value else ""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _namespace_user(names: list[str]) -> str | None:
    """Who it belongs to: what follows a word for users, or the part that is no such word."""
    kinds = ("memories", "memory", "users", "user", "profile", "facts")
    for before, name in pairwise(names):
        if before.lower() in kinds[:4] and name.lower() not in kinds:
            return name
    return names[0] if names and names[0].lower() not in kinds else None
