"""What an engine may not have yet of a user, and a sample of all that the user has; both with their vectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from recollect.index.shard import Shard, unpacked
from recollect.ledger.protocol import Ledger, Revision
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Of so many rows is told how near all of them lie: the mean is off by a 32nd of the deviation, most of the time.
SAMPLE_ROWS = 1_024
# How often is looked how far the engine is.
_LOOK_EVERY_S = 1.0


@dataclass(slots=True)
class Recent:
    """The rows that changed since what the engine surely has: by row, the revision by which they had, and the vector.

    They are looked at beside whatever the engine suggests, so that what was just added is found at once.
    """

    upto: Revision
    rows: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    # How far the engine was said to be at the last look, and from when on a search sees all of that.
    fed: int = 0
    sure_at: float = 0.0
    looked_at: float = 0.0

    async def catch_up(self, user: str, shard: Shard, *, ledger: Ledger, model: EmbeddingModel) -> None:
        """Take up what changed up to what the shard has."""
        if self.upto == shard.revision:
            return
        revision, changed = await ledger.index_rows(user, model=model, after=self.upto.number)
        for row in changed:
            self.rows.pop(row.row, None)
            if row.vector is not None:
                self.rows[row.row] = (revision.number, row.vector)
        self.upto = revision

    async def look(self, user: str, *, ledger: Ledger, index: str, settles_s: float) -> None:
        """Let go of what the engine has by now."""
        if not self.rows:
            return
        moment = monotonic()
        if self.fed and moment >= self.sure_at:
            self.rows = {row: each for row, each in self.rows.items() if each[0] > self.fed}
            self.fed = 0
        if not self.fed and moment >= self.looked_at + _LOOK_EVERY_S:
            self.looked_at = moment
            self.fed = (await ledger.fed(user, index=index)).number
            self.sure_at = monotonic() + settles_s


@dataclass(frozen=True, slots=True)
class Sample:
    """Some rows of a user, the same for every question until there are twice as many to choose from."""

    epoch: int
    of: int
    rows: NDArray[np.int64]
    halves: NDArray[np.float16]

    def fits(self, shard: Shard) -> bool:
        """Whether it still stands for what the shard has."""
        return self.epoch == shard.revision.epoch and shard.count < 2 * self.of

    @classmethod
    async def take(cls, user: str, shard: Shard, *, ledger: Ledger, model: EmbeddingModel) -> Sample:
        """A sample of what can be found now."""
        count = shard.count
        rows = shard.rows[:count][shard.active[:count] & shard.embedded[:count]]
        if len(rows) > SAMPLE_ROWS:
            rows = np.sort(np.random.default_rng(count).choice(rows, SAMPLE_ROWS, replace=False))
        held = await ledger.vectors_of(user, rows.tolist(), model=model)
        rows = np.asarray([row for row in rows.tolist() if row in held], np.int64)
        halves = unpacked((held[row] for row in rows.tolist()), model.dimensions)
        return cls(shard.revision.epoch, max(count, 1), rows, halves)
