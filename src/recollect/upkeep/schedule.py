"""What is due when: chores by the hour and by the night, and sessions that have ended by themselves.

Pure: whoever keeps the time asks `due` now and then and queues what it says. Asking twice, or from several servers,
does no harm, for a job that is waiting already is joined.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from recollect.errors import InvalidInput
from recollect.model.job import Job, JobKind, JobState, NewJob
from recollect.model.scope import Scope
from recollect.model.turn import Conversation
from recollect.upkeep.report import Chore
from recollect.write.triggers import closing

HOURLY = (Chore.EXPIRE, Chore.QUOTA)
NIGHTLY = (Chore.PRUNE, Chore.CONSOLIDATE, Chore.REFLECT)
# Learning from what people say comes first.
_PRIORITY: Mapping[Chore, int] = {
    Chore.EXPIRE: -10,
    Chore.QUOTA: -10,
    Chore.PRUNE: -20,
    Chore.CONSOLIDATE: -20,
    Chore.REFLECT: -20,
}
_KINDS: Mapping[Chore, JobKind] = {Chore.CONSOLIDATE: JobKind.CONSOLIDATE, Chore.REFLECT: JobKind.REFLECT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """Which chores are done, how often, and when a session counts as ended.

    Nightly ones begin at `night_hour`, UTC, and only for users of whom something was heard since the last time. Jobs
    are spread over `spread_s`, each user at a time of their own, so that not all of them are due at once.
    """

    chores: frozenset[Chore] = frozenset(HOURLY)
    every_s: float = 3600.0
    night_hour: int = 3
    spread_s: float = 600.0
    idle_s: float = 1800.0

    def __post_init__(self) -> None:
        if not 0 <= self.night_hour <= 23:
            raise InvalidInput(f"night_hour is an hour of the day from 0 to 23, not {self.night_hour}")
        if self.every_s <= 0 or self.spread_s < 0 or self.idle_s < 0:
            raise InvalidInput("every_s must be more than 0, spread_s and idle_s at least 0")


@dataclass(frozen=True, slots=True)
class Due:
    """A job to be queued for a scope."""

    scope: Scope
    job: NewJob


def due(
    conversations: Sequence[Conversation],
    last_runs: Mapping[str, Mapping[Chore, datetime]],
    *,
    now: datetime,
    timetable: Timetable,
) -> tuple[Due, ...]:
    """What is to be done now for the users named in `last_runs` and those of the conversations.

    A user who never had a chore done has an empty mapping, or none. Conversations are those in which something was
    said lately; the open ones in which nothing was said for long enough are closed.
    """
    heard: dict[str, datetime] = {}
    for each in conversations:
        if each.last_turn_at is not None:
            user = each.scope.user
            heard[user] = max(heard.get(user, each.last_turn_at), each.last_turn_at)
    found = [*_ended(conversations, now, timetable)]
    for user in sorted({*last_runs, *heard}):
        last = last_runs.get(user, {})
        at = now + timedelta(seconds=_own_moment(user) * timetable.spread_s)
        for chore in Chore:
            if chore in timetable.chores and _is_due(chore, last.get(chore), heard.get(user), now, timetable):
                found += _jobs(chore, user, conversations, last.get(chore), at)
    return tuple(found)


def last_runs(jobs: Iterable[Job], *, now: datetime) -> dict[str, dict[Chore, datetime]]:
    """When each chore was last done for each user, by the jobs that were; what lies ahead of now never was."""
    found: dict[str, dict[Chore, datetime]] = defaultdict(dict)
    for job in jobs:
        chore = _chore_of(job)
        if chore is not None and job.state is JobState.DONE and job.updated_at <= now:
            own = found[job.scope.user]
            own[chore] = max(own.get(chore, job.updated_at), job.updated_at)
    return dict(found)


def _chore_of(job: Job) -> Chore | None:
    for chore, kind in _KINDS.items():
        if job.kind is kind:
            return chore
    told = job.payload.get("chore") if job.kind is JobKind.UPKEEP else None
    return Chore(told) if told in tuple(Chore) else None


def _ended(conversations: Sequence[Conversation], now: datetime, timetable: Timetable) -> Iterable[Due]:
    if not timetable.idle_s:
        return
    idle = now - timedelta(seconds=timetable.idle_s)
    for each in conversations:
        if each.closed_at is None and each.last_turn_at is not None and each.last_turn_at <= idle:
            yield Due(each.scope, closing(each.scope))


def _is_due(chore: Chore, last: datetime | None, heard: datetime | None, now: datetime, timetable: Timetable) -> bool:
    if last is None or last > now:
        # After a clock was put back, what was done in a future that never came is no reason to wait.
        return chore in HOURLY or heard is not None
    if chore in HOURLY:
        return now - last >= timedelta(seconds=timetable.every_s)
    return last < _night(now, timetable.night_hour) and heard is not None and heard > last


def _night(now: datetime, hour: int) -> datetime:
    """When the last night began."""
    begun = now.astimezone(UTC).replace(hour=hour, minute=0, second=0, microsecond=0)
    return begun if begun <= now else begun - timedelta(days=1)


def _jobs(
    chore: Chore, user: str, conversations: Sequence[Conversation], last: datetime | None, at: datetime
) -> Iterable[Due]:
    payload = {"chore": str(chore), "after": None if last is None else last.isoformat()}
    scopes = {Scope(user)}
    if chore is Chore.REFLECT:
        # An insight must not carry what one project knows into another: each is thought about by itself.
        scopes |= {Scope(user, each.scope.project) for each in conversations if each.scope.user == user}
    for scope in sorted(scopes, key=lambda each: each.project):
        key = f"{chore}:{scope.project}" if scope.project else str(chore)
        kind = _KINDS.get(chore, JobKind.UPKEEP)
        yield Due(scope, NewJob(kind=kind, key=key, payload=payload, priority=_PRIORITY[chore], due_at=at))


def _own_moment(user: str) -> float:
    """A number from 0 to 1 that is always the same for a user."""
    return zlib.crc32(user.encode(errors="replace")) / 0xFFFFFFFF
