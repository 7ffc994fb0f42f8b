"""What was extracted from a conversation, before it is reconciled with what is stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from recollect.model.memory import TYPE_OF_CATEGORY, Category, MemoryRecord, MemoryType, Trust


class FactOp(StrEnum):
    """What an extracted fact does to the memories: adds one, replaces one, or ends one."""

    ADD = "add"
    UPDATE = "update"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedFact:
    """One statement that stands by itself, what it does, and how far it can be relied on.

    `target` is the memory that an update replaces or an end closes. `evidence` are the ids of the turns it was said
    in, `said_at` when that last was. A `correction` replaces the value of its key even if the old one is surer.
    `doubts` are checks that failed; they are recorded on the memory. A fact with a reason for `review` waits for a
    person.
    """

    content: str
    op: FactOp = FactOp.ADD
    target: MemoryRecord | None = None
    category: Category = Category.FACT
    type: MemoryType | None = None
    key: str | None = None
    value: str | None = None
    importance: float = 0.5
    confidence: float = 0.8
    said_at: datetime | None = None
    occurred_at: datetime | None = None
    trust: Trust = Trust.HIGH
    evidence: tuple[str, ...] = ()
    correction: bool = False
    doubts: tuple[str, ...] = ()
    review: str = ""
    source: str = ""

    @property
    def memory_type(self) -> MemoryType:
        """Return its type, or the usual type of its category."""
        return self.type or TYPE_OF_CATEGORY.get(self.category, MemoryType.SEMANTIC)
