"""A database is brought up to date while servers of the version before go on reading and writing."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import asyncpg
import pytest

from recollect.ledger.postgres import MIGRATION_LOCK_S, PostgresEngine, open_postgres
from recollect.ledger.sql import migrate
from recollect.ledger.sql.ledger import SqlLedger
from recollect.model.change import Add
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.testing.suite_samples import BY, MODEL, memory

PEOPLE = [Scope(f"user {n}") for n in range(4)]
# Far more than anything here takes, and less than a writer waits for a lock.
SOON_S = 25.0


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more migration than there is: made twice, it fails."""
    existing = migrate.migrations("postgres")
    statements = (
        "ALTER TABLE users ADD COLUMN extra TEXT",
        "ALTER TABLE memories ADD COLUMN extra TEXT",
        "CREATE TABLE made_once (extra TEXT)",
    )
    monkeypatch.setattr(migrate, "migrations", lambda dialect: existing | {max(existing) + 1: statements})


@dataclass
class Load:
    """People who write and read all the time through a server that knows nothing of the migration."""

    ledger: SqlLedger
    acked: list[tuple[Scope, str]] = field(default_factory=list)
    slowest_s: float = 0.0
    step: asyncio.Event = field(default_factory=asyncio.Event)

    async def go_on(self, person: Scope) -> None:
        for number in itertools.count():
            began = time.monotonic()
            applied = await self.ledger.apply(person, [Add(memory(f"tea {number}", scope=person))], by=BY)
            self.acked.append((person, applied.outcomes[0].record.id))
            await self.ledger.find(person, Listing(limit=5))
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            self.step.set()

    async def more(self, count: int) -> None:
        """Return when so many more were acknowledged."""
        expected = len(self.acked) + count
        while len(self.acked) < expected:
            self.step.clear()
            await self.step.wait()


@asynccontextmanager
async def under_load(dsn: str) -> AsyncIterator[Load]:
    engine = PostgresEngine(dsn)
    await engine.open()
    load = Load(SqlLedger(engine, MODEL))
    people = [asyncio.create_task(load.go_on(person)) for person in PEOPLE]
    try:
        await load.more(20)
        yield load
        await load.more(20)
    finally:
        for task in people:
            task.cancel()
        done = await asyncio.gather(*people, return_exceptions=True)
        await engine.close()
    assert all(isinstance(each, asyncio.CancelledError) for each in done), done


async def test_two_servers_that_start_at_once_migrate_once_while_others_write(dsn: str, later: None) -> None:
    await (await before(dsn)).close()
    async with under_load(dsn) as load:
        async with asyncio.timeout(60):
            ledgers = await asyncio.gather(open_postgres(dsn, MODEL), open_postgres(dsn, MODEL))
    for person, id in load.acked:
        assert [record.id for record in await ledgers[0].get(person, [id])] == [id]
    assert await ledgers[1].check() == []
    for ledger in ledgers:
        await ledger.close()


async def test_a_migration_that_has_to_wait_keeps_nobody_waiting_behind_it(dsn: str, later: None) -> None:
    await (await before(dsn)).close()
    reader = await asyncpg.connect(dsn)
    async with under_load(dsn) as load:
        # Somebody's long report.
        await reader.execute("BEGIN; SELECT count(*) FROM users")
        opening = asyncio.create_task(open_postgres(dsn, MODEL))
        await waits_for_a_lock(dsn)
        began = time.monotonic()
        await load.more(50)
        assert time.monotonic() - began < SOON_S
        assert not opening.done()
        await reader.execute("COMMIT")
        async with asyncio.timeout(60):
            ledger = await opening
        await load.more(10)
    assert load.slowest_s < MIGRATION_LOCK_S + SOON_S / 2
    await reader.close()
    await ledger.close()


async def before(dsn: str) -> SqlLedger:
    """A ledger of the version before."""
    existing = migrate.migrations("postgres")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "migrations", lambda dialect: {n: existing[n] for n in list(existing)[:-1]})
        return await open_postgres(dsn, MODEL)


async def waits_for_a_lock(dsn: str) -> None:
    """Return when somebody waits for a whole table."""
    connection = await asyncpg.connect(dsn)
    async with asyncio.timeout(60):
        while not await connection.fetchval(  # noqa: ASYNC110
            "SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock' LIMIT 1"
        ):
            await asyncio.sleep(0.01)
    await connection.close()
