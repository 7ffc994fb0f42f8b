"""Forget memories that nobody recalled and whose retention score has decayed.

The score is computed when needed from importance, age and use; the stored importance does not change.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from recollect.ledger.ledger import Ledger
from recollect.ledger.paging import read_pages
from recollect.maintenance.expire import check_user_clock
from recollect.maintenance.tasks import MaintenanceReport, MaintenanceRun, MaintenanceTask, forget
from recollect.model.memory import Category, MemoryRecord
from recollect.model.query import And, Listing, Not, Op, Where, any_of
from recollect.model.scope import Scope

_DAY_S = 86_400.0
# The weights of the parts of the retention score; they add up to 1.
_IMPORTANCE_WEIGHT, _RECENCY_WEIGHT, _USE_WEIGHT = 0.5, 0.3, 0.2
_HALF_LIFE_DAYS = 90.0
# More uses than this do not raise the score.
_MAX_COUNTED_USES = 20
# Memories with a lower score are pruned.
MIN_SCORE = 0.2
_LASTING = (Category.IDENTITY, Category.CONSTRAINT, Category.INSTRUCTION)
_MIN_LASTING_IMPORTANCE = 0.5
_PAGE = 1000
# The log and its summaries are not judged by how often they were recalled; files stay until they are deleted.
_EXEMPT_CATEGORIES = (Category.TURN, Category.SUMMARY, Category.FILE)


def retention_score(record: MemoryRecord, at: datetime) -> float:
    """Return a score from 0 to 1 of importance and confidence, recency, and use."""
    last_activity_at = max(filter(None, (record.created_at, record.updated_at, record.last_accessed_at)))
    age_days = max((at - last_activity_at).total_seconds(), 0.0) / _DAY_S
    recency = math.exp2(-age_days / _HALF_LIFE_DAYS)
    use = min(math.log1p(record.access_count) / math.log1p(_MAX_COUNTED_USES), 1.0)
    value = record.importance * record.confidence
    return _IMPORTANCE_WEIGHT * value + _RECENCY_WEIGHT * recency + _USE_WEIGHT * use


def is_lasting(record: MemoryRecord) -> bool:
    """Return whether it must not decay: an important identity, constraint or instruction."""
    return record.category in _LASTING and record.importance >= _MIN_LASTING_IMPORTANCE


async def prune(scope: Scope, *, ledger: Ledger, run: MaintenanceRun, unused_days: float = 90.0) -> MaintenanceReport:
    """Forget memories without activity for `unused_days` that were never recalled and whose score is low.

    Important identities, constraints and instructions stay. If the clock may have jumped ahead nothing is forgotten.
    """
    faded, looked_at = await _faded(scope, unused_days, run, ledger)
    left: list[str] = []
    if faded and (reason := await check_user_clock(scope, run.at, ledger=ledger)):
        left.append(f"at least {len(faded)} memories have a low score, but {reason}")
        faded = []
    steps, changed = await forget(scope, faded[: run.max_changes], why="pruned", run=run, ledger=ledger)
    more = len(faded) > run.max_changes
    return run.report(MaintenanceTask.PRUNE, scope, steps, left=[*left, *changed], looked_at=looked_at, more=more)


async def _faded(
    scope: Scope, unused_days: float, run: MaintenanceRun, ledger: Ledger
) -> tuple[list[MemoryRecord], int]:
    """Return the oldest memories to forget, at most one over the limit, and how many were examined."""
    old = run.at - timedelta(days=unused_days)
    unused = And(
        (
            Where("access_count", Op.EQ, 0),
            Where("created_at", Op.LT, old),
            Where("updated_at", Op.LT, old),
            Not(any_of("category", [str(each) for each in _EXEMPT_CATEGORIES])),
        )
    )
    faded: list[MemoryRecord] = []
    looked_at = 0
    async for page in read_pages(ledger, scope, Listing(filter=unused, order="oldest", limit=_PAGE)):
        looked_at += len(page)
        faded += [each for each in page if not is_lasting(each) and retention_score(each, run.at) < MIN_SCORE]
        if len(faded) > run.max_changes:
            break
    return faded[: run.max_changes + 1], looked_at
