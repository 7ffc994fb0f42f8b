"""What callers of the Python door may give: messages, times, and the fields of a memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias, TypedDict

from recollect.model.memory import Category, MemoryType, Trust
from recollect.model.scope import Level

MessagesInput: TypeAlias = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
TimeInput: TypeAlias = datetime | str


class RecordFields(TypedDict, total=False):
    """What else can be said of a memory when it is added or updated."""

    level: Level | str | None
    type: MemoryType | str | None
    category: Category | str | None
    key: str | None
    value: str | None
    importance: float | None
    confidence: float | None
    tags: Sequence[str] | None
    metadata: Mapping[str, Any] | None
    detail: Mapping[str, Any] | None
    evidence: Sequence[str] | None
    source: str | None
    trust: Trust | str | None
    occurred_at: TimeInput | None
    valid_from: TimeInput | None
    valid_to: TimeInput | None
    expires_at: TimeInput | None
