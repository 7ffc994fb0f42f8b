"""Values that the ledger takes and returns, besides those of `recollect.model`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.job import Job, JobKind, MaintenancePayload, NewJob
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status
from recollect.model.times import now
from recollect.models.embedding import EmbeddingModel
from recollect.text.names import MentionKind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@frozen_dataclass
class ScoredRows:
    """Rows with a score from 0 to 1 each; their order is up to the function that returns them."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]


@frozen_dataclass
class NumberedRecord:
    """A memory with its row number, as reads for ranking return it."""

    row: int
    record: MemoryRecord


class Derived(NamedTuple):
    """A memory that was derived from a turn, without its text.

    A tuple, because a search makes dozens of them and a frozen dataclass takes five times as long to create.
    """

    id: str
    row: int
    status: Status
    type: MemoryType
    category: Category
    valid_to: datetime | None = None
    superseded_by: str | None = None


class MentionRow(NamedTuple):
    """A name that the memory of a row mentions."""

    name: str
    kind: MentionKind
    row: int


@frozen_dataclass
class LexicalMatches:
    """The rows that share a term with a query, ascending, with a score and a coverage each.

    A score of 1 would mean all terms, repeated many times; a coverage of 1 means that all terms occur. Rare terms
    weigh more in both. `missing` are the terms that occur nowhere, `missing_share` is their share of the weight.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    coverage: NDArray[np.float32]
    missing: frozenset[str] = frozenset()
    missing_share: float = 0.0


@frozen_dataclass
class Unembedded:
    """A memory without a vector of the requested model."""

    row: int
    user: str
    content: str
    version: int
    speaker: str = ""


@frozen_dataclass
class KeyClaim:
    """The state of an idempotency key: owned by this caller, owned by another one, or answered already.

    `epoch` is that of the user when the key was claimed.
    """

    is_owner: bool = False
    answer: Mapping[str, Any] | None = None
    epoch: int = 0


@frozen_dataclass
class IndexRow:
    """A memory as an index holds it, with its vector if it has one.

    `traits` are those of `recollect.models.traits`. Times are in microseconds: when it occurred, and the bounds of
    its validity, if any.
    """

    row: int
    visibility_key: str
    status: str
    session: str
    speaker: str
    traits: int
    at: int
    begins: int | None
    ends: int | None
    vector: bytes | None


@frozen_dataclass
class Revision:
    """The number of changes of a user's memories; `epoch` is incremented when rows are erased."""

    number: int = 0
    epoch: int = 0


@frozen_dataclass
class ChangedRow:
    """A row in its current state, and the revision that last changed it."""

    revision: int
    row: IndexRow


@frozen_dataclass
class FeedPosition:
    """The revision up to which an index was fed with a user's rows, and when; times are in microseconds.

    Searches of the index may see changes late. `waiting` is a revision it was fed at `waiting_at`, and `settled` one
    that every search sees; under continuous writes these two lag behind `revision`.
    """

    revision: Revision = Revision()
    noted_at: int = 0
    waiting: int = 0
    waiting_at: int = 0
    settled: int = 0

    def visible_revision(self, settles_s: float, *, at: int) -> int:
        """Return the last revision of which a search sees everything, if changes are visible after `settles_s`."""
        before = at - int(settles_s * 1e6)
        if self.noted_at <= before:
            return self.revision.number
        return self.waiting if self.waiting_at <= before else self.settled

    def advanced_to(self, revision: Revision, settles_s: float, *, at: int) -> FeedPosition:
        """Return the position after feeding up to this revision."""
        if revision.number < self.revision.number:
            return FeedPosition(revision, at, 0, at, 0)
        if self.waiting_at > at - int(settles_s * 1e6):
            return FeedPosition(revision, at, self.waiting, self.waiting_at, self.settled)
        return FeedPosition(revision, at, revision.number, at, self.visible_revision(settles_s, at=at))


@frozen_dataclass
class IndexLag:
    """A user whose rows are not all in an index: the revisions of the ledger and of the index."""

    user: str
    current: Revision
    indexed: Revision


# The author of what maintenance writes, which does not count as activity of the user.
MAINTENANCE_AUTHOR = "upkeep"
MAINTENANCE_KINDS = frozenset({JobKind.UPKEEP, JobKind.CONSOLIDATE, JobKind.REFLECT})
# Failures longer ago than this do not count as in a row with later ones.
FAILURE_WINDOW = timedelta(minutes=10)


def maintenance_task_name(job: Job | NewJob) -> str | None:
    """Return the name of the maintenance task that a job does, if it does one."""
    if job.kind not in MAINTENANCE_KINDS:
        return None
    return job.payload.chore if isinstance(job.payload, MaintenancePayload) else str(job.kind)


@frozen_dataclass
class TaskRun:
    """When a task was last queued, and when its last successful run started."""

    queued_at: datetime
    started_at: datetime | None = None


@frozen_dataclass(kw_only=True)
class MaintenanceState:
    """What the scheduler needs to know of a user: the last activity, the projects, and the tasks so far.

    Activity is whatever was written by anyone but maintenance. Tasks are keyed by project and name.
    """

    user: str
    last_active_at: datetime | None = None
    projects: tuple[str, ...] = ()
    tasks: Mapping[tuple[str, str], TaskRun] = field(default_factory=dict)


@frozen_dataclass
class ModelOrigin:
    """How the settings name a model, so that it can be opened again; never with a key.

    Without a spec it was passed as an object, and only the caller can open it.
    """

    spec: str = ""
    url: str = ""
    dimensions: int = 0


class AccessRow(NamedTuple):
    """A row of the audit log: the minute since 1970, the caller's name, the digest of the user, and the route."""

    minute: int
    who: str
    user_digest: str
    route: str


@frozen_dataclass(kw_only=True)
class ModelState:
    """A model known to the ledger; the one that `is_current` is searched.

    `embedded` of `to_embed` memories have a vector of it, as last reported. `retired_at` is when another model
    replaced it.
    """

    model: EmbeddingModel
    origin: ModelOrigin = field(default_factory=ModelOrigin)
    is_current: bool = False
    current_at: datetime | None = None
    retired_at: datetime | None = None
    embedded: int = 0
    to_embed: int = 0
    lease_expires_at: datetime | None = None

    @property
    def is_leased(self) -> bool:
        """Whether a process is computing its vectors."""
        return self.lease_expires_at is not None and self.lease_expires_at > now()

    @property
    def is_pending(self) -> bool:
        """Whether its vectors are being computed so that it can replace the current model."""
        return self.is_leased and not self.is_current and self.retired_at is None

    @property
    def phase(self) -> Literal["current", "pending", "retired", "idle"]:
        """Whether it is searched, becomes so, was so, or is only known."""
        if self.is_current:
            return "current"
        return "retired" if self.retired_at is not None else "pending" if self.is_leased else "idle"


@frozen_dataclass
class EmbeddingProgress:
    """How many memories have a vector of a model, of how many in all."""

    done: int
    total: int


def current_model_state(states: Iterable[ModelState]) -> ModelState | None:
    """Return the model that is searched; None in a ledger that was never searched."""
    return next((state for state in states if state.is_current), None)


def find_model_state(states: Iterable[ModelState], model: EmbeddingModel) -> ModelState | None:
    """Return the state of a model."""
    return next((state for state in states if state.model == model), None)
