"""Facts extracted from a conversation, before they are reconciled with stored memories."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from recollect.model.memory import TYPE_OF_CATEGORY, Category, MemoryRecord, MemoryType, Trust


class FactOp(StrEnum):
    """The operation of an extracted fact: add a memory, replace one, or end one."""

    ADD = "add"
    UPDATE = "update"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedFact:
    """One self-contained statement, its operation, and its reliability.

    `target` is the memory that an update replaces or an end closes. `evidence` are the ids of the turns it comes
    from, `said_at` the time of the last one. A `correction` replaces the value of its key even if the old one is more
    confident. `doubts` are failed checks, which are recorded on the memory. A fact with a reason for `review` waits
    for a person.
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
        """The type, or the usual type of the category."""
        return self.type or TYPE_OF_CATEGORY.get(self.category, MemoryType.SEMANTIC)
