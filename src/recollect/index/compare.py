"""Hold an engine against the ledger: which rows it lacks, and which it has that it should not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from recollect.index.engine import ExternalVectorStore, hash_user
from recollect.ledger.protocol import Ledger
from recollect.model.memory import Status
from recollect.models.embedding import EmbeddingModel


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """What an engine has of a user: rows it must have, has, lacks, has too many, and which changed since it was fed.

    Of someone the ledger does not know, the name is a mark.
    """

    user: str
    rows: int
    kept: int
    missing: int
    extra: int
    waiting: int

    @property
    def is_consistent(self) -> bool:
        """Whether it is as far as it says that it is."""
        return not self.missing and not self.extra


async def verify_index(
    ledger: Ledger, model: EmbeddingModel, store: ExternalVectorStore, *, feed_name: str
) -> AsyncIterator[IndexCheck]:
    """Every user of the ledger, and whoever else the engine has anything of."""
    users = await ledger.users()
    for user in users:
        # The engine before the ledger: what is fed meanwhile is in the ledger by then.
        stored = set(await store.rows(hash_user(user)))
        fed = await ledger.feed_position(user, index=feed_name)
        _, changed = await ledger.index_rows(user, model=model, after=fed.revision.number, vectors=False)
        _, rows = await ledger.index_rows(user, model=model, after=0, vectors=False)
        expected = {row.row for row in rows if row.status == Status.ACTIVE and row.vector is not None}
        waiting = {row.row for row in changed}
        missing, extra = expected - stored - waiting, stored - expected - waiting
        yield IndexCheck(
            user, len(expected), len(stored), len(missing), len(extra), len((expected ^ stored) & waiting)
        )
    for user_hash in sorted(set(await store.users()).difference(map(hash_user, users))):
        count = len(await store.rows(user_hash))
        yield IndexCheck(user_hash, 0, count, 0, count, 0)
