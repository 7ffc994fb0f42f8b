"""Memory for the OpenAI Agents SDK, with real agents and a scripted model over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from agents import (
    Agent,
    Model,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    Session,
    SessionSettings,
)
from openai import AsyncOpenAI

from recollect import AsyncMemory, Memory
from recollect.config.settings import Settings
from recollect.errors import InvalidInput, NotFound
from recollect.integrations.openai_agents import RecollectSession, memory_tools, recalling
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.framework_samples import BUDGET, PICTURE, QUESTION, RECALLED_ANSWER, UNKNOWN, model

QUIET = RunConfig(tracing_disabled=True)
ODD: list[Any] = [
    {"role": "user", "content": "Hello"},
    {"role": "user", "content": [{"type": "input_image", "image_url": PICTURE, "detail": "auto"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    {
        "type": "function_call",
        "call_id": "c1",
        "name": "weather",
        "arguments": '{"city":"Hilo"}',
        "id": "__fake_id__",
    },
    {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "not json", "id": "__fake_id__"},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "🍍\0\ud800"}]},
    {"type": "message", "role": "assistant", "id": "__fake_id__", "content": [{"type": "output_text", "text": "Hi"}]},
    {"role": "developer", "content": "Be short."},
    {
        "type": "computer_call",
        "call_id": "c3",
        "action": {"type": "screenshot"},
        "nested": {"a": [1, 2.5, None, True]},
    },
]


@pytest.fixture(params=["chat", "responses"])
async def scripted(request: pytest.FixtureRequest, llm: ScriptedLLM) -> AsyncIterator[Model]:
    llm.default = model
    async with AsyncOpenAI(base_url=llm.base_url, api_key="sk-test", max_retries=0, timeout=60) as sdk:
        if request.param == "chat":
            yield OpenAIChatCompletionsModel("scripted", sdk)
        else:
            yield OpenAIResponsesModel("scripted", sdk)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AsyncMemory]:
    async with AsyncMemory(home=tmp_path) as memory:
        yield memory


def _user(context: str) -> str:
    return context


async def test_a_fact_stored_by_a_tool_is_recalled_in_a_new_session_after_a_restart_by_its_user_only(
    scripted: Model, tmp_path: Path
) -> None:
    async def ask(home: Path, user: str, session: str, text: str) -> str:
        async with AsyncMemory(home=home) as memory:
            agent = Agent("assistant", model=scripted, tools=[*memory_tools(memory, user_id=_user)])
            # Learning from the session could store the fact before the tool does.
            stored = RecollectSession(session, memory, user_id=user, learns=False)
            return str((await Runner.run(agent, text, session=stored, context=user, run_config=QUIET)).final_output)

    assert (await ask(tmp_path, "alex", "monday", f"Remember: {BUDGET}")).startswith("Done. Stored as ")
    assert await ask(tmp_path, "alex", "tuesday", QUESTION) == RECALLED_ANSWER
    assert await ask(tmp_path, "kim", "monday", QUESTION) == UNKNOWN


async def test_a_session_replays_its_items_and_another_session_recalls_them(
    llm: ScriptedLLM, scripted: Model, tmp_path: Path
) -> None:
    async with AsyncMemory(home=tmp_path) as memory:
        agent = Agent("assistant", model=scripted)
        session = RecollectSession("monday", memory, user_id="alex")
        assert isinstance(session, Session)
        await Runner.run(agent, BUDGET, session=session, run_config=QUIET)
    async with AsyncMemory(home=tmp_path) as memory:
        session = RecollectSession("monday", memory, user_id="alex")
        assert (await Runner.run(agent, QUESTION, session=session, run_config=QUIET)).final_output == RECALLED_ANSWER
        assert [item.get("role") for item in await session.get_items()] == ["user", "assistant"] * 2  # type: ignore[union-attr]
        config = RunConfig(tracing_disabled=True, call_model_input_filter=recalling(memory, user_id=_user))
        fresh = RecollectSession("tuesday", memory, user_id="alex")
        run = await Runner.run(agent, QUESTION, session=fresh, context="alex", run_config=config)
        assert run.final_output == RECALLED_ANSWER
        # Recalled memories are part of that request only.
        assert BUDGET not in str(await fresh.get_items())
        other = await Runner.run(
            agent,
            QUESTION,
            session=RecollectSession("monday", memory, user_id="kim"),
            context="kim",
            run_config=config,
        )
        assert other.final_output == UNKNOWN
        turns = await memory.sessions.turns(user_id="alex", session_id="monday")
        assert [turn.content for turn in turns] == [BUDGET, "Aloha!", QUESTION, RECALLED_ANSWER]


async def test_a_streamed_run_with_a_picture_and_tools_is_stored_completely(
    scripted: Model, memory: AsyncMemory
) -> None:
    agent = Agent("assistant", model=scripted, tools=[*memory_tools(memory, user_id="alex")])
    session = RecollectSession("s", memory, user_id="alex")
    visible: Any = [{"role": "user", "content": [{"type": "input_image", "image_url": PICTURE, "detail": "auto"}]}]
    seen = await Runner.run(agent, visible, session=session, run_config=QUIET)
    assert seen.final_output == "A beach."
    streamed = Runner.run_streamed(agent, f"Remember: {BUDGET}", session=session, run_config=QUIET)
    async for _ in streamed.stream_events():
        pass
    assert str(streamed.final_output).startswith("Done.")
    kinds = [item.get("type") or item.get("role") for item in cast("list[dict[str, Any]]", await session.get_items())]
    assert kinds == ["user", "message", "user", "function_call", "function_call_output", "message"]
    # All items are sent to the model.
    assert (await Runner.run(agent, QUESTION, session=session, run_config=QUIET)).final_output == RECALLED_ANSWER


async def test_odd_items_are_returned_unchanged(memory: AsyncMemory, tmp_path: Path) -> None:
    session = RecollectSession("odd", memory, user_id="alex")
    await session.add_items([])
    assert await session.get_items() == []
    await session.add_items(ODD)
    await session.add_items(ODD)
    assert await session.get_items() == ODD * 2
    assert await session.get_items(limit=3) == ODD[-3:]
    assert await session.get_items(limit=0) == []
    assert (
        await RecollectSession("odd", memory, user_id="alex", session_settings=SessionSettings(limit=1)).get_items()
        == ODD[-1:]
    )
    assert [turn.content for turn in await memory.sessions.turns(user_id="alex", session_id="odd")] == [
        "Hello",
        "Hi",
    ] * 2
    with pytest.raises(InvalidInput, match="plain JSON"):
        await session.add_items([{"role": "user", "content": cast("Any", object())}])
    assert len(await session.get_items()) == 2 * len(ODD)


async def test_a_long_session_is_returned_in_order(memory: AsyncMemory) -> None:
    session = RecollectSession("long", memory, user_id="alex", learns=False)
    items: list[Any] = [{"type": "function_call_output", "call_id": str(n), "output": "x"} for n in range(450)]
    await session.add_items(items[:10])
    await session.add_items(items[10:])
    assert await session.get_items() == items
    assert await session.get_items(limit=250) == items[-250:]


async def test_sessions_of_other_users_projects_and_names_are_separate(memory: AsyncMemory) -> None:
    sessions = [
        RecollectSession("a", memory, user_id="alex"),
        RecollectSession("b", memory, user_id="alex"),
        RecollectSession("a", memory, user_id="kim"),
        RecollectSession("a", memory, user_id="alex", project_id="launch"),
    ]
    for number, session in enumerate(sessions):
        await session.add_items([{"role": "user", "content": f"number {number}"}])
    await sessions[1].clear_session()
    for number, session in enumerate(sessions):
        messages = [cast("Any", item)["content"] for item in await session.get_items()]
        assert messages == ([] if number == 1 else [f"number {number}"])


async def test_a_cleared_session_is_empty_until_undo(tmp_path: Path) -> None:
    async with AsyncMemory(home=tmp_path) as memory:
        session = RecollectSession("s", memory, user_id="alex")
        await session.clear_session()
        await session.add_items([{"role": "user", "content": BUDGET}])
        await session.clear_session()
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.pop_item() is None
        await session.add_items([{"role": "user", "content": "Hello again"}])
        assert len(await session.get_items()) == 1
        # Memories of the user are independent of the session.
        assert BUDGET in (await memory.recall(QUESTION, user_id="alex")).context.text
    async with AsyncMemory(home=tmp_path) as memory:
        session = RecollectSession("s", memory, user_id="alex")
        await session.undo()
        assert [cast("Any", item)["content"] for item in await session.get_items()] == [BUDGET, "Hello again"]
        with pytest.raises(NotFound):
            await session.undo()


async def test_popping_an_item_forgets_its_memories_until_undo(memory: AsyncMemory) -> None:
    session = RecollectSession("s", memory, user_id="alex")
    await session.add_items([{"role": "user", "content": "Hello there"}])
    await session.add_items([{"role": "user", "content": "I am allergic to peanuts"}])
    await memory.jobs.run_pending()

    async def known() -> list[str]:
        return [each.content for each in await memory.get_all(user_id="alex", turns=True)]

    before = await known()
    assert sum("peanuts" in each for each in before) >= 2
    assert await session.pop_item() == {"role": "user", "content": "I am allergic to peanuts"}
    assert not any("peanuts" in each for each in await known())
    assert await session.get_items() == [{"role": "user", "content": "Hello there"}]
    await session.undo()
    assert sorted(await known()) == sorted(before)
    assert len(await session.get_items()) == 2


async def test_concurrent_pops_return_each_item_once(memory: AsyncMemory) -> None:
    session = RecollectSession("s", memory, user_id="alex", learns=False)
    items: list[Any] = [{"type": "function_call_output", "call_id": str(n), "output": "x"} for n in range(12)]
    await asyncio.gather(*(session.add_items([item]) for item in items))
    assert sorted(int(cast("Any", each)["call_id"]) for each in await session.get_items()) == list(range(12))
    popped = await asyncio.gather(*(session.pop_item() for _ in range(12)))
    assert sorted(int(cast("Any", each)["call_id"]) for each in popped) == list(range(12))
    assert await session.pop_item() is None


async def test_an_erased_turn_is_removed_from_the_session(memory: AsyncMemory) -> None:
    session = RecollectSession("s", memory, user_id="alex")
    await session.add_items([{"role": "user", "content": BUDGET}])
    await session.add_items([{"role": "user", "content": "Hello"}])
    [turn, _] = await memory.sessions.turns(user_id="alex", session_id="s")
    await memory.erasure.erase(user_id="alex", turn_id=turn.id)
    assert await session.get_items() == [{"role": "user", "content": "Hello"}]
    await memory.erasure.erase(user_id="alex", session_id="s")
    assert await session.get_items() == []


async def test_a_call_continues_while_memory_is_unavailable(
    scripted: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = await AsyncMemory(home=tmp_path).open()
    await memory.close()
    config = RunConfig(tracing_disabled=True, call_model_input_filter=recalling(memory, user_id="alex"))
    with caplog.at_level(logging.WARNING, "recollect"):
        run = await Runner.run(Agent("assistant", model=scripted), "Hello", run_config=config)
    assert run.final_output == "Aloha!"
    assert "has no memories" in caplog.text


async def test_items_are_stored_while_the_learning_backlog_is_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(home=tmp_path, worker=False, max_waiting_jobs=1, learn_wait_s=0)
    async with AsyncMemory(settings=settings) as memory:
        await memory.remember(BUDGET, user_id="alex", session_id="before")
        # Reopened, since the size of the backlog is cached.
        await memory.close()
        await memory.open()
        session = RecollectSession("s", memory, user_id="alex")
        with caplog.at_level(logging.WARNING, "recollect"):
            await session.add_items([{"role": "user", "content": "Hello"}])
        assert "stored, but not learned from" in caplog.text
        assert await session.get_items() == [{"role": "user", "content": "Hello"}]
        assert await session.pop_item() == {"role": "user", "content": "Hello"}


def test_a_blocking_memory_serves_several_event_loops(tmp_path: Path) -> None:
    with Memory(home=tmp_path) as memory:
        session = RecollectSession("s", memory, user_id="alex")
        for number in range(3):
            asyncio.run(session.add_items([{"role": "user", "content": f"number {number}"}]))
        assert len(asyncio.run(session.get_items())) == 3


async def test_a_session_is_stored_in_postgresql(dsn: str) -> None:
    async with AsyncMemory(dsn) as memory:
        await RecollectSession("odd", memory, user_id="alex").add_items(ODD)
    async with AsyncMemory(dsn) as memory:
        session = RecollectSession("odd", memory, user_id="alex")
        assert await session.get_items() == ODD
        assert await session.pop_item() == ODD[-1]
        await session.clear_session()
        assert await session.get_items() == []
        await session.undo()
        assert await session.get_items() == ODD[:-1]
