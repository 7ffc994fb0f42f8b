"""A memory on its way to being a hit, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.model.memory import Category, MemoryRecord


@dataclass(slots=True)
class SearchCandidate:
    """One memory that came up: where it stands in the pool, how it is judged, and why it was left out if it was."""

    pool_index: int
    row: int
    record: MemoryRecord
    relevance: float
    score: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    decision: str = ""

    @property
    def text(self) -> str:
        """What it says, with who said it in front where that is known by name."""
        name = self.record.detail.get("name") if self.record.category is Category.TURN else None
        return f"{name}: {self.record.content}" if name else self.record.content
