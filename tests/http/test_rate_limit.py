"""Rate limits: requests and writes beyond the limit are rejected with Retry-After; other users are not affected."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from fastapi.testclient import TestClient
from redis.asyncio import Redis

from recollect.cache import redis_client
from recollect.cache.redis_client import RateLimiter, RedisClient
from recollect.config.settings import load
from recollect.errors import TooFast
from recollect.http.app import make_app
from recollect.http.errors import status_of
from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.remember import MemoryInput
from recollect.wiring import open_service
from tests.support import auth_samples
from tests.support.redis_server import RedisServer, running_redis

BY = Author("test")


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(redis_client, "monotonic", clock)
    return clock


@contextmanager
def serving(home: Path, **more: Any) -> Iterator[TestClient]:
    with TestClient(make_app(load({"home": home, **more}, environ={}).settings), "http://127.0.0.1") as client:
        yield client


async def test_a_bucket_empties_refills_and_never_overflows(clock: Clock) -> None:
    bucket = RateLimiter(60, resource="t")
    assert [await bucket.acquire("ann") for _ in range(60)] == [0.0] * 60
    assert await bucket.acquire("ann") == pytest.approx(1.0)
    assert await bucket.acquire("bob") == 0.0
    clock.now += 2
    assert [await bucket.acquire("ann") > 0 for _ in range(3)] == [False, False, True]
    clock.now += 10_000
    assert [await bucket.acquire("ann", 30) > 0 for _ in range(3)] == [False, False, True]
    # A larger request than the limit takes a full bucket, because it could never succeed otherwise.
    clock.now += 60
    assert await bucket.acquire("ann", 1_000_000) == 0.0


async def test_the_number_of_buckets_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_client, "MAX_BUCKETS", 100)
    bucket = RateLimiter(1, resource="t")
    for number in range(101):
        await bucket.acquire(str(number))
    assert [await bucket.acquire(name) > 0 for name in ("100", "50", "0")] == [True, True, False]


async def test_a_flood_of_writes_by_one_user_does_not_affect_others(tmp_path: Path, clock: Clock) -> None:
    service = await open_service(load({"home": tmp_path, "learn": "off"}, environ={}).settings)
    service.write_quota.rate_limiter = RateLimiter(50, resource="t")
    stored = 0
    waits = []
    try:
        for number in range(5_000):
            try:
                await service.add(Scope("flood"), MemoryInput(content=f"memory {number}"), by=BY)
                stored += 1
            except TooFast as error:
                waits.append(error.retry_after_s)
            if number % 500 == 0:
                await service.add(Scope("ann"), MemoryInput(content=f"note {number}"), by=BY)
        stats = {user: (await service.stats(user))["memories"] for user in ("flood", "ann")}
    finally:
        await service.close()
    assert (stored, len(waits)) == (50, 4_950)
    assert 0 < min(waits) <= max(waits) <= 60
    assert stats == {"flood": 50, "ann": 10}


async def test_each_message_counts_as_a_write(tmp_path: Path, clock: Clock) -> None:
    service = await open_service(load({"home": tmp_path, "learn": "off"}, environ={}).settings)
    service.write_quota.rate_limiter = RateLimiter(5, resource="t")
    messages = [{"role": "user", "content": "tea"}] * 3
    try:
        await service.remember(Scope("ann", session="s"), messages, by=BY)
        with pytest.raises(TooFast) as caught:
            await service.remember(Scope("ann", session="s"), messages, by=BY)
        assert status_of(caught.value) == 429
        assert caught.value.retry_after_s == pytest.approx(12.0)
        assert len(await service.turns(Scope("ann", session="s"))) == 3
    finally:
        await service.close()


def test_a_rejected_write_has_a_retry_after_header(tmp_path: Path) -> None:
    with serving(tmp_path, user_writes_per_minute=1) as client:

        @client.app.post("/add")  # type: ignore[attr-defined, misc]
        async def add(user: str) -> str:
            service = client.app.state.service  # type: ignore[attr-defined]
            return str((await service.add(Scope(user), MemoryInput(content="tea"), by=BY)).id)

        assert client.post("/add?user=ann").status_code == 200
        refused = client.post("/add?user=ann")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "TooFast")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert client.post("/add?user=bob").status_code == 200


def test_requests_beyond_the_limit_get_429_except_health(tmp_path: Path) -> None:
    with serving(tmp_path, rate_limit_per_minute=2) as client:
        assert [client.get("/v1/models").status_code for _ in range(3)][-1] == 429
        refused = client.get("/v1/models")
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.headers["x-request-id"]
        for path in ("/live", "/ready", "/health", "/version", "/metrics"):
            assert client.get(path).status_code == 200
        assert 'recollect_rate_limited_total{limit="requests"}' in client.get("/metrics").text


def test_each_key_has_a_limit_of_its_own(tmp_path: Path) -> None:
    with auth_samples.serving(tmp_path, auth="keys", rate_limit_per_minute=1) as client:
        owners: list[dict[str, Any]] = [{"user": "ann"}, {"user": "bob"}, {"everyone": True}]
        for owner in owners:
            headers = auth_samples.bearer(auth_samples.make_key(client, name="laptop", **owner))
            statuses = [client.get("/whoami?user_id=", headers=headers).status_code for _ in range(2)]
            assert (statuses[0] != 429, statuses[1]) == (True, 429)


async def test_processes_with_one_redis_share_the_limit() -> None:
    redis = running_redis()
    async with Redis.from_url(redis.url) as client:
        await client.flushall()
    one, other = RedisClient(redis.url, timeout_s=5), RedisClient(redis.url, timeout_s=5)
    first, second = RateLimiter(10, resource="t", redis=one), RateLimiter(10, resource="t", redis=other)
    waits = [await (first if number % 2 else second).acquire("a:b") for number in range(11)]
    assert waits[:10] == [0.0] * 10
    assert 0 < waits[10] <= 6
    assert await first.acquire("b:a") == 0.0
    await asyncio.gather(one.close(), other.close())


async def test_while_redis_hangs_each_process_counts_alone() -> None:
    redis = RedisServer()
    redis.start()
    link = RedisClient(redis.url, timeout_s=0.1)
    bucket = RateLimiter(5, resource="t", redis=link)
    try:
        assert await bucket.acquire("bob") == 0.0
        redis.freeze()
        started = perf_counter()
        waits = [await bucket.acquire("ann") for _ in range(500)]
        assert [bool(wait) for wait in waits[:6]] == [False] * 5 + [True]
        # Three requests time out, then Redis is skipped: all of them would take 50 s.
        assert perf_counter() - started < 40
    finally:
        redis.thaw()
        await link.close()
        redis.close()
