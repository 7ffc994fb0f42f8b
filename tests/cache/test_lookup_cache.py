"""Redis in front of lookups: what it gives is what the ledger would, whoever wrote last, and nothing of another's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from recollect.config.settings import load
from recollect.errors import NotFound
from recollect.model.change import Author
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.query import Listing, parse_filter
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.observability.metrics import CACHE_LOOKUPS
from recollect.remember import MemoryInput
from recollect.service.service import Service
from recollect.wiring import open_service
from tests.cache.test_answer_cache import redis_contents
from tests.support.redis_server import RedisServer, running_redis

BY = Author("test")
ANN, BOB = Scope("ann"), Scope("bob")
FULL = {
    "importance": 0.75, "confidence": 0.5, "tags": ["a", "ü"], "metadata": {"deep": [1, None, {"x": 0.5}]},
    "key": "budget", "value": "$10,000", "occurred_at": now() - timedelta(days=3), "source": "a test",
    "expires_at": now() + timedelta(days=30),
}  # fmt: skip


@pytest.fixture
async def redis() -> RedisServer:
    server = running_redis()
    async with Redis.from_url(server.url) as client:
        await client.flushall()
    return server


@asynccontextmanager
async def opened(home: Path, redis: RedisServer | None, **more: Any) -> AsyncIterator[Service]:
    shared = {"redis_timeout_s": 5, "cache_min_ms": 0, "cache_lookups": "all"} | (
        {"redis_url": redis.url} if redis else {}
    )
    service = await open_service(load({"home": home, **shared, **more}, environ={}).settings)
    try:
        yield service
    finally:
        await service.close()


async def add(service: Service, content: str = "The locker is blue", scope: Scope = ANN, **fields: Any) -> str:
    return (await service.add(scope, MemoryInput(content=content, fields=fields), by=BY)).id


def lookup_count(result: str) -> float:
    """How many looks into Redis ended so."""
    return CACHE_LOOKUPS.cells["lookup", result][0] if ("lookup", result) in CACHE_LOOKUPS.cells else 0.0


async def looked_up(service: Service, scope: Scope, id: str, listing: Listing) -> tuple[Any, Any, Any]:
    results = await service.get(scope, id), await service.find(scope, listing), await service.count(scope, listing)
    assert service.result_cache is not None
    await service.result_cache.flush()
    return results


async def test_a_repeated_lookup_comes_from_redis_with_every_field(tmp_path: Path, redis: RedisServer) -> None:
    listing = Listing(filter=parse_filter({"tags": "a"}), limit=1)
    async with opened(tmp_path, redis) as one, opened(tmp_path, redis) as other, opened(tmp_path, None) as plain:
        id = await add(one, **FULL)
        await add(one, "The other one", tags=["a"])
        first = await looked_up(one, ANN, id, listing)
        hits = lookup_count("hit")
        assert await looked_up(other, ANN, id, listing) == first
        assert lookup_count("hit") == hits + 3
        assert first == (await plain.get(ANN, id), await plain.find(ANN, listing), await plain.count(ANN, listing))
        assert first[1].cursor is not None
        assert first[2] == 2


async def test_postgres_is_not_read_for_memories_that_redis_has(
    dsn: str, tmp_path: Path, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, redis, database=dsn) as one, opened(tmp_path, redis, database=dsn) as other:
        id = await add(one, **FULL)
        results = await looked_up(one, ANN, id, Listing())

        async def refuse(*inputs: Any) -> Any:
            raise AssertionError("the ledger was asked")

        for verb in ("get", "find", "count"):
            monkeypatch.setattr(other.deps.ledger, verb, refuse)
        assert await looked_up(other, ANN, id, Listing()) == results
        monkeypatch.undo()
        await other.update(ANN, id, {"importance": 0.25}, by=BY)
        assert (await one.get(ANN, id)).importance == 0.25


@pytest.mark.parametrize("how", ["update", "forget", "undo", "erase", "erase all"])
async def test_a_lookup_after_a_write_of_any_process_sees_it(tmp_path: Path, redis: RedisServer, how: str) -> None:
    async with opened(tmp_path, redis) as one, opened(tmp_path, redis) as other:
        id = await add(one)
        for service in (one, other):
            await looked_up(service, ANN, id, Listing())
        match how:
            case "update":
                await one.update(ANN, id, {"content": "The locker is red"}, by=BY)
            case "forget":
                await one.forget(ANN, id, by=BY)
            case "undo":
                await one.undo(ANN, by=BY)
            case "erase":
                await one.erasure.erase(ANN, ErasureRequest(Target.MEMORY, id), by=BY)
            case "erase all":
                await one.erasure.erase(ANN, ErasureRequest(Target.USER, ""), by=BY)
        for service in (other, one, other):
            page = await service.find(ANN, Listing())
            assert "The locker is blue" not in [record.content for record in page]
            assert await service.count(ANN, Listing()) == len(page) == (how == "update")
            if "erase" in how:
                with pytest.raises(NotFound):
                    await service.get(ANN, id)
            else:
                assert (await service.get(ANN, id)).version > 1


async def test_an_erasure_removes_the_text_from_redis(tmp_path: Path, redis: RedisServer) -> None:
    async with opened(tmp_path, redis) as service:
        id = await add(service, "My locker is blue-heron-77")
        await looked_up(service, ANN, id, Listing())
        stored = await redis_contents(redis)
        assert "heron" in stored
        # Whose it is stands in no name of a key.
        assert "ann" not in stored.splitlines()[0]
        receipt = await service.erasure.erase(ANN, ErasureRequest(Target.MEMORY, id), by=BY)
        assert {cleared.store: cleared for cleared in receipt.stores}["redis"].counts == {"answers": 3}
        assert "heron" not in await redis_contents(redis)


async def test_without_cached_lookups_redis_holds_no_text(tmp_path: Path, redis: RedisServer) -> None:
    async with opened(tmp_path, redis, cache_lookups="off") as service:
        id = await add(service, "My locker is blue-heron-77")
        await looked_up(service, ANN, id, Listing())
        assert await redis_contents(redis) == ""


async def test_lists_are_cached_where_single_memories_are_not(tmp_path: Path, redis: RedisServer) -> None:
    async with opened(tmp_path, redis, cache_lookups="lists") as service:
        id = await add(service)
        first = await looked_up(service, ANN, id, Listing())
        hits = lookup_count("hit")
        assert await looked_up(service, ANN, id, Listing()) == first
        assert lookup_count("hit") == hits + 2


async def test_a_cached_lookup_is_never_returned_to_another_user(tmp_path: Path, redis: RedisServer) -> None:
    async with opened(tmp_path, redis) as service:
        id = await add(service, scope=Scope("a:b", "c"))
        await add(service, "Another's", scope=Scope("a", "b:c"))
        await looked_up(service, Scope("a:b", "c"), id, Listing())
        with pytest.raises(NotFound):
            await service.get(Scope("a", "b:c"), id)
        assert [record.content for record in await service.find(Scope("a", "b:c"), Listing())] == ["Another's"]
        assert await service.count(Scope("a:b"), Listing(visible=True)) == 0


async def test_lists_ordered_by_access_are_never_cached(tmp_path: Path, redis: RedisServer) -> None:
    recalled = Listing(filter=parse_filter({"access_count": {"gte": 1}}))
    async with opened(tmp_path, redis) as service:
        id = await add(service)
        assert await service.count(ANN, recalled) == 0
        await service.deps.ledger.touch(ANN, [id], at=now())
        assert await service.count(ANN, recalled) == 1


async def test_an_unknown_id_is_not_cached(tmp_path: Path, redis: RedisServer) -> None:
    async with opened(tmp_path, redis) as service:
        for number in range(5):
            with pytest.raises(NotFound):
                await service.get(ANN, f"unknown-{number}")
        assert service.result_cache is not None
        await service.result_cache.flush()
        assert await redis_contents(redis) == ""


async def test_fast_lookups_are_soon_not_looked_up_in_redis(tmp_path: Path, redis: RedisServer) -> None:
    async with opened(tmp_path, redis, cache_min_ms=60_000) as service:
        id = await add(service)
        for _ in range(100):
            await service.get(ANN, id)
        before = lookup_count("miss"), lookup_count("hit")
        for _ in range(20):
            await service.get(ANN, id)
        assert (lookup_count("miss"), lookup_count("hit")) == before
        assert await redis_contents(redis) == ""


async def test_lookups_work_while_redis_is_frozen(tmp_path: Path) -> None:
    server = RedisServer()
    server.start()
    try:
        async with opened(tmp_path, server, redis_timeout_s=0.5) as service:
            id = await add(service)
            await looked_up(service, ANN, id, Listing())
            server.freeze()
            started = time.monotonic()
            for _ in range(50):
                assert (await service.get(ANN, id)).content == "The locker is blue"
            # Three wait for it, and hardly more: fifty would take 25 seconds.
            assert time.monotonic() - started < 20
            server.thaw()
    finally:
        server.close()


async def test_foreign_data_in_redis_is_a_cache_miss(tmp_path: Path, redis: RedisServer) -> None:
    async with opened(tmp_path, redis) as service:
        id = await add(service)
        await looked_up(service, ANN, id, Listing())
        async with Redis.from_url(redis.url) as client:
            [key] = await client.keys("*")
            for field, junk in zip(await client.hkeys(key), (b"[[1]]", b"\xff", b"{}", b"null"), strict=True):
                if field != b"revision":
                    await client.hset(key, field, junk)
        assert (await service.get(ANN, id)).id == id
        assert len(await service.find(ANN, Listing())) == 1
        assert await service.count(ANN, Listing()) == 1


async def test_concurrent_lookups_see_every_completed_write(tmp_path: Path, redis: RedisServer) -> None:
    async with opened(tmp_path, redis) as one, opened(tmp_path, redis) as other:
        id = await add(one, importance=0.0)
        for number in range(1, 30):
            looking = [asyncio.create_task(one.get(ANN, id)) for _ in range(4)]
            await other.update(ANN, id, {"importance": number / 100}, by=BY)
            assert (await one.get(ANN, id)).importance == number / 100
            assert (await one.find(ANN, Listing()))[0].importance == number / 100
            await asyncio.gather(*looking)
