"""What a ledger promises: the methods of `Ledger`, and the values they take and return."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from recollect.ledger.index_feed import IndexFeed, IndexRow, Revision
from recollect.ledger.jobs import JobStore
from recollect.ledger.model_states import ModelStateStore
from recollect.model.change import Applied, Author, Change, Effect, HistoryEntry, IdempotencyToken
from recollect.model.erasure import Erasure, ErasureRequest, Receipt, StoreErasure, TombstoneSet
from recollect.model.job import Appended, NewJob
from recollect.model.key import ApiKey
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status
from recollect.model.query import Filter, Listing
from recollect.model.response import Plain, StoredResponse, Thread, ThreadItems
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


__all__ = [
    "ApiKeyStore",
    "Derived",
    "IdempotencyStore",
    "IndexRow",
    "KeyClaim",
    "Ledger",
    "LexicalMatches",
    "NumberedRecord",
    "ResponseStore",
    "Revision",
    "ScoredRows",
    "TombstoneStore",
    "Unembedded",
]


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Rows with a score from 0 to 1 each; their order is up to the function that returns them."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Unembedded:
    """A memory without a vector of the requested model."""

    row: int
    user: str
    content: str
    version: int
    speaker: str = ""


@dataclass(frozen=True, slots=True)
class KeyClaim:
    """The state of an idempotency key: owned by this caller, owned by another one, or answered already.

    `epoch` is that of the user when the key was claimed.
    """

    is_owner: bool = False
    answer: Mapping[str, Any] | None = None
    epoch: int = 0


class ApiKeyStore(Protocol):
    """API keys. Only the hash of a key's text is stored, and a user's keys are erased with the user."""

    async def add_key(self, key: ApiKey) -> None: ...

    async def keys(self, user: str | None = None) -> list[ApiKey]:
        """Return all keys ever made, or those of one user, oldest first, revoked and expired ones included."""
        ...

    async def find_key(self, hash: bytes) -> ApiKey:
        """Return the key of a hash, whether it is still valid or not; raise NotFound if there is none."""
        ...

    async def has_keys(self) -> bool:
        """Return whether any key exists; cheap."""
        ...

    async def revoke_key(self, id: str, *, at: datetime) -> ApiKey:
        """Revoke a key; one that is revoked already stays as it is. Raise NotFound if it is unknown."""
        ...

    async def record_key_use(self, used: Mapping[str, datetime]) -> None:
        """Record when keys were last used; unknown ids are ignored, and no time moves back."""
        ...


class IdempotencyStore(Protocol):
    """Idempotency keys of requests: one effect, and the same answer to every repetition.

    A key is owned while its request runs, in whatever process, and then holds the answer. Answers are erased with
    what they mention, and expire.
    """

    async def claim_key(self, user: str, once: IdempotencyToken, *, stale_before: datetime | None = None) -> KeyClaim:
        """Claim the key if it is free, or if it was claimed before that time and never answered.

        Raise IdempotencyReuse if it was used for a different request.
        """
        ...

    async def store_answer(
        self, user: str, once: IdempotencyToken, answer: Mapping[str, Any], *, since: int | None = None
    ) -> None:
        """Store the answer of a request; nothing is stored if anything was erased since the epoch `since`."""
        ...

    async def release_key(self, user: str, once: IdempotencyToken) -> None:
        """Free the key of a request that failed; one that has its answer stays."""
        ...


class ResponseStore(Protocol):
    """OpenAI's Responses and Conversations. Ids of other users, and expired ones, raise NotFound."""

    async def save_response(
        self, scope: Scope, response: StoredResponse, *, items: ThreadItems | None = None, started_at: datetime
    ) -> None:
        """Store a response, replacing one of its id, and add items to a thread: both or neither.

        Raise Conflict if anything of the user was erased since the response was begun, at its epoch.
        """
        ...

    async def response(self, scope: Scope, id: str) -> StoredResponse: ...

    async def response_chain(self, scope: Scope, id: str) -> list[StoredResponse]:
        """Return a response and all it continues, the first one first; those may have expired."""
        ...

    async def drop_response(self, scope: Scope, id: str) -> None:
        """Remove a response; what continued it then continues its predecessor."""
        ...

    async def save_thread(self, scope: Scope, thread: Thread) -> None: ...

    async def thread(self, scope: Scope, id: str) -> Thread: ...

    async def drop_thread(self, scope: Scope, id: str) -> None:
        """Remove a thread with its items."""
        ...

    async def add_items(self, scope: Scope, items: ThreadItems) -> None:
        """Add items to the end of a thread; raise Conflict if an id exists in it."""
        ...

    async def thread_items(
        self, scope: Scope, thread_id: str, *, after: str = "", newest_first: bool = False, limit: int | None = None
    ) -> list[Plain]:
        """Return the items of a thread in order, from the one after the item `after` on."""
        ...

    async def thread_item(self, scope: Scope, thread_id: str, id: str) -> Plain: ...

    async def drop_item(self, scope: Scope, thread_id: str, id: str) -> None: ...

    async def prune_responses(self, before: datetime) -> int:
        """Remove responses and threads that expired before a time, chains as a whole; return how many."""
        ...


class TombstoneStore(Protocol):
    """Recognises turns that were forgotten or erased."""

    async def tombstoned(self, user: str, messages: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """Return the messages, as (role, text), that match a forgotten or erased turn of the user."""
        ...

    async def has_tombstones(self, user: str) -> bool:
        """Return whether any turn of the user was ever forgotten or erased; cheap, called with every chat."""
        ...

    async def tombstones(self, user: str) -> TombstoneSet:
        """Return all tombstones of the user with their keys, to be put into another ledger."""
        ...

    async def put_tombstones(self, user: str, incoming: TombstoneSet) -> None:
        """Add tombstones of another ledger, to be recognised by its keys."""
        ...


class Ledger(
    JobStore, ResponseStore, IdempotencyStore, ApiKeyStore, IndexFeed, ModelStateStore, TombstoneStore, Protocol
):
    """Stores memories, turns and their history, jobs, responses and keys. Acknowledged writes are on disk.

    `on_change` is called with the user after something of theirs has changed.
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

        With `since`, the revision from which the changes were derived, raise Conflict if anything of the user was
        erased after it: the changes could bring it back.
        """
        ...

    async def undo(self, scope: Scope, entry_id: int, *, by: Author, whole: bool = False) -> Applied:
        """Undo one history entry, or the `whole` batch it is part of."""
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
        """Append turns to a session, in order, and enqueue jobs; return the turns with positions, and the jobs.

        With `received_at`, the time of the first attempt, appending is idempotent: turns whose ids exist are returned
        as they are, and those that an erasure reached since then are left out. If none is left nothing is written,
        no jobs either. Without it, an existing id raises Conflict.
        """
        ...

    async def touch(self, scope: Scope, ids: Sequence[str], *, at: datetime) -> None:
        """Count an access of each memory, without history or a new version."""
        ...

    # Reading ---------------------------------------------------------------------------------------

    async def get(self, scope: Scope, ids: Sequence[str]) -> list[MemoryRecord]:
        """Return the user's memories of these ids, in their order; other ids are left out."""
        ...

    async def find(self, scope: Scope, listing: Listing) -> Page:
        """Return a page of the memories in the scope, in order of their creation."""
        ...

    async def count(self, scope: Scope, listing: Listing) -> int:
        """Return how many memories the listing has in all, whatever its limit and cursor."""
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
        """Return the history of one memory, or of the scope, newest first; with `after`, later entries oldest first.

        Later entries have higher ids, so polling from the last one misses none.
        """
        ...

    async def changes_since(self, user: str, since: datetime) -> list[HistoryEntry]:
        """Return the entries after a time, oldest first, of memories that were not only added since."""
        ...

    async def entry(self, scope: Scope, entry_id: int) -> HistoryEntry:
        """Return one history entry."""
        ...

    async def conversation(self, scope: Scope) -> Conversation:
        """Return the state of the scope's session."""
        ...

    async def turns(self, scope: Scope, *, after: int = 0, limit: int = 100) -> list[Turn]:
        """Return the turns of the scope's session after a position, in order."""
        ...

    async def users(self) -> list[str]:
        """Return all users who have ever written, in order."""
        ...

    # Searching -------------------------------------------------------------------------------------

    async def lexical(self, scope: Scope, text: str) -> LexicalMatches:
        """Return every row of the user that shares a term with the text."""
        ...

    async def fetch(
        self, scope: Scope, rows: Sequence[int], *, filter: Filter, as_of: datetime | None = None
    ) -> list[NumberedRecord]:
        """Return the memories of the rows that the scope can see, are valid (now or `as_of`) and pass the filter."""
        ...

    async def matching(self, scope: Scope, filter: Filter, *, as_of: datetime | None = None) -> Sequence[int]:
        """Return every row that the scope can see, is valid (now or `as_of`) and passes the filter."""
        ...

    async def keyed_facts(
        self, scope: Scope, filter: Filter, *, min_importance: float, limit: int, as_of: datetime | None = None
    ) -> list[MemoryRecord]:
        """Return the visible, valid facts with a key that pass the filter, most important first, then oldest."""
        ...

    async def find_conflicting(self, scope: Scope, records: Sequence[MemoryRecord]) -> list[MemoryRecord]:
        """Return the user's active memories with the same text or the same key in the same place as a record."""
        ...

    async def derived(self, scope: Scope, turn_ids: Sequence[str]) -> Mapping[str, Sequence[Derived]]:
        """Return, for each turn that has any, the active or superseded memories it is evidence of, oldest first."""
        ...

    async def succession(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, tuple[NumberedRecord, ...]]:
        """Return each of the user's memories of these ids, followed by its chain of successors.

        The last one may be of any status.
        """
        ...

    # For indexes -----------------------------------------------------------------------------------

    async def revision(self, user: str) -> Revision:
        """Return the user's current revision; cheap, called before every search."""
        ...

    async def index_rows(
        self, user: str, *, model: EmbeddingModel, after: int, vectors: bool = True
    ) -> tuple[Revision, list[IndexRow]]:
        """Return the current revision and the rows that changed since `after`, from one consistent view.

        Without `vectors`, empty bytes stand for each vector.
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
        """Return memories without a vector of this model in order of their rows: of a user, of all, or of `rows`."""
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
        """Store vectors for rows of a user; with `versions`, only for memories still at that version."""
        ...

    async def vectors(self, user: str, ids: Sequence[str], *, model: EmbeddingModel) -> dict[str, bytes]:
        """Return the packed vectors of a user's memories by id; those without one are left out."""
        ...

    async def models(self) -> dict[EmbeddingModel, int]:
        """Return the number of vectors of each model."""
        ...

    async def drop_model(self, model: EmbeddingModel) -> None:
        """Remove all vectors of a model, those of a few users at a time."""
        ...

    # Erasing ---------------------------------------------------------------------------------------

    async def erase(self, scope: Scope, request: ErasureRequest, *, by: Author) -> Receipt:
        """Erase it with all that was derived from it, by the rules of `recollect.model.erasure`.

        A job that runs for the user at that moment has no effect; it runs again on what is left.
        """
        ...

    async def purge(self, before: datetime) -> StoreErasure:
        """Erase what was forgotten before a time, with the versions it had superseded; derived memories stay.

        It blocks nobody, so the store is not rewritten: stale copies of rows can stay until an erasure removes them.
        """
        ...

    async def finish_erasures(self) -> StoreErasure:
        """Retry what erasures of the last days could not reach; can block writers."""
        ...

    async def erasures(self, since: datetime | None = None) -> list[Erasure]:
        """Return the erasures since a time or ever, oldest first, to be replayed on an older backup."""
        ...

    async def replay_erasures(self, erasures: Sequence[Erasure], *, by: Author) -> list[Receipt]:
        """Repeat the erasures that this store has no record of; return a receipt for each user it has."""
        ...

    # Maintenance -----------------------------------------------------------------------------------

    async def stats(self, user: str | None = None) -> Mapping[str, int]:
        """Return counts: memories by status, turns, conversations, history, bytes."""
        ...

    async def check(self) -> list[str]:
        """Return what is damaged in the store, a sentence each."""
        ...

    async def security_warnings(self) -> list[str]:
        """Return what makes the store less safe than it could be, a sentence each."""
        ...

    async def rebuild_terms(self, progress: Callable[[int], None] = ...) -> None:
        """Rebuild the full text from the memories; `progress` receives the number of rows done."""
        ...

    async def backup(self, path: Path, on_progress: Callable[[int, int], None]) -> Backup:
        """Copy a consistent view of everything into a new, sealed file without blocking writers."""
        ...

    async def restore_backup(self, path: Path, on_progress: Callable[[int, int], None]) -> None:
        """Restore a backup into an empty ledger."""
        ...

    async def close(self) -> None:
        """Finish pending writes and release all resources."""
        ...
