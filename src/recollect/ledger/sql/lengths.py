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

MAX_BYTES = 64 << 20
# What a user costs besides the arrays; generous, so that many with few memories are not taken for free.
_USER_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Lengths:
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

    def updated(self, revision: Revision, rows: NDArray[np.int64], counts: NDArray[np.int32]) -> Lengths:
        """With what changed since: new rows at the end, others in place."""
        last = self.rows[-1] if len(self.rows) else -1
        new = rows > last
        at = np.searchsorted(self.rows, rows[~new])
        total = self.total - int(self.counts[at].sum()) + int(counts.sum())
        own = self.counts.copy()
        own[at] = counts[~new]
        return Lengths(revision, np.concatenate([self.rows, rows[new]]), np.concatenate([own, counts[new]]), total)


class LengthCache:
    """The lengths of the users searched last, within a budget; readers in several threads share it."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._users: OrderedDict[str, Lengths] = OrderedDict()
        self._lock = threading.Lock()

    def count(self, user: str) -> int | None:
        """How many rows the user had when last looked at."""
        with self._lock:
            known = self._users.get(user)
        return None if known is None else len(known.rows)

    async def get(self, tx: Tx, user: str, current: Revision) -> Lengths:
        """The user's lengths as this transaction sees them, at the revision it sees."""
        known = self._held(user)
        if known.revision == current:
            return known
        # Rows were erased, or another reader is ahead of this transaction's view: begin anew.
        if known.revision.epoch != current.epoch or known.revision.number > current.number:
            known = Lengths()
        found = await tx.rows(
            "SELECT row, term_count FROM memories WHERE user_id = :user AND revision > :after ORDER BY row",
            {"user": user, "after": known.revision.number},
        )
        rows = np.fromiter((row[0] for row in found), np.int64, len(found))
        counts = np.fromiter((row[1] for row in found), np.int32, len(found))
        known = known.updated(current, rows, counts)
        self._hold(user, known)
        return known

    def drop(self, user: str) -> None:
        """Let go of a user of whom something was erased."""
        with self._lock:
            if user in self._users:
                self._bytes -= self._users.pop(user).size

    def _held(self, user: str) -> Lengths:
        with self._lock:
            if user not in self._users:
                return Lengths()
            self._users.move_to_end(user)
            return self._users[user]

    def _hold(self, user: str, lengths: Lengths) -> None:
        """Keep it, at the cost of those asked for longest ago; the newest stays, however large."""
        with self._lock:
            if user in self._users:
                self._bytes -= self._users.pop(user).size
            self._users[user] = lengths
            self._bytes += lengths.size
            while self._bytes > self._max_bytes and len(self._users) > 1:
                self._bytes -= self._users.popitem(last=False)[1].size
