"""Memories as a person reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from recollect.cli.table import Column
from recollect.cli.terminal import Piece, clean_lines, dim, say
from recollect.model.memory import MemoryRecord, Status

ID = Column("ID", style="dim")
CREATED = Column("CREATED", style="dim", optional=True)
CATEGORY = Column("CATEGORY", optional=True)
MEMORY = Column("MEMORY", flexible=True, lines=2)


def short_time(at: datetime) -> str:
    """A time in a table, where the reader is."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M")


def long_time(at: datetime) -> str:
    """A time in full."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def say_record(record: MemoryRecord) -> None:
    """All of a memory: its words whole, then every field that is set."""
    for line in clean_lines(record.content):
        say(line)
    say()
    for name, value in _fields(record):
        say(dim(name.ljust(14)), Piece(value, "yellow") if name == "status" and value != Status.ACTIVE else value)


def _fields(record: MemoryRecord) -> Iterator[tuple[str, str]]:
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
        "metadata": _json(record.metadata),
        "detail": _json(record.detail),
        "prompt digest": record.prompt_digest,
    }
    for name, value in values.items():
        if value:
            yield name, long_time(value) if isinstance(value, datetime) else str(value)


def _json(value: Any) -> str:
    return json.dumps(dict(value), ensure_ascii=False) if value else ""


def say_redacted(kinds: Sequence[str]) -> None:
    """What was kept out of a memory, if anything was."""
    if kinds:
        say(dim(f"  Kept out of it: {', '.join(kinds)}."))


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
