"""The shards of users in use, checked against the ledger on every query; the least used leave for want of memory."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from weakref import WeakValueDictionary

from recollect.index.shard import Shard
from recollect.ledger.protocol import Ledger
from recollect.models.embedding import EmbeddingModel

# Up to here taking up rows takes a few milliseconds.
_INLINE_ROWS = 1_000


class ShardCache:
    """One shard a user, as the ledger has their rows at the moment it is asked for."""

    def __init__(self, ledger: Ledger, model: EmbeddingModel, *, budget_bytes: int, light: bool = False) -> None:
        self._ledger = ledger
        self._model = model
        self._budget = budget_bytes
        self._light = light
        self._shards: OrderedDict[str, Shard] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self.nbytes = 0
        # A lock lives as long as someone holds or awaits it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._shards)

    def peek(self, user: str) -> Shard | None:
        """The user's shard as it was when it was last asked for, if it is still held."""
        return self._shards.get(user)

    async def get(self, user: str) -> Shard:
        """The user's rows as the ledger has them at this moment, whoever wrote them."""
        shard = self._shards.get(user)
        if shard is None or shard.revision != await self._ledger.revision(user):
            lock = self._locks.setdefault(user, asyncio.Lock())
            async with lock:
                shard = await self._refresh(user, self._shards.get(user))
        self._mark_used(user, shard)
        return shard

    async def remove(self, user: str) -> Shard | None:
        """Hold nothing of the user any more; gives what was held."""
        # Whoever is reading rows for the shard is done first, or they would be held again.
        async with self._locks.setdefault(user, asyncio.Lock()):
            shard = self._shards.get(user)
            self._drop(user)
        return shard

    def clear(self) -> None:
        """Hold nothing of anyone."""
        self._shards.clear()
        self._sizes.clear()
        self.nbytes = 0

    async def _refresh(self, user: str, shard: Shard | None) -> Shard:
        after, vectors = shard.revision.number if shard else 0, not self._light
        revision, changed = await self._ledger.index_rows(user, model=self._model, after=after, vectors=vectors)
        if shard is not None and revision.epoch != shard.revision.epoch:
            # Rows were erased: what is held may name them, so nothing of it is kept.
            shard = None
            revision, changed = await self._ledger.index_rows(user, model=self._model, after=0, vectors=vectors)
        shard = shard or Shard(self._model.dimensions, light=self._light)
        if len(changed) <= _INLINE_ROWS and (shard.count < _INLINE_ROWS or not shard.needs_growth(changed)):
            shard.update(revision, changed)
            return shard
        try:
            await asyncio.to_thread(shard.update, revision, changed)
        except BaseException:
            # Nobody waits for the thread any more: whoever comes next begins with a shard of its own.
            self._drop(user)
            raise
        return shard

    def _mark_used(self, user: str, shard: Shard) -> None:
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
