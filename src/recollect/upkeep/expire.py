"""Forget what was only to be remembered for a time."""

from __future__ import annotations

from recollect.ledger.protocol import Ledger
from recollect.model.memory import Status
from recollect.model.query import And, Filter, Listing, Op, Where
from recollect.model.scope import Scope
from recollect.upkeep.clock import check_user_clock, settled_filter, settled_since
from recollect.upkeep.report import MaintenanceReport, MaintenanceTask, forget_steps
from recollect.upkeep.run import MaintenanceRun, finish, forget

EXPIRE_REASON = "expired"


async def expire(scope: Scope, *, ledger: Ledger, run: MaintenanceRun, force: bool = False) -> MaintenanceReport:
    """Forget memories whose `expires_at` has passed; softly, so that history keeps them and undo brings them back.

    If the clock may have leapt ahead, only what is younger than such a leap goes, unless it is `force`d: see
    `recollect.upkeep.clock`. An undone run finds them expired again: give them another `expires_at` first.
    """
    expired: Filter = Where("expires_at", Op.LTE, run.at)
    page = await ledger.find(scope, _expired_listing(expired, run))
    left: list[str] = []
    old = [each for each in page if each.created_at < settled_since(run.at)]
    if old and not force and (reason := await check_user_clock(scope, run.at, ledger=ledger)):
        left.append(f"at least {len(old)} memories seem to have expired, but {reason}")
        page = await ledger.find(scope, _expired_listing(And((expired, settled_filter(run.at))), run))
    done, changed = await forget(scope, page.records, why=EXPIRE_REASON, run=run, ledger=ledger)
    await finish(scope, run, ledger)
    return MaintenanceReport(
        chore=MaintenanceTask.EXPIRE,
        user=scope.user,
        dry_run=run.dry_run,
        batch=run.batch(bool(done)),
        steps=forget_steps(done, EXPIRE_REASON),
        left=(*left, *changed),
        looked_at=len(page),
        more=page.cursor is not None,
    )


def _expired_listing(filter: Filter, run: MaintenanceRun) -> Listing:
    # What waits for review expires like the rest.
    return Listing(filter=filter, statuses=(Status.ACTIVE, Status.REVIEW), order="oldest", limit=run.max_changes)
