"""Empty ledgers for tests: creating the tables takes longer than most tests, so it is done once per process."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from recollect.ledger.postgres import PostgresEngine, open_postgres
from recollect.ledger.postgres_tables import partition
from recollect.ledger.sqlite import open_sqlite
from tests.support.ledger_samples import MODEL, Open
from tests.support.postgres_server import PLAIN_ROLE, running_server

_created: set[str] = set()
_DELETE_ALL = """
DO $$ DECLARE name text; BEGIN
    -- A transaction that a cancelled test left open would hold its rows for ever.
    PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND state LIKE 'idle in transaction%';
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'meta' LOOP
        EXECUTE format('DELETE FROM %I', name);
    END LOOP;
END $$
"""


@cache
def _connection(database: str) -> psycopg.Connection[Any]:
    """Return a connection that outlives the event loop of a test: a new one takes longer than emptying the tables."""
    return psycopg.connect(running_server().dsn(database), autocommit=True)


async def empty_sqlite(folder: Path, name: str = "ledger") -> Open:
    """Copy an empty ledger into the folder."""
    blank, file = folder.parent / "blank.db", folder / f"{name}.db"
    if not blank.exists():
        await (await open_sqlite(blank, MODEL)).close()
    shutil.copy(blank, file)
    return lambda: open_sqlite(file, MODEL)


async def empty_postgres(*, partitions: int = 0) -> Open:
    """Empty the process's test database, whose large tables are split into `partitions` if there are any."""
    server, name = running_server(), f"suite_{partitions}"
    # Not as a superuser, who is exempt from row-level security.
    dsn = server.dsn(name, role=PLAIN_ROLE)
    if dsn not in _created:
        await server.make(name, role=PLAIN_ROLE)
        await (await open_postgres(dsn, MODEL)).close()
        if partitions:
            engine = PostgresEngine(dsn)
            await engine.open()
            await partition(engine, partitions)
            await engine.close()
        _created.add(dsn)
    try:
        _connection(name).execute(_DELETE_ALL)
    except psycopg.OperationalError:
        # A drill has stopped the server meanwhile.
        _connection.cache_clear()
        _connection(name).execute(_DELETE_ALL)
    return lambda: open_postgres(dsn, MODEL)
