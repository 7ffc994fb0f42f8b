"""The contract of vector databases that find the nearest of one user's rows, and guarded calls of them.

Their answers are suggestions: rows are looked up among those that the ledger lets the scope see, so that a store that
lags or was tampered with can miss a memory, but never leak one. A store raises IndexUnavailable, and no other error,
while it does not answer, and IndexNotReady while a user is being prepared.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from hashlib import blake2b
from typing import Protocol, TypeVar

from recollect.aio.breaker import Breaker, Permit
from recollect.errors import IndexNotReady, IndexUnavailable, InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.types import ScoredRows
from recollect.model.change import Vector
from recollect.model.erasure import user_digest
from recollect.model.times import now
from recollect.models.embedding import EmbeddingModel
from recollect.observability.metrics import BREAKER_OPEN


@frozen_dataclass
class StoredVector:
    """A memory in a vector database: its row, the hashes of its user and place, and its vector of length 1."""

    row: int
    user: str
    place: str
    vector: Vector


class VectorStore(Protocol):
    """Finds the nearest of a user's rows."""

    @property
    def name(self) -> str:
        """Return the product and address, for logs and receipts."""

    async def nearest(self, user: str, vector: Vector, *, places: Sequence[str], limit: int) -> ScoredRows:
        """Return about the nearest rows of the user in these places, best first, by cosine."""

    async def close(self) -> None: ...


class ExternalVectorStore(VectorStore, Protocol):
    """A store with its own copy of the vectors, to which changes of the ledger are written in batches.

    Writes are idempotent. Users and places are hashes of 32 hexadecimal digits, so that nothing needs quoting and the
    store contains no names.
    """

    @property
    def settles_s(self) -> float:
        """Return for how long a search may miss an acknowledged change."""

    @property
    def residue(self) -> str:
        """Return what stays of deleted rows and for how long, for receipts."""

    async def put(self, rows: Sequence[StoredVector]) -> None:
        """Insert or replace rows of any users."""

    async def drop(self, rows: Sequence[int]) -> None:
        """Delete rows."""

    async def drop_user(self, user: str) -> int:
        """Delete all rows of a user; return how many."""

    async def rows(self, user: str) -> Sequence[int]:
        """Return the rows of a user in ascending order, all acknowledged changes included."""

    async def users(self) -> Sequence[str]:
        """Return the hashes of all users with rows."""

    async def clear(self) -> None:
        """Delete everything."""


# The ledger's records of erasures use the same digest.
hash_user = user_digest


def hash_place(place: str) -> str:
    """Return the hash of a place (a visibility key)."""
    return blake2b(place.encode(), digest_size=16, person=b"recollect-place").hexdigest()


def is_hash(text: str) -> bool:
    """Return whether a text has the form of a hash."""
    return len(text) == 32 and set(text) <= set("0123456789abcdef")


@frozen_dataclass(kw_only=True)
class VectorStoreOptions:
    """The address of a vector database, and the parameters of its HNSW index."""

    address: str
    token: str = ""
    collection: str = "agentic_memory"
    m: int = 16
    ef_construction: int = 256
    ef: int = 64
    timeout_s: float = 10.0

    def collection_names(self, model: EmbeddingModel) -> tuple[str, str]:
        """Return the collections to try for a model: the configured name, then one with the model's digest."""
        return self.collection, f"{self.collection}_{model_digest(model)}"


def model_digest(model: EmbeddingModel) -> str:
    """Return a short digest of a model, for names."""
    return blake2b(str(model).encode(), digest_size=4).hexdigest()


def redact_address(address: str) -> str:
    """Return an address without its login."""
    return address.rpartition("@")[2]


_T = TypeVar("_T")
_THREADS = 8


class ThreadCalls:
    """Runs blocking calls of one client in its own threads; raises IndexUnavailable for the client's errors."""

    def __init__(self, name: str, errors: tuple[type[Exception], ...]) -> None:
        self._name = name
        self._errors = errors
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="recollect-index")

    async def run(self, call: Callable[[], _T]) -> _T:
        """Return the result of the call, or raise IndexUnavailable."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except self._errors as error:
            # The full message can contain an address with a password.
            message = str(error).partition("\n")[0][:120]
            raise IndexUnavailable(f"{self._name}: {type(error).__name__} {message}".strip()) from error

    def close(self) -> None:
        """Cancel waiting calls, and wait for none."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def require_hash(text: str) -> str:
    """Return the text if it is a hash; raise InvalidInput for any other text, which could inject a query."""
    if not is_hash(text):
        raise InvalidInput("vector databases receive hashes of users and places, not names")
    return text


_log = logging.getLogger("recollect")


class GuardedStore:
    """Searches a store with a timeout and a circuit breaker; `hashes_names` for one that stores no names."""

    def __init__(
        self, store: VectorStore, *, timeout_s: float, hashes_names: bool, breaker: Breaker | None = None
    ) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._hashes_names = hashes_names
        self._breaker = breaker or Breaker()
        self.unavailable_since: datetime | None = None

    @property
    def is_unavailable(self) -> bool:
        """Return whether the breaker is open."""
        return self._breaker.is_open

    @property
    def last_error(self) -> str:
        """Return what is wrong; empty if nothing is."""
        if self.unavailable_since is None:
            return ""
        return (
            f"{self._store.name} does not answer since {self.unavailable_since:%H:%M:%S} UTC: the ledger is searched"
        )

    def request_permit(self) -> Permit:
        """Return whether the caller may call the store, as a probe or not at all."""
        return self._breaker.permit()

    async def nearest(
        self, user: str, vector: Vector, *, places: Sequence[str], limit: int, permit: Permit = Permit.CALL
    ) -> ScoredRows:
        """Return the store's nearest rows, or raise IndexUnavailable after the timeout."""
        if self._hashes_names:
            user, places = hash_user(user), [hash_place(place) for place in places]
        try:
            async with asyncio.timeout(self._timeout_s):
                scored = await self._store.nearest(user, vector, places=places, limit=limit)
        except IndexNotReady:
            # It answered; other users can be searched.
            self._record_success(permit)
            raise
        except (IndexUnavailable, TimeoutError) as error:
            self._record_failure(permit)
            raise IndexUnavailable(f"{self._store.name} does not answer ({type(error).__name__})") from error
        self._record_success(permit)
        return scored

    def _record_success(self, permit: Permit) -> None:
        self._breaker.record_success(permit)
        if self.unavailable_since is not None and not self._breaker.is_open:
            self.unavailable_since = None
            BREAKER_OPEN.set(0, "index")
            _log.info("%s is available again", self._store.name)

    def _record_failure(self, permit: Permit) -> None:
        self._breaker.record_failure(permit)
        if self._breaker.is_open and self.unavailable_since is None:
            self.unavailable_since = now()
            BREAKER_OPEN.set(1, "index")
            _log.warning("%s", self.last_error)
