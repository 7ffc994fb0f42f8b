"""Convert memory fields to plain JSON and back, vectors to bytes, and pages to cursors."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from types import NoneType
from typing import Any

from recollect.errors import InvalidInput, InvalidText
from recollect.lazy_pattern import lazy_pattern
from recollect.model.change import Vector
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust
from recollect.model.result import Page
from recollect.model.scope import Level
from recollect.model.text import is_storable, validate_text
from recollect.model.times import as_utc, from_micros, to_micros
from recollect.models.embedding import EmbeddingModel

TIME_FIELDS = frozenset(
    ["created_at", "updated_at", "occurred_at", "valid_from", "valid_to", "expires_at", "last_accessed_at"]
)
LIST_FIELDS = frozenset(["evidence", "tags"])
ENUM_FIELDS: Mapping[str, Callable[[str], Any]] = {
    "level": Level,
    "type": MemoryType,
    "category": Category,
    "status": Status,
    "trust": Trust,
}

# The fields an `Update` may set; the scope, the id and the ledger's own times are not among them.
UPDATABLE_FIELDS = frozenset(MemoryRecord.__dataclass_fields__) - {
    "id", "scope", "level", "created_at", "updated_at", "version", "access_count", "last_accessed_at"
}  # fmt: skip


def to_plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Convert field values to plain JSON values."""
    return {name: _to_json_value(value) for name, value in fields.items()}


def _to_json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def from_plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Convert plain JSON values to the values of a `MemoryRecord`."""
    return {name: _from_json_value(name, value) for name, value in fields.items()}


def _from_json_value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in TIME_FIELDS:
        return as_utc(value, name=name)
    if name in LIST_FIELDS:
        if not isinstance(value, (list, tuple)):
            raise InvalidInput(f"{name} takes a list of texts, not {type(value).__name__}")
        return tuple(value)
    if name in ENUM_FIELDS:
        try:
            return ENUM_FIELDS[name](value)
        except ValueError:
            allowed = ", ".join(ENUM_FIELDS[name])  # type: ignore[arg-type]
            raise InvalidInput(f"unknown {name} {value!r}; it is one of {allowed}") from None
    return value


_FIELD_TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "content", "source"), (str,)),
    **dict.fromkeys(("key", "value", "superseded_by", "prompt_digest"), (str, NoneType)),
    **dict.fromkeys(("importance", "confidence"), (int, float)),
    **dict.fromkeys(LIST_FIELDS, (tuple,)),
    **dict.fromkeys(("metadata", "detail"), (dict, Mapping)),
    **dict.fromkeys(TIME_FIELDS, (datetime, NoneType)),
    **dict.fromkeys(("created_at", "updated_at"), (datetime,)),
    "level": (Level,),
    "type": (MemoryType,),
    "category": (Category,),
    "status": (Status,),
    "trust": (Trust,),
}
_TEXT_FIELDS = [name for name, shape in _FIELD_TYPES.items() if str in shape]
# An escaped NUL in JSON; after an odd number of backslashes it is the text of an escape.
NUL_IN_JSON = lazy_pattern(r"(?<!\\)(?:\\\\)*\\u0000")


def check_storable(record: MemoryRecord) -> None:
    """Raise InvalidInput for a record that not every database can store unchanged."""
    for name, field_types in _FIELD_TYPES.items():
        value = getattr(record, name)
        # The exact type is the common case; an isinstance check against Mapping is far slower.
        if type(value) not in field_types and not isinstance(value, field_types):
            raise InvalidInput(f"{name} cannot be {type(value).__name__}")
    texts = [getattr(record, name) or "" for name in _TEXT_FIELDS]
    try:
        plain = "\n".join((*texts, *record.tags, *record.evidence))
        if record.metadata or record.detail:
            extra_json = json.dumps([dict(record.metadata), dict(record.detail)], ensure_ascii=False, allow_nan=False)
            plain += "\0" if NUL_IN_JSON.search(extra_json) else extra_json
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"memory {record.id} cannot be stored: {error}") from None
    if not math.isfinite(record.importance + record.confidence):
        raise InvalidInput(f"memory {record.id} has an importance or confidence that is not a number")
    if not is_storable(plain):
        raise InvalidText(f"memory {record.id} holds a NUL character or half of one (a lone surrogate); remove it")


def unpack_vector(data: bytes, model: EmbeddingModel) -> Vector:
    """Convert stored bytes to a vector; raise InvalidInput if the size is not that of the model."""
    import numpy as np

    if len(data) != 2 * model.dimensions:
        raise InvalidInput(f"a vector of {model} has {2 * model.dimensions} bytes, not {len(data)}")
    return np.frombuffer(data, "<f2").astype(np.float32)


def pack_vector(vector: Vector, model: EmbeddingModel) -> bytes:
    """Convert a vector to half-precision bytes; raise InvalidInput if the shape is not that of the model."""
    if vector.shape != (model.dimensions,):
        raise InvalidInput(f"a vector of {model} cannot have the shape {vector.shape}")
    return vector.astype("<f2").tobytes()


def make_page(records: list[MemoryRecord], limit: int) -> Page:
    """Return a page of at most `limit` records; one more record means that there is a next page."""
    if len(records) <= limit:
        return Page(tuple(records))
    last = records[limit - 1]
    return Page(tuple(records[:limit]), f"{to_micros(last.created_at)}_{last.id}")


def parse_cursor(cursor: str) -> tuple[int, str]:
    """Return the time and id of a cursor."""
    micros, _, id = cursor.partition("_")
    try:
        # Only a valid time and storable text ever came with a page.
        return to_micros(from_micros(int(micros))), validate_text(id)
    except (ValueError, OverflowError, InvalidText):
        raise InvalidInput(f"{cursor!r} is not a cursor; pass the one that came with the page before") from None
