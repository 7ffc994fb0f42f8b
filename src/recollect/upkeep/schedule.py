"""What is due when: chores by the hour and by the night, and sessions that have ended by themselves.

Pure: whoever keeps the time asks `due` and `ended` now and then and queues what they say. Asking twice, or from
several servers, does no harm, for a job that is waiting already is joined.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from recollect.errors import InvalidInput
from recollect.ledger.jobs import Begun, Tended
from recollect.model.job import JobKind, NewJob
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


def due(users: Sequence[Tended], *, now: datetime, timetable: Timetable) -> tuple[Due, ...]:
    """Which chores are to be done now for these users."""
    found: list[Due] = []
    for user in users:
        at = now + timedelta(seconds=_own_moment(user.user) * timetable.spread_s)
        for chore in Chore:
            for scope in _scopes(chore, user) if chore in timetable.chores else ():
                last = user.chores.get((scope.project, str(chore)))
                if _is_due(chore, last, user.heard_at, now, timetable):
                    found.append(Due(scope, _job(chore, scope, _started(last, now), at)))
    return tuple(found)


def ended(conversations: Sequence[Conversation], *, now: datetime, timetable: Timetable) -> tuple[Due, ...]:
    """The ends of open sessions in which nothing was said for long enough."""
    idle = now - timedelta(seconds=timetable.idle_s)
    return tuple(
        Due(each.scope, closing(each.scope))
        for each in conversations
        if timetable.idle_s and each.closed_at is None and each.last_turn_at is not None and each.last_turn_at <= idle
    )


def _scopes(chore: Chore, user: Tended) -> list[Scope]:
    scopes = [Scope(user.user)]
    if chore is Chore.REFLECT:
        # An insight must not carry what one project knows into another: each is thought about by itself.
        scopes += [Scope(user.user, project) for project in user.projects if project]
    return scopes


def _is_due(chore: Chore, last: Begun | None, heard: datetime | None, now: datetime, timetable: Timetable) -> bool:
    if last is not None and last.queued_at <= now:
        if chore in HOURLY:
            return now - last.queued_at >= timedelta(seconds=timetable.every_s)
        if last.queued_at >= _night(now, timetable.night_hour):
            return False
    # After a clock was put back, what was done in a future that never came is no reason to wait.
    started = _started(last, now)
    return chore in HOURLY or (heard is not None and (started is None or heard > started))


def _started(last: Begun | None, now: datetime) -> datetime | None:
    """When the last run that went well had begun; what lies ahead of now never was."""
    return None if last is None or last.started_at is None or last.started_at > now else last.started_at


def _night(now: datetime, hour: int) -> datetime:
    """When the last night began."""
    begun = now.astimezone(UTC).replace(hour=hour, minute=0, second=0, microsecond=0)
    return begun if begun <= now else begun - timedelta(days=1)


def _job(chore: Chore, scope: Scope, after: datetime | None, at: datetime) -> NewJob:
    return NewJob(
        kind=_KINDS.get(chore, JobKind.UPKEEP),
        key=f"{chore}:{scope.project}" if scope.project else str(chore),
        payload={"chore": str(chore), "after": None if after is None else after.isoformat()},
        priority=_PRIORITY[chore],
        due_at=at,
    )


def _own_moment(user: str) -> float:
    """A number from 0 to 1 that is always the same for a user."""
    return zlib.crc32(user.encode(errors="replace")) / 0xFFFFFFFF
