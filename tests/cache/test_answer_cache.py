"""Redis in front of recall: it saves time, never tells what is gone, and is never missed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from recollect.cache.answer_cache import AnswerCache, CacheKey
from recollect.cache.redis_client import RedisClient
from recollect.config.settings import load
from recollect.errors import CacheUnavailable, InvalidSettings, MissingExtra
from recollect.ledger.types import Revision
from recollect.model.change import Author
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.result import RecallResult
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.observability.metrics import CACHE_LOOKUPS
from recollect.read.result_cache import CachedAnswer, CacheLookup, ResultCache
from recollect.recall import RecallRequest
from recollect.remember import MemoryInput
from recollect.search import SearchRequest
from recollect.service.service import Service
from recollect.testing.scripted_llm import ScriptedLLM
from recollect.wiring import open_service
from tests.support.llm_faults import http_error
from tests.support.redis_server import RedisServer, running_redis

BY = Author("test")
ANN = Scope("ann")
BUDGET = "My budget for the Hawaii trip is $10,000"
QUESTION = "What is my budget for Hawaii?"
AT = now()


@pytest.fixture
async def redis() -> RedisServer:
    server = running_redis()
    async with Redis.from_url(server.url) as client:
        await client.flushall()
    return server


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """One that a test may stop and freeze."""
    server = RedisServer()
    server.start()
    yield server
    server.close()


@asynccontextmanager
async def opened(home: Path, redis: RedisServer | None, **more: Any) -> AsyncIterator[Service]:
    # A busy machine is given time; whatever was found is kept.
    shared = {"redis_url": redis.url, "cache_min_ms": 0, "redis_timeout_s": 5} if redis else {}
    service = await open_service(load({"home": home, **shared, **more}, environ={}).settings)
    try:
        yield service
    finally:
        await service.close()


async def add(service: Service, content: str = BUDGET, scope: Scope = ANN, **fields: Any) -> str:
    return (await service.add(scope, MemoryInput(content=content, fields=fields), by=BY)).id


async def ask(service: Service, scope: Scope = ANN, question: str = QUESTION, **more: Any) -> RecallResult:
    usual = {"messages": ({"role": "user", "content": question},), "at": AT, "limit": 5, "min_score": 0.0}
    recalled = await service.recall(scope, RecallRequest(**usual | more))
    # What was found is kept behind the answer.
    repeated = service.result_cache
    if repeated is not None:
        await repeated.flush()
    return recalled


def is_from_before(recalled: RecallResult) -> bool:
    return "found before" in recalled.notes


def texts(recalled: RecallResult) -> list[str]:
    return [hit.memory for hit in recalled]


async def redis_contents(redis: RedisServer) -> str:
    """All that Redis holds, as one text."""
    async with Redis.from_url(redis.url) as client:
        results = []
        async for key in client.scan_iter():
            results.append(key)
            if await client.type(key) == b"hash":
                results += [part for pair in (await client.hgetall(key)).items() for part in pair]
        return b"\n".join(results).decode()


async def test_a_result_is_reused_by_any_process_until_something_changes(tmp_path: Path, redis: RedisServer) -> None:
    async with opened(tmp_path, redis) as one, opened(tmp_path, redis) as other:
        await add(one)
        first = await ask(one)
        assert not is_from_before(first)
        repeated = await ask(other)
        assert is_from_before(repeated)
        assert texts(repeated) == texts(first) == [BUDGET]
        assert [hit.score for hit in repeated] == [hit.score for hit in first]
        assert repeated.outcome == first.outcome
        assert BUDGET in json.dumps(list(repeated.messages))
        await add(other, "My budget for the Oslo trip is $2,000")
        assert len(texts(await ask(one))) == 2
        assert is_from_before(await ask(other))


@pytest.mark.parametrize("how", ["forget", "update", "forget_all", "undo", "erase", "expire"])
async def test_deleted_memories_do_not_come_back_from_the_cache(tmp_path: Path, redis: RedisServer, how: str) -> None:
    async with opened(tmp_path, redis) as one, opened(tmp_path, redis) as other:
        ends = {"expires_at": now() + timedelta(seconds=4)} if how == "expire" else {}
        id = await add(one, **ends)
        await ask(one)
        assert is_from_before(await ask(other)) or how == "expire"
        match how:
            case "forget":
                await one.forget(ANN, id, by=BY)
            case "update":
                await one.update(ANN, id, {"content": "My budget for Hawaii is $7"}, by=BY)
            case "forget_all":
                from recollect.model.query import Listing

                await one.forget_all(ANN, Listing(limit=10), by=BY)
            case "undo":
                await one.undo(ANN, by=BY, anyones=True)
            case "erase":
                await one.erasure.erase(ANN, ErasureRequest(Target.MEMORY, id), by=BY)
            case "expire":
                await asyncio.sleep((ends["expires_at"] - now()).total_seconds() + 0.01)
        for service in (one, other, one):
            assert BUDGET not in texts(await ask(service))
            hits = await service.search(ANN, SearchRequest(query=QUESTION, limit=5))
            assert BUDGET not in [hit.memory for hit in hits]


async def test_redis_holds_no_memory_text_and_an_erasure_clears_and_counts_it(
    tmp_path: Path, redis: RedisServer
) -> None:
    async with opened(tmp_path, redis) as service:
        await add(service, "My locker is blue-heron-77")
        await ask(service, question="Which locker is mine?")
        stored = await redis_contents(redis)
        assert "Which locker" in stored
        assert "heron" not in stored
        assert "ann" not in stored
        receipt = await service.erasure.erase(ANN, ErasureRequest(Target.USER, ""), by=BY)
        report = {cleared.store: cleared for cleared in receipt.stores}["redis"]
        assert (report.reached, report.counts) == (True, {"answers": 1})
        assert "locker" not in await redis_contents(redis)


async def test_an_answer_from_before_an_erasure_is_not_stored_after_it(redis: RedisServer) -> None:
    answers = AnswerCache(RedisClient(redis.url, timeout_s=5), ledger_id="l", prefix="t", ttl_s=300)
    late = CacheKey("ann", Revision(3, 0), "field")
    await answers.forget("ann", 1)
    await answers.put(late, b"erased words")
    assert "erased words" not in await redis_contents(redis)
    after = CacheKey("ann", Revision(1, 1), "field")
    await answers.put(after, b"new")
    assert await answers.get(after) == b"new"
    await answers.close()


async def test_an_older_revision_does_not_replace_a_newer_one(redis: RedisServer) -> None:
    answers = AnswerCache(RedisClient(redis.url, timeout_s=5), ledger_id="l", prefix="t", ttl_s=300)
    new, old = CacheKey("ann", Revision(5, 0), "new"), CacheKey("ann", Revision(4, 0), "old")
    await answers.put(new, b"1")
    await answers.put(old, b"2")
    assert (await answers.get(new), await answers.get(old)) == (b"1", None)
    await answers.put(CacheKey("ann", Revision(6, 0), "newer"), b"3")
    assert await answers.get(new) is None
    await answers.close()


async def test_answers_expire_and_their_number_is_limited(redis: RedisServer) -> None:
    answers = AnswerCache(RedisClient(redis.url, timeout_s=5), ledger_id="l", prefix="t", ttl_s=300)
    for number in range(300):
        await answers.put(CacheKey("ann", Revision(1, 0), str(number)), b"x")
    async with Redis.from_url(redis.url) as client:
        [key] = await client.keys("t:*")
        assert 290 < await client.ttl(key) <= 300
        assert await client.hlen(key) <= 258
    await answers.close()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Scope("a:b", "c"), Scope("a", "b:c")),
        (Scope("a", "b", "c"), Scope("a", "b:c")),
        (Scope("a", "b", "c"), Scope("a", "bc")),
        (Scope("a*"), Scope("ab")),
        (Scope("a}"), Scope("a")),
    ],
)
async def test_a_cached_result_is_never_returned_to_another_user(
    tmp_path: Path, redis: RedisServer, one: Scope, other: Scope
) -> None:
    async with opened(tmp_path, redis) as service:
        for scope, content in ((one, BUDGET), (other, "My budget for Hawaii is a secret of the other")):
            await add(service, content, scope)
        for scope in (one, other, one, other):
            [results] = texts(await ask(service, scope))
            assert results == (BUDGET if scope == one else "My budget for Hawaii is a secret of the other")


async def test_two_ledgers_on_one_redis_share_no_answers(tmp_path: Path, redis: RedisServer) -> None:
    async with opened(tmp_path / "a", redis) as one, opened(tmp_path / "b", redis) as other:
        await add(one, "Sam likes tea")
        await add(other)
        assert texts(await ask(one, min_score=0.15)) == []
        assert texts(await ask(other, min_score=0.15)) == [BUDGET]


async def test_other_questions_limits_and_options_have_their_own_answers(tmp_path: Path, redis: RedisServer) -> None:
    async with opened(tmp_path, redis) as service, opened(tmp_path, redis, context_tokens=4096) as other:
        await add(service)
        await ask(service)
        assert is_from_before(await ask(service))
        assert not is_from_before(await ask(service, limit=4))
        assert not is_from_before(await ask(service, min_score=0.9))
        assert not is_from_before(await ask(service, at=AT + timedelta(minutes=5)))
        assert not is_from_before(await ask(service, scope=Scope("ann", "p")))
        assert not is_from_before(await ask(service, trace=True))
        assert not is_from_before(await ask(other))


async def test_a_degraded_answer_is_not_cached(tmp_path: Path, redis: RedisServer, llm: ScriptedLLM) -> None:
    llm.default = "The Hawaii budget of the user is $10,000"
    more = {"llm": "scripted", "llm_url": llm.base_url, "rewrite": "hyde", "learn": "off"}
    async with opened(tmp_path, redis, **more) as service:
        await add(service)
        # As often as it is tried; more would open its circuit breaker.
        llm.fault(http_error(500), times=3)
        assert not is_from_before(await ask(service))
        llm.clear()
        llm.default = "The Hawaii budget of the user is $10,000"
        assert not is_from_before(await ask(service))
        calls = len(llm.calls("chat"))
        assert is_from_before(await ask(service))
        # That is what it is for: the LLM is not asked again.
        assert len(llm.calls("chat")) == calls


async def test_a_frozen_redis_is_no_error_and_soon_delays_nobody(tmp_path: Path, own_redis: RedisServer) -> None:
    async with opened(tmp_path, own_redis, redis_timeout_s=0.1) as service:
        await add(service)
        await ask(service)
        own_redis.freeze()
        try:
            for _ in range(30):
                assert texts(await ask(service)) == [BUDGET]
                await add(service)
            assert "Redis does not answer" in service.cache_trouble
            request = CACHE_LOOKUPS.cells["recall", "away"][0]
            for _ in range(20):
                await ask(service)
            # It is left alone: at most now and then one looks whether it is back.
            assert CACHE_LOOKUPS.cells["recall", "away"][0] - request <= 5
            receipt = await service.erasure.erase(ANN, ErasureRequest(Target.USER, ""), by=BY)
            report = {cleared.store: cleared for cleared in receipt.stores}["redis"]
            assert not report.reached
            assert "within 300 s" in report.note
        finally:
            own_redis.thaw()
        assert texts(await ask(service)) == []
        await add(service)
        # Left alone for a few seconds at most, it is found to be back by whoever asks.
        deadline = asyncio.get_running_loop().time() + 60
        while service.cache_trouble:
            assert texts(await ask(service)) == [BUDGET]
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.1)
        await ask(service)
        assert is_from_before(await ask(service))


async def test_a_recovered_redis_is_used_again(
    tmp_path: Path, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.cache.redis_client.FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr("recollect.cache.redis_client.MAX_PAUSE_S", 0.05)
    link = RedisClient(own_redis.url, timeout_s=5)
    assert await link.run(lambda redis: redis.ping())
    own_redis.stop()
    for _ in range(4):
        with pytest.raises(CacheUnavailable):
            await link.run(lambda redis: redis.ping())
    assert link.last_error
    own_redis.start()
    for _ in range(200):
        try:
            assert await link.run(lambda redis: redis.ping())
            break
        except CacheUnavailable:
            await asyncio.sleep(0.05)
    assert not link.last_error
    await link.close()


async def test_recall_works_without_a_redis_at_its_address(tmp_path: Path) -> None:
    more = {"redis_url": "redis://127.0.0.1:9", "cache_min_ms": 0}
    async with opened(tmp_path, None, **more) as service:
        await add(service)
        for _ in range(5):
            assert texts(await ask(service)) == [BUDGET]


async def test_fast_results_are_neither_cached_nor_looked_up(redis: RedisServer) -> None:
    looked: list[str] = []

    class Ledger:
        async def revision(self, user: str) -> Revision:
            looked.append(user)
            return Revision(1, 0)

    answers = AnswerCache(RedisClient(redis.url, timeout_s=5), ledger_id="l", prefix="t", ttl_s=300)
    repeated = ResultCache(answers, Ledger(), config_key="", min_s=10.0)  # type: ignore[arg-type]
    for _ in range(200):
        repeated.store(await repeated.look_up(ANN, "quick"), CachedAnswer())
    assert len(looked) < 100
    assert await redis_contents(redis) == ""
    slow = await repeated.look_up(ANN, "slow")
    repeated.store(CacheLookup(started=slow.started - 60), CachedAnswer())
    count = len(looked)
    await repeated.look_up(ANN, "slow")
    assert len(looked) == count + 1
    await repeated.close()


def test_an_invalid_redis_address_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="redis_url"):
        RedisClient("http://example.org", timeout_s=1)


def test_without_the_extra_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "redis.asyncio", None)
    with pytest.raises(MissingExtra, match=r"recollect\[redis\]"):
        RedisClient("redis://localhost", timeout_s=1)


async def test_postgres_and_redis_agree(dsn: str, tmp_path: Path, redis: RedisServer) -> None:
    async with opened(tmp_path, redis, database=dsn) as one, opened(tmp_path, redis, database=dsn) as other:
        id = await add(one)
        await ask(one)
        assert is_from_before(await ask(other))
        await other.forget(ANN, id, by=BY)
        assert texts(await ask(one)) == []


async def race(service: Service, write: Callable[[int], Any]) -> None:
    """Write while others ask; whoever asks after a write sees it."""
    for number in range(30):
        asking = [asyncio.create_task(ask(service)) for _ in range(3)]
        await write(number)
        assert f"number {number}" in " ".join(texts(await ask(service, limit=50)))
        await asyncio.gather(*asking)


async def test_a_recall_after_a_write_sees_it_under_concurrent_recalls(tmp_path: Path, redis: RedisServer) -> None:
    async with opened(tmp_path, redis) as one, opened(tmp_path, redis) as other:

        async def write(number: int) -> None:
            await add(other, f"My budget for Hawaii, number {number}, is ${number}", key="budget", value=str(number))

        await race(one, write)
