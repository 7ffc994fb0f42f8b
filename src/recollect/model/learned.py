"""What was learned from a conversation, before it is settled against what is known."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from recollect.model.memory import TYPE_OF_CATEGORY, Category, MemoryType, Trust

# How it is told that rules learned in the place of an LLM; why follows.
BY_RULES_SINCE = "rules, since "


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """One statement that stands by itself, and how far it can be relied on.

    `evidence` are the ids of the turns it was said in, `said_at` when that last was. A `correction` says that what
    was known is wrong, a `retraction` that it no longer holds, without saying what holds instead; where its content
    is what no longer holds, `over` tells that it does not. What is `only_known` changes the value that is known under
    its key, in the words that are known; where none is, it says nothing. What has a reason for `review` waits for a
    person.
    """

    content: str
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
    retraction: bool = False
    over: str = ""
    only_known: bool = False
    review: str = ""
    source: str = ""

    @property
    def kind(self) -> MemoryType:
        """The type it is of, or what most of its category are."""
        return self.type or TYPE_OF_CATEGORY.get(self.category, MemoryType.SEMANTIC)
