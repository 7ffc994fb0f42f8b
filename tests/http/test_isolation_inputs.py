"""Malicious filters, ids and idempotency keys never reach beyond the user who sends them."""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recollect import AsyncMemory
from recollect.errors import InvalidInput, NotFound, RecollectError
from recollect.model.ids import new_id
from recollect.model.memory import MemoryRecord
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.auth_samples import bearer, make_key, serving

CANARY = "canaryQXZJ"


async def settle(memory: AsyncMemory) -> None:
    """Add memories of one user, and memories with a canary of others."""
    await memory.add("The budget is 5 dollars", user_id="ada", metadata={"n": 1})
    for user, project in (("bea", "secret"), ("a", "b:c"), ("*", None), ("%", None), ("' OR 1=1 --", None)):
        words = f"The budget of {CANARY} is 9 dollars"
        await memory.add(words, user_id=user, project_id=project, metadata={"note": CANARY})


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AsyncMemory]:
    async with AsyncMemory(home=tmp_path) as memory:
        await settle(memory)
        yield memory


TRICKS: list[Any] = [
    {"$or": [{"user_id": "bea"}, {"importance": {"$gte": 0}}]},
    {"OR": [{"user_id": "bea"}, {"user_id": "*"}]},
    {"or": [{"importance": {"gte": 0}}]},
    {"user_id": "bea"},
    {"user_id": {"$ne": "ada"}},
    {"user_id": {"in": ["ada", "bea"]}},
    {"$not": {"user_id": "ada"}},
    {"NOT": [{"importance": {"gte": 2}}]},
    {"project_id": "secret"},
    {"metadata": {"note": CANARY}},
    {"metadata.note": CANARY},
    {"category": {"ne": "nonsense"}},
    {"content": {"contains": CANARY}},
    {"content": {"icontains": "%"}},
    {"tags": "x' OR 'a'='a"},
    {"id": "x' or true --"},
    {"id": {"ne": "x"}},
    {"1=1 --": True},
    {"importance": "0 or true"},
    {"metadata.n') OR 1=1 --": 1},
    {"metadata.n\" OR \"1\"=\"1": 1},
    {"metadata.n": {"in": ["1) OR (1=1"]}},
    {"$where": "true"},
    {"level": {"in": ["user", "project", "session"]}},
    "user_id = 'bea' or true",
    ["bea"],
]  # fmt: skip
QUESTIONS = [
    CANARY,
    f'"{CANARY}" OR user:bea',
    f"{CANARY}* NEAR(budget, 2)",
    "content : budget",
    "' UNION SELECT * FROM memories --",
    "\") OR (user_id MATCH 'bea",
    "budget & | ! <-> bea",
    "*",
]


async def visible_to_ada(memory: AsyncMemory, trick: Any) -> list[MemoryRecord]:
    """Return what a filter lists and finds for one user; nothing if it is rejected."""
    try:
        listed = await memory.get_all(user_id="ada", filters=trick)
        searched = await memory.search("budget", user_id="ada", filters=trick, min_score=0)
    except InvalidInput:
        return []
    return [*listed, *(hit.record for hit in searched)]


async def check_filters(memory: AsyncMemory) -> None:
    matching = 0
    for trick in TRICKS:
        results = await visible_to_ada(memory, trick)
        matching += bool(results)
        assert {record.scope.user for record in results} <= {"ada"}, trick
        assert CANARY not in str(results), trick
    # Some of them are valid filters.
    assert matching >= 3


async def test_no_filter_or_question_reaches_another_user(memory: AsyncMemory) -> None:
    await check_filters(memory)
    for question in QUESTIONS:
        hits = await memory.search(question, user_id="ada", min_score=0, limit=100)
        assert {hit.record.scope.user for hit in hits} <= {"ada"}, question
        recalled = await memory.recall(f"About my budget: {question}", user_id="ada")
        assert "9 dollars" not in str(recalled.messages), question


async def test_no_filter_reaches_another_user_on_postgresql(dsn: str, tmp_path: Path) -> None:
    async with AsyncMemory(dsn, home=tmp_path) as memory:
        await settle(memory)
        await check_filters(memory)


async def test_similar_ids_are_different_users(memory: AsyncMemory) -> None:
    similar = ("BEA", "bea ", "be%", "b*", "_ea", "bea\u200b", "bea/secret")
    projects = [("a:b", "c"), ("a", "b"), ("be", "a"), ("%", "secret"), ("' OR 1=1 --", "secret")]
    for user, project in [*((each, None) for each in similar), *projects]:
        own = {"a", "%", "' OR 1=1 --"} & {user}
        results = [*(await memory.get_all(user_id=user, project_id=project))]
        results += [hit.record for hit in await memory.search(CANARY, user_id=user, project_id=project, min_score=0)]
        assert {record.scope.user for record in results} <= own, user


@pytest.mark.parametrize(
    "trick", [None, {"NOT": [{"importance": {"gte": 2}}]}, {"category": {"ne": "nonsense"}}], ids=str
)
async def test_deleting_all_memories_of_a_user_leaves_those_of_others(memory: AsyncMemory, trick: Any) -> None:
    users = await memory.admin.users()
    before = {user: len(await memory.get_all(user_id=user)) for user in users}
    deleted = 0
    try:
        deleted = await memory.delete_all(user_id="ada", filters=trick)
    except InvalidInput:
        pass
    after = {user: len(await memory.get_all(user_id=user)) for user in users}
    assert {user: count for user, count in after.items() if user != "ada"} == {
        user: count for user, count in before.items() if user != "ada"
    }
    assert before["ada"] - after["ada"] == deleted


async def test_idempotency_keys_of_users_are_independent(memory: AsyncMemory) -> None:
    first = await memory.add("Ada's secret", user_id="ada", idempotency_key="k")
    other = await memory.add("Bea's note", user_id="bea", idempotency_key="k")
    repeated = await memory.add("Ada's secret", user_id="ada", idempotency_key="k")
    assert repeated.id == first.id != other.id
    assert (await memory.get(other.id, user_id="bea")).content == "Bea's note"
    # The same request of another user is independent.
    same = await memory.add("Ada's secret", user_id="bob", idempotency_key="k")
    assert same.id != first.id
    with pytest.raises(NotFound):
        await memory.get(first.id, user_id="bob")


async def test_unknown_ids_and_ids_of_others_raise_the_same_error(memory: AsyncMemory) -> None:
    [theirs] = await memory.get_all(user_id="bea")
    nobodys = new_id()
    for call in (
        memory.get,
        partial(memory.update, content="x"),
        memory.delete,
        memory.restore,
        memory.history,
        partial(memory.reviews.approve, by="ada"),
        memory.erasure.erase,
    ):
        reports = []
        for id in (theirs.id, nobodys):
            with pytest.raises(RecollectError) as raised:
                await call(memory_id=id, user_id="ada")
            reports.append((type(raised.value), str(raised.value).replace(id, "ID")))
        assert reports[0] == reports[1]
    assert [record.content for record in await memory.get_all(user_id="bea")] == [theirs.content]


async def test_the_duration_does_not_reveal_whether_an_id_exists(tmp_path: Path) -> None:
    async with AsyncMemory(home=tmp_path) as memory:
        made = [await memory.add(f"note {n}", user_id="bea") for n in range(50)]
        took: dict[bool, list[float]] = {True: [], False: []}
        for n in range(600):
            foreign = n % 2 == 0
            id = made[n % 50].id if foreign else new_id()
            started = time.perf_counter()
            with pytest.raises(NotFound):
                await memory.get(id, user_id="ada")
            took[foreign].append(time.perf_counter() - started)
            await asyncio.sleep(0)
        ratio = statistics.median(took[True]) / statistics.median(took[False])
        print(f"foreign to unknown: {ratio:.2f}")
        assert 0.25 < ratio < 4


LINES = [
    "a\r\nWARNING forged",
    "a\nWARNING forged",
    "a\u2028WARNING forged",
    "a\x85WARNING forged",
    "a\x1b[2K\rforged",
]


def test_no_id_forges_a_log_line(tmp_path: Path, llm: ScriptedLLM, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(tmp_path, auth="keys", upstream_url=llm.base_url) as client:
        headers = bearer(make_key(client, everyone=True, name="app"))
        messages = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        for id in LINES:
            for fields in (
                {"user": id},
                {"user": "ann", "memory_id": id},
                {"memory_context": {"user_id": id, "project_id": id}},
                {"user": "ann", "memory_context": {"project_id": id}},
            ):
                answer = client.post("/v1/chat/completions", headers=headers, json={**messages, **fields})
                assert answer.status_code == 400
                assert "forged" not in answer.json()["error"]["message"]
            client.get("/v1/models", params={"user": id}, headers=headers)
            client.get("/whoami", params={"user_id": id}, headers=headers)
            with pytest.raises(InvalidInput):
                make_key(client, user="ann", name=id)
        client.get("/whoami", headers=bearer("rk_%0d%0aforged"))
        service: Any = client.app.state.service  # type: ignore[attr-defined]
        assert not client.portal.call(service.users)  # type: ignore[union-attr]
    for record in (each for each in caplog.records if each.name.startswith("recollect")):
        assert not set(record.getMessage()) & set("\r\n\u2028\x85\x1b"), record.getMessage()
