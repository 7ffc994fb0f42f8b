"""A database whose large tables are split by user keeps every promise of a ledger, and what it knew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from recollect.errors import Conflict, InvalidInput
from recollect.ledger.postgres import PostgresEngine, open_postgres
from recollect.ledger.postgres_tables import TABLES, partition
from recollect.model.change import Add
from recollect.model.query import Listing
from recollect.model.scope import Scope
from tests.support.cli_runner import Cli
from tests.support.ledger_samples import BY, MODEL, direction, memory
from tests.support.postgres_server import PLAIN_ROLE, SUPERUSER, running_server


async def split(dsn: str, parts: int) -> None:
    engine = PostgresEngine(dsn)
    await engine.open()
    try:
        await partition(engine, parts)
    finally:
        await engine.close()


@pytest.fixture
async def plain() -> AsyncIterator[str]:
    async with running_server().database(role=PLAIN_ROLE) as dsn:
        yield dsn


async def test_partitioning_keeps_the_views_of_the_tables(plain: str) -> None:
    ledger = await open_postgres(plain, MODEL)
    for user in ("ann", "bob"):
        fact = memory("name", scope=Scope(user), key="name", value=user)
        await ledger.apply(Scope(user), [Add(fact, direction(1))], by=BY)
    await ledger.close()
    await split(plain, 4)
    connection = await asyncpg.connect(plain)
    sql = "SELECT value FROM structured_facts"
    assert await connection.fetch(sql) == []
    await connection.execute("SET recollect.whose = '=ann'")
    assert [row["value"] for row in await connection.fetch(sql)] == ["ann"]
    assert await connection.fetch("SELECT * FROM episodic_memory") == []
    options = await connection.fetch(
        "SELECT reloptions FROM pg_class WHERE relkind = 'v' AND relname ~ '_(facts|memory)$'"
    )
    assert [row["reloptions"] for row in options] == [["security_invoker=true"]] * 2
    await connection.close()


async def test_partitioning_keeps_all_rows_and_users_apart(plain: str) -> None:
    people = [Scope(f"user {n}") for n in range(20)]
    ledger = await open_postgres(plain, MODEL)
    for person in people:
        adds = [Add(memory(f"likes tea {n}", scope=person), direction(n)) for n in range(3)]
        await ledger.apply(person, adds, by=BY)
    before = [await ledger.find(person, Listing()) for person in people]
    results = [(await ledger.lexical(person, "tea")).rows.tolist() for person in people]
    await ledger.close()
    await split(plain, 4)
    ledger = await open_postgres(plain, MODEL)
    assert [await ledger.find(person, Listing()) for person in people] == before
    assert [(await ledger.lexical(person, "tea")).rows.tolist() for person in people] == results
    added = await ledger.apply(people[0], [Add(memory("likes coffee", scope=people[0]), direction(4))], by=BY)
    assert added.outcomes[0].changed
    assert await ledger.check() == await ledger.security_warnings() == []
    admin = await asyncpg.connect(plain.replace(f"//{PLAIN_ROLE}@", f"//{SUPERUSER}@"))
    for table in TABLES:
        parts = await admin.fetch(f"SELECT tableoid FROM {table} GROUP BY tableoid")
        assert len(parts) == (0 if table == "turns" else 4), table
    await admin.execute(f"SET ROLE {PLAIN_ROLE}")
    for table in (*TABLES, *(f"{table}_part_0" for table in TABLES)):
        assert await admin.fetchval(f"SELECT count(*) FROM {table}") == 0, f"{table} shows rows to who says nothing"
    await admin.close()
    await ledger.close()


async def test_tables_are_partitioned_once_and_into_a_valid_number_of_parts(plain: str) -> None:
    await (await open_postgres(plain, MODEL)).close()
    with pytest.raises(InvalidInput):
        await split(plain, 1)
    await split(plain, 2)
    with pytest.raises(Conflict, match="split already"):
        await split(plain, 2)


async def test_the_command_partitions_postgres_and_refuses_sqlite(plain: str, tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    report = await asyncio.to_thread(cli, "partition", "4", "--database", plain)
    assert "into 4 parts" in report.output
    assert "only a PostgreSQL ledger" in await asyncio.to_thread(cli.error, "partition", "4", code=7)
