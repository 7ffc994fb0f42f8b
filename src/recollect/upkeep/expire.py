"""Forget what was only to be remembered for a time."""

from __future__ import annotations

from recollect.ledger.protocol import Ledger
from recollect.model.memory import Status
from recollect.model.query import And, Filter, Listing, Op, Where
from recollect.model.scope import Scope
from recollect.upkeep.clock import leapt, settled, since_settled
from recollect.upkeep.report import Chore, Report, forgotten
from recollect.upkeep.run import Run, finish, forget

WHY = "expired"


async def expire(scope: Scope, *, ledger: Ledger, run: Run, force: bool = False) -> Report:
    """Forget memories whose `expires_at` has passed; softly, so that history keeps them and undo brings them back.

    If the clock may have leapt ahead, only what is younger than such a leap goes, unless it is `force`d: see
    `recollect.upkeep.clock`. An undone run finds them expired again: give them another `expires_at` first.
    """
    wanted: Filter = Where("expires_at", Op.LTE, run.at)
    page = await ledger.find(scope, _listing(wanted, run))
    left: list[str] = []
    old = [each for each in page if each.created_at < settled(run.at)]
    if old and not force and (reason := await leapt(scope, run.at, ledger=ledger)):
        left.append(f"at least {len(old)} memories seem to have expired, but {reason}")
        page = await ledger.find(scope, _listing(And((wanted, since_settled(run.at))), run))
    done, changed = await forget(scope, page.records, why=WHY, run=run, ledger=ledger)
    await finish(scope, run, ledger)
    return Report(
        chore=Chore.EXPIRE,
        user=scope.user,
        dry_run=run.dry_run,
        batch=run.batch(bool(done)),
        steps=forgotten(done, WHY),
        left=(*left, *changed),
        looked_at=len(page),
        more=page.cursor is not None,
    )


def _listing(filter: Filter, run: Run) -> Listing:
    # What waits for review expires like the rest.
    return Listing(filter=filter, statuses=(Status.ACTIVE, Status.REVIEW), order="oldest", limit=run.most)
