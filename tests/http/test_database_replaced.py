"""A server whose PostgreSQL database is replaced by another at its address: nothing is stored in the wrong one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from recollect.ledger.postgres import open_postgres
from tests.http.test_ledger_away import USER, chat, ready, stop, turns, wait_for
from tests.support.ledger_samples import MODEL
from tests.support.postgres_server import running_server
from tests.support.recollect_server import RecollectServer

NAME, AWAY = "replaced", "away"


def run(*statements: str) -> None:
    for each in statements:
        asyncio.run(running_server().run(each))


def move(name: str, to: str) -> None:
    """Rename a database, whose connections end."""
    run(
        f"ALTER DATABASE {name} ALLOW_CONNECTIONS false",
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",
        f"ALTER DATABASE {name} RENAME TO {to}",
        f"ALTER DATABASE {to} ALLOW_CONNECTIONS true",
    )


def check_refused(server: RecollectServer, text: str) -> None:
    answer = chat(server, text)
    assert (answer.status_code, "X-Memory-Turn" in answer.headers) == (200, True)
    assert answer.headers["X-Memory-Status"].startswith("degraded")
    stored = httpx.post(f"{server.url}/recollect/v1/memories", json={"content": "I like tea"}, headers=USER)
    assert (stored.status_code, "was replaced" in stored.json()["error"]["message"]) == (503, True)
    status, checks = ready(server)
    assert (status, "put the former database back" in checks["ledger"]) == (503, True)


def test_turns_wait_on_disk_until_the_former_database_is_back(tmp_path: Path) -> None:
    dsn = asyncio.run(running_server().make(NAME))
    try:
        with RecollectServer(tmp_path / "home", RECOLLECT_DATABASE=dsn) as server:
            chat(server, "I live in Porto")
            wait_for(server, "I live in Porto")
            move(NAME, AWAY)
            run(f"CREATE DATABASE {NAME}")
            check_refused(server, "I have a cat named Tom")
            # Another process makes the tables.
            asyncio.run(_open(dsn))
            check_refused(server, "I have a dog named Rex")
            run(f"DROP DATABASE {NAME} WITH (FORCE)")
            move(AWAY, NAME)
            wait_for(server, "I live in Porto", "I have a cat named Tom", "I have a dog named Rex")
            assert turns(server).count("I have a cat named Tom") == 1
            assert ready(server)[0] == 200
            stop(server)
    finally:
        for name in (NAME, AWAY):
            run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


async def _open(dsn: str) -> None:
    await (await open_postgres(dsn, MODEL)).close()
