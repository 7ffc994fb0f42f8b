"""How long each memory of a user is, in terms: BM25 asks it of every row, so it is kept at hand."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from recollect.ledger.protocol import Revision
from recollect.ledger.sql.tx import Tx

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_LENGTH_BYTES = 64 << 20
# What a user costs besides the arrays; generous, so that many with few memories are not taken for free.
_USER_BYTES = 1024


@dataclass(frozen=True, slots=True)
class DocLengths:
    """Rows in rising order and their lengths, as of a revision; never changed, only replaced."""

    revision: Revision = field(default_factory=Revision)
    rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    counts: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    total: int = 0

    @property
    def average(self) -> float:
        """The length of a memory like the others."""
        return self.total / len(self.rows) if self.total else 1.0

    @property
    def size(self) -> int:
        """Bytes it takes."""
        return self.rows.nbytes + self.counts.nbytes + _USER_BYTES

    def updated(self, revision: Revision, rows: NDArray[np.int64], counts: NDArray[np.int32]) -> DocLengths:
        """With what changed since: new rows at the end, others in place."""
        last = self.rows[-1] if len(self.rows) else -1
        new = rows > last
        at = np.searchsorted(self.rows, rows[~new])
        total = self.total - int(self.counts[at].sum()) + int(counts.sum())
        merged = self.counts.copy()
        merged[at] = counts[~new]
        return DocLengths(
            revision, np.concatenate([self.rows, rows[new]]), np.concatenate([merged, counts[new]]), total
        )


class DocLengthCache:
    """The lengths of the users searched last, within a budget; readers in several threads share it."""

    def __init__(self, max_bytes: int = MAX_LENGTH_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._users: OrderedDict[str, DocLengths] = OrderedDict()
        self._lock = threading.Lock()

    def count(self, user: str) -> int | None:
        """How many rows the user had when last looked at."""
        with self._lock:
            cached = self._users.get(user)
        return None if cached is None else len(cached.rows)

    async def get(self, tx: Tx, user: str, current: Revision) -> DocLengths:
        """The user's lengths as this transaction sees them, at the revision it sees."""
        cached = self._cached(user)
        if cached.revision == current:
            return cached
        # Rows were erased, or another reader is ahead of this transaction's view: begin anew.
        if cached.revision.epoch != current.epoch or cached.revision.number > current.number:
            cached = DocLengths()
        changed = await tx.rows(
            "SELECT row, term_count FROM memories WHERE user_id = :user AND revision > :after ORDER BY row",
            {"user": user, "after": cached.revision.number},
        )
        rows = np.fromiter((row[0] for row in changed), np.int64, len(changed))
        counts = np.fromiter((row[1] for row in changed), np.int32, len(changed))
        cached = cached.updated(current, rows, counts)
        self._store(user, cached)
        return cached

    def drop(self, user: str) -> None:
        """Let go of a user of whom something was erased."""
        with self._lock:
            if user in self._users:
                self._bytes -= self._users.pop(user).size

    def _cached(self, user: str) -> DocLengths:
        with self._lock:
            if user not in self._users:
                return DocLengths()
            self._users.move_to_end(user)
            return self._users[user]

    def _store(self, user: str, lengths: DocLengths) -> None:
        """Keep it, at the cost of those asked for longest ago; the newest stays, however large."""
        with self._lock:
            if user in self._users:
                self._bytes -= self._users.pop(user).size
            self._users[user] = lengths
            self._bytes += lengths.size
            while self._bytes > self._max_bytes and len(self._users) > 1:
                self._bytes -= self._users.popitem(last=False)[1].size
