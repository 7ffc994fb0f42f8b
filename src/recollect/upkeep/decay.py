"""How much a memory still stands for: what it was worth, faded by time and kept alive by use.

Nothing is written: importance stays what it was said to be, and how it fades is worked out when it matters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from recollect.errors import InvalidInput
from recollect.model.memory import Category, MemoryRecord

_DAY_S = 86_400.0
# Recalled so often, a memory is as familiar as can be.
_MAX_COUNTED_USES = 20
_LASTING = (Category.IDENTITY, Category.CONSTRAINT, Category.INSTRUCTION)
_MIN_LASTING_IMPORTANCE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Decay:
    """How much each counts, and after how many days without use half of being recent is gone."""

    importance: float = 0.5
    recency: float = 0.3
    use: float = 0.2
    half_life_days: float = 90.0

    def __post_init__(self) -> None:
        parts = (self.importance, self.recency, self.use)
        if min(parts) < 0 or not math.isclose(sum(parts), 1.0):
            raise InvalidInput("importance, recency and use must be at least 0 and add up to 1")
        if self.half_life_days <= 0:
            raise InvalidInput(f"half_life_days must be more than 0, not {self.half_life_days}")


def retention_score(record: MemoryRecord, at: datetime, *, decay: Decay) -> float:
    """What the memory is worth at a time, from 0 to 1: how important and sure, how recent, how often recalled."""
    age_days = max((at - last_activity_at(record)).total_seconds(), 0.0) / _DAY_S
    recency = math.exp2(-min(age_days / decay.half_life_days, 1000.0))
    use = min(math.log1p(max(record.access_count, 0)) / math.log1p(_MAX_COUNTED_USES), 1.0)
    value = min(max(record.importance, 0.0), 1.0) * min(max(record.confidence, 0.0), 1.0)
    return decay.importance * value + decay.recency * recency + decay.use * use


def last_activity_at(record: MemoryRecord) -> datetime:
    """When someone last had to do with it: made, changed, brought back or recalled it."""
    return max(filter(None, (record.created_at, record.updated_at, record.last_accessed_at)))


def is_lasting(record: MemoryRecord) -> bool:
    """Whether it must not fade: who the user is, what they must not have, what they asked for, if it matters."""
    return record.category in _LASTING and record.importance >= _MIN_LASTING_IMPORTANCE
