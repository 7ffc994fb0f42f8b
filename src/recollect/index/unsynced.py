"""Rows of a user that a vector database may not have yet, and a sample of all rows; both with their vectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from recollect.index.shard import Shard, unpack_vectors
from recollect.ledger.ledger import Ledger
from recollect.ledger.types import Revision
from recollect.model.times import now, to_micros
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from numpy.typing import NDArray


# The mean of a sample of this size is off by a 32nd of the standard deviation.
SAMPLE_ROWS = 1_024
_CHECK_EVERY_S = 1.0


@dataclass(slots=True)
class UnsyncedRows:
    """Rows that changed since the revision the store surely has: by row, the revision of the change, and the vector.

    They are searched in addition to the store's suggestions, so that new memories are found at once.
    """

    revision: Revision
    rows: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    checked_at: float = 0.0

    async def catch_up(self, user: str, shard: Shard, *, ledger: Ledger, model: EmbeddingModel) -> None:
        """Add the rows that changed up to the revision of the shard."""
        if self.revision == shard.revision:
            return
        revision, changed = await ledger.index_rows(user, model=model, after=self.revision.number)
        for row in changed:
            self.rows.pop(row.row, None)
            if row.vector is not None:
                self.rows[row.row] = (revision.number, row.vector)
        self.revision = revision

    async def drop_synced(self, user: str, *, ledger: Ledger, index: str, settles_s: float) -> None:
        """Remove the rows that every search of the store sees by now."""
        moment = monotonic()
        if not self.rows or moment < self.checked_at + _CHECK_EVERY_S:
            return
        self.checked_at = moment
        synced = await synced_revision(user, ledger=ledger, index=index, settles_s=settles_s)
        self.rows = {row: each for row, each in self.rows.items() if each[0] > synced}


async def synced_revision(user: str, *, ledger: Ledger, index: str, settles_s: float) -> int:
    """Return the last revision of a user of which every search of the store sees everything."""
    return (await ledger.feed_position(user, index=index)).visible_revision(settles_s, at=to_micros(now()))


@dataclass(frozen=True, slots=True)
class VectorSample:
    """A sample of a user's rows, drawn anew when the user has twice as many."""

    epoch: int
    population: int
    rows: NDArray[np.int64]
    halves: NDArray[np.float16]

    def fits(self, shard: Shard) -> bool:
        """Return whether it still represents the shard."""
        return self.epoch == shard.revision.epoch and shard.count < 2 * self.population

    @classmethod
    async def draw(cls, user: str, shard: Shard, *, ledger: Ledger, model: EmbeddingModel) -> VectorSample:
        """Draw a sample of the active rows with a vector."""
        count = shard.count
        rows = shard.rows[:count][shard.active[:count] & shard.embedded[:count]]
        if len(rows) > SAMPLE_ROWS:
            rows = np.sort(np.random.default_rng(count).choice(rows, SAMPLE_ROWS, replace=False))
        vectors = await ledger.vectors_of(user, rows.tolist(), model=model)
        rows = np.asarray([row for row in rows.tolist() if row in vectors], np.int64)
        halves = unpack_vectors((vectors[row] for row in rows.tolist()), model.dimensions)
        return cls(shard.revision.epoch, max(count, 1), rows, halves)
