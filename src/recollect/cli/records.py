"""Memories as a person reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from recollect.cli.table import Column
from recollect.cli.terminal import StyledText, clean_lines, dim, print_line
from recollect.model.memory import MemoryRecord, Status

ID_COLUMN = Column("ID", style="dim")
CREATED_COLUMN = Column("CREATED", style="dim", optional=True)
CATEGORY_COLUMN = Column("CATEGORY", optional=True)
MEMORY_COLUMN = Column("MEMORY", flexible=True, lines=2)


def format_short_time(at: datetime) -> str:
    """A time in a table, where the reader is."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M")


def format_long_time(at: datetime) -> str:
    """A time in full."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def print_record(record: MemoryRecord) -> None:
    """All of a memory: its words whole, then every field that is set."""
    for line in clean_lines(record.content):
        print_line(line)
    print_line()
    for name, value in _record_fields(record):
        print_line(
            dim(name.ljust(14)), StyledText(value, "yellow") if name == "status" and value != Status.ACTIVE else value
        )


def _record_fields(record: MemoryRecord) -> Iterator[tuple[str, str]]:
    values: dict[str, Any] = {
        "id": record.id,
        "user": record.scope.user,
        "project": record.scope.project,
        "session": record.scope.session,
        "level": record.level,
        "category": record.category,
        "type": record.type,
        "key": record.key,
        "value": record.value,
        "tags": ", ".join(record.tags),
        "importance": f"{record.importance:g}",
        "confidence": f"{record.confidence:g}",
        "source": record.source,
        "trust": record.trust,
        "status": record.status,
        "superseded by": record.superseded_by,
        "version": record.version,
        "created": record.created_at,
        "updated": record.updated_at if record.version > 1 else None,
        "occurred": record.occurred_at,
        "valid from": record.valid_from,
        "valid to": record.valid_to,
        "expires": record.expires_at,
        "last accessed": record.last_accessed_at,
        "access count": record.access_count,
        "evidence": ", ".join(record.evidence),
        "metadata": _format_json(record.metadata),
        "detail": _format_json(record.detail),
        "prompt digest": record.prompt_digest,
    }
    for name, value in values.items():
        if value:
            yield name, format_long_time(value) if isinstance(value, datetime) else str(value)


def _format_json(value: Any) -> str:
    return json.dumps(dict(value), ensure_ascii=False) if value else ""


def print_redacted(kinds: Sequence[str]) -> None:
    """What was kept out of a memory, if anything was."""
    if kinds:
        print_line(dim(f"  Kept out of it: {', '.join(kinds)}."))


def pluralize(number: int, singular: str, plural: str | None = None) -> str:
    """A number with its noun."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
