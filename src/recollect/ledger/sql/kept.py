"""SqlResponses: the promise of `Responses`, kept by the body of SQL on some engine."""

from __future__ import annotations

from datetime import datetime

from recollect.ledger.sql import responses as response_sql
from recollect.ledger.sql import threads as thread_sql
from recollect.ledger.sql.jobs import PRUNED_AT_ONCE
from recollect.ledger.sql.tx import EVERYONE, Engine, Tx
from recollect.model.response import KeptResponse, Plain, Thread, ThreadItems
from recollect.model.scope import Scope


class SqlResponses:
    """Responses and threads on a SQL database."""

    _engine: Engine

    async def keep_response(
        self, scope: Scope, response: KeptResponse, *, items: ThreadItems | None = None, begun_at: datetime
    ) -> None:
        async def both(tx: Tx) -> None:
            await response_sql.keep(tx, scope, response, begun_at=begun_at)
            if items is not None:
                await thread_sql.add(tx, scope, items)

        await self._engine.write(both, of=scope.user)

    async def response(self, scope: Scope, id: str) -> KeptResponse:
        return await self._engine.read(lambda tx: response_sql.response(tx, scope, id), of=scope.user, quick=True)

    async def response_chain(self, scope: Scope, id: str) -> list[KeptResponse]:
        return await self._engine.read(lambda tx: response_sql.chain(tx, scope, id), of=scope.user)

    async def drop_response(self, scope: Scope, id: str) -> None:
        await self._engine.write(lambda tx: response_sql.drop(tx, scope, id), of=scope.user)

    async def keep_thread(self, scope: Scope, thread: Thread) -> None:
        await self._engine.write(lambda tx: thread_sql.keep(tx, scope, thread), of=scope.user)

    async def thread(self, scope: Scope, id: str) -> Thread:
        return await self._engine.read(lambda tx: thread_sql.thread(tx, scope, id), of=scope.user, quick=True)

    async def drop_thread(self, scope: Scope, id: str) -> None:
        await self._engine.write(lambda tx: thread_sql.drop(tx, scope, id), of=scope.user)

    async def add_items(self, scope: Scope, items: ThreadItems) -> None:
        await self._engine.write(lambda tx: thread_sql.add(tx, scope, items), of=scope.user)

    async def thread_items(
        self, scope: Scope, thread_id: str, *, after: str = "", newest_first: bool = False, limit: int | None = None
    ) -> list[Plain]:
        return await self._engine.read(
            lambda tx: thread_sql.items(tx, scope, thread_id, after=after, newest_first=newest_first, limit=limit),
            of=scope.user,
        )

    async def thread_item(self, scope: Scope, thread_id: str, id: str) -> Plain:
        return await self._engine.read(
            lambda tx: thread_sql.item(tx, scope, thread_id, id), of=scope.user, quick=True
        )

    async def drop_item(self, scope: Scope, thread_id: str, id: str) -> None:
        await self._engine.write(lambda tx: thread_sql.drop_item(tx, scope, thread_id, id), of=scope.user)

    async def prune_responses(self, before: datetime) -> int:
        pruned = 0
        for some_of in (response_sql.prune, thread_sql.prune):
            some = PRUNED_AT_ONCE
            # A few at a time, so that nobody who writes waits for long.
            while some == PRUNED_AT_ONCE:
                some = await self._engine.write(
                    lambda tx, some_of=some_of: some_of(tx, before, PRUNED_AT_ONCE),  # type: ignore[misc]
                    of=EVERYONE,
                )
                pruned += some
        return pruned
