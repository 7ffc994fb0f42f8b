"""Exact search over each user's own vectors, held in memory and checked against the ledger on every query."""

from __future__ import annotations

import asyncio
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from recollect.index.protocol import Nearest
from recollect.index.shard import Shard, ShardCache, ShardView, cosines, dots, quantize, visible_mask
from recollect.ledger.ledger import Ledger
from recollect.model.change import Vector
from recollect.model.erasure import StoreErasure
from recollect.model.query import EVERYTHING, Filter, session_left_out
from recollect.model.scope import Scope
from recollect.models.embedding import EmbeddingModel

# Below this many numbers a product takes less than a millisecond: not worth another thread.
_INLINE_NUMBERS = 5_000_000
# Below any cosine.
_BELOW_ANY_COSINE = np.float32(-2)


class ExactView(ShardView):
    """Compares the vector with every visible row."""

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
        searchable = self._mask & self._embedded
        count = int(np.count_nonzero(searchable))
        if not count:
            return Nearest(np.empty(0, np.int64), np.empty(0, np.float32), 0, 0.0, 0.0)
        scores = self._coarse_scores(vector)
        if count < len(scores):
            # Rows that are not visible count as 0 in the sums, and are last in the order.
            scores *= searchable
        mean = float(scores.sum()) / count
        deviation = max(float(scores @ scores) / count - mean * mean, 0.0) ** 0.5
        if count < len(scores):
            scores[~searchable] = _BELOW_ANY_COSINE
        # A few more than requested, because the coarse scores are rounded.
        few = limit + limit // 4 + 4
        best = np.argpartition(scores, len(scores) - few)[-few:] if few < count else np.flatnonzero(searchable)
        exact = cosines(vector, self._halves[best])
        order = np.lexsort((best, -exact))[:limit]
        return Nearest(self._rows[best[order]], exact[order], count, mean, deviation)

    def _coarse_scores(self, vector: Vector) -> NDArray[np.float32]:
        """Return the cosine of every row to about two decimal places, at least 0."""
        [steps], [step] = quantize(vector[None])
        scores: NDArray[np.float32] = dots(steps, self._coarse) * self._scales
        scores *= step
        np.maximum(scores, 0, out=scores)
        return scores

    async def similarity(self, vector: Vector, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        at, is_present = self._look_up(rows)
        if not is_present.any():
            return np.zeros(len(rows), np.float32)
        return cosines(vector, self._halves[at]) * is_present

    async def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        at, is_present = self._look_up(rows)
        result = np.zeros((len(rows), self._shard.dimensions), np.float32)
        result[is_present] = self._halves[at[is_present]]
        return result


class ExactIndex:
    """Holds the vectors of users in memory; the least recently used are dropped beyond the budget."""

    def __init__(self, ledger: Ledger, model: EmbeddingModel, *, budget_bytes: int) -> None:
        self._ledger = ledger
        self._shards = ShardCache(ledger, model, budget_bytes=budget_bytes)

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory in use."""
        return self._shards.nbytes

    async def view(
        self, scope: Scope, filter: Filter, *, as_of: datetime | None = None, turns: bool = True
    ) -> ExactView:
        # What the shard itself can tell need not be read from the ledger.
        session = session_left_out(filter) if as_of is None else ""
        is_in_shard = session or (filter == EVERYTHING and as_of is None)
        allowed = None if is_in_shard else await self._ledger.matching(scope, filter, as_of=as_of)
        shard = await self._shards.get(scope.user)
        places = shard.visible_places(scope)
        mask = visible_mask(shard, places, allowed, as_of=as_of, turns=turns)
        return ExactView(shard, mask & ~shard.turns_of(session, places)[: len(mask)] if session else mask)

    def loaded_rows(self, user: str) -> int:
        """Return how many rows of the user are in memory."""
        shard = self._shards.peek(user)
        return shard.count if shard else 0

    async def forget(self, user: str) -> StoreErasure:
        shard = await self._shards.remove(user)
        return StoreErasure("index", {"rows": shard.count if shard else 0}, note="" if shard else "not in memory")

    async def close(self) -> None:
        self._shards.clear()
