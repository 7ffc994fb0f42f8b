"""The embedding model is migrated while memories are written and searched, without errors or missing hits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect import AsyncMemory
from recollect.agent import Agent, AgentConfig
from recollect.config.settings import Settings
from recollect.errors import InvalidInput, ModelUnavailable, StoreUnavailable
from recollect.ledger.sqlite import open_sqlite
from recollect.ledger.types import ModelOrigin, current_model_state
from recollect.maintenance.embedding_migration import drop_old_vectors, embed_missing
from recollect.model.change import Add
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.models.embedding import EmbeddingModel, Role
from recollect.models.openai_chat import OpenAIChat
from recollect.service import handle
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.agent_samples import call, calls, script
from tests.support.embedding_migration_samples import (
    ModelServer,
    by_meaning,
    embedded_by,
    fill,
    memory_text,
    model_of,
    settings_of,
    until,
    until_served,
    variables_of,
    wait_for_model,
)
from tests.support.forked import run_forked
from tests.support.ledger_samples import ANN, BY, MODEL, direction, memory, turn
from tests.support.recollect_server import RecollectServer, environment

COUNT = 80


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small batches and short waits, so that few memories take many steps."""
    monkeypatch.setattr("recollect.maintenance.embedding_migration.BACKGROUND_BATCH", 8)
    monkeypatch.setattr("recollect.maintenance.embedding_migration.FIRST_WAIT_S", 0.05)
    monkeypatch.setattr("recollect.maintenance.embedding_migration.SWITCH_DELAY_S", 0.0)


@pytest.fixture
def llm() -> Iterator[ScriptedLLM]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def other() -> Iterator[ScriptedLLM]:
    with ModelServer() as server:
        yield server


@pytest.mark.parametrize(
    ("store", "dimensions"),
    [("sqlite", 32), ("sqlite", 64), ("postgres", 32)],
    ids=["SQLite", "SQLite, of the same dimensions", "PostgreSQL"],
)
async def test_memories_are_found_by_vector_before_during_and_after_a_migration(
    tmp_path: Path, llm: ScriptedLLM, dsn: str, store: str, dimensions: int
) -> None:
    database = dsn if store == "postgres" else ""
    old = settings_of(tmp_path, llm, "old", 64, database=database)
    await fill(old, COUNT)
    new = settings_of(tmp_path, llm, "new", dimensions, database=database)
    async with AsyncMemory(settings=new) as memory:
        assert (await memory.service()).model.name == "old"
        assert await by_meaning(memory, 3)
        await memory.jobs.start_worker()
        output = COUNT
        while (await memory.service()).model.name == "old":
            await memory.add(memory_text(output), user_id="a")
            assert (await memory.service()).model.name == "new" or await by_meaning(memory, output)
            await by_meaning(memory, output % COUNT)
            output += 1
        for number in range(output):
            # What was written in the moment of the switch gets its vector a moment later.
            await until(partial(by_meaning, memory, number))
        states = await memory.admin.embedding_models()
        assert [(state.model.name, state.is_current) for state in states] == [("old", False), ("new", True)]


async def test_callers_of_the_old_service_can_finish(tmp_path: Path, llm: ScriptedLLM) -> None:
    await fill(settings_of(tmp_path, llm, "old", 64), 20)
    async with AsyncMemory(settings=settings_of(tmp_path, llm, "new", 32)) as memory:
        stored = await memory.service()
        assert await memory.admin.reembed() == 20
        assert (await memory.service()).model.name == "new"
        assert stored.model.name == "old"
        # A vector of the old model is kept as one of the old model, whatever is searched by now.
        await memory.add("likes gin", user_id="a")
        assert [state.model.name for state in await stored.model_states()] == ["old", "new"]
        assert await by_meaning(memory, 7)


async def checked_again(memory: AsyncMemory) -> None:
    """Let the memory check which service is needed, as it does at most once in an interval."""
    await asyncio.sleep(handle.CHECK_INTERVAL_S)
    await memory.service()


async def test_the_old_service_is_closed_after_its_last_use(
    tmp_path: Path, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle, "CLOSE_DELAY_S", 0.0)
    monkeypatch.setattr(handle, "CHECK_INTERVAL_S", 0.05)
    await fill(settings_of(tmp_path, llm, "old", 64), 20)
    script(llm, calls(call("change_model")), calls(call("RetrieveFacts", query=memory_text(7))), "It is done.")
    async with AsyncMemory(settings=settings_of(tmp_path, llm, "new", 32)) as memory:
        old = await memory.service()

        async def change_model() -> str:
            """Switch to another model."""
            await memory.admin.reembed()
            await until_served(memory, "new")
            await checked_again(memory)
            return "changed"

        chat = OpenAIChat(llm.base_url, model="m")
        async with Agent(memory, chat, (change_model,), config=AgentConfig()) as agent:
            answer = await agent.run("Change it, then say what was drunk", user_id="a", enable_memory=True)
        await chat.close()
        assert answer.text == "It is done."
        observed = [each for step in answer.steps for each in step.observations]
        assert [each.failed for each in observed] == [False, False]
        assert memory_text(7) in observed[1].text
        assert not old.use_count
        # Now that nobody is at work with it, it goes.
        await checked_again(memory)
        with pytest.raises(StoreUnavailable):
            await old.ping()


async def test_an_open_memory_notices_a_switch_by_another_process(tmp_path: Path, llm: ScriptedLLM) -> None:
    old = settings_of(tmp_path, llm, "old", 64)
    await fill(old, 20)
    async with AsyncMemory(settings=old) as stays:
        assert await by_meaning(stays, 1)
        async with AsyncMemory(settings=settings_of(tmp_path, llm, "new", 32)) as changes:
            await changes.admin.reembed()
        await until_served(stays, "new")
        assert await by_meaning(stays, 1)
        # What it writes now has vectors of the new model only.
        await stays.add(memory_text(20), user_id="a")
        assert await by_meaning(stays, 20)


async def test_a_process_with_old_settings_does_not_switch_back(
    tmp_path: Path, llm: ScriptedLLM, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = settings_of(tmp_path, llm, "old", 64), settings_of(tmp_path, llm, "new", 32)
    await fill(old, 20)
    async with AsyncMemory(settings=new) as memory:
        await memory.admin.reembed()
    async with AsyncMemory(settings=old) as late:
        await late.jobs.start_worker()
        assert (await late.service()).model.name == "new"
        assert "recollect reembed --back" in caplog.text
        assert await late.admin.reembed() == 0
        assert (await late.service()).model.name == "new"
        assert await by_meaning(late, 5)
        # What was added meanwhile has no vector of the old model yet.
        await late.add(memory_text(20), user_id="a")
        assert await late.admin.reembed(back=True) == 1
        assert (await late.service()).model.name == "old"
        assert await by_meaning(late, 20)


async def test_a_migration_waits_for_an_unavailable_embedder(
    tmp_path: Path, llm: ScriptedLLM, other: ScriptedLLM, caplog: pytest.LogCaptureFixture
) -> None:
    async def waits() -> bool:
        return "the embedding migration is delayed" in caplog.text

    await fill(settings_of(tmp_path, llm, "old", 64), COUNT)
    async with AsyncMemory(settings=settings_of(tmp_path, other, "new", 32)) as memory:
        await memory.jobs.start_worker()
        await asyncio.to_thread(other.wait_for, lambda server: len(embedded_by(server, "new")) > 20)
        await asyncio.to_thread(other.stop)
        await until(waits)
        assert (await memory.service()).model.name == "old"
        assert await by_meaning(memory, 70)
        await asyncio.to_thread(other.start)
        await until_served(memory, "new")
        assert await by_meaning(memory, 70)


async def test_the_old_embedder_serves_while_the_new_one_is_unreachable(
    tmp_path: Path, llm: ScriptedLLM, other: ScriptedLLM
) -> None:
    await fill(settings_of(tmp_path, llm, "old", 64), 20)
    # Without dimensions the server is asked for them when it is opened.
    new = settings_of(tmp_path, other, "new", 0)
    other.stop()
    async with AsyncMemory(settings=new) as memory:
        await memory.jobs.start_worker()
        assert (await memory.service()).model.name == "old"
        assert await by_meaning(memory, 3)
        other.start()
        await until_served(memory, "new")
        assert await by_meaning(memory, 3)


async def test_an_api_key_is_sent_to_its_own_address_only(
    tmp_path: Path, llm: ScriptedLLM, other: ScriptedLLM
) -> None:
    await fill(settings_of(tmp_path, llm, "old", 64), 3)
    new = settings_of(tmp_path, other, "new", 32)
    llm.clear()
    keyed = Settings(**{**dict(new), "embedder_api_key": "sk-new"})
    async with AsyncMemory(settings=keyed) as memory:
        assert await by_meaning(memory, 1)
    assert llm.calls("embeddings")
    assert "sk-new" not in str([request.headers for request in llm.requests])
    llm.clear()
    both = Settings(**{**dict(keyed), "previous_embedder_api_key": "sk-old"})
    async with AsyncMemory(settings=both) as memory:
        assert await by_meaning(memory, 1)
        await memory.admin.reembed()
    assert {request.headers["authorization"] for request in llm.requests} == {"Bearer sk-old"}
    assert {request.headers["authorization"] for request in other.requests} == {"Bearer sk-new"}


async def test_a_model_that_cannot_be_opened_is_replaced(
    tmp_path: Path, llm: ScriptedLLM, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncMemory(home=tmp_path, embedder=FakeEmbedder(16, name="gone")) as memory:
        await memory.import_([{"memory": memory_text(n), "user_id": "a"} for n in range(COUNT)])
    async with AsyncMemory(settings=settings_of(tmp_path, llm, "new", 32)) as memory:
        assert "cannot be opened" in caplog.text
        assert not await by_meaning(memory, 5)
        await memory.jobs.start_worker()
        for number in range(0, COUNT, 10):
            await until(partial(by_meaning, memory, number))


async def test_an_empty_ledger_uses_the_new_model_at_once(tmp_path: Path, llm: ScriptedLLM) -> None:
    await fill(settings_of(tmp_path, llm, "old", 64), 0)
    async with AsyncMemory(settings=settings_of(tmp_path, llm, "new", 32)) as memory:
        assert (await memory.service()).model.name == "new"


async def test_a_ledger_can_migrate_to_the_bundled_model(tmp_path: Path, llm: ScriptedLLM) -> None:
    await fill(settings_of(tmp_path, llm, "old", 64), 20)
    async with AsyncMemory(settings=Settings(home=tmp_path, learn="off")) as memory:
        assert (await memory.service()).model.name == "old"
        assert await memory.admin.reembed(drop=True) == 20
        assert (await memory.service()).model.name == "recollect-static-1"
        assert (await memory.admin.stats())["vectors"] == 20


async def test_vectors_of_another_model_are_ignored(tmp_path: Path, llm: ScriptedLLM) -> None:
    await fill(settings_of(tmp_path, llm, "old", 64), 20)
    async with AsyncMemory(settings=settings_of(tmp_path, llm, "new", 32)) as memory:
        await memory.jobs.start_worker()
        await until_served(memory, "new")
        # Its caller has the old model still.
        await memory.add(memory_text(20), user_id="a", embedding=[1.0] * 64)
        assert await by_meaning(memory, 20)
        hits = await memory.search(memory_text(20), user_id="a", embedding=[1.0] * 64)
        assert memory_text(20) in [hit.memory for hit in hits]
        with pytest.raises(InvalidInput, match="shape"):
            await memory.add("likes gin", user_id="a", embedding=[1.0] * 7)


async def test_a_rejected_text_does_not_block_the_migration(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Picky(FakeEmbedder):
        async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Any:
            if any("garden7" in text for text in texts):
                raise InvalidInput("not this one")
            return await super().embed(texts, role=role)

    async with AsyncMemory(home=tmp_path, embedder=FakeEmbedder(16, name="old")) as memory:
        await memory.import_([{"memory": memory_text(n), "user_id": "a"} for n in range(10)])
    async with AsyncMemory(home=tmp_path, embedder=Picky(16, name="picky")) as memory:
        assert await memory.admin.reembed() == 9
        assert "stays without a vector" in caplog.text
        assert [state.model.name for state in await memory.admin.embedding_models() if state.is_current] == ["picky"]
        assert (await memory.search("garden7", user_id="a"))[0].memory.endswith("garden7")


async def test_an_unavailable_embedder_rejects_no_text(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        ledger = await open_sqlite(tmp_path / "ledger.db", MODEL)
        stack.push_async_callback(ledger.close)
        await ledger.append(Scope("ann", "", "s"), [turn("tea"), turn("milk")], vectors=[None, None], by=BY)
        away = FakeEmbedder(MODEL.dimensions, name=MODEL.name, fail_with=ModelUnavailable("away"))
        with pytest.raises(ModelUnavailable):
            await embed_missing(ledger=ledger, embedder=away)
        away.fail_with = None
        assert await embed_missing(ledger=ledger, embedder=away) == 2


async def test_vectors_of_the_previous_model_are_dropped_after_a_day(tmp_path: Path) -> None:
    ledger = await open_sqlite(tmp_path / "ledger.db", MODEL)
    new = EmbeddingModel("new", MODEL.dimensions)
    await ledger.apply(ANN, [Add(memory(), direction(1))], by=BY)
    await ledger.make_current(MODEL, ModelOrigin("bundled"), replacing=None)
    await ledger.make_current(new, ModelOrigin("neural"), replacing=MODEL)
    await drop_old_vectors(ledger, before=now() - timedelta(days=1))
    assert await ledger.models() == {MODEL: 1}
    await drop_old_vectors(ledger, before=now() + timedelta(seconds=1))
    assert await ledger.models() == {}
    current = current_model_state(await ledger.model_states())
    assert current is not None
    assert current.model == new
    await ledger.close()


# Three batches of a background migration.
MEMORY_COUNT = 160
# What a process may take to notice, on a machine that does other things as well; by itself it is one second.
NOTICED_S = 30.0
USER = {"X-Memory-User": "a"}


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


def post(server: RecollectServer, path: str, body: dict[str, Any], *, status: int) -> Any:
    """Return the answer of a server; one on a busy machine may answer 503 for a moment."""
    deadline = time.monotonic() + 60
    while True:
        answer = httpx.post(f"{server.url}/recollect/v1/{path}", json=body, headers=USER, timeout=60)
        if answer.status_code != 503 or time.monotonic() > deadline:
            assert answer.status_code == status, answer.text
            return answer.json()


def search_on(server: RecollectServer, number: int) -> list[str]:
    """Return the hits of a server for a word of a memory."""
    answer = post(server, "search", {"query": f"garden{number}", "limit": 5}, status=200)
    return [hit["memory"] for hit in answer["results"]]


class Caller(threading.Thread):
    """Add memories to a server and search for them and for others, until stopped."""

    def __init__(self, server: RecollectServer, first: int) -> None:
        super().__init__(daemon=True)
        self._server, self._number = server, first
        self.over = threading.Event()
        self.wrong: list[str] = []

    def run(self) -> None:
        while not self.over.is_set():
            self._ask(self._number)
            self._number += 1

    def _ask(self, number: int) -> None:
        try:
            post(self._server, "memories", {"content": memory_text(number)}, status=201)
            for each in (number, number % MEMORY_COUNT):
                assert memory_text(each) in search_on(self._server, each), f"{memory_text(each)} is missing"
        except (AssertionError, httpx.HTTPError) as error:
            self.wrong.append(repr(error))


def test_two_servers_switch_together_under_load(tmp_path: Path, models: ModelServer) -> None:
    home = tmp_path / "home"
    asyncio.run(fill(settings_of(home, models, "old", 64), MEMORY_COUNT))
    # The first has the old settings still, as in the middle of a deployment.
    with (
        RecollectServer(home, **variables_of(models, "old", 64)) as first,
        RecollectServer(home, **variables_of(models, "new", 32)) as second,
    ):
        asking = [Caller(first, 1000), Caller(second, 2000)]
        for each in asking:
            each.start()
        seen = [wait_for_model(second, "new"), wait_for_model(first, "new")]
        for each in asking:
            each.over.set()
            each.join()
            assert each.wrong == []
        assert abs(seen[0] - seen[1]) < NOTICED_S
    # One of them made the vectors; both would have made twice as many.
    numbers = [int(text.partition("garden")[2]) for text in embedded_by(models, "new")]
    made = [number for number in numbers if number < MEMORY_COUNT]
    assert set(made) == set(range(MEMORY_COUNT))
    assert len(made) < 1.5 * MEMORY_COUNT


def test_a_migration_continues_after_its_process_was_killed(tmp_path: Path, models: ModelServer) -> None:
    home, new = tmp_path / "home", variables_of(models, "new", 32)
    asyncio.run(fill(settings_of(home, models, "old", 64), MEMORY_COUNT))
    models.texts["new"] = MEMORY_COUNT // 2
    with RecollectServer(home, **new) as server:
        models.wait_for(lambda each: len(embedded_by(each, "new")) > MEMORY_COUNT // 2)
        [old, coming] = counted(home, new)
        assert (old["model"], old["state"], old["embedder"]) == ("old", "current", "openai:old")
        assert (coming["model"], coming["state"], coming["total"]) == ("new", "coming", MEMORY_COUNT)
        report = httpx.get(f"{server.url}/ready", timeout=60).json()
        assert report["status"] == "ready"
        assert report["model_change"] == {
            "embedding_model": "new", "dimensions": 32, "done": coming["done"], "total": MEMORY_COUNT
        }  # fmt: skip
        assert model_of(server) == "old"
        assert memory_text(7) in search_on(server, 7)
        server.process.kill()
    del models.texts["new"]
    with RecollectServer(home, **new) as server:
        assert memory_text(7) in search_on(server, 7)
        wait_for_model(server, "new")
        assert memory_text(7) in search_on(server, 7)
        assert "model_change" not in httpx.get(f"{server.url}/ready", timeout=60).json()
    assert [each["state"] for each in status(home, new)] == ["replaced", "current"]
    # Nothing is done twice but the batch that was under way.
    assert len(embedded_by(models, "new")) <= MEMORY_COUNT + 64


def counted(home: Path, variables: dict[str, str]) -> list[dict[str, object]]:
    """Return the status once the number of memories to embed is known."""
    deadline = time.monotonic() + 60
    while (results := status(home, variables))[-1]["total"] != MEMORY_COUNT and time.monotonic() < deadline:
        time.sleep(0.1)
    return results


def status(home: Path, variables: dict[str, str]) -> list[dict[str, object]]:
    """Return the output of `recollect reembed --status`."""
    output = run_forked(["reembed", "--status", "--json"], environment(home, **variables))
    assert output.returncode == 0, output.stderr
    results: list[dict[str, object]] = json.loads(output.stdout)["models"]
    return results
