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
from recollect.upkeep.consolidate import ConsolidationDeps, ConsolidationLimits, consolidate
from recollect.upkeep.expire import expire
from recollect.upkeep.prune import PruneConfig, prune
from recollect.upkeep.quota import Quotas, enforce_quotas
from recollect.upkeep.reflect import ReflectionLimits, reflect
from recollect.upkeep.report import MaintenanceReport, MaintenanceTask
from recollect.upkeep.run import MaintenanceRun
from recollect.upkeep.schedule import MaintenanceSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceConfig:
    """How many memories may be kept, what fades, and when each chore is due."""

    quotas: Quotas = field(default_factory=Quotas)
    pruning: PruneConfig = field(default_factory=PruneConfig)
    schedule: MaintenanceSchedule = field(default_factory=MaintenanceSchedule)
    forget_days: float = 30.0
    timeout_s: float | None = None


def follow_up_job(job: Job, report: MaintenanceReport) -> NewJob | None:
    """The job that goes on where a run left off; None if nothing is left, or the run got nowhere."""
    if not report.more or not report.steps:
        return None
    return NewJob(kind=job.kind, key=job.key, payload=job.payload, priority=job.priority)


async def run_task(
    task: MaintenanceTask,
    scope: Scope,
    run: MaintenanceRun,
    config: MaintenanceConfig,
    *,
    ledger: Ledger,
    index: Index,
    embedder: Embedder,
    chat: Chat | None,
    after: datetime | None = None,
) -> MaintenanceReport:
    """Do one chore; with `after`, chores that think look at what came since."""
    match task:
        case MaintenanceTask.EXPIRE:
            return await expire(scope, ledger=ledger, run=run)
        case MaintenanceTask.QUOTA:
            return await enforce_quotas(scope, ledger=ledger, run=run, quotas=config.quotas)
        case MaintenanceTask.PRUNE:
            return await prune(scope, ledger=ledger, run=run, pruning=config.pruning)
        case MaintenanceTask.CONSOLIDATE:
            deps = ConsolidationDeps(ledger, index, embedder, chat)
            limits = ConsolidationLimits(after=after, timeout_s=config.timeout_s)
            return await consolidate(scope, deps=deps, run=run, limits=limits)
        case MaintenanceTask.REFLECT:
            reflection = ReflectionLimits(after=after, timeout_s=config.timeout_s)
            return await reflect(scope, ledger=ledger, embedder=embedder, chat=chat, run=run, limits=reflection)
