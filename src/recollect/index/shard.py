"""One user's vectors in memory, beside what decides whether a row may be found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from recollect.ledger.protocol import IndexRow, Revision, Scored
from recollect.model.memory import Status

# Below any cosine.
_NEVER = np.float32(-2)


@dataclass(slots=True)
class Shard:
    """Rows in rising order, which is the order they were written in, and a matrix that grows by half.

    A search may run in a thread while the next update begins: it works on the rows it counted at its start,
    and an update fills the rows beyond before it counts them.
    """

    dimensions: int
    revision: Revision = field(default_factory=Revision)
    count: int = 0
    rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    places: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    findable: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    matrix: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32))
    codes: dict[str, int] = field(default_factory=dict)
    masks: dict[tuple[int, ...], NDArray[np.bool_]] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return self.matrix.nbytes + self.rows.nbytes + self.places.nbytes + self.findable.nbytes

    def update(self, revision: Revision, changed: Sequence[IndexRow]) -> None:
        """Take up what changed since the last revision."""
        self.revision = revision
        if not changed:
            return
        changed = sorted(changed, key=lambda row: row.row)
        numbers = np.fromiter((row.row for row in changed), np.int64, len(changed))
        known = self.rows[self.count - 1] if self.count else -1
        fresh = int((numbers > known).sum())
        self._reserve(self.count + fresh)
        at = np.empty(len(changed), np.int64)
        old = len(changed) - fresh
        at[:old] = np.searchsorted(self.rows[: self.count], numbers[:old])
        at[old:] = np.arange(self.count, self.count + fresh)
        self.rows[at] = numbers
        self.places[at] = [self.codes.setdefault(row.place, len(self.codes)) for row in changed]
        self.findable[at] = [row.status == Status.ACTIVE and row.vector is not None for row in changed]
        blank = bytes(2 * self.dimensions)
        halves = np.frombuffer(b"".join(row.vector or blank for row in changed), dtype="<f2")
        self.matrix[at] = halves.reshape(len(changed), self.dimensions)
        self.count += fresh
        self.masks.clear()

    def _reserve(self, count: int) -> None:
        if count <= len(self.rows):
            return
        size = count if not self.count else max(count, self.count * 3 // 2, 64)
        for name in ("rows", "places", "findable"):
            grown = np.zeros(size, getattr(self, name).dtype)
            grown[: self.count] = getattr(self, name)[: self.count]
            setattr(self, name, grown)
        matrix = np.empty((size, self.dimensions), np.float32)
        if self.count:
            matrix[: self.count] = self.matrix[: self.count]
        self.matrix = matrix

    def _mask(self, places: Sequence[str], count: int) -> NDArray[np.bool_]:
        """Which of the first `count` rows may be found from these places."""
        codes = tuple(sorted(self.codes[place] for place in places if place in self.codes))
        mask = self.masks.get(codes)
        if mask is None or len(mask) != count:
            mask = self.findable[:count].copy()
            if len(codes) < len(self.codes):
                mask &= np.isin(self.places[:count], codes)
            self.masks[codes] = mask
        return mask

    def nearest(
        self, vector: NDArray[np.float32], places: Sequence[str], allowed: Sequence[int] | None, limit: int
    ) -> Scored:
        """The best rows for a vector; `allowed` narrows them down before they are ranked."""
        count, rows = self.count, self.rows
        if not count:
            return Scored(rows[:0], np.empty(0, np.float32))
        scores = self.matrix[:count] @ vector
        mask = self._mask(places, count)
        if allowed is not None:
            mask = mask & np.isin(rows[:count], np.asarray(allowed, np.int64), kind="sort")
        if not mask.all():
            scores = np.where(mask, scores, _NEVER)
        best = np.argpartition(scores, count - limit)[-limit:] if limit < count else np.arange(count)
        best = best[np.argsort(-scores[best], kind="stable")]
        best = best[scores[best] > _NEVER]
        return Scored(rows[best], np.maximum(scores[best], 0))

    def similarity(self, vector: NDArray[np.float32], wanted: NDArray[np.int64]) -> NDArray[np.float32]:
        """The score of each of these rows."""
        scores = np.zeros(len(wanted), np.float32)
        if self.count:
            at = np.minimum(np.searchsorted(self.rows[: self.count], wanted), self.count - 1)
            here = self.rows[at] == wanted
            scores[here] = np.maximum(self.matrix[at[here]] @ vector, 0)
        return scores
