"""Forget expired memories and those that nobody recalled, unless the system clock may have jumped ahead.

On a machine whose clock jumps ahead, every memory looks old. Recall only hides what seems to have expired, and shows
it once the clock is right; maintenance would forget it. So what is older than `SETTLE_TIME` is only forgotten if
there was activity in the `MAX_GAP` before: a memory of the user that was added, changed or recalled, or a session of
anyone. Otherwise either the clock jumped or nobody was here, and a person decides.

What concerns the whole store is removed once time has passed for `SETTLE_TIME` without a gap of `MAX_GAP`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta

from recollect.ledger.ledger import Ledger, read_pages
from recollect.maintenance.tasks import MaintenanceReport, MaintenanceRun, MaintenanceTask, forget
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import And, Filter, Listing, Not, Op, Or, Where, any_of
from recollect.model.scope import Scope

# A new time is trusted after this long.
SETTLE_TIME = timedelta(days=30)
# A longer time without activity counts as a jump of the clock.
MAX_GAP = timedelta(days=90)
# Names of maintenance times: when the clock was last checked, and since when it is not trusted.
_SEEN = "clock seen"
_JUMPED = "clock leapt"
_TIMES = ("created_at", "updated_at", "last_accessed_at")


async def check_user_clock(scope: Scope, at: datetime, *, ledger: Ledger) -> str:
    """Return why the clock is not trusted for older memories of a user; empty if it is."""
    until = at - SETTLE_TIME
    since = until - MAX_GAP
    seen = Or(tuple(And((Where(name, Op.GTE, since), Where(name, Op.LTE, until))) for name in _TIMES))
    listing = Listing(filter=seen, statuses=tuple(Status), limit=1)
    if (await ledger.find(Scope(scope.user), listing)).records:
        return ""
    last = await ledger.conversations(idle_before=until, order="newest", limit=1)
    last_turn_at = last[0].last_turn_at if last else None
    if last_turn_at is not None and last_turn_at >= since:
        return ""
    return (
        f"there was no activity from {since:%Y-%m-%d} to {until:%Y-%m-%d}: the clock may have jumped ahead; "
        "if it is right, delete them yourself"
    )


async def check_clock(at: datetime, *, ledger: Ledger) -> str:
    """Return why the clock is not trusted for the whole store; empty if it is. Record the time."""
    moments = await ledger.maintenance_times()
    seen, since = moments.get(_SEEN, moments.get("written")), moments.get(_JUMPED)
    if seen is not None and at - seen > MAX_GAP:
        since = at
    elif since is not None and not since <= at < since + SETTLE_TIME:
        # Enough time has passed, or the clock was set back.
        since = None
    await ledger.record_maintenance_times({_SEEN: at, _JUMPED: since})
    if since is None:
        return ""
    return (
        f"the clock may have jumped ahead on {since:%Y-%m-%d}; it is trusted from {since + SETTLE_TIME:%Y-%m-%d} on"
    )


async def expire(scope: Scope, *, ledger: Ledger, run: MaintenanceRun) -> MaintenanceReport:
    """Forget memories whose `expires_at` has passed.

    If the clock may have jumped ahead, only memories newer than such a jump are forgotten.
    After an undo they are expired still: give them another `expires_at` first.
    """
    # Memories that wait for review expire too.
    expired: Filter = Where("expires_at", Op.LTE, run.at)
    listing = Listing(filter=expired, statuses=(Status.ACTIVE, Status.REVIEW), order="oldest", limit=run.max_changes)
    page = await ledger.find(scope, listing)
    left: list[str] = []
    settled = run.at - SETTLE_TIME
    old = [each for each in page if each.created_at < settled]
    if old and (reason := await check_user_clock(scope, run.at, ledger=ledger)):
        left.append(f"at least {len(old)} memories seem to have expired, but {reason}")
        newer = And((expired, Where("created_at", Op.GTE, settled)))
        page = await ledger.find(scope, replace(listing, filter=newer))
    steps, changed = await forget(scope, page.records, why="expired", run=run, ledger=ledger)
    more = page.cursor is not None
    return run.report(MaintenanceTask.EXPIRE, scope, steps, left=[*left, *changed], looked_at=len(page), more=more)


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
