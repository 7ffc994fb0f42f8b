"""The connections of a process to PostgreSQL: so many at most, and none that leads nowhere is used twice."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from recollect.config.settings import load
from recollect.errors import StoreUnavailable
from recollect.http.app import warm_up_recall
from recollect.ledger import postgres
from recollect.ledger.postgres import PostgresEngine, open_postgres
from recollect.ledger.sql.tx import NO_TENANT, Tx
from recollect.model.change import Add
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.query import EVERYTHING
from recollect.wiring import open_ledger, open_service
from tests.support.ledger_samples import ANN, BY, MODEL, direction, memory
from tests.support.postgres_server import running_server

OURS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'recollect' AND datname = current_database()"


async def test_no_more_connections_are_opened_than_configured(dsn: str, tmp_path: Path) -> None:
    settings = load({"home": tmp_path, "database": dsn, "postgres_connections": 4}, environ={}).settings
    ledger = await open_ledger(settings, MODEL)
    admin = await asyncpg.connect(dsn)
    seen = []

    async def slow(tx: Tx) -> Any:
        await tx.rows("SELECT pg_sleep(0.02)", {})
        seen.append(len(await aside_pids(tx)))

    async def aside_pids(tx: Tx) -> Any:
        return await tx.rows(OURS, {})

    engine = ledger.engine  # type: ignore[attr-defined]
    await asyncio.gather(*(engine.read(slow, tenant=NO_TENANT) for _ in range(40)))
    assert max(seen) == 4
    await admin.close()
    await ledger.close()


async def test_no_statement_makes_the_driver_look_up_types(dsn: str) -> None:
    ledger = await open_postgres(dsn, MODEL)
    stored = (await ledger.apply(ANN, [Add(memory(), direction(0))], by=BY)).outcomes[0].record
    rows = await ledger.matching(ANN, EVERYTHING)
    assert [each.record for each in await ledger.fetch(ANN, rows, filter=EVERYTHING)] == [stored]
    assert list((await ledger.lexical(ANN, stored.content)).rows) == rows
    assert set(await ledger.vectors_of("ann", rows, model=MODEL)) == set(rows)
    await ledger.erase(ANN, ErasureRequest(Target.MEMORY, stored.id), by=BY)

    async def type_lookups(tx: Tx) -> Any:
        prepared = await tx.rows("SELECT statement FROM pg_prepared_statements", {})
        return [statement for (statement,) in prepared if "typeinfo" in statement]

    async def array_type(tx: Tx) -> Any:
        await tx.rows("SELECT NULL::bigint[]", {})
        return await type_lookups(tx)

    engine: Any = ledger.engine
    assert await engine.read(type_lookups, tenant=NO_TENANT) == []
    assert len(await engine.read(array_type, tenant=NO_TENANT)) == 1
    await ledger.close()


async def test_a_server_opens_its_connections_before_the_first_request(dsn: str, tmp_path: Path) -> None:
    chosen = {"home": tmp_path, "database": dsn, "postgres_connections": 4, "worker": False}
    service = await open_service(load(chosen, environ={}).settings)
    admin = await asyncpg.connect(dsn)
    await warm_up_recall(service, connections=4)
    assert len(await admin.fetch(OURS)) >= 4
    assert await service.users() == []
    await admin.close()
    await service.close()


async def test_the_driver_logs_nothing_while_postgres_is_down(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    ledger = await open_postgres(dsn, MODEL)
    name = dsn.partition("?")[0].rpartition("/")[2]
    server = running_server()
    await server.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    await server.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await ledger.users()
    assert [record.message for record in caplog.records if record.name.startswith("asyncpg")] == []
    await server.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    assert await ledger.users() == []
    await ledger.close()


async def test_a_dead_idle_connection_delays_nobody(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = await open_postgres(dsn, MODEL)
    stored = (await ledger.apply(ANN, [Add(memory())], by=BY)).outcomes[0].record
    admin = await asyncpg.connect(dsn)
    # At once, so that there are as many connections as there may be.
    await asyncio.gather(*(ledger.get(ANN, [stored.id]) for _ in range(100)))
    asleep = [row[0] for row in await admin.fetch(OURS)]
    monkeypatch.setattr(postgres, "IDLE_S", 0.0)
    monkeypatch.setattr(postgres, "ALIVE_S", 0.5)
    assert len(asleep) > postgres.TRIES, "trying one after the other would help"
    for process in asleep:
        os.kill(process, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert await ledger.get(ANN, [stored.id]) == [stored]
        # A statement would be waited for longer than this.
        assert time.monotonic() - began < postgres.STATEMENT_S / 2
    finally:
        for process in asleep:
            os.kill(process, signal.SIGCONT)
    await admin.close()
    await ledger.close()


async def test_a_connection_in_use_is_not_checked(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []
    real = asyncpg.Connection.execute

    async def execute(self: Any, query: str, *arguments: Any, **named: Any) -> str:
        requests.append(query)
        return str(await real(self, query, *arguments, **named))

    engine = PostgresEngine(dsn)
    await engine.open()
    monkeypatch.setattr(asyncpg.Connection, "execute", execute)
    for _ in range(5):
        await engine.read(lambda tx: tx.rows("SELECT 1", {}), tenant=NO_TENANT, quick=True)
    assert "SELECT 1" not in requests
    monkeypatch.setattr(postgres, "IDLE_S", 0.0)
    await engine.read(lambda tx: tx.rows("SELECT 1", {}), tenant=NO_TENANT, quick=True)
    assert "SELECT 1" in requests
    await engine.close()


async def test_an_older_copy_in_the_place_of_the_database_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "NOTE_EVERY_S", 0.0)
    server = running_server()
    async with server.database() as dsn, server.database() as other:
        name, spare = dsn.partition("?")[0].rpartition("/")[2], other.partition("?")[0].rpartition("/")[2]
        await (await open_postgres(dsn, MODEL)).close()
        await server.run(f"DROP DATABASE {spare}")
        await server.run(f"CREATE DATABASE {spare} TEMPLATE {name}")
        ledger = await open_postgres(dsn, MODEL)
        await ledger.apply(ANN, [Add(memory(), direction(0))], by=BY)
        for former, new in ((name, "swapped"), (spare, name), ("swapped", spare)):
            await server.run(f"ALTER DATABASE {former} ALLOW_CONNECTIONS false")
            await server.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{former}'")
            await server.run(f"ALTER DATABASE {former} RENAME TO {new}")
            await server.run(f"ALTER DATABASE {new} ALLOW_CONNECTIONS true")
        with pytest.raises(StoreUnavailable, match="was replaced while in use"):
            await ledger.apply(ANN, [Add(memory(), direction(0))], by=BY)
        with pytest.raises(StoreUnavailable, match="put the former database back, or restart"):
            await ledger.matching(ANN, EVERYTHING)
        await ledger.close()


async def test_a_connection_that_is_lost_before_the_first_or_after_the_last_statement_costs_nothing(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await open_postgres(dsn, MODEL)
    admin = await asyncpg.connect(dsn)
    acquire, execute = asyncpg.pool.Pool.acquire, asyncpg.Connection.execute
    lost: list[str] = []

    async def lose(connection: Any, when: str) -> None:
        lost.append(when)
        ended = asyncio.Event()
        connection.add_termination_listener(lambda _: ended.set())
        await admin.fetchval("SELECT pg_terminate_backend($1)", connection.get_server_pid())
        await ended.wait()

    async def acquire_lost(self: Any, **options: Any) -> Any:
        connection = await acquire(self, **options)
        if "acquired" not in lost:
            await lose(connection, "acquired")
        return connection

    async def commit_and_lose(self: Any, query: str, *arguments: Any, **options: Any) -> str:
        done = str(await execute(self, query, *arguments, **options))
        if query == "COMMIT":
            await lose(self, "committed")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(asyncpg.pool.Pool, "acquire", acquire_lost)
        assert await ledger.users() == []
        patch.setattr(asyncpg.Connection, "execute", commit_and_lose)
        [outcome] = (await ledger.apply(ANN, [Add(memory(), direction(0))], by=BY)).outcomes
    assert (outcome.changed, lost) == (True, ["acquired", "committed"])
    assert await ledger.get(ANN, [outcome.record.id]) == [outcome.record]
    await admin.close()
    await ledger.close()
