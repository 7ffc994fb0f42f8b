"""A view whose nearest rows are suggested by an engine and compared here, with the vectors the ledger has of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recollect.errors import IndexUnavailable
from recollect.index.asked import Asked
from recollect.index.protocol import Nearest
from recollect.index.recent import Recent, Sample
from recollect.index.shard import Shard, unpacked
from recollect.index.view import ShardView, cosines
from recollect.ledger.protocol import Ledger
from recollect.model.breaker import Leave
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.model.change import Vector

    Rows = NDArray[np.int64]

# More than this no engine is asked for; Milvus gives no more.
MOST_ASKED = 16_000
_WIDER = 4
# How many rows are read from the ledger at once, where all of them are compared.
_PAGE = 4_096
# A sample of which fewer than these may be found says too little.
_LEAST_SAMPLED = 128


@dataclass(frozen=True, slots=True)
class Source:
    """Whom a view asks: the ledger for vectors, and for suggestions an engine, if there is one that answers."""

    user: str
    ledger: Ledger
    model: EmbeddingModel
    asked: Asked | None = None
    leave: Leave = Leave.ASK
    places: Sequence[str] = ()
    few_rows: int = 0


class EngineView(ShardView):
    """Rows with what they are like in memory, and their vectors elsewhere.

    The mean and the deviation are those of a sample.
    """

    is_quick = False

    def __init__(
        self,
        shard: Shard,
        mask: NDArray[np.bool_],
        source: Source,
        *,
        recent: Recent | None = None,
        sample: Sample | None = None,
    ) -> None:
        super().__init__(shard, mask)
        self._source = source
        self._sample = sample
        self._held = {row: vector for row, (_, vector) in recent.rows.items()} if recent else {}
        self._recent = np.fromiter(self._held, np.int64, len(self._held))

    async def nearest(self, vector: Vector, *, limit: int) -> Nearest:
        rows = self._rows[self._mask & self._embedded]
        if not len(rows) or not vector.any():
            return Nearest(np.empty(0, np.int64), np.empty(0, np.float32), len(rows), 0.0, 0.0)
        suggested = rows
        if len(rows) > self._source.few_rows:
            found = await self._suggested(vector, limit, len(rows))
            if found is None:
                return await self._compared(vector, rows, limit)
            suggested = found
        scores = await self.similarity(vector, suggested)
        if suggested is rows:
            mean, deviation = float(scores.mean()), float(scores.std())
        else:
            mean, deviation = await self._spread(vector, rows)
        order = np.lexsort((suggested, -scores))[:limit]
        return Nearest(suggested[order], scores[order], len(rows), mean, deviation)

    async def _suggested(self, vector: Vector, limit: int, seen: int) -> Rows | None:
        """Rows that may be found, the nearest among them most likely; None if the engine knows too few or is away."""
        source = self._source
        if source.asked is None or limit > MOST_ASKED // 2:
            return None
        here = int(np.count_nonzero(self._shard.seen_from(source.places)))
        # A few more than wanted, and as many more as will be left out here.
        wide = (limit + limit // 4 + 8) * max(here, seen) // seen
        recent = self._near(self._recent)
        for asked in (wide, wide * _WIDER):
            try:
                told = await source.asked.nearest(
                    source.user, vector, places=source.places, limit=min(asked, MOST_ASKED), leave=source.leave
                )
            except IndexUnavailable:
                return None
            rows: Rows = np.unique(np.concatenate((self._near(told.rows), recent)))
            if len(rows) >= min(limit, seen):
                return rows
        return None

    def _near(self, rows: Rows) -> Rows:
        """Those of the rows that may be found and have a vector."""
        at, here = self._look_up(rows)
        return rows[here & self._mask[at] & self._embedded[at]] if len(self._mask) else rows[:0]

    async def _compared(self, vector: Vector, rows: Rows, limit: int) -> Nearest:
        """The nearest of these rows by comparing with every one, a page at a time."""
        source = self._source
        scores = np.zeros(len(rows), np.float32)
        for start in range(0, len(rows), _PAGE):
            page = rows[start : start + _PAGE].tolist()
            held = await source.ledger.vectors_of(source.user, page, model=source.model)
            scores[start : start + _PAGE] = cosines(vector, unpacked(map(held.get, page), source.model.dimensions))
        best = np.argpartition(scores, len(rows) - limit)[-limit:] if limit < len(rows) else np.arange(len(rows))
        order = best[np.lexsort((rows[best], -scores[best]))]
        return Nearest(rows[order], scores[order], len(rows), float(scores.mean()), float(scores.std()))

    async def _spread(self, vector: Vector, rows: Rows) -> tuple[float, float]:
        """About the mean and the deviation of the scores of all rows."""
        halves = None
        if self._sample is not None:
            halves = self._sample.halves[self.sees(self._sample.rows)]
        if halves is None or len(halves) < _LEAST_SAMPLED:
            halves = await self._halves(rows[:: max(1, len(rows) // _LEAST_SAMPLED)])
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
        source, wanted = self._source, rows.tolist()
        missing = [row for row in wanted if row not in self._held]
        if missing:
            found = await source.ledger.vectors_of(source.user, missing, model=source.model)
            self._held |= {row: found.get(row, b"") for row in missing}
        return unpacked((self._held[row] for row in wanted), source.model.dimensions)
