"""Forget memories that exceed the quotas of a user, a project or a session."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from recollect.config.fields import QuotaSettings
from recollect.ledger.ledger import Ledger, read_pages
from recollect.maintenance.expire import is_lasting, retention_score
from recollect.maintenance.tasks import MaintenanceReport, MaintenanceRun, MaintenanceTask, forget
from recollect.model.memory import Category, MemoryRecord
from recollect.model.query import EVERYTHING, And, Filter, Listing, Not, any_of, both
from recollect.model.scope import Level, Scope

_PAGE = 1000
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
