"""Jobs as a ledger stores them: the queue of background work, conversations, and LLM usage.

Jobs of one user run one at a time, in order of priority and due time. Users of the same priority take turns: the one
served longest ago, or never, comes first, however many jobs the others have waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from recollect.model.job import Job, JobKind, JobState, JobStats, NewJob
from recollect.model.scope import Scope
from recollect.model.turn import Conversation
from recollect.model.usage import Part, SpentToday, Usage

# The author of what maintenance writes, which does not count as activity of the user.
MAINTENANCE_AUTHOR = "upkeep"
MAINTENANCE_KINDS = frozenset({JobKind.UPKEEP, JobKind.CONSOLIDATE, JobKind.REFLECT})
# Failures longer ago than this do not count as in a row with later ones.
FAILURE_WINDOW = timedelta(minutes=10)


def maintenance_task_name(job: Job | NewJob) -> str | None:
    """Return the name of the maintenance task that a job does, if it does one."""
    return str(job.payload.get("chore") or job.kind) if job.kind in MAINTENANCE_KINDS else None


@dataclass(frozen=True, slots=True)
class TaskRun:
    """When a task was last queued, and when its last successful run started."""

    queued_at: datetime
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceState:
    """What the scheduler needs to know of a user: the last activity, the projects, and the tasks so far.

    Activity is whatever was written by anyone but maintenance. Tasks are keyed by project and name.
    """

    user: str
    last_active_at: datetime | None = None
    projects: tuple[str, ...] = ()
    tasks: Mapping[tuple[str, str], TaskRun] = field(default_factory=dict)


class JobStore(Protocol):
    """The part of a ledger that workers need besides the memories."""

    async def enqueue(self, scope: Scope, jobs: Sequence[NewJob], *, existing_only: bool = False) -> tuple[Job, ...]:
        """Enqueue jobs; return each as it was created, or the waiting job it joined.

        With `existing_only` nothing happens if the user, session or project does not exist: what was erased meanwhile
        does not come back by its jobs.
        """
        ...

    async def maintenance_states(self, *, after: str = "", limit: int = 100) -> list[MaintenanceState]:
        """Return the maintenance state of users in order, after one of them."""
        ...

    async def enqueue_due(self, due: Sequence[tuple[Scope, NewJob]]) -> int:
        """Enqueue jobs of many users and record which tasks were queued; return how many jobs that are.

        Only for existing users. A dead maintenance job is revived; any other dead job stays, and no new one is made
        until there are new turns in its session.
        """
        ...

    async def maintenance_times(self) -> Mapping[str, datetime]:
        """Return when each store-wide task last ran, by name; "written" is the time of the last history entry."""
        ...

    async def record_maintenance_times(self, times: Mapping[str, datetime | None]) -> None:
        """Record when store-wide tasks ran; None removes the record."""
        ...

    async def lease(
        self, *, worker: str, limit: int, lease_s: float, kinds: Sequence[JobKind] | None = None
    ) -> list[Job]:
        """Lease jobs that are due, each of a different user; expired leases are taken over."""
        ...

    async def renew(self, job: Job, *, lease_s: float) -> Job:
        """Extend a lease to so many seconds from now; raise Conflict if it is no longer the caller's."""
        ...

    async def finish(self, job: Job, *, result: Mapping[str, Any] | None = None) -> Job:
        """Mark a leased job as done; raise Conflict if it is no longer the caller's."""
        ...

    async def fail(self, job: Job, *, error: str, retry_at: datetime | None) -> Job:
        """Mark a leased job as failed, to be retried at `retry_at` or never; raise Conflict if it is not leased."""
        ...

    async def release(self, job: Job) -> Job:
        """Return a leased job to the queue as if it had not started; raise Conflict if it is not the caller's."""
        ...

    async def job(self, user: str, id: str) -> Job:
        """Return one job of the user."""
        ...

    async def jobs(
        self, user: str | None = None, *, states: Sequence[JobState] = (), limit: int = 100, before: str | None = None
    ) -> list[Job]:
        """Return the jobs of a user or of all, newest first; `before` is the last id of the previous page."""
        ...

    async def replay(self, user: str, ids: Sequence[str]) -> list[Job]:
        """Requeue dead and cancelled jobs as if new; return those that were."""
        ...

    async def cancel(self, user: str, ids: Sequence[str]) -> list[Job]:
        """Cancel waiting and running jobs, which then have no effect; return those that were."""
        ...

    async def job_stats(self, user: str | None = None) -> JobStats:
        """Return counts of one user's or all jobs; cheap enough to call before every write."""
        ...

    async def prune_jobs(self, before: datetime) -> int:
        """Remove jobs that were done or cancelled before a time; return how many."""
        ...

    async def prune_idempotency_keys(self, before: datetime) -> int:
        """Remove idempotency keys from before a time; a request repeated after that is executed again."""
        ...

    async def conversations(
        self,
        user: str | None = None,
        *,
        open: bool | None = None,
        idle_before: datetime | None = None,
        order: Literal["oldest", "newest"] = "oldest",
        limit: int = 100,
        after: Conversation | None = None,
    ) -> list[Conversation]:
        """Return sessions of a user or of all in order of their last turn; `after` ended the previous page.

        They can be limited to open or closed ones, and to those without a turn since a time.
        """
        ...

    async def usage(
        self,
        user: str | None = None,
        *,
        since: datetime | None = None,
        by: Sequence[Part] = ("day", "model", "step"),
    ) -> list[Usage]:
        """Return the LLM usage grouped by these parts, in order; `since` counts from the beginning of its day."""
        ...

    async def spent_today(self, user: str | None) -> SpentToday:
        """Return what the user has spent since midnight UTC; cheap, called before every LLM call.

        Without a user, the total of all, erased users included.
        """
        ...
