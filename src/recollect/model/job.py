"""Work that waits in the ledger: what is to be done, how it stands, and how much of it there is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from recollect.errors import InvalidInput, InvalidText
from recollect.model.ids import new_id
from recollect.model.scope import Scope
from recollect.model.text import is_storable, repair_text
from recollect.model.turn import Turn

MAX_KEY_CHARS = 1000
MAX_PRIORITY = 100
MAX_ERROR_CHARS = 2000
# A queue that fails or falls behind must be seen.
_MAX_FAILURES = 5
_MAX_DUE_AGE_S = 300.0


class JobKind(StrEnum):
    """What is to be done."""

    EXTRACT = "extract"
    SUMMARISE = "summarise"
    CLOSE = "close"
    CONSOLIDATE = "consolidate"
    REFLECT = "reflect"
    UPKEEP = "upkeep"


class JobState(StrEnum):
    """How a job stands. A dead one has failed for good and waits for a person."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """Something to be done for a user, now or when it is due; the higher its priority, the sooner.

    One that finds a job of the same user, kind and key waiting joins it: what is in the payload of both is as the
    later one says, the higher priority counts, and so does the earlier time, or the later one if it says `postpone`.
    A job that failed and waits for its next try is not brought forward.
    """

    kind: JobKind
    key: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    due_at: datetime | None = None
    postpone: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.key, str) or len(self.key) > MAX_KEY_CHARS or not is_storable(self.key):
            raise InvalidText(f"the key of a job is a text of at most {MAX_KEY_CHARS} characters, not {self.key!r}")
        if not -MAX_PRIORITY <= self.priority <= MAX_PRIORITY:
            raise InvalidInput(
                f"the priority of a job is from -{MAX_PRIORITY} to {MAX_PRIORITY}, not {self.priority}"
            )
        as_json(self.payload, name="the payload of a job")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as the ledger has it. `tries` counts how often it was begun; `lease` is the proof of who runs it.

    Its scope is what all that joined in it share: the session, or the project, or the user alone.
    """

    id: str
    scope: Scope
    kind: JobKind
    key: str
    state: JobState
    priority: int
    payload: Mapping[str, Any]
    tries: int
    due_at: datetime
    created_at: datetime
    updated_at: datetime
    worker: str | None = None
    lease: str | None = None
    leased_until: datetime | None = None
    error: str | None = None
    result: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the lease is for its holder alone."""
        return {
            "id": self.id,
            "user_id": self.scope.user,
            "project_id": self.scope.project or None,
            "session_id": self.scope.session or None,
            "kind": str(self.kind),
            "key": self.key or None,
            "state": str(self.state),
            "priority": self.priority,
            "payload": dict(self.payload),
            "tries": self.tries,
            "due_at": self.due_at.isoformat(),
            "created_at": self.created_at.isoformat(),
            "updated_at": self.updated_at.isoformat(),
            "worker": self.worker,
            "leased_until": None if self.leased_until is None else self.leased_until.isoformat(),
            "error": self.error,
            "result": None if self.result is None else dict(self.result),
        }


@dataclass(frozen=True, slots=True)
class JobStats:
    """How much work there is, of one user or of all.

    `due` are those of the waiting that could be done now. The age is that of the job that has been due for longest
    and is not done, of those that someone waits for: a priority below 0 is no hurry. `failures_in_a_row` is how often
    work failed since it last went well, if it failed lately: the user's own count, or the highest that any user has.
    """

    waiting: int = 0
    running: int = 0
    dead: int = 0
    oldest_due_age_s: float = 0.0
    failures_in_a_row: int = 0
    due: int = 0

    @property
    def trouble(self) -> str:
        """What is wrong with the work, in words: it fails or falls behind; empty if nothing is."""
        if self.failures_in_a_row >= _MAX_FAILURES:
            return f"work failed {self.failures_in_a_row} times in a row: `recollect jobs` says why"
        if self.oldest_due_age_s > _MAX_DUE_AGE_S:
            return f"a job has been due for {self.oldest_due_age_s:.0f} s: is a worker running?"
        return ""


@dataclass(frozen=True, slots=True)
class Appended:
    """What was added to a session's log, with its positions, and the jobs that were made or joined for it.

    `redacted` names the kinds of secrets that were kept out.
    """

    turns: tuple[Turn, ...] = ()
    jobs: tuple[Job, ...] = ()
    redacted: tuple[str, ...] = ()


def as_json(value: Mapping[str, Any], *, name: str) -> str:
    """Plain values as they are kept, or an InvalidInput; in ASCII, so that no store refuses a character."""
    try:
        return json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} holds something that cannot be kept: {error}") from None


def create_job(scope: Scope, new: NewJob, *, at: datetime) -> Job:
    """The job that a new one becomes if it joins no other."""
    return Job(
        id=new_id(),
        scope=scope,
        kind=new.kind,
        key=new.key,
        state=JobState.WAITING,
        priority=new.priority,
        payload=_plain_payload(new.payload),
        tries=0,
        due_at=new.due_at or at,
        created_at=at,
        updated_at=at,
    )


def join_job(waiting: Job, scope: Scope, new: NewJob, *, at: datetime) -> Job:
    """A waiting job after a new one has joined it; the very same if that changes nothing."""
    due_at = waiting.due_at
    if not waiting.tries:
        due_at = (max if new.postpone else min)(due_at, new.due_at or at)
    after = replace(
        waiting,
        scope=_common_scope(waiting.scope, scope),
        priority=max(waiting.priority, new.priority),
        payload=_plain_payload({**waiting.payload, **new.payload}) if new.payload else waiting.payload,
        due_at=due_at,
    )
    return waiting if after == waiting else replace(after, updated_at=at)


def _plain_payload(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A payload as a ledger gives it back."""
    plain: dict[str, Any] = json.loads(as_json(payload, name="the payload of a job")) if payload else {}
    return plain


def _common_scope(one: Scope, other: Scope) -> Scope:
    """The narrowest scope that two scopes of a user are both in."""
    if one == other:
        return one
    if one.project != other.project:
        return Scope(one.user)
    return Scope(one.user, one.project, one.session if one.session == other.session else "")


def truncate_error(error: str) -> str:
    """What is kept of an error: its beginning, as far as stores can hold it."""
    return repair_text(error[:MAX_ERROR_CHARS])
