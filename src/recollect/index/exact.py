"""Exact search over each user's own vectors, held in memory and checked against the ledger on every query."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from recollect.index.shard import Shard
from recollect.ledger.protocol import Ledger, Scored
from recollect.model.query import EVERYTHING, Filter
from recollect.model.scope import Scope
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from recollect.model.change import Vector

# Below this many numbers a product takes less than a millisecond: not worth another thread.
_INLINE_NUMBERS = 2_000_000


class ExactIndex:
    """Holds the vectors of users in use; the least recently used leave when memory runs short."""

    def __init__(self, ledger: Ledger, model: EmbeddingModel, *, budget_bytes: int) -> None:
        self._ledger = ledger
        self._model = model
        self._budget = budget_bytes
        self._shards: OrderedDict[str, Shard] = OrderedDict()
        # A lock lives as long as someone holds or awaits it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def nbytes(self) -> int:
        """How much memory the vectors take now."""
        return sum(shard.nbytes for shard in self._shards.values())

    async def search(self, scope: Scope, vector: Vector, *, filter: Filter, limit: int) -> Scored:
        allowed = None if filter == EVERYTHING else await self._ledger.matching(scope, filter)
        shard = await self._shard(scope.user)
        if shard.count * shard.dimensions <= _INLINE_NUMBERS:
            return shard.nearest(vector, scope.seen_places, allowed, limit)
        return await asyncio.to_thread(shard.nearest, vector, scope.seen_places, allowed, limit)

    async def similarity(self, scope: Scope, vector: Vector, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return (await self._shard(scope.user)).similarity(vector, rows)

    async def close(self) -> None:
        self._shards.clear()

    async def _shard(self, user: str) -> Shard:
        """The user's vectors as the ledger has them at this moment, whoever wrote them."""
        shard = self._shards.get(user)
        if shard is not None and shard.revision == await self._ledger.revision(user):
            self._shards.move_to_end(user)
            return shard
        lock = self._locks.setdefault(user, asyncio.Lock())
        async with lock:
            shard = self._shards[user] = await self._refreshed(user, self._shards.get(user))
        self._shards.move_to_end(user)
        self._evict()
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
        else:
            await asyncio.to_thread(shard.update, revision, changed)
        return shard

    def _evict(self) -> None:
        """Let go of the least used users until the rest fits; the one in use stays, whatever its size."""
        while len(self._shards) > 1 and self.nbytes > self._budget:
            self._shards.popitem(last=False)
