"""News of changes through PostgreSQL, where processes share nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import asyncpg
import pytest

from recollect.ledger import postgres_wire
from recollect.ledger.postgres_wire import MOST_LETTERS, parts
from recollect.model.change import By
from recollect.model.scope import Scope
from recollect.remember import NewMemory
from recollect.service import Service
from recollect.settings import load
from recollect.shared.news import News, SharedNews
from recollect.testing.postgres_server import PostgresServer
from recollect.wiring import open_service

BY = By("test")
LONG_S = 60.0


@asynccontextmanager
async def opened(home: Path, database: str) -> AsyncIterator[Service]:
    service = await open_service(load({"home": home, "worker": False, "database": database}, environ={}).settings)
    try:
        yield service
    finally:
        await service.close()


async def add(service: Service, user: str = "ann") -> None:
    await service.add(Scope(user), NewMemory(content=f"Likes tea at {monotonic()}"), by=BY)


async def follower(service: Service, user: str = "ann") -> asyncio.Task[None]:
    """Somebody who waits, and hears what others tell, when this returns."""
    waiting = asyncio.create_task(service.news.wait(user, LONG_S))
    await heard(service)
    return waiting


async def heard(service: Service, *, is_shared: bool = True) -> None:
    async with asyncio.timeout(LONG_S):
        while service.news.is_shared is not is_shared:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_what_one_process_changes_wakes_another(tmp_path: Path, dsn: str) -> None:
    async with opened(tmp_path, dsn) as one, opened(tmp_path, dsn) as other:
        anns, bobs = await follower(other), await follower(other, "bob")
        await add(one)
        await asyncio.wait_for(anns, LONG_S / 2)
        assert not bobs.done()
        bobs.cancel()


async def test_many_changes_at_once_are_told_together(tmp_path: Path, dsn: str) -> None:
    async with opened(tmp_path, dsn) as one, opened(tmp_path, dsn) as other:
        assert isinstance(one.news, SharedNews)
        told: list[str] = []
        real = one.news._wire.publish

        async def publish(text: str) -> None:
            told.append(text)
            await real(text)

        one.news._wire.publish = publish  # type: ignore[method-assign]
        waiting = [await follower(other, f"user {n}") for n in range(300)]
        for number in range(300):
            one.news.tell(f"user {number}")
        await asyncio.wait_for(asyncio.gather(*waiting), LONG_S / 2)
        assert len(told) <= 3


async def test_after_a_restart_of_the_server_it_is_heard_again(tmp_path: Path) -> None:
    server = PostgresServer()
    try:
        server.start()
        async with opened(tmp_path, server.dsn()) as one, opened(tmp_path, server.dsn()) as other:
            waiting = await follower(other)
            await add(one, "bob")
            server.stop()
            await heard(other, is_shared=False)
            server.start()
            await heard(other)
            async with asyncio.timeout(LONG_S):
                while not waiting.done():
                    # Whoever tells leaves the server alone for a moment after it was away.
                    await add(one)
                    await asyncio.wait([waiting], timeout=0.2)
    finally:
        server.close()


async def test_where_nothing_is_heard_everyone_goes_on_looking(
    tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(self: Any, channel: str, callback: Any) -> None:
        """As behind a pooler that gives each transaction another connection."""

    monkeypatch.setattr(asyncpg.Connection, "add_listener", deaf)
    monkeypatch.setattr(postgres_wire, "_ANSWER_S", 0.2)
    async with opened(tmp_path, dsn) as service:
        waiting = asyncio.create_task(service.news.wait("ann", LONG_S))
        await asyncio.sleep(0.5)
        assert not service.news.is_shared
        await add(service)
        await asyncio.wait_for(waiting, LONG_S / 2)


async def test_a_ledger_in_a_file_has_news_of_its_own_process(tmp_path: Path) -> None:
    async with opened(tmp_path, "") as service:
        assert type(service.news) is News


def test_names_are_told_in_messages_that_fit() -> None:
    names = [f"{n:032x}" for n in range(1000)]
    told = parts(" ".join(names))
    assert max(map(len, told)) <= MOST_LETTERS
    assert " ".join(told).split() == names
