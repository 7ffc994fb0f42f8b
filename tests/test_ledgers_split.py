"""A PostgreSQL whose large tables are split by user keeps every promise of a ledger; `make drill` holds it to it."""

from __future__ import annotations

import pytest

from recollect.ledger.postgres import PostgresEngine, open_postgres
from recollect.ledger.postgres_partition import partition
from recollect.testing.ledger_suite import MODEL, LedgerSuite, Open
from recollect.testing.postgres_server import PLAIN_ROLE, running_server

MADE: list[str] = []
EMPTIED = """
DO $$ DECLARE name text; BEGIN
    PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND state LIKE 'idle in transaction%';
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'meta' LOOP
        EXECUTE format('DELETE FROM %I', name);
    END LOOP;
END $$
"""


@pytest.mark.drill
class TestSplitLedger(LedgerSuite):
    @pytest.fixture
    async def store(self) -> Open:
        server = running_server()
        dsn = server.dsn("split", role=PLAIN_ROLE)
        if not MADE:
            await server.make("split", role=PLAIN_ROLE)
            await (await open_postgres(dsn, MODEL)).close()
            engine = PostgresEngine(dsn)
            await engine.open()
            await partition(engine, 8)
            await engine.close()
            MADE.append(dsn)
        await server.run(EMPTIED, database="split")
        return lambda: open_postgres(dsn, MODEL)
