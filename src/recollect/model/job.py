"""Background jobs: their payloads, their state, and statistics of the queue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from recollect.errors import InvalidInput, InvalidText
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.ids import new_id
from recollect.model.plain import plain_fields
from recollect.model.scope import Scope
from recollect.model.text import is_storable, repair_text
from recollect.model.turn import Turn

MAX_KEY_CHARS = 1000
MAX_PRIORITY = 100
MAX_ERROR_CHARS = 2000
# Limits beyond which a queue is reported as in trouble.
_MAX_FAILURES = 5
_MAX_DUE_AGE_S = 300.0


class JobKind(StrEnum):
    """The kind of work of a job."""

    EXTRACT = "extract"
    SUMMARISE = "summarise"
    CLOSE = "close"
    CONSOLIDATE = "consolidate"
    REFLECT = "reflect"
    UPKEEP = "upkeep"


class JobState(StrEnum):
    """The state of a job. A dead one has failed for good and waits for a person."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


@frozen_dataclass(kw_only=True)
class ExtractPayload:
    """The interaction mode of the turns to extract from, and the model of the chat that they came from."""

    mode: str = ""
    model: str = ""


@frozen_dataclass(kw_only=True)
class RebuildPayload:
    """The positions of the turns whose episode is rebuilt; `at_end` for the episode of a whole session."""

    first: int
    last: int
    at_end: bool = False


@frozen_dataclass(kw_only=True)
class MaintenancePayload:
    """The name of a maintenance task; with `after`, tasks that ask an LLM consider later changes only."""

    chore: str
    after: datetime | None = None


JobPayload: TypeAlias = ExtractPayload | RebuildPayload | MaintenancePayload
_PAYLOADS: Mapping[JobKind, type[JobPayload]] = {
    JobKind.EXTRACT: ExtractPayload,
    JobKind.SUMMARISE: RebuildPayload,
    JobKind.CONSOLIDATE: MaintenancePayload,
    JobKind.REFLECT: MaintenancePayload,
    JobKind.UPKEEP: MaintenancePayload,
}


def payload_to_dict(payload: JobPayload | None) -> dict[str, Any]:
    """Return a payload as a ledger stores it, without empty fields."""
    return {} if payload is None else {name: value for name, value in plain_fields(payload).items() if value}


def parse_payload(kind: JobKind, plain: Mapping[str, Any]) -> JobPayload | None:
    """Return the payload of a stored job of that kind; None if it has none."""
    if not plain or kind not in _PAYLOADS:
        return None
    values = dict(plain)
    if values.get("after"):
        values["after"] = datetime.fromisoformat(values["after"])
    names = {each.name for each in fields(_PAYLOADS[kind])}
    return _PAYLOADS[kind](**{name: value for name, value in values.items() if name in names})


@frozen_dataclass(kw_only=True)
class NewJob:
    """A job to enqueue for a user, due now or later; higher priorities run first.

    If a job of the same user, kind and key waits, the new one joins it: payloads are merged, the new values winning;
    the higher priority counts, and the earlier due time. With `postpone_after`, a job that is due after that time
    gets the later due time instead. A failed job that waits for its next try is not brought forward.
    """

    kind: JobKind
    key: str = ""
    payload: JobPayload | None = None
    priority: int = 0
    due_at: datetime | None = None
    postpone_after: datetime | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.key, str) or len(self.key) > MAX_KEY_CHARS or not is_storable(self.key):
            raise InvalidText(f"a job's `key` must be a text of up to {MAX_KEY_CHARS} characters, got {self.key!r}")
        if not -MAX_PRIORITY <= self.priority <= MAX_PRIORITY:
            raise InvalidInput(
                f"the `priority` of a job must be from -{MAX_PRIORITY} to {MAX_PRIORITY}, got {self.priority}"
            )


@frozen_dataclass(kw_only=True)
class Job:
    """A job in the ledger. `tries` counts how often it was started; `lease` is the token of its current worker.

    Its scope is the narrowest that all joined jobs share.
    """

    id: str
    scope: Scope
    kind: JobKind
    key: str
    state: JobState
    priority: int
    payload: JobPayload | None
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
        """Return plain values for JSON, without the lease."""
        plain = plain_fields(self, omit=("lease", "payload"))
        return {**plain, "payload": payload_to_dict(self.payload), "key": self.key or None}


@frozen_dataclass
class JobStats:
    """Statistics of the jobs of one user or of all.

    `due` are the waiting jobs that could run now. The age is that of the job that has been due for longest, ignoring
    priorities below 0, which are not urgent. `failures_in_a_row` counts recent failures since the last success: the
    user's own, or the maximum over users.
    """

    waiting: int = 0
    running: int = 0
    dead: int = 0
    oldest_due_age_s: float = 0.0
    failures_in_a_row: int = 0
    due: int = 0

    @property
    def trouble(self) -> str:
        """The problem of the queue: jobs fail or are overdue; empty if there is none."""
        if self.failures_in_a_row >= _MAX_FAILURES:
            return f"jobs failed {self.failures_in_a_row} times in a row: see `recollect jobs`"
        if self.oldest_due_age_s > _MAX_DUE_AGE_S:
            return f"a job has been due for {self.oldest_due_age_s:.0f} s: is a worker running?"
        return ""


@frozen_dataclass
class Appended:
    """The turns that were appended, with positions, and the jobs that were created or joined.

    `redacted` names the kinds of secrets that were removed.
    """

    turns: tuple[Turn, ...] = ()
    jobs: tuple[Job, ...] = ()
    redacted: tuple[str, ...] = ()


def as_json(value: Mapping[str, Any], *, name: str) -> str:
    """Return JSON in ASCII, which every database can store; raise InvalidInput if that is not possible."""
    try:
        return json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} cannot be stored: {error}") from None


def create_job(scope: Scope, new: NewJob, *, at: datetime) -> Job:
    """Return the job that a new one becomes if it joins no other."""
    return Job(
        id=new_id(),
        scope=scope,
        kind=new.kind,
        key=new.key,
        state=JobState.WAITING,
        priority=new.priority,
        payload=_merge_payloads(new.kind, None, new.payload),
        tries=0,
        due_at=new.due_at or at,
        created_at=at,
        updated_at=at,
    )


def join_job(waiting: Job, scope: Scope, new: NewJob, *, at: datetime) -> Job:
    """Return a waiting job after a new one has joined it; the same object if nothing changes."""
    due_at = waiting.due_at
    if not waiting.tries:
        is_postponed = new.postpone_after is not None and due_at > new.postpone_after
        due_at = (max if is_postponed else min)(due_at, new.due_at or at)
    after = replace(
        waiting,
        scope=_common_scope(waiting.scope, scope),
        priority=max(waiting.priority, new.priority),
        payload=_merge_payloads(new.kind, waiting.payload, new.payload),
        due_at=due_at,
    )
    return waiting if after == waiting else replace(after, updated_at=at)


def _merge_payloads(kind: JobKind, waiting: JobPayload | None, new: JobPayload | None) -> JobPayload | None:
    return parse_payload(kind, payload_to_dict(waiting) | payload_to_dict(new))


def _common_scope(one: Scope, other: Scope) -> Scope:
    """Return the narrowest scope that contains two scopes of a user."""
    if one == other:
        return one
    if one.project != other.project:
        return Scope(one.user)
    return Scope(one.user, one.project, one.session if one.session == other.session else "")


def truncate_error(error: str) -> str:
    """Return the beginning of an error, as far as databases can store it."""
    return repair_text(error[:MAX_ERROR_CHARS])
