"""The maximum number of records of a user is enforced by every interface, and does not affect other users."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect import AsyncMemory, Memory
from recollect.config.settings import Settings, load
from recollect.errors import QuotaReached
from recollect.model.change import Author
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.remember import MemoryInput
from recollect.service.service import Service
from recollect.testing.scripted_llm import ScriptedLLM
from recollect.wiring import open_service
from recollect.write import write_quota
from recollect.write.write_quota import WriteQuota
from tests.support.cli_runner import Cli
from tests.support.compat_server import served
from tests.support.proxy_server import served as served_proxy

BY = Author("test")
FULL, BOB = Scope("full"), Scope("bob")


def settings_with_maximum(home: Path, count: int) -> Settings:
    return load({"home": home, "learn": "off", "user_max_records": count}, environ={}).settings


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    service = await open_service(settings_with_maximum(tmp_path, 5))
    yield service
    await service.close()


async def add(service: Service, scope: Scope, text: str) -> None:
    await service.add(scope, MemoryInput(content=text), by=BY)


async def refused(service: Service, scope: Scope = FULL) -> bool:
    try:
        await add(service, scope, f"one more at {time.monotonic()}")
    except QuotaReached:
        return True
    return False


async def test_the_maximum_is_enforced_for_each_user(service: Service) -> None:
    stored = sum([not await refused(service) for _ in range(50)])
    assert stored == await service.count(FULL, Listing()) == 5
    assert not await refused(service, BOB)


async def test_turns_and_forgotten_memories_count(service: Service) -> None:
    session = Scope("full", session="s")
    messages = [{"role": "user", "content": "tea"}] * 2
    await service.remember(session, messages, by=BY)
    await add(service, FULL, "Sam likes tea")
    for record in await service.find(FULL, Listing()):
        await service.forget(FULL, record.id, by=BY)
    with pytest.raises(QuotaReached, match="user_max_records"):
        await service.remember(session, [*messages, *messages], by=BY)
    await service.remember(session, messages, by=BY)
    assert await refused(service)
    assert not await refused(service, BOB)


async def test_concurrent_adds_are_counted_together(service: Service) -> None:
    ended = await asyncio.gather(*(add(service, FULL, f"note {n}") for n in range(30)), return_exceptions=True)
    assert sum(isinstance(each, QuotaReached) for each in ended) == 25
    assert await service.count(FULL, Listing()) == 5


async def test_an_erasure_frees_space(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    from recollect.model.erasure import ErasureRequest, Target

    monkeypatch.setattr(write_quota, "REFRESH_AT_LIMIT_S", 0.0)
    for number in range(5):
        await add(service, FULL, f"note {number}")
    assert await refused(service)
    gone = (await service.find(FULL, Listing()))[0]
    await service.erasure.erase(FULL, ErasureRequest(Target.MEMORY, gone.id), by=BY)
    assert not await refused(service)
    assert await refused(service)


async def test_records_of_other_processes_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_quota, "REFRESH_NEAR_LIMIT_S", -1.0)
    chosen = settings_with_maximum(tmp_path, 10)
    one, other = await open_service(chosen), await open_service(chosen)
    try:
        for number in range(6):
            await add(one, FULL, f"note {number}")
        await add(other, FULL, "another's first")
        for number in range(3):
            await add(one, FULL, f"more {number}")
        # The cached count is refreshed in the background of a write.
        deadline = time.monotonic() + 60
        while not await refused(other):
            assert time.monotonic() < deadline
            # Let the background count run.
            await asyncio.sleep(0.2)
        assert await one.count(FULL, Listing()) <= 12
    finally:
        await one.close()
        await other.close()


class CountingLedger:
    """Counts the calls of `count`, which returns a fixed number."""

    def __init__(self, stored: int) -> None:
        self.stored = stored
        self.counts = 0

    async def count(self, scope: Scope, listing: Listing) -> int:
        self.counts += 1
        return self.stored


async def test_records_are_not_counted_at_every_write() -> None:
    ledger = CountingLedger(0)
    quota = WriteQuota(ledger, 1_000_000)  # type: ignore[arg-type]
    for _ in range(1000):
        await quota.admit("ann", 1)
    assert ledger.counts == 1
    unlimited = WriteQuota(ledger, 0)  # type: ignore[arg-type]
    await unlimited.admit("bob", 10**9)
    assert ledger.counts == 1


async def test_records_are_counted_at_most_once_a_second_while_writes_are_rejected() -> None:
    ledger, started = CountingLedger(5), time.monotonic()
    quota = WriteQuota(ledger, 5)  # type: ignore[arg-type]
    for _ in range(1000):
        with pytest.raises(QuotaReached):
            await quota.admit("ann", 1)
    assert ledger.counts <= 2 + time.monotonic() - started


async def test_the_library_and_an_import_raise_quota_reached(tmp_path: Path) -> None:
    with Memory(settings=settings_with_maximum(tmp_path, 2)) as memory:
        memory.add("one", user_id="ann")
        memory.add("two", user_id="ann")
        with pytest.raises(QuotaReached):
            memory.add("three", user_id="ann")
        lines = list(memory.export(user_id="ann"))
    async with AsyncMemory(settings=settings_with_maximum(tmp_path / "b", 2)) as memory:
        assert (await memory.import_(lines, user_id="ann")).added == 2
        # Existing memories need no space.
        assert (await memory.import_(lines, user_id="ann")).present == 2
        with pytest.raises(QuotaReached):
            await memory.import_([{"memory": "three"}], user_id="ann")
        assert (await memory.import_([{"memory": "three"}], user_id="bob")).added == 1


def test_the_command_line_names_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_USER_MAX_RECORDS", "1")
    cli = Cli(tmp_path)
    cli.add("one")
    assert "user_max_records" in cli.error("add", "two", code=4)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Any]:
    with served(tmp_path, learn="off", user_max_records=1) as client:
        yield client


ADDING: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("/recollect/v1/memories", {"content": "$"}, {"X-Memory-User": "@"}),
    ("/recollect/v1/remember", {"messages": "$"}, {"X-Memory-User": "@"}),
    ("/v1/memory", {"content": "$", "user_id": "@", "type": "semantic"}, {"x-authz-user-id": "@"}),
    ("/api/react/facts/store", {"content": "$", "user": "@", "collection": "c"}, {}),
    ("/api/sessions/s/memories?user_id=@", {"content": "$", "type": "fact", "importance": 0.5}, {}),
    ("/memories", {"messages": [{"role": "user", "content": "$"}], "user_id": "@", "infer": False}, {}),
    (
        "/v3/memories/add/",
        {"messages": [{"role": "user", "content": "$"}], "user_id": "@", "infer": False},
        {"Authorization": "Token x"},
    ),
]


def filled(value: Any, text: str, user: str) -> Any:
    if isinstance(value, str):
        return value.replace("$", text).replace("@", user)
    if isinstance(value, list):
        return [filled(each, text, user) for each in value]
    return {name: filled(each, text, user) for name, each in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize(("path", "body", "headers"), ADDING, ids=[path for path, _, _ in ADDING])
def test_every_route_that_adds_answers_429_without_retry_after(
    full: Any, path: str, body: dict[str, Any], headers: dict[str, str]
) -> None:
    def send(text: str, user: str) -> Any:
        return full.post(filled(path, text, user), json=filled(body, text, user), headers=filled(headers, text, user))

    for user in ("ann", "bob"):
        full.post(f"/api/sessions?user_id={user}", json={"sessionId": "s"})
    first = send("Sam likes tea", "ann")
    assert first.is_success, first.text
    refusal = send("Sam likes milk", "ann")
    assert refusal.status_code == 429, refusal.text
    assert "erase some" in refusal.text
    assert "retry-after" not in refusal.headers
    assert send("Kim likes milk", "bob").is_success


def test_a_chat_is_answered_and_reports_the_exceeded_quota(tmp_path: Path, llm: ScriptedLLM) -> None:
    llm.default = "Noted."
    with served_proxy(tmp_path, llm.base_url, user_max_records=2, learn="off") as server:
        one = {"model": "m", "messages": [{"role": "user", "content": "My budget is $10,000"}], "user": "ann"}
        assert server.post(one).headers["x-memory-status"] == "ok"
        server.stored_turns("ann", 2)
        two = {"model": "m", "messages": [{"role": "user", "content": "What is my budget?"}], "user": "ann"}
        for _ in range(2):
            answer = server.post(two)
            assert answer.status == 200
            assert answer.headers["x-memory-status"] == "degraded; reason=quota"
            # Stored memories are still recalled.
            assert "$10,000" in str(llm.calls("chat")[-1])
        assert server.post({**two, "user": "bob"}).headers["x-memory-status"] == "ok"
        # The turns are not spilled to disk, where they would take space from other users.
        assert not server.app.state.resilient_memory.has_spilled_turns
