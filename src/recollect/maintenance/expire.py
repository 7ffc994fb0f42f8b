"""Whether the time can be believed, before anything is given up because of it.

A machine whose clock leaps ahead finds every memory old and every date past. Recall hides what seems to have
expired, and shows it again once the clock is right; upkeep would make it lasting. So what is older than `SETTLED` is
only given up if life was seen in the `LEAP` before: a memory of the user that was made, changed or recalled then, or
a session of anyone. Where nothing was, either the clock has leapt or nobody was here; a person can say which.

What concerns the store as a whole is given up once time has gone on for `SETTLED` without a gap of a `LEAP`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from recollect.ledger.protocol import Ledger
from recollect.maintenance.tasks import (
    MaintenanceReport,
    MaintenanceRun,
    MaintenanceTask,
    finish,
    forget,
    forget_steps,
)
from recollect.model.memory import Status
from recollect.model.query import And, Filter, Listing, Op, Or, Where
from recollect.model.scope import Scope

# A new time is believed once it has been going on for so long.
SETTLE_TIME = timedelta(days=30)
# Longer than this nobody is silent, as far as we believe.
MAX_GAP = timedelta(days=90)
# When the time was last looked at, and since when it is doubted.
_SEEN = "clock seen"
_JUMPED = "clock leapt"
_TIMES = ("created_at", "updated_at", "last_accessed_at")


def settled_since(at: datetime) -> datetime:
    """What is younger than this came after any leap of the clock."""
    return at - SETTLE_TIME


def settled_filter(at: datetime) -> Filter:
    """A filter for what came after any leap of the clock."""
    return Where("created_at", Op.GTE, settled_since(at))


async def check_user_clock(scope: Scope, at: datetime, *, ledger: Ledger) -> str:
    """Why a time is not to be believed where older memories are concerned; empty if it is."""
    until = settled_since(at)
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
        f"nothing is known from {since:%Y-%m-%d} to {until:%Y-%m-%d}: the clock may have leapt ahead; "
        "if it is right, force this run"
    )


async def check_clock(at: datetime, *, ledger: Ledger) -> str:
    """Why a time is not to be believed where the whole store is concerned; empty if it is. Notes that it was seen."""
    moments = await ledger.maintenance_times()
    seen, since = moments.get(_SEEN, moments.get("written")), moments.get(_JUMPED)
    if seen is not None and at - seen > MAX_GAP:
        since = at
    elif since is not None and not since <= at < since + SETTLE_TIME:
        # It went on for long enough, or was put back.
        since = None
    await ledger.record_maintenance_times({_SEEN: at, _JUMPED: since})
    if since is None:
        return ""
    return (
        f"the clock may have leapt ahead on {since:%Y-%m-%d}; it is believed from {since + SETTLE_TIME:%Y-%m-%d} on"
    )


EXPIRE_REASON = "expired"


async def expire(scope: Scope, *, ledger: Ledger, run: MaintenanceRun, force: bool = False) -> MaintenanceReport:
    """Forget memories whose `expires_at` has passed; softly, so that history keeps them and undo brings them back.

    If the clock may have leapt ahead, only what is younger than such a leap goes, unless it is `force`d: see
    `recollect.maintenance.expire`. An undone run finds them expired again: give them another `expires_at` first.
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
