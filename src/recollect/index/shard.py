"""One user's vectors in memory, beside what decides whether a row may be found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from recollect.ledger.protocol import IndexRow, Revision
from recollect.model.memory import Status

_MAX_MASKS = 8


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
    active: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    embedded: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    matrix: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32))
    codes: dict[str, int] = field(default_factory=dict)
    masks: dict[tuple[int, ...], NDArray[np.bool_]] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        # A row has its number, its place, two marks, and a mark in each of the masks.
        return self.matrix.nbytes + len(self.rows) * (8 + 4 + 2 + _MAX_MASKS)

    def update(self, revision: Revision, changed: Sequence[IndexRow]) -> None:
        """Take up what changed since the last revision."""
        if changed:
            self._take(sorted(changed, key=lambda row: row.row))
        # Last of all: whoever compares revisions must find the rows of this one.
        self.masks = {}
        self.revision = revision

    def _take(self, changed: Sequence[IndexRow]) -> None:
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
        self.active[at] = [row.status == Status.ACTIVE for row in changed]
        self.embedded[at] = [row.vector is not None for row in changed]
        blank = bytes(2 * self.dimensions)
        halves = np.frombuffer(b"".join(row.vector or blank for row in changed), dtype="<f2")
        self.matrix[at] = halves.reshape(len(changed), self.dimensions)
        self.count += fresh

    def _reserve(self, count: int) -> None:
        if count <= len(self.rows):
            return
        size = count if not self.count else max(count, self.count * 3 // 2, 64)
        for name in ("rows", "places", "active", "embedded"):
            grown = np.zeros(size, getattr(self, name).dtype)
            grown[: self.count] = getattr(self, name)[: self.count]
            setattr(self, name, grown)
        matrix = np.empty((size, self.dimensions), np.float32)
        if self.count:
            matrix[: self.count] = self.matrix[: self.count]
        self.matrix = matrix

    def seen_from(self, places: Sequence[str]) -> NDArray[np.bool_]:
        """Which rows are active and live in one of these places."""
        masks, count = self.masks, self.count
        codes = tuple(sorted(self.codes[place] for place in places if place in self.codes))
        mask = masks.get(codes)
        if mask is None or len(mask) != count:
            mask = self.active[:count].copy()
            if len(codes) < len(self.codes):
                mask &= np.isin(self.places[:count], codes)
            if len(masks) >= _MAX_MASKS:
                masks.clear()
            masks[codes] = mask
        return mask
