"""The contract of vector databases that find the nearest of one user's rows.

Their answers are suggestions: rows are looked up among those that the ledger lets the scope see, so that a store that
lags or was tampered with can miss a memory, but never leak one. A store raises IndexUnavailable, and no other error,
while it does not answer, and IndexNotReady while a user is being prepared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

from recollect.ledger.types import ScoredRows
from recollect.model.erasure import user_digest
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from recollect.model.change import Vector


@dataclass(frozen=True, slots=True)
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
        ...

    async def nearest(self, user: str, vector: Vector, *, places: Sequence[str], limit: int) -> ScoredRows:
        """Return about the nearest rows of the user in these places, best first, by cosine."""
        ...

    async def close(self) -> None: ...


class ExternalVectorStore(VectorStore, Protocol):
    """A store with its own copy of the vectors, to which changes of the ledger are written in batches.

    Writes are idempotent. Users and places are hashes of 32 hexadecimal digits, so that nothing needs quoting and the
    store contains no names.
    """

    @property
    def settles_s(self) -> float:
        """Return for how long a search may miss an acknowledged change."""
        ...

    @property
    def residue(self) -> str:
        """Return what stays of deleted rows and for how long, for receipts."""
        ...

    async def put(self, rows: Sequence[StoredVector]) -> None:
        """Insert or replace rows of any users."""
        ...

    async def drop(self, rows: Sequence[int]) -> None:
        """Delete rows."""
        ...

    async def drop_user(self, user: str) -> int:
        """Delete all rows of a user; return how many."""
        ...

    async def rows(self, user: str) -> Sequence[int]:
        """Return the rows of a user in ascending order, all acknowledged changes included."""
        ...

    async def users(self) -> Sequence[str]:
        """Return the hashes of all users with rows."""
        ...

    async def clear(self) -> None:
        """Delete everything."""
        ...


# The ledger's records of erasures use the same digest.
hash_user = user_digest


def hash_place(place: str) -> str:
    """Return the hash of a place (a visibility key)."""
    return blake2b(place.encode(), digest_size=16, person=b"recollect-place").hexdigest()


def is_hash(text: str) -> bool:
    """Return whether a text has the form of a hash."""
    return len(text) == 32 and set(text) <= set("0123456789abcdef")


@dataclass(frozen=True, slots=True, kw_only=True)
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
