"""Exact search over each user's own vectors, held in memory and checked against the ledger on every query."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import simsimd

from recollect.index.protocol import Nearest, Traits
from recollect.index.shard import Shard, coarsened
from recollect.ledger.protocol import Ledger
from recollect.model.erase import Cleared
from recollect.model.query import EVERYTHING, Filter
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.traits import Trait
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.model.change import Vector

# Below this many numbers a product takes less than a millisecond: not worth another thread.
_INLINE_NUMBERS = 5_000_000
# Up to here taking up rows takes a few milliseconds.
_INLINE_ROWS = 1_000
# Below any cosine.
_NEVER = np.float32(-2)


class ExactView:
    """The rows of one shard that could be found when the view was made, told of as they are now."""

    def __init__(self, shard: Shard, mask: NDArray[np.bool_]) -> None:
        count = len(mask)
        self._shard = shard
        self._mask = mask
        self._rows = shard.rows[:count]
        self._halves = shard.halves[:count]
        self._coarse = shard.coarse[:count]
        self._scales = shard.scales[:count]
        self._embedded = shard.embedded[:count]
        self._looked_up: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]] | None = None

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self._mask))

    def speakers_called(self, words: Collection[str]) -> Mapping[str, int]:
        shard = self._shard
        called = {name: shard.names[name] for word in words for name in shard.first_names.get(word, ())}
        said_by = shard.speakers[: len(self._mask)]
        return {name: code for name, code in called.items() if (self._mask & (said_by == code)).any()}

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
        exact = _cosines(vector, self._halves[best])
        order = np.lexsort((best, -exact))[:limit]
        return Nearest(self._rows[best[order]], exact[order], seen, mean, deviation)

    def _coarse_scores(self, vector: Vector) -> NDArray[np.float32]:
        """The cosine of every row, to two places behind the point; below 0 it is 0."""
        [steps], [step] = coarsened(vector[None])
        scores: NDArray[np.float32] = _dots(steps, self._coarse) * self._scales
        scores *= step
        np.maximum(scores, 0, out=scores)
        return scores

    def similarity(self, vector: Vector, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        at, here = self._look_up(rows)
        if not here.any():
            return np.zeros(len(rows), np.float32)
        return _cosines(vector, self._halves[at]) * here

    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        at, here = self._look_up(rows)
        found = np.zeros((len(rows), self._shard.dimensions), np.float32)
        found[here] = self._halves[at[here]]
        return found

    def traits(self, rows: NDArray[np.int64]) -> Traits:
        at, here = self._look_up(rows)
        shard = self._shard
        if here.all():
            return Traits(
                flags=shard.flags[at],
                words=shard.words[at],
                sessions=shard.sessions[at],
                speakers=shard.speakers[at],
                at_s=shard.at_s[at],
                embedded=shard.embedded[at],
            )
        return Traits(
            flags=np.where(here, shard.flags[at], 0),
            words=np.where(here, shard.words[at], np.float32(0)),
            sessions=np.where(here, shard.sessions[at], -1),
            speakers=np.where(here, shard.speakers[at], -1),
            at_s=np.where(here, shard.at_s[at], 0.0),
            embedded=here & shard.embedded[at],
        )

    def beside(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        at, here = self._look_up(rows)
        before = np.where(here, self._shard.before[at], -1)
        return self._seen_rows(before), self._seen_rows(np.where(here, self._shard.after[at], -1))

    def _seen_rows(self, places: NDArray[np.int32]) -> NDArray[np.int64]:
        """The rows at these places of the shard, -1 for those that may not be found."""
        if not len(self._mask):
            return np.full(len(places), -1, np.int64)
        # A turn that came after this view was made is not in it.
        inside = (places >= 0) & (places < len(self._mask))
        places = places * inside
        return np.where(inside & self._mask[places], self._rows[places], -1)

    def sees(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        at, here = self._look_up(rows)
        return here & self._mask[at] if len(self._mask) else here

    def _look_up(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Where each row stands, and whether it is there at all."""
        # One set of candidates is asked about several times in a row.
        if self._looked_up is not None and self._looked_up[0] is rows:
            return self._looked_up[1], self._looked_up[2]
        if not len(rows) or not len(self._rows):
            return np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
        at = np.minimum(np.searchsorted(self._rows, rows), len(self._rows) - 1)
        here = self._rows[at] == rows
        self._looked_up = (rows, at, here)
        return at, here


def _dots(vector: NDArray[Any], rows: NDArray[Any]) -> NDArray[np.float32]:
    """The product of the vector with each row, both in the same short numbers, which NumPy would first make long."""
    # Not into an array of ours: with `out` it gives back a None that it does not count, until Python dies of it.
    found = np.asarray(simsimd.cdist(vector[None], rows, "dot", out_dtype="float32"))
    scores: NDArray[np.float32] = found[0]
    return scores


def _cosines(vector: Vector, halves: NDArray[np.float16]) -> NDArray[np.float32]:
    return np.maximum(_dots(vector.astype(np.float16), halves), 0)


def _among(rows: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the rows, which rise, are wanted."""
    mask = np.zeros(len(rows), np.bool_)
    at = np.searchsorted(rows, wanted)
    inside = at < len(rows)
    at = at[inside]
    mask[at[rows[at] == wanted[inside]]] = True
    return mask


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

    async def view(
        self, scope: Scope, filter: Filter, *, as_of: datetime | None = None, turns: bool = True
    ) -> ExactView:
        everything = filter == EVERYTHING and as_of is None
        allowed = None if everything else await self._ledger.matching(scope, filter, as_of=as_of)
        shard = await self._shard(scope.user)
        mask = shard.seen_from(scope.seen_places)
        if shard.bounded and as_of is None:
            moment_s = now().timestamp()
            mask = mask & (shard.begins_s[: len(mask)] <= moment_s) & (shard.ends_s[: len(mask)] > moment_s)
        if not turns:
            mask = mask & ((shard.flags[: len(mask)] & int(Trait.TURN)) == 0)
        if allowed is not None:
            told = _among(shard.rows[: len(mask)], np.asarray(allowed, np.int64))
            # What held at another moment need not be active now.
            held = told if turns else told & ((shard.flags[: len(mask)] & int(Trait.TURN)) == 0)
            mask = held if as_of is not None else mask & told
        return ExactView(shard, mask)

    async def forget(self, user: str) -> Cleared:
        # Whoever is reading rows for the shard is done first, or they would be held again.
        async with self._locks.setdefault(user, asyncio.Lock()):
            shard = self._shards.get(user)
            self._drop(user)
        return Cleared("index", {"rows": shard.count if shard else 0}, note="" if shard else "nothing was held")

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
        if len(changed) <= _INLINE_ROWS and (shard.count < _INLINE_ROWS or not shard.grows_for(changed)):
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
