"""SqlResponses: the promise of `Responses`, kept by the body of SQL on some engine."""

from __future__ import annotations

from datetime import datetime

from recollect.ledger.sql import responses as response_sql
from recollect.ledger.sql import responses as thread_sql
from recollect.ledger.sql.jobs import PRUNE_BATCH
from recollect.ledger.sql.tx import ALL_TENANTS, SqlEngine, Tx
from recollect.model.response import Plain, StoredResponse, Thread, ThreadItems
from recollect.model.scope import Scope


class SqlResponseStore:
    """Responses and threads on a SQL database."""

    _engine: SqlEngine

    async def save_response(
        self, scope: Scope, response: StoredResponse, *, items: ThreadItems | None = None, started_at: datetime
    ) -> None:
        async def save(tx: Tx) -> None:
            await response_sql.save_response(tx, scope, response, started_at=started_at)
            if items is not None:
                await thread_sql.add_thread_items(tx, scope, items)

        await self._engine.write(save, tenant=scope.user)

    async def response(self, scope: Scope, id: str) -> StoredResponse:
        return await self._engine.read(lambda tx: response_sql.response(tx, scope, id), tenant=scope.user, quick=True)

    async def response_chain(self, scope: Scope, id: str) -> list[StoredResponse]:
        return await self._engine.read(lambda tx: response_sql.response_chain(tx, scope, id), tenant=scope.user)

    async def drop_response(self, scope: Scope, id: str) -> None:
        await self._engine.write(lambda tx: response_sql.drop_response(tx, scope, id), tenant=scope.user)

    async def save_thread(self, scope: Scope, thread: Thread) -> None:
        await self._engine.write(lambda tx: thread_sql.save_thread(tx, scope, thread), tenant=scope.user)

    async def thread(self, scope: Scope, id: str) -> Thread:
        return await self._engine.read(lambda tx: thread_sql.thread(tx, scope, id), tenant=scope.user, quick=True)

    async def drop_thread(self, scope: Scope, id: str) -> None:
        await self._engine.write(lambda tx: thread_sql.drop_thread(tx, scope, id), tenant=scope.user)

    async def add_items(self, scope: Scope, items: ThreadItems) -> None:
        await self._engine.write(lambda tx: thread_sql.add_thread_items(tx, scope, items), tenant=scope.user)

    async def thread_items(
        self, scope: Scope, thread_id: str, *, after: str = "", newest_first: bool = False, limit: int | None = None
    ) -> list[Plain]:
        return await self._engine.read(
            lambda tx: thread_sql.thread_items(
                tx, scope, thread_id, after=after, newest_first=newest_first, limit=limit
            ),
            tenant=scope.user,
        )

    async def thread_item(self, scope: Scope, thread_id: str, id: str) -> Plain:
        return await self._engine.read(
            lambda tx: thread_sql.thread_item(tx, scope, thread_id, id), tenant=scope.user, quick=True
        )

    async def drop_item(self, scope: Scope, thread_id: str, id: str) -> None:
        await self._engine.write(lambda tx: thread_sql.drop_thread_item(tx, scope, thread_id, id), tenant=scope.user)

    async def prune_responses(self, before: datetime) -> int:
        pruned = 0
        for prune in (response_sql.prune_responses, thread_sql.prune_threads):
            batch_count = PRUNE_BATCH
            # A few at a time, so that nobody who writes waits for long.
            while batch_count == PRUNE_BATCH:
                batch_count = await self._engine.write(
                    lambda tx, prune=prune: prune(tx, before, PRUNE_BATCH),  # type: ignore[misc]
                    tenant=ALL_TENANTS,
                )
                pruned += batch_count
        return pruned
