"""Redis is frozen for a minute: no chat fails or waits for long, and afterwards Redis is used again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.support.recollect_server import RecollectServer
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.drill, pytest.mark.timeout(600)]
FROZEN_S = 60.0


def chat(client: httpx.Client, number: int) -> float:
    """Remember and recall once; return the seconds."""
    body = {"role": "user", "content": f"My budget for trip {number} is ${number}. What is my budget for trip 3?"}
    started = time.perf_counter()
    answer = client.post("/v1/chat/completions", json={"model": "m", "user": "ann", "messages": [body]})
    took = time.perf_counter() - started
    assert answer.status_code == 200
    assert answer.headers["x-memory-status"] == "ok"
    return took


def test_a_redis_that_stands_still_for_a_minute_is_not_noticed(tmp_path: Path, say: Callable[[str], None]) -> None:
    redis = RedisServer()
    redis.start()
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        f'redis_url = "{redis.url}"\ncache_min_ms = 0\nrate_limit_per_minute = 100000\nmemory_timeout_s = 5\n'
    )
    try:
        with RecollectServer(home) as server, httpx.Client(base_url=server.url, timeout=60) as client:
            before = sorted(chat(client, number) for number in range(50))
            redis.freeze()
            frozen_until = time.monotonic() + FROZEN_S
            took: list[float] = []
            while time.monotonic() < frozen_until:
                took.append(chat(client, len(took)))
            assert "redis" in client.get("/ready").json()["since"]
            redis.thaw()
            give_up = time.monotonic() + 60
            while "redis" in client.get("/ready").json()["since"]:
                chat(client, 0)
                assert time.monotonic() < give_up
            lookups = [line for line in client.get("/metrics").text.splitlines() if "cache_lookups" in line]
    finally:
        redis.close()
    took.sort()
    say(
        f"{len(took)} chats in {FROZEN_S:.0f} s: p50 {took[len(took) // 2] * 1e3:.1f} ms, "
        f"p99 {took[int(len(took) * 0.99)] * 1e3:.1f} ms, longest {took[-1] * 1e3:.0f} ms; "
        f"before p50 {before[25] * 1e3:.1f} ms; {'; '.join(lookups)}"
    )
