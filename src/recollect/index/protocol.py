"""What an index is: the rows of one user that lie nearest to a vector, and what they are like."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from recollect.model.erasure import StoreErasure
from recollect.model.query import Filter
from recollect.model.scope import Scope

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from recollect.model.change import Vector


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest rows, best first; and how near all that may be found lies: how many, mean, standard deviation."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    count: int
    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Traits:
    """What rows are like, side by side. Codes mean something within one view only; -1 is none."""

    flags: NDArray[np.int32]
    words: NDArray[np.float32]
    sessions: NDArray[np.int32]
    speakers: NDArray[np.int32]
    at_s: NDArray[np.float64]
    embedded: NDArray[np.bool_]


class View(Protocol):
    """What may be found from one scope through one filter, at one moment.

    Scores are cosines, with everything below 0 counted as 0.
    """

    @property
    def count(self) -> int:
        """How many memories may be found."""
        ...

    @property
    def is_quick(self) -> bool:
        """Whether the nearest are found at once, without waiting for anything."""
        ...

    def speakers_called(self, words: Collection[str]) -> Mapping[str, int]:
        """Those who said what may be found and whose name begins with one of the words, with their codes."""
        ...

    async def nearest(self, vector: Vector, *, limit: int) -> Nearest:
        """The nearest rows."""
        ...

    async def similarity(self, vector: Vector, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The score of each of these rows; 0 for rows without a vector."""
        ...

    async def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vector of each of these rows; zeros for rows without one."""
        ...

    def traits(self, rows: NDArray[np.int64]) -> Traits:
        """What each of these rows is like."""
        ...

    def neighbors(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows before and after each of these in its own session; -1 where none may be found."""
        ...

    def sees(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these rows may be found, with a vector or without."""
        ...


class Index(Protocol):
    """Finds rows by vector; rebuildable from the ledger at any time."""

    async def view(self, scope: Scope, filter: Filter, *, as_of: datetime | None = None, turns: bool = True) -> View:
        """What the ledger holds at this moment, as far as the scope and the filter let it be found.

        With `as_of`, what held at that moment instead of what is active now; without `turns`, only what was
        distilled from what was said.
        """
        ...

    async def forget(self, user: str) -> StoreErasure:
        """Let go of what is held of a user of whom something was erased from the ledger; says what that was."""
        ...

    async def close(self) -> None: ...
