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

from recollect.cache.change_notifier import ChangeNotifier
from recollect.config.settings import load
from recollect.ledger import postgres_pubsub
from recollect.ledger.postgres_pubsub import MAX_PAYLOAD_CHARS, split_payload
from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.remember import MemoryInput
from recollect.service.service import Service
from recollect.wiring import open_service
from tests.support.postgres_server import PostgresServer

BY = Author("test")
LONG_S = 60.0


@asynccontextmanager
async def opened(home: Path, database: str) -> AsyncIterator[Service]:
    service = await open_service(load({"home": home, "worker": False, "database": database}, environ={}).settings)
    try:
        yield service
    finally:
        await service.close()


async def add(service: Service, user: str = "ann") -> None:
    await service.add(Scope(user), MemoryInput(content=f"Likes tea at {monotonic()}"), by=BY)


async def follower(service: Service, user: str = "ann") -> asyncio.Task[None]:
    """Somebody who waits, and hears what others tell, when this returns."""
    waiting = asyncio.create_task(service.change_notifier.wait(user, LONG_S))
    await wait_until_shared(service)
    return waiting


async def wait_until_shared(service: Service, *, is_shared: bool = True) -> None:
    async with asyncio.timeout(LONG_S):
        while service.change_notifier.is_shared is not is_shared:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_change_of_one_process_wakes_another(tmp_path: Path, dsn: str) -> None:
    async with opened(tmp_path, dsn) as one, opened(tmp_path, dsn) as other:
        anns, bobs = await follower(other), await follower(other, "bob")
        await add(one)
        await asyncio.wait_for(anns, LONG_S / 2)
        assert not bobs.done()
        bobs.cancel()


async def test_concurrent_changes_are_published_together(tmp_path: Path, dsn: str) -> None:
    async with opened(tmp_path, dsn) as one, opened(tmp_path, dsn) as other:
        reports: list[str] = []
        listener = await asyncpg.connect(dsn)
        await listener.add_listener("recollect_changes", lambda *received: reports.append(received[-1]))
        waiting = [await follower(other, f"user {n}") for n in range(300)]
        for number in range(300):
            one.change_notifier.notify(f"user {number}")
        await asyncio.wait_for(asyncio.gather(*waiting), LONG_S / 2)
        # A round trip, after which all notifications have arrived.
        await listener.execute("SELECT 1")
        await listener.close()
        assert 1 <= len(reports) <= 3


async def test_notifications_arrive_again_after_a_restart_of_the_server(tmp_path: Path) -> None:
    server = PostgresServer()
    try:
        server.start()
        async with opened(tmp_path, server.dsn()) as one, opened(tmp_path, server.dsn()) as other:
            waiting = await follower(other)
            await add(one, "bob")
            server.stop()
            await wait_until_shared(other, is_shared=False)
            server.start()
            await wait_until_shared(other)
            async with asyncio.timeout(LONG_S):
                while not waiting.done():
                    # Whoever tells leaves the server alone for a moment after it was away.
                    await add(one)
                    await asyncio.wait([waiting], timeout=0.2)
    finally:
        server.close()


async def test_followers_poll_while_notifications_do_not_arrive(
    tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(self: Any, channel: str, callback: Any) -> None:
        """As behind a pooler that gives each transaction another connection."""

    monkeypatch.setattr(asyncpg.Connection, "add_listener", deaf)
    monkeypatch.setattr(postgres_pubsub, "ANSWER_TIMEOUT_S", 0.2)
    async with opened(tmp_path, dsn) as service:
        waiting = asyncio.create_task(service.change_notifier.wait("ann", LONG_S))
        await add(service)
        await asyncio.wait_for(waiting, LONG_S / 2)
        assert not service.change_notifier.is_shared


async def test_a_sqlite_ledger_notifies_its_own_process(tmp_path: Path) -> None:
    async with opened(tmp_path, "") as service:
        assert type(service.change_notifier) is ChangeNotifier


def test_payloads_are_split_into_messages_that_fit() -> None:
    names = [f"{n:032x}" for n in range(1000)]
    text = split_payload(" ".join(names))
    assert max(map(len, text)) <= MAX_PAYLOAD_CHARS
    assert " ".join(text).split() == names
