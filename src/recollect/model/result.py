"""What reads give back, with the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from recollect.model.memory import MemoryRecord


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory that was found: how well it fits, from 0 to 1, and what that is made of."""

    record: MemoryRecord
    score: float
    scores: Mapping[str, float] = field(default_factory=dict)
    why: str = ""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def memory(self) -> str:
        """What the memory says."""
        return self.record.content

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the memory's own, its score, the parts and the reason."""
        return {
            **self.record.to_dict(),
            "score": round(self.score, 6),
            "scores": {name: round(value, 6) for name, value in self.scores.items()},
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits of one search, best first, and how long each step took."""

    hits: tuple[Hit, ...]
    steps_us: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, index: int) -> Hit:
        return self.hits[index]

    def to_dict(self) -> dict[str, Any]:
        """The shape users of other memory libraries know: {"results": [{"id", "memory", "score", ...}]}."""
        return {"results": [hit.to_dict() for hit in self.hits]}


@dataclass(frozen=True, slots=True)
class Page:
    """Some memories in order, and the cursor to go on from, if there are more."""

    records: tuple[MemoryRecord, ...]
    cursor: str | None = None

    def __iter__(self) -> Iterator[MemoryRecord]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> MemoryRecord:
        return self.records[index]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, in the shape of a search's."""
        return {"results": [record.to_dict() for record in self.records], "cursor": self.cursor}
