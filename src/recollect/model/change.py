"""The changes that can be made to a memory, their effects, and the history they leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias

from recollect.errors import InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.job import NewJob, as_json
from recollect.model.memory import MemoryRecord
from recollect.model.plain import plain_fields
from recollect.model.scope import Scope

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# In quotes, so that numpy is not loaded.
Vector: TypeAlias = "NDArray[np.float32]"


class ChangeKind(StrEnum):
    """The kind of a change in history."""

    ADD = "add"
    UPDATE = "update"
    SUPERSEDE = "supersede"
    FORGET = "forget"
    RESTORE = "restore"
    UNDO = "undo"


@frozen_dataclass
class Add:
    """Add a memory; a duplicate with the same visibility changes nothing.

    A new value for a key supersedes the old one if it is at least as confident, or a correction. With `first`, raise
    Conflict if there is any such memory.
    """

    record: MemoryRecord
    vector: Vector | None = None
    correction: bool = False
    first: bool = False


@frozen_dataclass
class Update:
    """Set some fields of a memory."""

    id: str
    fields: Mapping[str, Any]
    expected_version: int | None = None
    vector: Vector | None = None


@frozen_dataclass
class Supersede:
    """Replace a memory by a new one; the old one stays in history with its validity."""

    id: str
    record: MemoryRecord
    expected_version: int | None = None
    vector: Vector | None = None


@frozen_dataclass
class Forget:
    """Remove a memory from recall; it can be restored.

    An evicted one makes room for others: nobody asked to forget it, so its text may be stored again.
    """

    id: str
    expected_version: int | None = None
    evicted: bool = False


@frozen_dataclass
class Restore:
    """Make a forgotten or superseded memory active."""

    id: str
    expected_version: int | None = None


Change: TypeAlias = Add | Update | Supersede | Forget | Restore


class Actor(StrEnum):
    """Whether a person or a program acts. The interface determines it, because names can be chosen freely."""

    PERSON = "person"
    AGENT = "agent"


@frozen_dataclass
class Author:
    """The author of a change, with a reason; several writes with the same `batch` are undone as one."""

    who: str
    why: str = ""
    batch: str | None = None
    actor: Actor = Actor.AGENT


@frozen_dataclass
class IdempotencyToken:
    """The idempotency key of a request, and a digest of the request."""

    key: str
    digest: str

    @property
    def key_digest(self) -> str:
        """The key as it is stored: clients may put anything into it."""
        return blake2b(self.key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@frozen_dataclass(kw_only=True)
class HistoryEntry:
    """One change of a memory: its kind, author, time and reason, and the changed values before and after."""

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
        """Return plain values for JSON."""
        by = {"who": self.by.who, "why": self.by.why, "actor": str(self.by.actor)}
        return {**plain_fields(self, omit=("by",)), **by}


@frozen_dataclass
class Outcome:
    """The result of one change: the memory as it is now, whether anything changed, and redacted secrets."""

    verb: ChangeKind
    record: MemoryRecord
    changed: bool = True
    redacted: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def memory(self) -> str:
        """The text of the memory."""
        return self.record.content

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: those of the memory, and the kind of change."""
        return {
            **self.record.to_dict(),
            "event": str(self.verb) if self.changed else "none",
            "redacted": list(self.redacted),
        }


@frozen_dataclass
class Applied:
    """The results of a batch of changes, in order; `replayed` if an idempotency key had applied it before."""

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


@frozen_dataclass
class FinishJob:
    """Mark the job as done; raise Conflict if it was cancelled, or if its lease went to another worker."""

    job_id: str
    lease: str
    result: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        as_json(self.result or {}, name="the result of a job")


@frozen_dataclass
class ConversationUpdate:
    """Set some fields of a conversation; raise Conflict if it is not at the expected version.

    New turns change the version, too. The holder of the only job that may change these fields passes no version.
    """

    scope: Scope
    fields: Mapping[str, Any]
    expected_version: int | None = None

    def __post_init__(self) -> None:
        if wrong := set(self.fields) - set(UPDATABLE_FIELDS):
            raise InvalidInput(
                f"unknown fields of a conversation: {', '.join(sorted(wrong))}; "
                f"the fields are {', '.join(sorted(UPDATABLE_FIELDS))}"
            )
        for name, value in self.fields.items():
            if not isinstance(value, UPDATABLE_FIELDS[name]):
                raise InvalidInput(f"`{name}` of a conversation cannot be {value!r}")
        if not 0 <= self.fields.get("learned_to", 0) < 1 << 63:
            raise InvalidInput(f"`learned_to` must be a position in a conversation, got {self.fields['learned_to']}")
        plain = {name: value for name, value in self.fields.items() if name != "closed_at"}
        as_json(plain, name="the state of a conversation")


@frozen_dataclass
class EnqueueJob:
    """Enqueue another job."""

    scope: Scope
    job: NewJob


@frozen_dataclass(kw_only=True)
class ModelUsage:
    """LLM usage for a user: by which step, how many calls, how many tokens."""

    user: str
    step: str
    model: str
    calls: int = 1
    tokens_in: int = 0
    tokens_out: int = 0
    at: datetime


Effect: TypeAlias = FinishJob | ConversationUpdate | EnqueueJob | ModelUsage


def check_effects(scope: Scope, effects: Sequence[Effect]) -> None:
    """Raise InvalidInput if an effect is of another user than the scope."""
    for effect in effects:
        match effect:
            case ConversationUpdate(scope=Scope(user=user)) | EnqueueJob(scope=Scope(user=user)):
                pass
            case ModelUsage(user=user):
                pass
            case _:
                continue
        if user != scope.user:
            raise InvalidInput(f"{type(effect).__name__} is of another user than the scope")
