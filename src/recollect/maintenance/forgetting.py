"""Forget expired memories, those that nobody recalled, and those over a quota.

None of the first two are forgotten if the system clock may have jumped ahead.

On a machine whose clock jumps ahead, every memory looks old. Recall only hides what seems to have expired, and shows
it once the clock is right; maintenance would forget it. So what is older than `SETTLE_TIME` is only forgotten if
there was activity in the `MAX_GAP` before: a memory of the user that was added, changed or recalled, or a session of
anyone. Otherwise either the clock jumped or nobody was here, and a person decides.

What concerns the whole store is removed once time has passed for `SETTLE_TIME` without a gap of `MAX_GAP`.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from recollect.config.fields import QuotaSettings
from recollect.ledger.ledger import Ledger, read_pages
from recollect.maintenance.tasks import MaintenanceReport, MaintenanceRun, MaintenanceTask, forget
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import EVERYTHING, And, Filter, Listing, Not, Op, Or, Where, any_of, both
from recollect.model.scope import Level, Scope

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


_UNCOUNTED = (Category.FILE, Category.SUMMARY)


def min_quota(quotas: QuotaSettings) -> int:
    """Return the smallest of the quotas; 0 if there is none."""
    return min(filter(None, (quotas.quota_user, quotas.quota_project, quotas.quota_session)), default=0)


def _counted(quotas: QuotaSettings) -> Filter:
    """Return the filter of the memories that count: no summaries and files, and turns only if they are to."""
    return Not(any_of("category", _UNCOUNTED if quotas.quota_turns else (*_UNCOUNTED, Category.TURN)))


async def is_over_quota(scope: Scope, *, ledger: Ledger, quotas: QuotaSettings) -> bool:
    """Return whether the session, the project or the user of a scope exceeds a quota, by a few counts."""
    session = And((any_of("session_id", scope.session), any_of("level", str(Level.SESSION))))
    parts: list[tuple[int, Filter]] = [(quotas.quota_user, EVERYTHING)]
    parts += [(quotas.quota_session, session)] if scope.session else []
    parts += [(quotas.quota_project, any_of("project_id", scope.project))] if scope.project else []
    for limit, part in parts:
        listing = Listing(filter=both(_counted(quotas), part))
        if limit and await ledger.count(Scope(scope.user), listing) > limit:
            return True
    return False


async def enforce_quotas(
    scope: Scope, *, ledger: Ledger, run: MaintenanceRun, quotas: QuotaSettings
) -> MaintenanceReport:
    """Forget memories over the quotas: of sessions first, then of projects, then of the user.

    Memories written after the run's `since` are spared, unless the order is `importance`. In the scope of a project
    only its memories are read, unless the user has a quota as well.
    """
    owner = Scope(scope.user)
    part = any_of("project_id", scope.project) if scope.project and not quotas.quota_user else EVERYTHING
    counted = both(_counted(quotas), part)
    count = await ledger.count(owner, Listing(filter=counted)) if min_quota(quotas) else 0
    surplus: list[MemoryRecord] = []
    if count > min_quota(quotas):
        listing = Listing(filter=counted, order="oldest", limit=_PAGE)
        records = [record async for page in read_pages(ledger, owner, listing) for record in page]
        surplus = await asyncio.to_thread(_surplus, records, quotas, run)
    more = len(surplus) > run.max_changes
    steps, left = await forget(owner, surplus[: run.max_changes], why="quota", run=run, ledger=ledger, evicts=True)
    return run.report(MaintenanceTask.QUOTA, scope, steps, left=left, looked_at=count, more=more)


def _surplus(records: Iterable[MemoryRecord], quotas: QuotaSettings, run: MaintenanceRun) -> list[MemoryRecord]:
    """Return the memories to forget, in order."""
    first = sorted(records, key=lambda each: _rank(each, quotas, run.at))
    surplus: dict[str, MemoryRecord] = {}
    groups = (
        (quotas.quota_session, _grouped(first, Level.SESSION)),
        (quotas.quota_project, _grouped(first, Level.PROJECT)),
        (quotas.quota_user, {"": first}),
    )
    for limit, group in groups:
        for members in group.values() if limit else ():
            remaining = [each for each in members if each.id not in surplus]
            over = max(len(remaining) - limit, 0)
            new = set() if quotas.quota_order == "importance" else _newest_ids(remaining, min(over, limit), run.since)
            surplus |= {each.id: each for each in [each for each in remaining if each.id not in new][:over]}
    return list(surplus.values())


def _newest_ids(records: Iterable[MemoryRecord], count: int, since: datetime | None) -> set[str]:
    """Return the ids of new memories to spare, so that they can be found right after the write."""
    if since is None or not count:
        return set()
    new = sorted((each.created_at, each.id) for each in records if each.created_at >= since)
    return {id for _, id in new[-count:]}


def _grouped(records: Iterable[MemoryRecord], level: Level) -> Mapping[Any, list[MemoryRecord]]:
    """Return the memories of each session, or of each project with its sessions."""
    groups: dict[Any, list[MemoryRecord]] = defaultdict(list)
    for each in records:
        if level is Level.SESSION and each.level is Level.SESSION:
            groups[each.scope.project, each.scope.session].append(each)
        elif level is Level.PROJECT and each.level is not Level.USER and each.scope.project:
            groups[each.scope.project].append(each)
    return groups


def _rank(record: MemoryRecord, quotas: QuotaSettings, at: datetime) -> tuple[Any, ...]:
    if quotas.quota_order == "oldest":
        return record.created_at, record.id
    if quotas.quota_order == "importance":
        return record.importance, record.created_at, record.id
    return is_lasting(record), retention_score(record, at), record.created_at, record.id
