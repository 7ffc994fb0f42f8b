"""News of changes: at once in this process, through Redis in others, and nothing is lost while that is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest

from recollect.cache.change_notifier import SharedChangeNotifier
from recollect.config.settings import load
from recollect.model.change import Author
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.scope import Scope
from recollect.remember import MemoryInput
from recollect.service.service import Service
from recollect.wiring import open_service
from tests.support.redis_server import RedisServer

ANN = Scope("ann")
BY = Author("test")
# Far longer than any news takes, and short enough to be waited for where there is none.
LONG_S = 60.0


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    server.start()
    yield server
    server.close()


@asynccontextmanager
async def opened(home: Path, redis: RedisServer | None = None) -> AsyncIterator[Service]:
    shared = {"redis_url": redis.url, "redis_timeout_s": 5} if redis else {}
    service = await open_service(load({"home": home, "worker": False, **shared}, environ={}).settings)
    try:
        yield service
    finally:
        await service.close()


async def add(service: Service, user: str = "ann") -> str:
    outcome = await service.add(Scope(user), MemoryInput(content=f"Likes tea at {monotonic()}"), by=BY)
    return outcome.id


async def start_waiting(service: Service, user: str = "ann", within_s: float = LONG_S) -> asyncio.Task[None]:
    """Somebody who waits already when this returns."""
    waiting = asyncio.create_task(service.change_notifier.wait(user, within_s))
    await asyncio.sleep(0)
    return waiting


async def test_a_waiter_is_woken_by_each_kind_of_change(tmp_path: Path) -> None:
    async with opened(tmp_path) as service:
        waiting = await start_waiting(service)
        id = await add(service)
        await asyncio.wait_for(waiting, LONG_S / 2)
        for change in (
            lambda: service.update(ANN, id, {"importance": 0.9}, by=BY),
            lambda: service.undo(ANN, None, by=BY),
            lambda: service.remember(ANN, "I moved to Lisbon", by=BY),
            lambda: service.erasure.erase(ANN, ErasureRequest(Target.MEMORY, id), by=BY),
        ):
            waiting = await start_waiting(service)
            await change()
            await asyncio.wait_for(waiting, LONG_S / 2)


async def test_a_waiter_is_not_woken_by_changes_of_other_users(tmp_path: Path) -> None:
    async with opened(tmp_path) as service:
        waiting = await start_waiting(service, "bea", within_s=0.2)
        await add(service)
        assert not waiting.done()
        await waiting


async def test_a_change_of_one_process_wakes_another(tmp_path: Path, redis: RedisServer) -> None:
    async with opened(tmp_path, redis) as one, opened(tmp_path, redis) as other:
        waiting = await start_waiting(other)
        await until_shared(other)
        await add(one)
        await asyncio.wait_for(waiting, LONG_S / 2)


async def test_notifications_resume_after_an_outage_of_redis_without_errors(
    tmp_path: Path, redis: RedisServer
) -> None:
    async with opened(tmp_path, redis) as one, opened(tmp_path, redis) as other:
        waiting = await start_waiting(other)
        await until_shared(other)
        redis.stop()
        await until_shared(other, is_shared=False)
        await add(one)
        assert not waiting.done()
        redis.start()
        await until_shared(other)
        deadline = monotonic() + LONG_S / 2
        while not waiting.done():
            # Redis is left alone for a while after it was away.
            assert monotonic() < deadline
            await add(one)
            await asyncio.wait([waiting], timeout=0.2)


async def until_shared(service: Service, *, is_shared: bool = True) -> None:
    assert isinstance(service.change_notifier, SharedChangeNotifier)
    deadline = monotonic() + LONG_S / 2
    while service.change_notifier.is_shared is not is_shared:
        assert monotonic() < deadline
        await asyncio.sleep(0.01)
