"""What an index is: the rows of one user that lie nearest to a vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from recollect.ledger.protocol import Scored
from recollect.model.query import Filter
from recollect.model.scope import Scope

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from recollect.model.change import Vector


class View(Protocol):
    """What may be found from one scope through one filter, at one moment.

    Scores are cosines, with everything below 0 counted as 0.
    """

    async def nearest(self, vector: Vector, *, limit: int) -> Scored:
        """The nearest rows, best first."""
        ...

    def similarity(self, vector: Vector, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The score of each of these rows; 0 for rows without a vector."""
        ...

    def sees(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these rows may be found, with a vector or without."""
        ...


class Index(Protocol):
    """Finds rows by vector; rebuildable from the ledger at any time."""

    async def view(self, scope: Scope, filter: Filter) -> View:
        """What the ledger holds at this moment, as far as the scope and the filter let it be found."""
        ...

    async def close(self) -> None: ...
