"""mem0 in PostgreSQL: a table for each collection, with an id, a vector and the payload of every memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from recollect.movein.item import Item, Left

if TYPE_CHECKING:
    from recollect.movein.source import Source
    from recollect.movein.tables import Tables

# Collections beside the memories: names of people and things, and which version made them.
BESIDE = ("_entities", "mem0migrations")
_COLUMNS = {"id": "uuid", "vector": "vector", "payload": "jsonb"}


def recognise(source: Source) -> str:
    """By tables with the columns it makes."""
    from recollect.movein.tables import looked_at

    with looked_at(source) as tables:
        found = _collections(tables)
    return f"it has the {'tables' if len(found) > 1 else 'table'} {', '.join(found)}" if found else ""


def read(source: Source) -> Iterator[Item]:
    """Every memory of the collections, or of those that the address names; the oldest first."""
    from recollect.movein.mem0 import remembered
    from recollect.movein.tables import looked_at

    with looked_at(source) as tables:
        found = _collections(tables)
        if wrong := tables.missing(found, product="mem0"):
            raise wrong
        for table in found:
            for row in tables.rows(table, order="payload->>'created_at', id"):
                where = f"{table}, memory {row['id']}"
                try:
                    payload = json.loads(row["payload"] or "null")
                except (ValueError, RecursionError):
                    payload = None
                if isinstance(payload, dict):
                    yield from remembered(str(row["id"]), payload, where)
                else:
                    yield Left(where, "it has no words")


def _collections(tables: Tables) -> list[str]:
    return tables.like(_COLUMNS, but=BESIDE)
