"""Exact search over each user's own vectors, held in memory and checked against the ledger on every query."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from recollect.index.protocol import Nearest
from recollect.index.shard import Shard, coarsened
from recollect.index.shards import Shards
from recollect.index.view import ShardView, cosines, dots, mask_of
from recollect.ledger.protocol import Ledger
from recollect.model.erase import Cleared
from recollect.model.query import EVERYTHING, Filter
from recollect.model.scope import Scope
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.model.change import Vector

# Below this many numbers a product takes less than a millisecond: not worth another thread.
_INLINE_NUMBERS = 5_000_000
# Below any cosine.
_NEVER = np.float32(-2)


class ExactView(ShardView):
    """Finds the nearest by comparing with every one of them."""

    def __init__(self, shard: Shard, mask: NDArray[np.bool_]) -> None:
        super().__init__(shard, mask)
        count = len(mask)
        self._halves = shard.halves[:count]
        self._coarse = shard.coarse[:count]
        self._scales = shard.scales[:count]

    @property
    def is_quick(self) -> bool:
        return self._coarse.size <= _INLINE_NUMBERS

    async def nearest(self, vector: Vector, *, limit: int) -> Nearest:
        if self.is_quick:
            return self._nearest(vector, limit)
        return await asyncio.to_thread(self._nearest, vector, limit)

    def _nearest(self, vector: Vector, limit: int) -> Nearest:
        found = self._mask & self._embedded
        seen = int(np.count_nonzero(found))
        if not seen:
            return Nearest(np.empty(0, np.int64), np.empty(0, np.float32), 0, 0.0, 0.0)
        scores = self._coarse_scores(vector)
        if seen < len(scores):
            # What may not be found counts as nothing in the sums, and as worse than anything in the order.
            scores *= found
        mean = float(scores.sum()) / seen
        deviation = max(float(scores @ scores) / seen - mean * mean, 0.0) ** 0.5
        if seen < len(scores):
            scores[~found] = _NEVER
        # A few more than asked for, so that none is missed for the steps the coarse copy is made of.
        few = limit + limit // 4 + 4
        best = np.argpartition(scores, len(scores) - few)[-few:] if few < seen else np.flatnonzero(found)
        exact = cosines(vector, self._halves[best])
        order = np.lexsort((best, -exact))[:limit]
        return Nearest(self._rows[best[order]], exact[order], seen, mean, deviation)

    def _coarse_scores(self, vector: Vector) -> NDArray[np.float32]:
        """The cosine of every row, to two places behind the point; below 0 it is 0."""
        [steps], [step] = coarsened(vector[None])
        scores: NDArray[np.float32] = dots(steps, self._coarse) * self._scales
        scores *= step
        np.maximum(scores, 0, out=scores)
        return scores

    async def similarity(self, vector: Vector, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        at, here = self._look_up(rows)
        if not here.any():
            return np.zeros(len(rows), np.float32)
        return cosines(vector, self._halves[at]) * here

    async def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        at, here = self._look_up(rows)
        found = np.zeros((len(rows), self._shard.dimensions), np.float32)
        found[here] = self._halves[at[here]]
        return found


class ExactIndex:
    """Holds the vectors of users in use; the least recently used leave when memory runs short."""

    def __init__(self, ledger: Ledger, model: EmbeddingModel, *, budget_bytes: int) -> None:
        self._ledger = ledger
        self._shards = Shards(ledger, model, budget_bytes=budget_bytes)

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return self._shards.nbytes

    async def view(
        self, scope: Scope, filter: Filter, *, as_of: datetime | None = None, turns: bool = True
    ) -> ExactView:
        everything = filter == EVERYTHING and as_of is None
        allowed = None if everything else await self._ledger.matching(scope, filter, as_of=as_of)
        shard = await self._shards.get(scope.user)
        return ExactView(shard, mask_of(shard, shard.seen_places(scope), allowed, as_of=as_of, turns=turns))

    def held_rows(self, user: str) -> int:
        """How many rows of the user are held."""
        shard = self._shards.held(user)
        return shard.count if shard else 0

    async def forget(self, user: str) -> Cleared:
        shard = await self._shards.let_go(user)
        return Cleared("index", {"rows": shard.count if shard else 0}, note="" if shard else "nothing was held")

    async def close(self) -> None:
        self._shards.clear()
