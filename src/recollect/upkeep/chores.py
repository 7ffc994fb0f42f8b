"""Do a chore of upkeep for one user, as it is set up."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from recollect.index.protocol import Index
from recollect.ledger.protocol import Ledger
from recollect.model.job import Job, NewJob
from recollect.model.scope import Scope
from recollect.models.chat import Chat
from recollect.models.embedding import Embedder
from recollect.upkeep.consolidate import ConsolidationLimits, Parts, consolidate
from recollect.upkeep.expire import expire
from recollect.upkeep.prune import Pruning, prune
from recollect.upkeep.quota import Quotas, quota
from recollect.upkeep.reflect import ReflectionLimits, reflect
from recollect.upkeep.report import Chore, Report
from recollect.upkeep.run import Run
from recollect.upkeep.schedule import Timetable


@dataclass(frozen=True, slots=True, kw_only=True)
class Housekeeping:
    """How many memories may be kept, what fades, and when each chore is due."""

    quotas: Quotas = field(default_factory=Quotas)
    pruning: Pruning = field(default_factory=Pruning)
    timetable: Timetable = field(default_factory=Timetable)
    forget_days: float = 30.0
    timeout_s: float | None = None


def again(job: Job, report: Report) -> NewJob | None:
    """The job that goes on where a run left off; None if nothing is left, or the run got nowhere."""
    if not report.more or not report.steps:
        return None
    return NewJob(kind=job.kind, key=job.key, payload=job.payload, priority=job.priority)


async def do(
    chore: Chore,
    scope: Scope,
    run: Run,
    house: Housekeeping,
    *,
    ledger: Ledger,
    index: Index,
    embedder: Embedder,
    chat: Chat | None,
    after: datetime | None = None,
) -> Report:
    """Do one chore; with `after`, chores that think look at what came since."""
    match chore:
        case Chore.EXPIRE:
            return await expire(scope, ledger=ledger, run=run)
        case Chore.QUOTA:
            return await quota(scope, ledger=ledger, run=run, quotas=house.quotas)
        case Chore.PRUNE:
            return await prune(scope, ledger=ledger, run=run, pruning=house.pruning)
        case Chore.CONSOLIDATE:
            parts = Parts(ledger, index, embedder, chat)
            limits = ConsolidationLimits(after=after, timeout_s=house.timeout_s)
            return await consolidate(scope, parts=parts, run=run, limits=limits)
        case Chore.REFLECT:
            reflection = ReflectionLimits(after=after, timeout_s=house.timeout_s)
            return await reflect(scope, ledger=ledger, embedder=embedder, chat=chat, run=run, limits=reflection)
