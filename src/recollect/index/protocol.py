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


class Index(Protocol):
    """Finds rows by vector. Scores are cosines, with everything below 0 counted as 0."""

    async def search(self, scope: Scope, vector: Vector, *, filter: Filter, limit: int) -> Scored:
        """The nearest rows that the scope can see, are active and pass the filter, best first."""
        ...

    async def similarity(self, scope: Scope, vector: Vector, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The score of each of these rows of the user; 0 for rows without a vector."""
        ...

    async def close(self) -> None: ...
