"""Hits for tests of context formats, and what is shown of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from recollect.model.memory import Category, MemoryRecord, MemoryType
from recollect.model.result import Hit
from recollect.model.scope import Level, Scope
from recollect.read.format import STYLES, format_context

NOW = datetime(2026, 5, 9, 12, tzinfo=UTC)
MAY_7 = datetime(2026, 5, 7, 9, 30, tzinfo=UTC)
OTHER_STYLES = sorted(set(STYLES) - {"recollect"})


def hit(content: str, category: str = "fact", **fields: Any) -> Hit:
    record = MemoryRecord(
        id=fields.pop("id", content[:20]),
        scope=Scope("alex"),
        level=Level.USER,
        type=MemoryType.SEMANTIC,
        category=Category(category),
        content=content,
        created_at=fields.pop("created_at", MAY_7),
        updated_at=MAY_7,
        **fields,
    )
    return Hit(record, 0.9)


def turn(content: str, role: str, *, position: int = 1, **detail: Any) -> Hit:
    return hit(content, "turn", detail={"role": role, "position": position, **detail}, occurred_at=MAY_7)


def rendered(style: str, hits: list[Hit], **options: Any) -> str:
    return format_context(style, hits, **{"budget_tokens": 2048, "now": NOW, **options}).text
