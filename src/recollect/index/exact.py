"""Exact search over each user's own vectors, held in memory and checked against the ledger on every query."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from recollect.index.shard import Shard
from recollect.ledger.protocol import Ledger, Scored
from recollect.model.query import EVERYTHING, Filter
from recollect.model.scope import Scope
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.model.change import Vector

# Below this many numbers a product takes less than a millisecond: not worth another thread.
_INLINE_NUMBERS = 2_000_000
# Below any cosine.
_NEVER = np.float32(-2)


class ExactView:
    """The rows of one shard that may be found, as they were when the view was made."""

    def __init__(self, shard: Shard, mask: NDArray[np.bool_]) -> None:
        count = len(mask)
        self._mask = mask
        self._rows = shard.rows[:count]
        self._matrix = shard.matrix[:count]
        self._embedded = shard.embedded[:count]

    async def nearest(self, vector: Vector, *, limit: int) -> Scored:
        if self._matrix.size <= _INLINE_NUMBERS:
            return self._nearest(vector, limit)
        return await asyncio.to_thread(self._nearest, vector, limit)

    def _nearest(self, vector: Vector, limit: int) -> Scored:
        count = len(self._rows)
        if not count:
            return Scored(self._rows, np.empty(0, np.float32))
        scores = np.where(self._mask & self._embedded, self._matrix @ vector, _NEVER)
        best = np.argpartition(scores, count - limit)[-limit:] if limit < count else np.arange(count)
        best = best[np.argsort(-scores[best], kind="stable")]
        best = best[scores[best] > _NEVER]
        return Scored(self._rows[best], np.maximum(scores[best], 0))

    def similarity(self, vector: Vector, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        scores = np.zeros(len(rows), np.float32)
        at, here = self._look_up(rows)
        if here.any():
            scores[here] = np.maximum(self._matrix[at[here]] @ vector, 0)
        return scores

    def sees(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        at, here = self._look_up(rows)
        here[here] = self._mask[at[here]]
        return here

    def _look_up(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Where each row stands, and whether it is there at all."""
        if not len(self._rows):
            return np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
        at = np.minimum(np.searchsorted(self._rows, rows), len(self._rows) - 1)
        return at, self._rows[at] == rows


class ExactIndex:
    """Holds the vectors of users in use; the least recently used leave when memory runs short."""

    def __init__(self, ledger: Ledger, model: EmbeddingModel, *, budget_bytes: int) -> None:
        self._ledger = ledger
        self._model = model
        self._budget = budget_bytes
        self._shards: OrderedDict[str, Shard] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self.nbytes = 0
        # A lock lives as long as someone holds or awaits it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def view(self, scope: Scope, filter: Filter) -> ExactView:
        allowed = None if filter == EVERYTHING else await self._ledger.matching(scope, filter)
        shard = await self._shard(scope.user)
        mask = shard.seen_from(scope.seen_places)
        if allowed is not None:
            mask = mask & np.isin(shard.rows[: len(mask)], np.asarray(allowed, np.int64), kind="sort")
        return ExactView(shard, mask)

    async def close(self) -> None:
        self._shards.clear()
        self._sizes.clear()
        self.nbytes = 0

    async def _shard(self, user: str) -> Shard:
        """The user's vectors as the ledger has them at this moment, whoever wrote them."""
        shard = self._shards.get(user)
        if shard is None or shard.revision != await self._ledger.revision(user):
            lock = self._locks.setdefault(user, asyncio.Lock())
            async with lock:
                shard = await self._refreshed(user, self._shards.get(user))
        self._keep(user, shard)
        return shard

    async def _refreshed(self, user: str, shard: Shard | None) -> Shard:
        after = shard.revision.number if shard else 0
        revision, changed = await self._ledger.index_rows(user, model=self._model, after=after)
        if shard is not None and revision.epoch != shard.revision.epoch:
            # Rows were erased: what is held may name them, so nothing of it is kept.
            shard = None
            revision, changed = await self._ledger.index_rows(user, model=self._model, after=0)
        shard = shard or Shard(self._model.dimensions)
        if len(changed) * shard.dimensions <= _INLINE_NUMBERS:
            shard.update(revision, changed)
            return shard
        try:
            await asyncio.to_thread(shard.update, revision, changed)
        except BaseException:
            # Nobody waits for the thread any more: whoever comes next begins with a shard of its own.
            self._drop(user)
            raise
        return shard

    def _keep(self, user: str, shard: Shard) -> None:
        """Note the user as used last, and let the least used go; the one in use stays, whatever its size."""
        self._shards[user] = shard
        self._shards.move_to_end(user)
        self.nbytes += shard.nbytes - self._sizes.get(user, 0)
        self._sizes[user] = shard.nbytes
        while len(self._shards) > 1 and self.nbytes > self._budget:
            self._drop(next(iter(self._shards)))

    def _drop(self, user: str) -> None:
        self._shards.pop(user, None)
        self.nbytes -= self._sizes.pop(user, 0)
