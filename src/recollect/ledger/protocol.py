"""What a ledger promises of API keys: who holds one, and what it opens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from recollect.ledger.idempotency import IdempotencyStore
from recollect.ledger.index_feed import IndexFeed, IndexRow, Revision
from recollect.ledger.jobs import JobStore
from recollect.ledger.model_states import ModelStateStore
from recollect.ledger.responses import ResponseStore
from recollect.ledger.tombstones import TombstoneStore
from recollect.model.change import Applied, Author, Change, Effect, HistoryEntry, IdempotencyToken
from recollect.model.erasure import Erasure, ErasureRequest, Receipt, StoreErasure
from recollect.model.job import Appended, NewJob
from recollect.model.key import ApiKey
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status
from recollect.model.query import Filter, Listing
from recollect.model.result import Page
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Turn
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from recollect.ledger.backup_file import Backup
    from recollect.model.change import Vector


class ApiKeyStore(Protocol):
    """The part of a ledger that keeps keys; of their text it knows the hash alone. They go with their user."""

    async def add_key(self, key: ApiKey) -> None:
        """Keep a key."""
        ...

    async def keys(self, user: str | None = None) -> list[ApiKey]:
        """All keys ever made, or those of one user, the oldest first; revoked and expired ones are among them."""
        ...

    async def find_key(self, hash: bytes) -> ApiKey:
        """The key of a hash, whether it still holds or not; NotFound if there is none."""
        ...

    async def has_keys(self) -> bool:
        """Whether any key was ever made and is still told of; cheap."""
        ...

    async def revoke_key(self, id: str, *, at: datetime) -> ApiKey:
        """Have a key open nothing from now on; one that was revoked before stays as it is. NotFound if unknown."""
        ...

    async def record_key_use(self, used: Mapping[str, datetime]) -> None:
        """Note when keys were last used; ids that are gone are left out, and no time goes back."""
        ...


__all__ = [
    "Derived",
    "IndexRow",
    "Ledger",
    "LexicalMatches",
    "NumberedRecord",
    "Revision",
    "ScoredRows",
    "Unembedded",
]


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Rows with a score each, from 0 to 1; whoever gives them says in which order."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class NumberedRecord:
    """A memory with its row, as reads for ranking give it."""

    row: int
    record: MemoryRecord


class Derived(NamedTuple):
    """How a memory stands that was derived from a turn, without its text.

    A tuple, because a search makes dozens of them and a frozen dataclass takes five times as long to make.
    """

    id: str
    row: int
    status: Status
    type: MemoryType
    category: Category
    valid_to: datetime | None = None
    superseded_by: str | None = None


@dataclass(frozen=True, slots=True)
class LexicalMatches:
    """What was said of a question's terms: rows that share one, rising, with a score and a share of the terms each.

    A score of 1 would mean all terms, said over and over; a coverage of 1 means all terms, said at all. Rare
    terms count for more in both. `missing` are the terms nobody ever said, `missed` is their share.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    coverage: NDArray[np.float32]
    missing: frozenset[str] = frozenset()
    missing_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Unembedded:
    """A memory that has no vector of the model asked for."""

    row: int
    user: str
    content: str
    version: int
    speaker: str = ""


class Ledger(
    JobStore, ResponseStore, IdempotencyStore, ApiKeyStore, IndexFeed, ModelStateStore, TombstoneStore, Protocol
):
    """Keeps memories, turns and their history, jobs, responses and keys; what it acknowledged is on disk.

    `on_change` is called with the user once something of theirs has changed.
    """

    on_change: Callable[[str], None]

    # Writing ---------------------------------------------------------------------------------------

    async def apply(
        self,
        scope: Scope,
        changes: Sequence[Change],
        *,
        by: Author,
        once: IdempotencyToken | None = None,
        effects: Sequence[Effect] = (),
        since: Revision | None = None,
    ) -> Applied:
        """Make all of the changes with their history, and all of the effects, or none.

        With the revision at which began whoever worked out the changes, they are refused with a Conflict if anything
        of the user was erased since: it could come back with them.
        """
        ...

    async def undo(self, scope: Scope, entry_id: int, *, by: Author, whole: bool = False) -> Applied:
        """Take back what one line of history did, or the `whole` batch it was part of."""
        ...

    async def append(
        self,
        scope: Scope,
        turns: Sequence[Turn],
        *,
        vectors: Sequence[Vector | None],
        by: Author,
        jobs: Sequence[NewJob] = (),
        received_at: datetime | None = None,
    ) -> Appended:
        """Add to a session's log, in order, and jobs to be done; gives the turns with positions, and the jobs.

        With the time at which they were first given, the same turns can be appended again: those whose ids are there
        stay as they are and are given back, and those that an erasure since then reached are left out. Where none is
        left nothing is written, no jobs either. Without it, an id that is there already is a Conflict.
        """
        ...

    async def touch(self, scope: Scope, ids: Sequence[str], *, at: datetime) -> None:
        """Count an access of each memory; no history, no new version."""
        ...

    # Reading ---------------------------------------------------------------------------------------

    async def get(self, scope: Scope, ids: Sequence[str]) -> list[MemoryRecord]:
        """The user's memories of these ids, in their order; ids that are not theirs are left out."""
        ...

    async def find(self, scope: Scope, listing: Listing) -> Page:
        """Some of the memories in the scope, in order of the time they were made, and where to go on."""
        ...

    async def count(self, scope: Scope, listing: Listing) -> int:
        """How many memories the listing has in all; limit and cursor do not matter."""
        ...

    async def history(
        self,
        scope: Scope,
        *,
        memory_id: str | None = None,
        limit: int = 100,
        before: int | None = None,
        after: int | None = None,
    ) -> list[HistoryEntry]:
        """What happened to one memory, or to all of the scope's, newest first; since the line `after`, oldest first.

        A line that comes later has a higher number, so whoever asks again from the last one misses none.
        """
        ...

    async def changes_since(self, user: str, since: datetime) -> list[HistoryEntry]:
        """The lines since a moment of all memories of the user that were changed since, the oldest first.

        Those that were only added are left out.
        """
        ...

    async def entry(self, scope: Scope, entry_id: int) -> HistoryEntry:
        """One line of history."""
        ...

    async def conversation(self, scope: Scope) -> Conversation:
        """The state of the scope's session."""
        ...

    async def turns(self, scope: Scope, *, after: int = 0, limit: int = 100) -> list[Turn]:
        """What was said in the scope's session, in order, after a position."""
        ...

    async def users(self) -> list[str]:
        """Everyone who has ever written, in order."""
        ...

    # Finding ---------------------------------------------------------------------------------------

    async def lexical(self, scope: Scope, text: str) -> LexicalMatches:
        """Every row of the user that shares a term with the text."""
        ...

    async def fetch(
        self, scope: Scope, rows: Sequence[int], *, filter: Filter, as_of: datetime | None = None
    ) -> list[NumberedRecord]:
        """The memories of those rows that the scope can see, are active (or held `as_of`) and pass the filter."""
        ...

    async def matching(self, scope: Scope, filter: Filter, *, as_of: datetime | None = None) -> Sequence[int]:
        """Every row the scope can see that is active (or held `as_of`) and passes the filter."""
        ...

    async def keyed_facts(
        self, scope: Scope, filter: Filter, *, min_importance: float, limit: int, as_of: datetime | None = None
    ) -> list[MemoryRecord]:
        """The facts with a key that recall may see: active (or held `as_of`), passing the filter, mattering so much.

        The most important come first, the oldest first among equals; what has expired is left out.
        """
        ...

    async def find_conflicting(self, scope: Scope, records: Sequence[MemoryRecord]) -> list[MemoryRecord]:
        """The active memories of the user that say what one of these does in its place, or hold its key there."""
        ...

    async def derived(self, scope: Scope, turn_ids: Sequence[str]) -> Mapping[str, Sequence[Derived]]:
        """The user's memories that name each of these turns as evidence: active or superseded, the oldest row first.

        A turn from which nothing was derived is left out.
        """
        ...

    async def succession(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, tuple[NumberedRecord, ...]]:
        """Each of the user's memories of these ids, followed by those that superseded it, one after the other.

        The last one may be of any status. Ids that are not the user's are left out.
        """
        ...

    # For indexes -----------------------------------------------------------------------------------

    async def revision(self, user: str) -> Revision:
        """The user's current revision; cheap, asked before every search."""
        ...

    async def index_rows(
        self, user: str, *, model: EmbeddingModel, after: int, vectors: bool = True
    ) -> tuple[Revision, list[IndexRow]]:
        """What changed since a revision, and the revision that is, read at one moment.

        Without `vectors` none is read: where there is one, no bytes stand for it.
        """
        ...

    async def unembedded(
        self,
        model: EmbeddingModel,
        *,
        limit: int,
        after: int = 0,
        user: str | None = None,
        rows: Sequence[int] | None = None,
    ) -> list[Unembedded]:
        """Return memories without a vector of this model, in order of their rows: a user's, everybody's, or `rows`."""
        ...

    async def store_token_vectors(
        self, model: EmbeddingModel, vectors: Mapping[int, bytes], *, user: str, versions: Mapping[int, int]
    ) -> None:
        """Store packed token vectors for rows of one user that are still at these versions."""
        ...

    async def embed(
        self,
        model: EmbeddingModel,
        vectors: Mapping[int, Vector],
        *,
        user: str,
        versions: Mapping[int, int] | None = None,
    ) -> None:
        """Keep vectors for rows of one user; with `versions`, only for memories that are still at those."""
        ...

    async def vectors(self, user: str, ids: Sequence[str], *, model: EmbeddingModel) -> dict[str, bytes]:
        """The vectors of a user's memories by their ids, as they are kept; what has none of the model is left out."""
        ...

    async def models(self) -> dict[EmbeddingModel, int]:
        """Which models there are vectors of, and how many."""
        ...

    async def drop_model(self, model: EmbeddingModel) -> None:
        """Remove all vectors of a model, those of a few users at a time."""
        ...

    # Erasing ---------------------------------------------------------------------------------------

    async def erase(self, scope: Scope, request: ErasureRequest, *, by: Author) -> Receipt:
        """Remove it for good with all that was derived from it, by the rules of `recollect.model.erasure`.

        No job that runs for the user at that moment has any effect: what it was to do is done again, from what is
        left.
        """
        ...

    async def purge(self, before: datetime) -> StoreErasure:
        """Remove for good what was forgotten before a time, with the versions it had superseded.

        Nothing goes with it but what is its own: what was derived from it stays. It keeps nobody waiting, so
        the store is not written anew: copies that rows left where they once stood can stay until an erasure does it.
        """
        ...

    async def finish_erasures(self) -> StoreErasure:
        """Try again what an erasure of the last days could not reach at its time; can keep writers waiting."""
        ...

    async def erasures(self, since: datetime | None = None) -> list[Erasure]:
        """What was erased since a time or ever, oldest first; kept elsewhere, it is replayed on an older backup."""
        ...

    async def replay_erasures(self, erasures: Sequence[Erasure], *, by: Author) -> list[Receipt]:
        """Do those erasures again that this store does not know of; gives a receipt for each user it has."""
        ...

    # Upkeep ----------------------------------------------------------------------------------------

    async def stats(self, user: str | None = None) -> Mapping[str, int]:
        """Counts: memories by status, turns, conversations, history, bytes."""
        ...

    async def check(self) -> list[str]:
        """What is wrong with the store, a sentence each; nothing wrong is an empty list."""
        ...

    async def security_warnings(self) -> list[str]:
        """What makes the store less safe than it could be, a sentence each; nothing of it is damage."""
        ...

    async def rebuild_terms(self, progress: Callable[[int], None] = ...) -> None:
        """Make the full text anew from the memories; `progress` is told how many rows are done."""
        ...

    async def backup(self, path: Path, on_progress: Callable[[int, int], None]) -> Backup:
        """Copy all there is at this moment into a new, sealed file; nobody who writes waits for it."""
        ...

    async def restore_backup(self, path: Path, on_progress: Callable[[int, int], None]) -> None:
        """Take in all that a backup holds; only an empty ledger takes it."""
        ...

    async def close(self) -> None:
        """Finish what is under way and let go of everything."""
        ...
