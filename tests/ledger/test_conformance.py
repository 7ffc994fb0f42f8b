"""Every ledger keeps the promise, and agrees with the one in memory."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import pytest

from recollect.errors import Unsupported
from recollect.ledger.in_memory.ledger import InMemoryLedger, open_in_memory
from recollect.ledger.postgres import open_postgres
from recollect.ledger.protocol import Ledger
from recollect.ledger.sqlite import open_sqlite
from recollect.testing.ledger_suite import MODEL, LedgerSuite, Open
from tests.support.ledger_state_machine import agree_with_memory
from tests.support.postgres_server import PLAIN_ROLE, running_server


class TestMemoryLedger(LedgerSuite):
    @pytest.fixture
    def store(self) -> Open:
        opened: list[InMemoryLedger] = []

        async def open_once() -> InMemoryLedger:
            if opened:
                raise Unsupported("a ledger in memory is neither shared nor kept")
            opened.append(await open_in_memory(MODEL))
            return opened[0]

        return open_once


# Making a ledger's tables takes longer than most tests do, so it is done once, then copied or emptied for each.
MADE: set[str] = set()
EMPTIED = """
DO $$ DECLARE name text; BEGIN
    -- A transaction that a test cut off and left behind would hold its rows for ever.
    PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND state LIKE 'idle in transaction%';
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'meta' LOOP
        EXECUTE format('DELETE FROM %I', name);
    END LOOP;
END $$
"""


async def empty_sqlite(folder: Path, name: str = "ledger") -> Open:
    blank, file = folder.parent / "blank.db", folder / f"{name}.db"
    if not blank.exists():
        await (await open_sqlite(blank, MODEL)).close()
    shutil.copy(blank, file)
    return lambda: open_sqlite(file, MODEL)


async def empty_postgres() -> Open:
    server = running_server()
    # Not as a superuser: row-level security must be in nobody's way.
    dsn = server.dsn("suite", role=PLAIN_ROLE)
    if dsn not in MADE:
        await server.make("suite", role=PLAIN_ROLE)
        await (await open_postgres(dsn, MODEL)).close()
        MADE.add(dsn)
    await server.run(EMPTIED, database="suite")
    return lambda: open_postgres(dsn, MODEL)


class TestSqliteLedger(LedgerSuite):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> Open:
        return await empty_sqlite(tmp_path)


class TestPostgresLedger(LedgerSuite):
    @pytest.fixture
    async def store(self) -> Open:
        return await empty_postgres()


def test_sqlite_agrees_with_the_ledger_in_memory(tmp_path: Path) -> None:
    names = map(str, count())

    async def open_empty() -> Ledger:
        return await (await empty_sqlite(tmp_path, next(names)))()

    agree_with_memory(open_empty)


# It may have to tell why they disagree, which takes many more steps than seeing that they agree.
@pytest.mark.timeout(600)
def test_postgres_agrees_with_the_ledger_in_memory() -> None:
    async def open_empty() -> Ledger:
        return await (await empty_postgres())()

    agree_with_memory(open_empty)
