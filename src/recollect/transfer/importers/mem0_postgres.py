"""mem0 in PostgreSQL: a table for each collection, with an id, a vector and the payload of every memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from recollect.transfer.importers.items import SkippedItem, SourceItem

if TYPE_CHECKING:
    from recollect.transfer.importers.postgres import PostgresTables
    from recollect.transfer.importers.source import ImportSource


# Collections beside the memories: names of people and things, and which version made them.
AUXILIARY_SUFFIXES = ("_entities", "mem0migrations")
_COLUMNS = {"id": "uuid", "vector": "vector", "payload": "jsonb"}


def recognise(source: ImportSource) -> str:
    """By tables with the columns it makes."""
    from recollect.transfer.importers.postgres import open_tables

    with open_tables(source) as tables:
        names = _collections(tables)
    return f"it has the {'tables' if len(names) > 1 else 'table'} {', '.join(names)}" if names else ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Every memory of the collections, or of those that the address names; the oldest first."""
    from recollect.transfer.importers.mem0 import read_memory
    from recollect.transfer.importers.postgres import open_tables

    with open_tables(source) as tables:
        names = _collections(tables)
        if error := tables.missing_error(names, product="mem0"):
            raise error
        for table in names:
            for row in tables.rows(table, order="payload->>'created_at', id"):
                where = f"{table}, memory {row['id']}"
                try:
                    payload = json.loads(row["payload"] or "null")
                except (ValueError, RecursionError):
                    payload = None
                if isinstance(payload, dict):
                    yield from read_memory(str(row["id"]), payload, where)
                else:
                    yield SkippedItem(where, "it has no words")


def _collections(tables: PostgresTables) -> list[str]:
    return tables.tables_with(_COLUMNS, excluding=AUXILIARY_SUFFIXES)
