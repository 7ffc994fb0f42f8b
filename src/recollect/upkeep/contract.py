"""The LLM contract of extraction as upkeep uses it: numbered memories in, operations out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.model.memory import MemoryRecord
from recollect.prompts.data import json_line, shorten
from recollect.write.operations import SCHEMA


def memory_rows(records: Sequence[MemoryRecord], max_chars: int) -> str:
    """Return the memories as lines of JSON, numbered from 1; nothing in the data can end the fence around them."""
    return "\n".join(
        json_line(
            {
                "memory": number,
                "says": shorten(record.content, max_chars),
                "date": f"{record.occurred_at or record.created_at:%Y-%m-%d}",
            }
        )
        for number, record in enumerate(records, 1)
    )


def operations_schema(*names: str) -> Mapping[str, Any]:
    """Return the schema of the operations with these fields alone."""
    operations = SCHEMA["properties"]["operations"]
    fields = {name: operations["items"]["properties"][name] for name in names}
    items = {**operations["items"], "properties": fields, "required": list(names)}
    return {**SCHEMA, "properties": {"operations": {**operations, "items": items}}}
