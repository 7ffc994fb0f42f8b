"""How long each memory of a user is, in terms: BM25 asks it of every row, so it is kept at hand."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from recollect.ledger.protocol import Revision
from recollect.ledger.sql.tx import Tx
from recollect.ledger.sql.vectors import revision

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_USERS = 10_000


@dataclass(frozen=True, slots=True)
class Lengths:
    """Rows in rising order and their lengths, as of a revision; never changed, only replaced."""

    revision: Revision = field(default_factory=Revision)
    rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    counts: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    average: float = 1.0

    def updated(self, revision: Revision, rows: NDArray[np.int64], counts: NDArray[np.int32]) -> Lengths:
        """With what changed since: new rows at the end, others in place."""
        last = self.rows[-1] if len(self.rows) else -1
        new = rows > last
        own = self.counts.copy()
        own[np.searchsorted(self.rows, rows[~new])] = counts[~new]
        own = np.concatenate([own, counts[new]])
        average = float(own.mean()) if own.any() else 1.0
        return Lengths(revision, np.concatenate([self.rows, rows[new]]), own, average)


class LengthCache:
    """The lengths of the users searched last; readers in several threads share it."""

    def __init__(self) -> None:
        self._users: OrderedDict[str, Lengths] = OrderedDict()
        self._lock = threading.Lock()

    def count(self, user: str) -> int | None:
        """How many rows the user had when last looked at."""
        known = self._users.get(user)
        return None if known is None else len(known.rows)

    async def get(self, tx: Tx, user: str) -> Lengths:
        """The user's lengths as this transaction sees them."""
        known = self._users.get(user, Lengths())
        current = await revision(tx, user)
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
        with self._lock:
            self._users[user] = known
            self._users.move_to_end(user)
            while len(self._users) > MAX_USERS:
                self._users.popitem(last=False)
        return known
