"""A view whose nearest rows are suggested by an engine and compared here, with the vectors the ledger has of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recollect.errors import IndexUnavailable
from recollect.index.asked import GuardedStore
from recollect.index.protocol import Nearest
from recollect.index.recent import UnsyncedRows, VectorSample
from recollect.index.shard import Shard, unpack_vectors
from recollect.index.view import ShardView, cosines
from recollect.ledger.protocol import Ledger
from recollect.model.breaker import Permit
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.model.change import Vector

    Rows = NDArray[np.int64]

# More than this no engine is asked for; Milvus gives no more.
MAX_REQUESTED = 16_000
_RETRY_FACTOR = 4
# How many rows are read from the ledger at once, where all of them are compared.
_PAGE = 4_096
# A sample of which fewer than these may be found says too little.
_MIN_SAMPLED = 128


@dataclass(frozen=True, slots=True)
class ViewSource:
    """Whom a view asks: the ledger for vectors, and for suggestions an engine, if there is one that answers."""

    user: str
    ledger: Ledger
    model: EmbeddingModel
    store: GuardedStore | None = None
    permit: Permit = Permit.CALL
    places: Sequence[str] = ()
    few_rows: int = 0


class VectorStoreView(ShardView):
    """Rows with what they are like in memory, and their vectors elsewhere.

    The mean and the deviation are those of a sample.
    """

    is_quick = False

    def __init__(
        self,
        shard: Shard,
        mask: NDArray[np.bool_],
        source: ViewSource,
        *,
        unsynced: UnsyncedRows | None = None,
        sample: VectorSample | None = None,
    ) -> None:
        super().__init__(shard, mask)
        self._source = source
        self._sample = sample
        self._vector_cache = {row: vector for row, (_, vector) in unsynced.rows.items()} if unsynced else {}
        self._unsynced = np.fromiter(self._vector_cache, np.int64, len(self._vector_cache))

    async def nearest(self, vector: Vector, *, limit: int) -> Nearest:
        rows = self._rows[self._mask & self._embedded]
        if not len(rows) or not vector.any():
            return Nearest(np.empty(0, np.int64), np.empty(0, np.float32), len(rows), 0.0, 0.0)
        suggested = rows
        if len(rows) > self._source.few_rows:
            suggestions = await self._suggest(vector, limit, len(rows))
            if suggestions is None:
                return await self._compare_all(vector, rows, limit)
            suggested = suggestions
        scores = await self.similarity(vector, suggested)
        if suggested is rows:
            mean, deviation = float(scores.mean()), float(scores.std())
        else:
            mean, deviation = await self._spread(vector, rows)
        order = np.lexsort((suggested, -scores))[:limit]
        return Nearest(suggested[order], scores[order], len(rows), mean, deviation)

    async def _suggest(self, vector: Vector, limit: int, visible_count: int) -> Rows | None:
        """Rows that may be found, the nearest among them most likely; None if the engine knows too few or is away."""
        source = self._source
        if source.store is None or limit > MAX_REQUESTED // 2:
            return None
        stored_count = int(np.count_nonzero(self._shard.visible_from(source.places)))
        # A few more than wanted, and as many more as will be left out here.
        first_limit = (limit + limit // 4 + 8) * max(stored_count, visible_count) // visible_count
        unsynced = self._searchable(self._unsynced)
        for store_limit in (first_limit, first_limit * _RETRY_FACTOR):
            try:
                scored = await source.store.nearest(
                    source.user,
                    vector,
                    places=source.places,
                    limit=min(store_limit, MAX_REQUESTED),
                    permit=source.permit,
                )
            except IndexUnavailable:
                return None
            rows: Rows = np.unique(np.concatenate((self._searchable(scored.rows), unsynced)))
            if len(rows) >= min(limit, visible_count):
                return rows
        return None

    def _searchable(self, rows: Rows) -> Rows:
        """Those of the rows that may be found and have a vector."""
        at, is_present = self._look_up(rows)
        return rows[is_present & self._mask[at] & self._embedded[at]] if len(self._mask) else rows[:0]

    async def _compare_all(self, vector: Vector, rows: Rows, limit: int) -> Nearest:
        """The nearest of these rows by comparing with every one, a page at a time."""
        source = self._source
        scores = np.zeros(len(rows), np.float32)
        for start in range(0, len(rows), _PAGE):
            page = rows[start : start + _PAGE].tolist()
            vectors = await source.ledger.vectors_of(source.user, page, model=source.model)
            scores[start : start + _PAGE] = cosines(
                vector, unpack_vectors(map(vectors.get, page), source.model.dimensions)
            )
        best = np.argpartition(scores, len(rows) - limit)[-limit:] if limit < len(rows) else np.arange(len(rows))
        order = best[np.lexsort((rows[best], -scores[best]))]
        return Nearest(rows[order], scores[order], len(rows), float(scores.mean()), float(scores.std()))

    async def _spread(self, vector: Vector, rows: Rows) -> tuple[float, float]:
        """About the mean and the deviation of the scores of all rows."""
        halves = None
        if self._sample is not None:
            halves = self._sample.halves[self.sees(self._sample.rows)]
        if halves is None or len(halves) < _MIN_SAMPLED:
            halves = await self._halves(rows[:: max(1, len(rows) // _MIN_SAMPLED)])
        scores = cosines(vector, halves)
        return float(scores.mean()), float(scores.std())

    async def similarity(self, vector: Vector, rows: Rows) -> NDArray[np.float32]:
        if not len(rows):
            return np.zeros(0, np.float32)
        return cosines(vector, await self._halves(rows))

    async def vectors(self, rows: Rows) -> NDArray[np.float32]:
        return (await self._halves(rows)).astype(np.float32)

    async def _halves(self, rows: Rows) -> NDArray[np.float16]:
        """The vectors of rows; what was read once is held, for one set of candidates is asked about several times."""
        source, numbers = self._source, rows.tolist()
        missing = [row for row in numbers if row not in self._vector_cache]
        if missing:
            vectors = await source.ledger.vectors_of(source.user, missing, model=source.model)
            self._vector_cache |= {row: vectors.get(row, b"") for row in missing}
        return unpack_vectors((self._vector_cache[row] for row in numbers), source.model.dimensions)
