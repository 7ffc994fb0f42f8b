"""PostgreSQL and Redis are killed and restarted during hostile requests: no chat fails, nothing stored is lost."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import httpx
import pytest

from benchmarks.hostile import HOSTILE
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.external_server import ExternalServer
from tests.support.postgres_server import PostgresServer
from tests.support.recollect_server import RecollectServer
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.drill, pytest.mark.timeout(900)]
PEOPLE, RESTARTS, AWAY_S, BETWEEN_S, HEALED_S = 4, 3, 3.0, 4.0, 400.0
MEBIBYTES = 1.0


@dataclass
class Attack:
    """The clients of one server: hostile ones, and people whose acknowledged turns and memories are noted."""

    url: str
    ended: threading.Event = field(default_factory=threading.Event)
    turns: dict[str, list[str]] = field(default_factory=dict)
    memories: dict[str, list[str]] = field(default_factory=dict)
    hostile_statuses: list[int] = field(default_factory=list)
    unacknowledged: int = 0

    def send_hostile(self, number: int) -> None:
        requests = []
        for path, make in HOSTILE.values():
            value = make(MEBIBYTES)
            is_lines = isinstance(value, list)
            body = "\n".join(map(json.dumps, value)) if is_lines else json.dumps(value)
            requests.append((path, body, "application/x-ndjson" if is_lines else "application/json"))
        with httpx.Client(base_url=self.url, timeout=120) as client:
            for path, body, kind in cycle(requests):
                if self.ended.is_set():
                    return
                headers = {"content-type": kind, "x-memory-user": f"hostile-{number}"}
                self.hostile_statuses.append(client.post(path, content=body, headers=headers).status_code)

    def chat_and_add(self, user: str) -> None:
        turns, memories = self.turns.setdefault(user, []), self.memories.setdefault(user, [])
        headers = {"x-memory-user": user, "x-memory-session": "s"}
        with httpx.Client(base_url=self.url, timeout=120, headers=headers) as client:
            for number in range(1_000_000):
                if self.ended.is_set():
                    return
                text = f"Question {number} of {user}"
                body = {"model": "m", "messages": [{"role": "user", "content": text}]}
                answer = client.post("/v1/chat/completions", json=body)
                assert answer.status_code == 200, answer.text
                if "x-memory-turn" in answer.headers:
                    turns.append(text)
                else:
                    self.unacknowledged += 1
                content = f"{user} owns book {number}"
                stored = client.post("/recollect/v1/memories", json={"content": content})
                assert stored.status_code in (200, 201, 429, 503), stored.text
                if stored.status_code < 300:
                    memories.append(content)


@pytest.fixture
def servers() -> Iterator[tuple[PostgresServer, RedisServer]]:
    started = PostgresServer(), RedisServer()
    for each in started:
        each.start()
    yield started
    for each in started:
        each.close()


def kill(server: ExternalServer) -> None:
    if isinstance(server, PostgresServer):
        server.kill()
    else:
        server.stop()


def missing(client: httpx.Client, attack: Attack) -> dict[str, set[str]]:
    """Return what was acknowledged and is not there, by user."""
    result: dict[str, set[str]] = {}
    for user in attack.turns:
        for path, expected in (("turns", attack.turns[user]), ("memories", attack.memories[user])):
            found: list[str] = []
            query: dict[str, str | int] = {"limit": 1000}
            while True:
                headers = {"x-memory-user": user, "x-memory-session": "s"}
                answer = client.get(f"/recollect/v1/{path}", params=query, headers=headers)
                if answer.status_code != 200:
                    return {user: {answer.text}}
                page = answer.json()
                found += [each.get("content") or each["memory"] for each in page["results"]]
                if not page["cursor"]:
                    break
                query["cursor"] = page["cursor"]
            assert all(found.count(each) == 1 for each in set(expected) & set(found))
            result[user] = result.get(user, set()) | (set(expected) - set(found))
    return {user: texts for user, texts in result.items() if texts}


def test_restarts_of_the_stores_during_hostile_requests_lose_nothing(
    tmp_path: Path, servers: tuple[PostgresServer, RedisServer], say: Callable[[str], None]
) -> None:
    postgres, redis = servers
    settings = {
        "RECOLLECT_DATABASE": postgres.dsn(),
        "RECOLLECT_REDIS_URL": redis.url,
        "RECOLLECT_RATE_LIMIT_PER_MINUTE": "100000",
        "RECOLLECT_CACHE_MIN_MS": "0",
    }
    with ScriptedLLM() as llm, ThreadPoolExecutor(PEOPLE + 2) as threads:
        options = ("--upstream", llm.base_url)
        with RecollectServer(tmp_path / "home", *options, **settings) as server:
            attack = Attack(server.url)
            clients: list[Future[None]] = [threads.submit(attack.send_hostile, number) for number in range(2)]
            clients += [threads.submit(attack.chat_and_add, f"person-{number}") for number in range(PEOPLE)]
            try:
                for store in (postgres, redis) * RESTARTS:
                    time.sleep(BETWEEN_S)
                    kill(store)
                    time.sleep(AWAY_S)
                    store.start()
                time.sleep(BETWEEN_S)
            finally:
                attack.ended.set()
            try:
                for each in clients:
                    each.result(300)
            finally:
                print(server.log[server.log.find("Traceback") :][:20_000])
            assert "Traceback" not in server.log
            with httpx.Client(base_url=server.url, timeout=60) as client:
                give_up = time.monotonic() + HEALED_S
                while lost := missing(client, attack):
                    assert time.monotonic() < give_up, lost
                    time.sleep(0.5)
                assert client.get("/ready").status_code == 200
    assert {status for status in attack.hostile_statuses if status >= 500} <= {503}
    counts = sum(map(len, attack.turns.values())), sum(map(len, attack.memories.values()))
    assert all(counts)
    say(
        f"{counts[0]} turns and {counts[1]} memories acknowledged, none lost; {attack.unacknowledged} turns not "
        f"acknowledged; {len(attack.hostile_statuses)} hostile requests"
    )
