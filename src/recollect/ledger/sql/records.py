"""Memories as rows: an envelope of columns, and a JSON body for the rest."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from recollect.ledger.fields import LIST_FIELDS
from recollect.ledger.sql.tx import Row
from recollect.model.at_hand import erasable_cache
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust
from recollect.model.scope import Level, Scope
from recollect.model.times import from_micros, to_micros
from recollect.model.traits import compute_traits, speaker_name

_TIMES = ("created_at", "updated_at", "occurred_at", "valid_from", "valid_to", "expires_at", "last_accessed_at")
_PLAIN = ("id", "content", "importance", "confidence", "access_count", "version")
_KINDS = ("level", "status", "type", "category")
_BODY = ("value", "source", "trust", "evidence", "tags", "metadata", "detail", "superseded_by", "prompt_digest")
_BLANK = {name: MemoryRecord.__dataclass_fields__[name].default for name in _BODY} | {"metadata": {}, "detail": {}}

MEMORY_COLUMNS = (
    "id", "user_id", "project_id", "session_id", "level", "place", "status", "type", "category", "content",
    '"key"', "importance", "confidence", *_TIMES, "access_count", "version", "fingerprint", "body",
)  # fmt: skip
SELECTED_COLUMNS = ", ".join(MEMORY_COLUMNS)
_NAMES = tuple(name.strip('"') for name in MEMORY_COLUMNS)
# Made from the rest for those who look through many memories at once; never read back into a record.
_DERIVED = ("revision", "traits", "speaker")
# An access may be counted while a change is being worked out; it is not written over.
_NOT_UPDATED = ("id", "user_id", "access_count", "last_accessed_at")


def record_to_params(record: MemoryRecord, *, revision: int) -> dict[str, Any]:
    """The named parameters that write a record."""
    derived = {"revision": revision, "traits": compute_traits(record), "speaker": speaker_name(record)}
    return _envelope(record) | derived


def record_to_row(record: MemoryRecord) -> list[Any]:
    """A record as plain values for JSON, in the order of the `SELECTED` columns; `from_row` reads them."""
    row = _envelope(record)
    return [row[name] for name in _NAMES]


def _envelope(record: MemoryRecord) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(record, name) for name in _PLAIN}
    row |= {name: str(getattr(record, name)) for name in _KINDS}
    for name in _TIMES:
        at = getattr(record, name)
        row[name] = None if at is None else to_micros(at)
    return row | {
        "user_id": record.scope.user,
        "project_id": record.scope.project,
        "session_id": record.scope.session,
        "place": record.visibility_key,
        "key": record.key,
        "fingerprint": record.fingerprint,
        "body": _body(record),
    }


def _body(record: MemoryRecord) -> str:
    body = {}
    for name in _BODY:
        value = getattr(record, name)
        if value != _BLANK[name]:
            body[name] = list(value) if name in LIST_FIELDS else value
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


# A look-up costs a fifth of calling the enum, and a search reads many rows.
_LEVELS = {str(level): level for level in Level}
_STATUSES = {str(status): status for status in Status}
_TYPES = {str(type): type for type in MemoryType}
_CATEGORIES = {str(category): category for category in Category}


def record_from_row(row: Row) -> MemoryRecord:
    """The record that a row of `SELECTED` columns stands for."""
    (
        id, user, project, session, level, _, status, type, category, content, key, importance, confidence,
        created_at, updated_at, occurred_at, valid_from, valid_to, expires_at, last_accessed_at,
        access_count, version, _, body,
    ) = row  # fmt: skip
    made = from_micros(created_at)
    return MemoryRecord(
        id=id,
        scope=_scope(user, project, session),
        level=_LEVELS[level],
        status=_STATUSES[status],
        type=_TYPES[type],
        category=_CATEGORIES[category],
        content=content,
        key=key,
        importance=importance,
        confidence=confidence,
        created_at=made,
        # Most were never changed, and a turn happened when it was said.
        updated_at=made if updated_at == created_at else from_micros(updated_at),
        occurred_at=made if occurred_at == created_at else _time(occurred_at),
        valid_from=_time(valid_from),
        valid_to=_time(valid_to),
        expires_at=_time(expires_at),
        last_accessed_at=_time(last_accessed_at),
        access_count=access_count,
        version=version,
        **(_read_body(body) if body != "{}" else {}),
    )


# A page of memories shares a few scopes; checking their ids once is enough.
_scope = erasable_cache(4096)(Scope)


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def _read_body(text: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(text)
    for name in LIST_FIELDS:
        if name in body:
            body[name] = tuple(body[name])
    if "trust" in body:
        body["trust"] = Trust(body["trust"])
    return body


INSERT_MEMORY = (
    f"INSERT INTO memories ({SELECTED_COLUMNS}, {', '.join(_DERIVED)}, term_count) VALUES "
    f"({', '.join(':' + name.strip(chr(34)) for name in (*MEMORY_COLUMNS, *_DERIVED))}, :term_count)"
)
UPDATE_MEMORY = (
    "UPDATE memories SET "
    + ", ".join(
        f"{name} = :{name.strip(chr(34))}" for name in (*MEMORY_COLUMNS, *_DERIVED) if name not in _NOT_UPDATED
    )
    + " WHERE user_id = :user_id AND id = :id"
)
