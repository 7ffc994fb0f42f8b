"""Administration of the stores: the status, verification and rebuilding of the index, partitions of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recollect.errors import IndexInUse, Unsupported
from recollect.index.pgvector import pgvector_store_of
from recollect.index.protocol import Index
from recollect.index.store_sync import IndexCheck, verify_index
from recollect.index.vector_store_index import sync_of
from recollect.ledger.ledger import Ledger

_PAGE_SIZE = 1000


@dataclass(frozen=True, slots=True)
class IndexAdmin:
    """An open index with its ledger; the exact index is in memory, and has nothing to verify or rebuild."""

    ledger: Ledger
    index: Index

    async def status(self) -> dict[str, Any]:
        """Return which engine is used, and how many users it lags behind the ledger.

        `users` is None for a file that another process has opened.
        """
        if (pgvector := pgvector_store_of(self.index)) is not None:
            state = await pgvector.state()
            if state.trouble:
                raise Unsupported(state.trouble)
            return {"engine": pgvector.name, "users": state.users, "users_behind": 0}
        if (sync := sync_of(self.index)) is None:
            return {"engine": None, "users_behind": 0}
        users_behind, after = 0, ""
        while page := await self.ledger.lagging_users(sync.feed_name, limit=_PAGE_SIZE, after=after):
            users_behind, after = users_behind + len(page), page[-1].user
        try:
            users = len(await sync.store.users())
        except IndexInUse:
            users = None
        return {"engine": sync.store.name, "users": users, "users_behind": users_behind}

    async def verify(self) -> list[IndexCheck] | None:
        """Compare the rows of each user with the ledger; None for the exact index."""
        if (pgvector := pgvector_store_of(self.index)) is not None:
            return [
                IndexCheck(user, count, count - wrong, wrong, 0, 0) for user, count, wrong in await pgvector.verify()
            ]
        if (sync := sync_of(self.index)) is None:
            return None
        checks = verify_index(self.ledger, sync.model, sync.store, feed_name=sync.feed_name)
        return [each async for each in checks]

    async def rebuild(self, progress: Callable[[int], None], *, exact_rows: int) -> int | None:
        """Rebuild all rows from the ledger and return their number; None for the exact index.

        pgvector has rows only for users with more than `exact_rows` memories.
        """
        if (pgvector := pgvector_store_of(self.index)) is not None:
            return await pgvector.rebuild(large=exact_rows + 1, progress=lambda done, total: progress(done))
        sync = sync_of(self.index)
        return None if sync is None else await sync.rebuild(progress)


async def partition_tables(ledger: Ledger, parts: int) -> None:
    """Partition the large tables of a PostgreSQL ledger by user."""
    if ledger.engine.dialect.name != "postgres":
        raise Unsupported("only a PostgreSQL ledger can be partitioned: name one with --database postgresql://...")
    from recollect.ledger.postgres import PostgresEngine
    from recollect.ledger.postgres_tables import partition

    assert isinstance(ledger.engine, PostgresEngine)
    await partition(ledger.engine, parts)
