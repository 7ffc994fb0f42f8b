"""Validate the fields that a caller sets, and build a new memory from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from recollect.errors import InvalidInput
from recollect.ledger.codec import LIST_FIELDS, NUL_IN_JSON, from_plain
from recollect.model.ids import new_id
from recollect.model.memory import TYPE_OF_CATEGORY, Category, MemoryRecord, MemoryType
from recollect.model.scope import Level, Scope
from recollect.model.text import normalise_invisible, validate_id, validate_text, validate_visible_text
from recollect.model.times import now
from recollect.quotes.quoted_text import with_earned_trust

_UNIT_FIELDS = ("importance", "confidence")
_OBJECT_FIELDS = ("metadata", "detail")
_MAX_OBJECT_BYTES = 1 << 18
_MAX_OBJECT_LEVELS = 64
_MAX_MEMBERS = 256
_TEXT_FIELDS = ("key", "source", "prompt_digest", "superseded_by")
_VISIBLE_FIELDS = ("content", "key", "value", "source")
# Fields that a caller may set; the ledger sets status and times.
SETTABLE_FIELDS = frozenset(
    [
        *("content", "level", "type", "category", "key", "value", "source", "trust"),
        *("occurred_at", "valid_from", "valid_to", "expires_at"),
        *_UNIT_FIELDS,
        *LIST_FIELDS,
        *_OBJECT_FIELDS,
    ]
)
# Fields that an import may set.
EXPORTED_FIELDS = SETTABLE_FIELDS | {"status", "superseded_by", "prompt_digest"}


def draft(scope: Scope, content: str | None, fields: Mapping[str, Any]) -> MemoryRecord:
    """Return a new memory; the content of a keyed fact defaults to "key: value". Quoted instructions lower trust."""
    values = validate_fields({name: value for name, value in fields.items() if value is not None})
    if content is None and values.get("key") and values.get("value"):
        content = f"{values['key']}: {values['value']}"
    level = scope.check_level(values.pop("level", None) or scope.default_level)
    category = values.pop("category", Category.FACT)
    at = now()
    record = MemoryRecord(
        id=new_id(),
        scope=scope,
        level=Level(level),
        type=values.pop("type", None) or TYPE_OF_CATEGORY.get(category, MemoryType.SEMANTIC),
        category=category,
        content=validate_visible_text(content),
        created_at=at,
        updated_at=at,
        **values,
    )
    return with_earned_trust(record)


def validate_fields(fields: Mapping[str, Any], *, exported: bool = False) -> dict[str, Any]:
    """Return the fields with the types of a memory, or raise InvalidInput.

    Invisible characters are removed from texts, since they could hide words.
    """
    settable = EXPORTED_FIELDS if exported else SETTABLE_FIELDS
    unknown = set(fields) - settable
    if unknown:
        raise InvalidInput(
            f"{str(min(unknown, key=str))!r} is not a settable field; those are {', '.join(sorted(settable))}"
        )
    for name, value in fields.items():
        if value is not None:
            _check_field(name, value)
    checked = _strip_invisible(from_plain(fields))
    if checked.get("category") is Category.TURN and not exported:
        raise InvalidInput("`category` must not be 'turn': turns are added by remember(), which keeps their order")
    if checked.get("category") is Category.FILE and not exported:
        raise InvalidInput("`category` must not be 'file': files are written by the memory tool of models")
    return checked


def _strip_invisible(fields: dict[str, Any]) -> dict[str, Any]:
    for name in _VISIBLE_FIELDS:
        if fields.get(name):
            fields[name] = validate_visible_text(fields[name], name=name)
    if fields.get("tags"):
        fields["tags"] = tuple(filter(None, map(normalise_invisible, fields["tags"])))
    return fields


def _check_field(name: str, value: Any) -> None:
    if name in _UNIT_FIELDS:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise InvalidInput(f"`{name}` must be a number from 0 to 1, got {value!r}")
    elif name in _TEXT_FIELDS:
        validate_id(value, name=name)
    elif name in ("content", "value"):
        validate_text(value, name=name)
    elif name in LIST_FIELDS:
        if isinstance(value, str) or not isinstance(value, (list, tuple)) or len(value) > _MAX_MEMBERS:
            raise InvalidInput(f"`{name}` must be a list of at most {_MAX_MEMBERS} texts, got {type(value).__name__}")
        for each in value:
            validate_id(each, name=name)
    elif name in _OBJECT_FIELDS:
        _check_object(name, value)


def _check_object(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"`{name}` must be a mapping, got {type(value).__name__}")
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"`{name}` must be plain JSON: {error}") from None
    if NUL_IN_JSON.search(text):
        raise InvalidInput(f"`{name}` must not contain a NUL character")
    if size > _MAX_OBJECT_BYTES:
        raise InvalidInput(f"`{name}` must have at most {_MAX_OBJECT_BYTES:,} bytes, got {size:,}")
    if (levels := _count_levels(value)) > _MAX_OBJECT_LEVELS:
        raise InvalidInput(f"`{name}` must have at most {_MAX_OBJECT_LEVELS} levels, got {levels}; make it flatter")


def _count_levels(value: Any) -> int:
    """Return how deep mappings and lists are nested."""
    count, level = 0, [value]
    while level:
        count += 1
        parts = [part for each in level for part in (each.values() if isinstance(each, Mapping) else each)]
        level = [part for part in parts if isinstance(part, Mapping | list | tuple)]
    return count
