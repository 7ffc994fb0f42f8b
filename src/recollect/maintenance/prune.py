"""Forget memories that nobody recalled and whose retention score has decayed.

The score is computed when needed from importance, age and use; the stored importance does not change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from recollect.errors import InvalidInput
from recollect.ledger.ledger import Ledger
from recollect.maintenance.expire import check_user_clock
from recollect.maintenance.tasks import MaintenanceReport, MaintenanceRun, MaintenanceTask, forget
from recollect.model.memory import Category, MemoryRecord
from recollect.model.query import And, Filter, Listing, Not, Op, Where, any_of
from recollect.model.scope import Scope

_DAY_S = 86_400.0
# More uses than this do not raise the score.
_MAX_COUNTED_USES = 20
_LASTING = (Category.IDENTITY, Category.CONSTRAINT, Category.INSTRUCTION)
_MIN_LASTING_IMPORTANCE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Decay:
    """The weights of the retention score, and the half-life of recency in days."""

    importance: float = 0.5
    recency: float = 0.3
    use: float = 0.2
    half_life_days: float = 90.0

    def __post_init__(self) -> None:
        parts = (self.importance, self.recency, self.use)
        if min(parts) < 0 or not math.isclose(sum(parts), 1.0):
            raise InvalidInput("`importance`, `recency` and `use` must be at least 0 and add up to 1")
        if self.half_life_days <= 0:
            raise InvalidInput(f"`half_life_days` must be greater than 0, got {self.half_life_days}")


def retention_score(record: MemoryRecord, at: datetime, *, decay: Decay) -> float:
    """Return a score from 0 to 1 of importance and confidence, recency, and use."""
    last_activity_at = max(filter(None, (record.created_at, record.updated_at, record.last_accessed_at)))
    age_days = max((at - last_activity_at).total_seconds(), 0.0) / _DAY_S
    recency = math.exp2(-min(age_days / decay.half_life_days, 1000.0))
    use = min(math.log1p(max(record.access_count, 0)) / math.log1p(_MAX_COUNTED_USES), 1.0)
    value = min(max(record.importance, 0.0), 1.0) * min(max(record.confidence, 0.0), 1.0)
    return decay.importance * value + decay.recency * recency + decay.use * use


def is_lasting(record: MemoryRecord) -> bool:
    """Return whether it must not decay: an important identity, constraint or instruction."""
    return record.category in _LASTING and record.importance >= _MIN_LASTING_IMPORTANCE


_PAGE = 1000
# The log and its summaries are not judged by how often they were recalled; files stay until they are deleted.
_EXEMPT_CATEGORIES = (Category.TURN, Category.SUMMARY, Category.FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneConfig:
    """Prune memories without activity for `days` whose retention score is below `below`."""

    days: float = 90.0
    below: float = 0.2
    decay: Decay = field(default_factory=Decay)

    def __post_init__(self) -> None:
        if not (1 <= self.days <= 36_500 and 0 <= self.below <= 1):
            raise InvalidInput(
                f"`days` must be from 1 to 36,500 and `below` from 0 to 1, got {self.days} and {self.below}"
            )


async def prune(
    scope: Scope, *, ledger: Ledger, run: MaintenanceRun, pruning: PruneConfig | None = None, force: bool = False
) -> MaintenanceReport:
    """Forget memories that nobody ever recalled and whose retention score is too low.

    Important identities, constraints and instructions stay. If the clock may have jumped ahead nothing is forgotten,
    unless `force` is set.
    """
    pruning = pruning or PruneConfig()
    faded, looked_at = await _faded(scope, pruning, run, ledger)
    left: list[str] = []
    if faded and not force and (reason := await check_user_clock(scope, run.at, ledger=ledger)):
        left.append(f"at least {len(faded)} memories seem worthless, but {reason}")
        faded = []
    steps, changed = await forget(scope, faded[: run.max_changes], why="pruned", run=run, ledger=ledger)
    more = len(faded) > run.max_changes
    return run.report(MaintenanceTask.PRUNE, scope, steps, left=[*left, *changed], looked_at=looked_at, more=more)


async def _faded(
    scope: Scope, pruning: PruneConfig, run: MaintenanceRun, ledger: Ledger
) -> tuple[list[MemoryRecord], int]:
    """Return the oldest memories to forget, at most one over the limit, and how many were examined."""
    faded: list[MemoryRecord] = []
    looked_at, cursor = 0, None
    while True:
        listing = Listing(filter=_unused(pruning, run), order="oldest", limit=_PAGE, cursor=cursor)
        page = await ledger.find(scope, listing)
        looked_at += len(page)
        faded += [
            each
            for each in page
            if not is_lasting(each) and retention_score(each, run.at, decay=pruning.decay) < pruning.below
        ]
        if page.cursor is None or len(faded) > run.max_changes:
            return faded[: run.max_changes + 1], looked_at
        cursor = page.cursor


def _unused(pruning: PruneConfig, run: MaintenanceRun) -> Filter:
    old = run.at - timedelta(days=pruning.days)
    return And(
        (
            Where("access_count", Op.EQ, 0),
            Where("created_at", Op.LT, old),
            Where("updated_at", Op.LT, old),
            Not(any_of("category", [str(each) for each in _EXEMPT_CATEGORIES])),
        )
    )
