"""What an engine is: a vector database that finds the nearest of one user's rows. It holds no truth; it suggests.

Whatever it gives is looked up among the rows the ledger lets the scope see, so that one that is behind, or that was
tricked, can make a memory be missed but never be shown. An engine raises IndexUnavailable, and no other error, while
it does not answer, and IndexNotReady where it answers but has not taken in the user yet.
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
    """What an engine keeps of one memory: its row, whose it is, where it lives, and its vector of length 1."""

    row: int
    user: str
    place: str
    vector: Vector


class VectorStore(Protocol):
    """Finds the nearest of a user's rows; nobody has to feed one that searches the ledger's own vectors."""

    @property
    def name(self) -> str:
        """What people call it, with where it is: for logs, metrics and receipts."""
        ...

    async def nearest(self, user: str, vector: Vector, *, places: Sequence[str], limit: int) -> ScoredRows:
        """About the nearest rows of the user in these places, best first, by cosine."""
        ...

    async def close(self) -> None: ...


class ExternalVectorStore(VectorStore, Protocol):
    """An engine with a store of its own, which is brought what changed in the ledger, in batches, and any number of
    times: to put a row again or to drop one that is not there is nothing.

    It never hears a name: users and places come as marks, which are 32 of the digits and letters of a hexadecimal
    number each. So there is nothing in them to quote, and whoever reads its store learns no names.
    """

    @property
    def settles_s(self) -> float:
        """How long after it was acknowledged a change may still be unseen by a search."""
        ...

    @property
    def residue(self) -> str:
        """What stays of rows it dropped and for how long, as a receipt tells it."""
        ...

    async def put(self, rows: Sequence[StoredVector]) -> None:
        """Keep rows of any users, in place of what was kept of them."""
        ...

    async def drop(self, rows: Sequence[int]) -> None:
        """Remove rows, for good."""
        ...

    async def drop_user(self, user: str) -> int:
        """Remove all that is kept of a user, for good; says how many rows that were."""
        ...

    async def rows(self, user: str) -> Sequence[int]:
        """Which rows of a user are kept, rising; what was put or dropped before is counted."""
        ...

    async def users(self) -> Sequence[str]:
        """The marks of those of whom anything is kept."""
        ...

    async def clear(self) -> None:
        """Remove everything and begin anew."""
        ...


def hash_user(user: str) -> str:
    """What stands for a user in the store of an engine; the ledger's notes of erasures call them the same."""
    return user_digest(user)


def hash_place(place: str) -> str:
    """What stands for a place in the store of an engine."""
    return blake2b(place.encode(), digest_size=16, person=b"recollect-place").hexdigest()


def is_hash(text: str) -> bool:
    """Whether it can only be a mark."""
    return len(text) == 32 and set(text) <= set("0123456789abcdef")


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorStoreOptions:
    """Where it is, and how its index is built and searched."""

    address: str
    token: str = ""
    collection: str = "agentic_memory"
    m: int = 16
    ef_construction: int = 256
    ef: int = 64
    timeout_s: float = 10.0

    def collection_names(self, model: EmbeddingModel) -> tuple[str, str]:
        """Where the vectors of a model can be: in that of the name alone if no other has it, else in its own."""
        return self.collection, f"{self.collection}_{model_digest(model)}"


def model_digest(model: EmbeddingModel) -> str:
    """A few letters that tell models apart in names."""
    return blake2b(str(model).encode(), digest_size=4).hexdigest()


def redact_address(address: str) -> str:
    """An address as it may be shown: without a login."""
    return address.rpartition("@")[2]
