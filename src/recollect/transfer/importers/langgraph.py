"""LangGraph's stores: items under namespaces, from SQLite, PostgreSQL or JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from recollect.transfer.importers.items import SkippedItem, SourceItem, SourceRecord
from recollect.transfer.importers.source import ImportSource, has_tables, iter_rows, open_sqlite

# The field of a value that has its text, as the common memory tools name it.
_TEXT_FIELDS = ("content", "memory", "text", "data", "fact", "value")
_COLUMNS = {"prefix": "text", "key": "text", "value": "jsonb"}
_USER_PREFIXES = ("memories", "memory", "users", "user")
_NO_USERS = (*_USER_PREFIXES, "profile", "facts")


def recognise(source: ImportSource) -> str:
    """Recognise the table of a store, or items with a namespace."""
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
        if all(field in head for field in (b'"namespace"', b'"key"', b'"value"')):
            return f"{name} has items with a namespace"
    return ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Yield every item; the part of its namespace after `users` or `memories` is its user."""
    if source.is_database:
        from recollect.transfer.importers.postgres import read_tables

        for table, row in read_tables(source, _COLUMNS, product="LangGraph", order="prefix, key"):
            yield _item(row["prefix"].split("."), row, f"{table}, {row['prefix']} {row['key']}")
        return
    for name in source.names:
        if has_tables(source, name, "store"):
            with open_sqlite(source, name) as connection:
                for row in iter_rows(connection, "SELECT * FROM store ORDER BY prefix, key"):
                    prefix = str(row.get("prefix"))
                    yield _item(prefix.split("."), row, f"{name}, {prefix} {row.get('key')}")
    for name in source.files_ending(".jsonl"):
        for where, data in source.json_lines(name):
            namespace = data.get("namespace") if isinstance(data, Mapping) else None
            if isinstance(data, SkippedItem):
                yield data
            elif not isinstance(namespace, list | str) or "key" not in data:
                yield SkippedItem(where, "not an item with namespace, key and value")
            else:
                yield _item(namespace.split(".") if isinstance(namespace, str) else namespace, data, where)


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
    if isinstance(value, str):
        return value
    return "" if value is None or value == {} else json.dumps(value, ensure_ascii=False)


def _namespace_user(names: list[str]) -> str | None:
    """Return the part after a word for users, or the first part if it is no such word."""
    for before, name in pairwise(names):
        if before.lower() in _USER_PREFIXES and name.lower() not in _NO_USERS:
            return name
    return names[0] if names and names[0].lower() not in _NO_USERS else None
