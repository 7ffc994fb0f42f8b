"""Forget what is old, was never recalled and never mattered much."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from recollect.errors import InvalidInput
from recollect.ledger.protocol import Ledger
from recollect.model.filters import any_of
from recollect.model.memory import Category, MemoryRecord
from recollect.model.query import And, Filter, Listing, Not, Op, Where
from recollect.model.scope import Scope
from recollect.upkeep.clock import check_user_clock
from recollect.upkeep.decay import Decay, is_lasting, retention_score
from recollect.upkeep.report import MaintenanceReport, MaintenanceTask, forget_steps
from recollect.upkeep.run import MaintenanceRun, finish, forget

PRUNE_REASON = "pruned"
_PAGE = 1000
# The log, and what stands for it, is not judged by how often it was recalled; files stay until they are deleted.
_EXEMPT_CATEGORIES = (Category.TURN, Category.SUMMARY, Category.FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneConfig:
    """What counts as old and as worthless: days since anyone had to do with it, and what it still stands for."""

    days: float = 90.0
    below: float = 0.2
    decay: Decay = field(default_factory=Decay)

    def __post_init__(self) -> None:
        if not (1 <= self.days <= 36_500 and 0 <= self.below <= 1):
            raise InvalidInput("pruning takes days from 1 to 36,500, and a standing below which to prune from 0 to 1")


async def prune(
    scope: Scope, *, ledger: Ledger, run: MaintenanceRun, pruning: PruneConfig | None = None, force: bool = False
) -> MaintenanceReport:
    """Forget memories that nobody ever recalled and that stand for too little; softly, so that undo brings them back.

    What says who the user is, what they must not have or what they asked for stays if it matters. If the clock may
    have leapt ahead nothing goes, unless it is `force`d.
    """
    pruning = pruning or PruneConfig()
    faded, looked_at = await _faded(scope, pruning, run, ledger)
    left: list[str] = []
    if faded and not force and (reason := await check_user_clock(scope, run.at, ledger=ledger)):
        left.append(f"at least {len(faded)} memories seem worthless, but {reason}")
        faded = []
    done, changed = await forget(scope, faded[: run.max_changes], why=PRUNE_REASON, run=run, ledger=ledger)
    await finish(scope, run, ledger)
    return MaintenanceReport(
        chore=MaintenanceTask.PRUNE,
        user=scope.user,
        dry_run=run.dry_run,
        batch=run.batch(bool(done)),
        steps=forget_steps(done, PRUNE_REASON),
        left=(*left, *changed),
        looked_at=looked_at,
        more=len(faded) > run.max_changes,
    )


async def _faded(
    scope: Scope, pruning: PruneConfig, run: MaintenanceRun, ledger: Ledger
) -> tuple[list[MemoryRecord], int]:
    """The oldest memories to go, one more than may, and how many were looked at."""
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
