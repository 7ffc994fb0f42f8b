"""Hold an engine against the ledger: which rows it lacks, and which it has that it should not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from recollect.index.engine import FedEngine, user_mark
from recollect.ledger.protocol import Ledger
from recollect.model.memory import Status
from recollect.models.embedding import EmbeddingModel


@dataclass(frozen=True, slots=True)
class Compared:
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
    def is_right(self) -> bool:
        """Whether it is as far as it says that it is."""
        return not self.missing and not self.extra


async def compare(
    ledger: Ledger, model: EmbeddingModel, engine: FedEngine, *, fed_as: str
) -> AsyncIterator[Compared]:
    """Every user of the ledger, and whoever else the engine has anything of."""
    known = await ledger.users()
    for user in known:
        # The engine before the ledger: what is fed meanwhile is in the ledger by then.
        kept = set(await engine.rows(user_mark(user)))
        fed = await ledger.fed(user, index=fed_as)
        _, changed = await ledger.index_rows(user, model=model, after=fed.revision.number, vectors=False)
        _, rows = await ledger.index_rows(user, model=model, after=0, vectors=False)
        wanted = {row.row for row in rows if row.status == Status.ACTIVE and row.vector is not None}
        waiting = {row.row for row in changed}
        missing, extra = wanted - kept - waiting, kept - wanted - waiting
        yield Compared(user, len(wanted), len(kept), len(missing), len(extra), len((wanted ^ kept) & waiting))
    for mark in sorted(set(await engine.users()).difference(map(user_mark, known))):
        count = len(await engine.rows(mark))
        yield Compared(mark, 0, count, 0, count, 0)
