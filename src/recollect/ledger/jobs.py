"""What a ledger promises of work: jobs that are done once whatever fails, conversations, and what models cost.

Jobs of one user run one at a time, in order of their priority and of when they are due. Users of the same priority
take turns: whoever was served longest ago, or never, comes first, however much the others have waiting.
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

# Who writes for upkeep: that is nothing that was heard of a user.
MAINTENANCE_AUTHOR = "upkeep"
MAINTENANCE_KINDS = frozenset({JobKind.UPKEEP, JobKind.CONSOLIDATE, JobKind.REFLECT})
# Failures longer ago than this are no longer in a row with whatever comes.
FAILURE_WINDOW = timedelta(minutes=10)


def maintenance_task_name(job: Job | NewJob) -> str | None:
    """The name of the chore that a job does, if it does one."""
    return str(job.payload.get("chore") or job.kind) if job.kind in MAINTENANCE_KINDS else None


@dataclass(frozen=True, slots=True)
class TaskRun:
    """When a chore was last queued, and when the last run of it that went well had begun."""

    queued_at: datetime
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceState:
    """A user as upkeep sees them: when they were last heard of, the projects they talk in, and their chores so far.

    Heard of is whatever was written by anyone but upkeep. Chores are known by project and name.
    """

    user: str
    last_active_at: datetime | None = None
    projects: tuple[str, ...] = ()
    tasks: Mapping[tuple[str, str], TaskRun] = field(default_factory=dict)


class JobStore(Protocol):
    """The part of a ledger that workers need beside the memories."""

    async def enqueue(self, scope: Scope, jobs: Sequence[NewJob], *, existing_only: bool = False) -> tuple[Job, ...]:
        """Have jobs done; gives each as it was made, or as the one it joined now is.

        With `existing_only` nothing happens if the ledger knows no such user, session or project:
        what was erased meanwhile does not come back by its jobs.
        """
        ...

    async def maintenance_states(self, *, after: str = "", limit: int = 100) -> list[MaintenanceState]:
        """Users in order, after one of them, with what it takes to tell which chores are due."""
        ...

    async def enqueue_due(self, due: Sequence[tuple[Scope, NewJob]]) -> int:
        """Queue what is due, of many users, and note which chores were; gives how many jobs that are.

        Only for who is known. A chore that is dead is given another chance; any other dead job stays as it is, and
        none is made beside it until something else was said in its session.
        """
        ...

    async def maintenance_times(self) -> Mapping[str, datetime]:
        """When the store was last looked after, by name; "written" is when anything was last written to history."""
        ...

    async def record_maintenance_times(self, times: Mapping[str, datetime | None]) -> None:
        """Note when the store was looked after; None forgets that it was."""
        ...

    async def lease(
        self, *, worker: str, limit: int, lease_s: float, kinds: Sequence[JobKind] | None = None
    ) -> list[Job]:
        """Take jobs that are due, each of another user, for so long; leases that ran out are taken over."""
        ...

    async def renew(self, job: Job, *, lease_s: float) -> Job:
        """Keep a leased job for so long from now; a Conflict if it is no longer ours."""
        ...

    async def finish(self, job: Job, *, result: Mapping[str, Any] | None = None) -> Job:
        """Say that a leased job is done; a Conflict if it is no longer ours."""
        ...

    async def fail(self, job: Job, *, error: str, retry_at: datetime | None) -> Job:
        """Say that a leased job failed, to be tried again then or, without a time, never; a Conflict if not ours."""
        ...

    async def release(self, job: Job) -> Job:
        """Give a leased job back, as if it had not been begun; a Conflict if it is no longer ours."""
        ...

    async def job(self, user: str, id: str) -> Job:
        """One job of the user."""
        ...

    async def jobs(
        self, user: str | None = None, *, states: Sequence[JobState] = (), limit: int = 100, before: str | None = None
    ) -> list[Job]:
        """The jobs of a user or of all, newest first; `before` is the id of the last one of the page before."""
        ...

    async def replay(self, user: str, ids: Sequence[str]) -> list[Job]:
        """Have dead and cancelled jobs done after all, as if new; gives those, and leaves all others as they are."""
        ...

    async def cancel(self, user: str, ids: Sequence[str]) -> list[Job]:
        """Keep waiting and running jobs from having any effect; gives those, and leaves all others as they are."""
        ...

    async def job_stats(self, user: str | None = None) -> JobStats:
        """How much work there is, of one user or of all; cheap enough to ask before every write."""
        ...

    async def prune_jobs(self, before: datetime) -> int:
        """Remove jobs that were done or cancelled before a time; gives how many."""
        ...

    async def prune_idempotency_keys(self, before: datetime) -> int:
        """Forget what requests with a key of their own came to before a time: who repeats one later does it again."""
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
        """Sessions of a user or of all, by when something was last said in them; `after` ended the page before.

        They can be only those that are open, or closed, or in which nothing was said since a time.
        """
        ...

    async def usage(
        self,
        user: str | None = None,
        *,
        since: datetime | None = None,
        by: Sequence[Part] = ("day", "model", "step"),
    ) -> list[Usage]:
        """What models were asked, summed up by these, in order; `since` counts from the beginning of its day."""
        ...

    async def spent_today(self, user: str | None) -> SpentToday:
        """What the user has spent since midnight, UTC; cheap, asked before every call.

        Without a user, what all of them have: with those who were erased, and those of whom nothing is kept.
        """
        ...
