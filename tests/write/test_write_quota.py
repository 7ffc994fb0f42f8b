"""As much as may be is kept for a user, and no more: every door says so, and nobody else notices."""

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
from recollect.write import write_quota as rooms
from recollect.write.write_quota import WriteQuota
from tests.support.cli_runner import Cli
from tests.support.compat_server import served
from tests.support.proxy_server import served as served_proxy

BY = Author("test")
FULL, BOB = Scope("full"), Scope("bob")


def _most(home: Path, count: int) -> Settings:
    return load({"home": home, "learn": "off", "user_memories_most": count}, environ={}).settings


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    service = await open_service(_most(tmp_path, 5))
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


async def test_a_million_adds_leave_as_many_as_may_be_and_nobody_else_notices(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = 0
    count = service._ledger.count

    async def counted(*inputs: Any) -> int:
        nonlocal counts
        counts += 1
        return await count(*inputs)

    monkeypatch.setattr(service._ledger, "count", counted)
    stored = 0
    started = time.monotonic()
    for number in range(100_000):
        try:
            await add(service, FULL, f"memory {number}")
            stored += 1
        except QuotaReached:
            pass
        if number % 25_000 == 0:
            await add(service, BOB, f"note {number}")
    assert stored == 5
    # One count for each user, and then at most one a second.
    assert counts <= 3 + time.monotonic() - started
    assert (await count(FULL, Listing()), await count(BOB, Listing())) == (5, 4)


async def test_what_is_said_counts_and_so_does_what_was_forgotten(service: Service) -> None:
    session = Scope("full", session="s")
    messages = [{"role": "user", "content": "tea"}] * 2
    await service.remember(session, messages, by=BY)
    await add(service, FULL, "Sam likes tea")
    for record in await service.find(FULL, Listing()):
        await service.forget(FULL, record.id, by=BY)
    with pytest.raises(QuotaReached, match="user_memories_most"):
        await service.remember(session, [*messages, *messages], by=BY)
    await service.remember(session, messages, by=BY)
    assert await refused(service)
    assert not await refused(service, BOB)


async def test_adds_at_the_same_moment_are_counted_together(service: Service) -> None:
    ended = await asyncio.gather(*(add(service, FULL, f"note {n}") for n in range(30)), return_exceptions=True)
    assert sum(isinstance(each, QuotaReached) for each in ended) == 25
    assert await service.count(FULL, Listing()) == 5


async def test_an_erasure_makes_room(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    from recollect.model.erasure import ErasureRequest, Target

    monkeypatch.setattr(rooms, "_REFRESH_AT_LIMIT_S", 0.0)
    for number in range(5):
        await add(service, FULL, f"note {number}")
    assert await refused(service)
    gone = (await service.find(FULL, Listing()))[0]
    await service.erasure.erase(FULL, ErasureRequest(Target.MEMORY, gone.id), by=BY)
    assert not await refused(service)
    assert await refused(service)


async def test_what_other_processes_add_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "_REFRESH_NEAR_LIMIT_S", -1.0)
    chosen = _most(tmp_path, 10)
    one, other = await open_service(chosen), await open_service(chosen)
    try:
        for number in range(6):
            await add(one, FULL, f"note {number}")
        await add(other, FULL, "another's first")
        for number in range(3):
            await add(one, FULL, f"more {number}")
        # Counted again behind the write that found the last count old, which was this one's last but two at most.
        deadline = time.monotonic() + 60
        while not await refused(other):
            assert time.monotonic() < deadline
            # What counts runs beside this: on a busy machine it comes to its turn only while this one rests.
            await asyncio.sleep(0.2)
        assert await one.count(FULL, Listing()) <= 12
    finally:
        await one.close()
        await other.close()


async def test_a_user_is_not_counted_at_every_write() -> None:
    counts: list[str] = []

    class Counting:
        async def count(self, scope: Scope, listing: Listing) -> int:
            counts.append(scope.user)
            return 0

    quota = WriteQuota(Counting(), 1_000_000)  # type: ignore[arg-type]
    for _ in range(1000):
        await quota.admit("ann", 1)
    assert counts == ["ann"]
    without = WriteQuota(Counting(), 0)  # type: ignore[arg-type]
    await without.admit("bob", 10**9)
    assert counts == ["ann"]


async def test_a_library_and_an_import_raise_it(tmp_path: Path) -> None:
    with Memory(settings=_most(tmp_path, 2)) as memory:
        memory.add("one", user_id="ann")
        memory.add("two", user_id="ann")
        with pytest.raises(QuotaReached):
            memory.add("three", user_id="ann")
        lines = list(memory.export(user_id="ann"))
    async with AsyncMemory(settings=_most(tmp_path / "b", 2)) as memory:
        assert (await memory.import_(lines, user_id="ann")).added == 2
        # What is there already needs no room.
        assert (await memory.import_(lines, user_id="ann")).present == 2
        with pytest.raises(QuotaReached):
            await memory.import_([{"memory": "three"}], user_id="ann")
        assert (await memory.import_([{"memory": "three"}], user_id="bob")).added == 1


def test_the_command_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_USER_MEMORIES_MOST", "1")
    cli = Cli(tmp_path)
    cli.add("one")
    assert "user_memories_most" in cli.error("add", "two", code=4)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Any]:
    with served(tmp_path, learn="off", user_memories_most=1) as client:
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
def test_every_door_that_adds_answers_429_without_asking_to_come_again(
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


def test_a_chat_goes_on_and_says_that_nothing_more_is_kept(tmp_path: Path, llm: ScriptedLLM) -> None:
    llm.default = "Noted."
    with served_proxy(tmp_path, llm.base_url, user_memories_most=2, learn="off") as server:
        one = {"model": "m", "messages": [{"role": "user", "content": "My budget is $10,000"}], "user": "ann"}
        assert server.post(one).headers["x-memory-status"] == "ok"
        server.stored_turns("ann", 2)
        two = {"model": "m", "messages": [{"role": "user", "content": "What is my budget?"}], "user": "ann"}
        for _ in range(2):
            answer = server.post(two)
            assert answer.status == 200
            assert answer.headers["x-memory-status"] == "degraded; reason=quota"
            # What is there is recalled all the same.
            assert "$10,000" in str(llm.calls("chat")[-1])
        assert server.post({**two, "user": "bob"}).headers["x-memory-status"] == "ok"
        # It does not wait on disk, where it would take the place of what others say.
        assert not server.app.state.resilient_memory.has_spilled_turns
