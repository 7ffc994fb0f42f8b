"""The contract of an index: the rows of one user that are nearest to a vector, and their traits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.change import Vector
from recollect.model.erasure import StoreErasure
from recollect.model.query import Filter
from recollect.model.scope import Scope

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@frozen_dataclass
class Nearest:
    """The nearest rows, best first, and the count, mean and standard deviation of the scores of all visible rows."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    count: int
    mean: float
    deviation: float


@frozen_dataclass
class Traits:
    """Traits of rows as arrays of equal length. Codes are valid within one view only; -1 is none."""

    flags: NDArray[np.int32]
    words: NDArray[np.float32]
    sessions: NDArray[np.int32]
    speakers: NDArray[np.int32]
    at_s: NDArray[np.float64]
    embedded: NDArray[np.bool_]


class View(Protocol):
    """The rows that one scope can see through one filter, at one moment. Scores are cosines, at least 0."""

    @property
    def count(self) -> int:
        """Return how many memories are visible."""

    @property
    def is_quick(self) -> bool:
        """Return whether a search takes less than a millisecond or so, in this thread."""

    def speakers_called(self, words: Collection[str]) -> Mapping[str, int]:
        """Return the speakers of visible rows whose name begins with one of the words, with their codes."""

    async def nearest(self, vector: Vector, *, limit: int) -> Nearest:
        """Return the nearest rows."""

    async def similarity(self, vector: Vector, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the score of each row; 0 for rows without a vector."""

    async def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vector of each row; zeros for rows without one."""

    def traits(self, rows: NDArray[np.int64]) -> Traits:
        """Return the traits of each row."""

    def neighbors(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows before and after each row in its session; -1 where none is visible."""

    def is_visible(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the rows are visible, with a vector or without."""


class Index(Protocol):
    """Finds rows by vector. It can be rebuilt from the ledger at any time."""

    async def view(self, scope: Scope, filter: Filter, *, as_of: datetime | None = None, turns: bool = True) -> View:
        """Return a view of what the ledger holds now and the scope can see through the filter.

        With `as_of`, of what was valid at that moment instead; without `turns`, only of memories that are no turns.
        """

    async def forget(self, user: str) -> StoreErasure:
        """Drop the rows of a user of whom something was erased from the ledger; report how many."""

    async def close(self) -> None: ...
