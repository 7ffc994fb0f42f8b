"""The closed set of things that can happen to a memory, and the record of what did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias

from recollect.errors import InvalidInput
from recollect.model.job import NewJob, as_json
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector: TypeAlias = NDArray[np.float32]


class ChangeKind(StrEnum):
    """What was done, as history tells it."""

    ADD = "add"
    UPDATE = "update"
    SUPERSEDE = "supersede"
    FORGET = "forget"
    RESTORE = "restore"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class Add:
    """Keep a new memory; one that is already there (same place, same words) stays as it is.

    One that brings a new value for a key supersedes the old if it is at least as confident, or a correction. One that
    must be the `first` is refused with a Conflict if there is any such memory.
    """

    record: MemoryRecord
    vector: Vector | None = None
    correction: bool = False
    first: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """Give some fields of a memory new values."""

    id: str
    fields: Mapping[str, Any]
    expected_version: int | None = None
    vector: Vector | None = None


@dataclass(frozen=True, slots=True)
class Supersede:
    """Put a new memory in the place of an old one, which stays in history with its validity."""

    id: str
    record: MemoryRecord
    expected_version: int | None = None
    vector: Vector | None = None


@dataclass(frozen=True, slots=True)
class Forget:
    """Take a memory out of recall; it can be restored."""

    id: str
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class Restore:
    """Make a forgotten or superseded memory active again."""

    id: str
    expected_version: int | None = None


Change: TypeAlias = Add | Update | Supersede | Forget | Restore


class Actor(StrEnum):
    """Who acts: a person, or a program that acts by itself; the door says which, since a name can be chosen."""

    PERSON = "person"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Author:
    """Who changes something, and why; a `batch` of their own joins several writes, to be undone as one.

    Unless the door vouches for a person it is taken for an agent.
    """

    who: str
    why: str = ""
    batch: str | None = None
    actor: Actor = Actor.AGENT


@dataclass(frozen=True, slots=True)
class IdempotencyToken:
    """A promise to do this request at most once: its key, and a digest of what it asks for."""

    key: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One line of history: what was done to which memory, by whom, when, why, and what was before."""

    id: int
    batch: str
    memory_id: str
    verb: ChangeKind
    at: datetime
    by: Author
    version: int
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] = field(default_factory=dict)
    undoes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "id": self.id,
            "memory_id": self.memory_id,
            "verb": str(self.verb),
            "at": self.at.isoformat(),
            "who": self.by.who,
            "why": self.by.why,
            "version": self.version,
            "before": None if self.before is None else dict(self.before),
            "after": dict(self.after),
            "undoes": self.undoes,
            "batch": self.batch,
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one change came to: the memory as it now is, whether anything changed, what secrets were kept out."""

    verb: ChangeKind
    record: MemoryRecord
    changed: bool = True
    redacted: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def memory(self) -> str:
        """What the memory says."""
        return self.record.content

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the memory's own, and what happened to it."""
        return {
            **self.record.to_dict(),
            "event": str(self.verb) if self.changed else "none",
            "redacted": list(self.redacted),
        }


@dataclass(frozen=True, slots=True)
class Applied:
    """What a batch of changes came to, in order; `replayed` if an idempotency key had done it before."""

    batch: str
    outcomes: tuple[Outcome, ...]
    replayed: bool = False


UPDATABLE_FIELDS: Mapping[str, tuple[type, ...]] = {
    "learned_to": (int,),
    "summary": (str,),
    "invocations": (list, tuple),
    "closed_at": (datetime, NoneType),
    "metadata": (Mapping,),
}


@dataclass(frozen=True, slots=True)
class FinishJob:
    """The job is done; a Conflict if it was cancelled, or if its lease went to someone else."""

    job_id: str
    lease: str
    result: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        as_json(self.result or {}, name="the result of a job")


@dataclass(frozen=True, slots=True)
class ConversationUpdate:
    """Give some fields of a conversation new values; a Conflict if it is not at the version that was expected.

    Whatever is said moves the version, too. Who need not have read the last turn, and holds the only job that may
    change these fields, expects none.
    """

    scope: Scope
    fields: Mapping[str, Any]
    expected_version: int | None = None

    def __post_init__(self) -> None:
        if wrong := set(self.fields) - set(UPDATABLE_FIELDS):
            raise InvalidInput(
                f"a conversation cannot be given {', '.join(sorted(wrong))}; "
                f"it can: {', '.join(sorted(UPDATABLE_FIELDS))}"
            )
        for name, value in self.fields.items():
            if not isinstance(value, UPDATABLE_FIELDS[name]):
                raise InvalidInput(f"{name} of a conversation cannot be {value!r}")
        if not 0 <= self.fields.get("learned_to", 0) < 1 << 63:
            raise InvalidInput(f"learned_to is a position in a conversation, not {self.fields['learned_to']}")
        plain = {name: value for name, value in self.fields.items() if name != "closed_at"}
        as_json(plain, name="the state of a conversation")


@dataclass(frozen=True, slots=True)
class EnqueueJob:
    """Another job is to be done."""

    scope: Scope
    job: NewJob


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """What was asked of a model for a user: by which step of ours, how often, at how many tokens."""

    user: str
    step: str
    model: str
    calls: int = 1
    tokens_in: int = 0
    tokens_out: int = 0
    at: datetime


Effect: TypeAlias = FinishJob | ConversationUpdate | EnqueueJob | ModelUsage


def owner_of(effect: Effect) -> str | None:
    """The user whom an effect concerns; None if it does not say."""
    match effect:
        case ConversationUpdate(scope=scope) | EnqueueJob(scope=scope):
            return scope.user
        case ModelUsage(user=user):
            return user
    return None


def check_effects(scope: Scope, effects: Sequence[Effect]) -> None:
    """Raise an InvalidInput if an effect concerns another user than the one that is written for."""
    for effect in effects:
        if owner_of(effect) not in (None, scope.user):
            raise InvalidInput(f"{type(effect).__name__} concerns another user than the scope it is written in")
