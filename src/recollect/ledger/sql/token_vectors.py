"""Token vectors of memories, with a cache of those that searches of a user read last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from recollect.ledger.sql.tx import Tx
from recollect.ledger.sql.user_cache import USER_BYTES, PerUserCache
from recollect.ledger.sql.vectors import revision, vectors_of
from recollect.ledger.types import Revision
from recollect.models.embedding import TOKEN_MODEL

# What a row costs besides its vectors.
_ROW_BYTES = 128
# If more rows have changed than this, all are read again.
_MAX_CHANGED = 1000


@dataclass(slots=True)
class _UserTokenVectors:
    """The packed token vectors of a user's rows, as of a revision."""

    revision: Revision
    by_row: dict[int, bytes] = field(default_factory=dict)
    size: int = USER_BYTES

    def add(self, vectors: dict[int, bytes]) -> None:
        self.by_row |= vectors
        self.size += sum(map(len, vectors.values())) + len(vectors) * _ROW_BYTES


class TokenVectorCache(PerUserCache[_UserTokenVectors]):
    """The token vectors of the candidates that were searched last."""

    async def get(self, tx: Tx, user: str, rows: Sequence[int]) -> dict[int, bytes]:
        """Return the packed token vectors of those of the rows that are the user's and have some."""
        # Taken out while it is extended: another reader of the same user starts over meanwhile.
        with self._lock:
            cached, drops = self._pop(user), self._drops
        current = await revision(tx, user)
        if cached is None or not await _drop_changed(tx, user, cached, current):
            cached = _UserTokenVectors(current)
        # Those that have none may get some at any moment, without a new revision.
        if missing := [row for row in rows if row not in cached.by_row]:
            cached.add(await vectors_of(tx, user, missing, model=TOKEN_MODEL))
        found = {row: cached.by_row[row] for row in rows if row in cached.by_row}
        with self._lock:
            # Not put back if anyone was erased while it was read.
            if drops == self._drops:
                self._put(user, cached)
        return found


async def _drop_changed(tx: Tx, user: str, cached: _UserTokenVectors, current: Revision) -> bool:
    """Drop the rows that changed since they were read; return False if it may be any of them."""
    if cached.revision == current:
        return True
    if cached.revision.epoch != current.epoch or cached.revision.number > current.number:
        return False
    changed = await tx.rows(
        "SELECT row FROM memories WHERE user_id = :user AND revision > :after LIMIT :most",
        {"user": user, "after": cached.revision.number, "most": _MAX_CHANGED + 1},
    )
    for (row,) in changed:
        if (vectors := cached.by_row.pop(row, None)) is not None:
            cached.size -= len(vectors) + _ROW_BYTES
    cached.revision = current
    return len(changed) <= _MAX_CHANGED
