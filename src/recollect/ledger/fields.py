"""The values of a memory's fields as plain JSON, and back; history and exports are written with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from recollect.errors import InvalidInput
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust
from recollect.model.scope import Level
from recollect.model.times import as_utc

TIMES = frozenset(
    ["created_at", "updated_at", "occurred_at", "valid_from", "valid_to", "expires_at", "last_accessed_at"]
)
LISTS = frozenset(["evidence", "tags"])
KINDS: Mapping[str, Callable[[str], Any]] = {
    "level": Level,
    "type": MemoryType,
    "category": Category,
    "status": Status,
    "trust": Trust,
}

# What an Update may set. Scope, id and times of the ledger's own keeping are not for the asking.
UPDATABLE = frozenset(MemoryRecord.__dataclass_fields__) - {
    "id", "scope", "level", "created_at", "updated_at", "version", "access_count", "last_accessed_at"
}  # fmt: skip


def to_plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Field values as JSON can hold them."""
    return {name: _plain(value) for name, value in fields.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def from_plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Field values as a MemoryRecord holds them."""
    return {name: _field(name, value) for name, value in fields.items()}


def _field(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in TIMES:
        return as_utc(value, name=name)
    if name in LISTS:
        return tuple(value)
    if name in KINDS:
        try:
            return KINDS[name](value)
        except ValueError:
            known = ", ".join(KINDS[name])  # type: ignore[arg-type]
            raise InvalidInput(f"unknown {name} {value!r}; it is one of {known}") from None
    return value
