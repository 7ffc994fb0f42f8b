"""A vector store in memory with faults: stale, unavailable, frozen, or wrong results."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from recollect.errors import IndexUnavailable
from recollect.index.vector_store import StoredVector, is_hash
from recollect.ledger.types import ScoredRows


class FaultyVectorStore:
    """A vector store that returns exact results, except for the configured faults."""

    name = "unruly"
    settles_s = 0.0
    residue = "nothing stays"

    def __init__(self) -> None:
        self.stored: dict[int, StoredVector] = {}
        self.request_count = 0
        self.away = False
        self.frozen = False
        # Rows it gives whoever asks, before any others.
        self.lies: list[int] = []
        # No more than these come back, whatever it has.
        self.most = 10**9
        # What it was told and has not taken up, as a store that shows changes late.
        self.late: list[StoredVector] | None = None
        self.puts: list[int] = []
        self._changed = asyncio.Event()

    async def _answer(self) -> None:
        if self.frozen:
            await asyncio.Event().wait()
        if self.away:
            raise IndexUnavailable("unruly is away")

    async def nearest(self, user: str, vector: np.ndarray, *, places: Sequence[str], limit: int) -> ScoredRows:
        self.request_count += 1
        assert is_hash(user)
        assert all(map(is_hash, places))
        await self._answer()
        own = [each for each in self.stored.values() if each.user == user and each.place in places]
        own.sort(key=lambda each: -float(each.vector @ vector))
        rows = [*self.lies, *(each.row for each in own)][: min(limit, self.most)]
        return ScoredRows(np.asarray(rows, np.int64), np.ones(len(rows), np.float32))

    async def put(self, rows: Sequence[StoredVector]) -> None:
        await self._answer()
        self.puts.append(len(rows))
        if self.late is not None:
            self.late += rows
        else:
            self.stored |= {each.row: each for each in rows}
        self._changed.set()

    async def wait_for_rows(self, count: int) -> None:
        """Wait until it has so many rows."""
        while len(self.stored) < count:
            self._changed.clear()
            await self._changed.wait()

    async def drop(self, rows: Sequence[int]) -> None:
        await self._answer()
        for row in rows:
            self.stored.pop(row, None)

    async def drop_user(self, user: str) -> int:
        await self._answer()
        gone = [row for row, each in self.stored.items() if each.user == user]
        for row in gone:
            del self.stored[row]
        return len(gone)

    async def rows(self, user: str) -> Sequence[int]:
        await self._answer()
        return sorted(row for row, each in self.stored.items() if each.user == user)

    async def users(self) -> Sequence[str]:
        await self._answer()
        return sorted({each.user for each in self.stored.values()})

    async def clear(self) -> None:
        await self._answer()
        self.stored.clear()

    async def close(self) -> None:
        pass
