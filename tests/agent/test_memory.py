"""An agent with memory: the context that a run starts with, and the turns, episodes and facts that it stores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect import AsyncMemory, Memory
from recollect.agent import Agent, AgentConfig, function_tool
from recollect.agent.agent import start_run
from recollect.agent.working_memory import WorkingMemoryLimits
from recollect.errors import InvalidInput, StoreUnavailable
from recollect.model.change import Author
from recollect.model.ids import new_id
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope
from recollect.models.openai_chat import OpenAIChat
from recollect.prompts import prompt
from recollect.service.tool_memory import ToolMemory
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.testing.scripted_llm import ScriptedLLM
from recollect.text.tokens import count_tokens
from tests.support.agent_samples import (
    ALEX,
    MONDAY,
    agent_of,
    agent_requests,
    call,
    calls,
    close_all,
    memory_of,
    messages,
    port_of,
    restart,
    script,
    tool_names,
)
from tests.support.remember_samples import claim, learns

QUESTION = "Which port does the payment service use?"
PORT = "The payment service listens on port 8443"
EPISODE = "Below is the record of someone working on something"
MEMORY_TOOL_NAMES = ["RetrieveFacts", "RecallEpisodes", "StoreFact", "CorrectFact", "ForgetFact"]
DEPLOYS = [
    calls(call("port_of", service="billing"), thought="I try billing."),
    calls(call("port_of", service="payments")),
    calls(call("restart", service="payments"), thought="Now I restart it."),
    "It runs on 8443 again.",
]


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    yield
    await close_all()


@pytest.fixture
async def memory(tmp_path: Path, llm: ScriptedLLM) -> AsyncIterator[AsyncMemory]:
    async with memory_of(tmp_path, llm, worker=False) as memory:
        yield memory


async def episodes(memory: AsyncMemory, **scope: Any) -> list[MemoryRecord]:
    where = {"user_id": "alex", "project_id": "payments", **scope}
    return [each for each in await memory.get_all(**where) if each.category == "episode"]


async def deploys(agent: Agent, llm: ScriptedLLM, **where: Any) -> None:
    script(llm, *DEPLOYS)
    await agent.run("Restart the payment service", **{**MONDAY, **where})
    await agent.settled()


def recalled(llm: ScriptedLLM) -> str:
    """Return the memories and the task in the last request."""
    return "\n".join(each["content"] for each in messages(agent_requests(llm)[-1]) if each["role"] == "user")


async def by_hand(url: str, question: str) -> None:
    """Run a plain ReAct agent, written without this package."""
    tools = [function_tool(function) for function in (port_of, restart)]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": prompt("agent").fill(context="").strip()},
        {"role": "user", "content": question},
    ]
    async with httpx.AsyncClient(timeout=60) as http:
        while True:
            body = {"model": "m", "messages": messages, "max_tokens": 2048, "temperature": 0.0}
            body["tools"] = [each.openai_schema for each in tools]
            answer = (await http.post(f"{url}/chat/completions", json=body)).json()["choices"][0]["message"]
            if not answer.get("tool_calls"):
                return
            messages.append({name: answer[name] for name in ("role", "content", "tool_calls")})
            for made in answer["tool_calls"]:
                tool = next(each for each in tools if each.name == made["function"]["name"])
                text = await tool.run(json.loads(made["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": made["id"], "content": text})


async def test_without_memory_the_agent_sends_plain_react_requests_and_writes_nothing(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    steps = [
        calls(call("port_of", id="a", service="payments"), call("port_of", id="b", service="shop"), thought="Look."),
        calls(call("restart", id="c", service="payments")),
        "Done: 8443.",
    ]
    script(llm, *steps)
    await by_hand(llm.base_url, QUESTION)
    expected = [request.json for request in llm.calls("chat")]
    llm.clear()
    script(llm, *steps)
    # Without vectors that are computed in the background, which change the size of the ledger.
    async with memory_of(tmp_path, llm, late_interaction=False) as memory:
        await memory.add(PORT, user_id="alex", project_id="payments")
        before = (
            [line async for line in memory.export()],
            await memory.history(user_id="alex"),
            await memory.admin.stats(),
        )
        chat = OpenAIChat(llm.base_url, model="m")
        agent = Agent(memory, chat, [port_of, restart], enable_memory=False)
        where = {"user_id": "alex", "project_id": "payments", "session_id": "monday"}
        # Memory is off even if a user is named.
        answer = await agent.run(QUESTION, **where)
        assert (answer.text, answer.facts, answer.run_id) == ("Done: 8443.", (), "")
        assert [request.json for request in llm.calls("chat")] == expected
        await agent.close()
        await chat.close()
        after = (
            [line async for line in memory.export()],
            await memory.history(user_id="alex"),
            await memory.admin.stats(),
        )
        assert after == before
        assert await memory.jobs.list() == []
        assert await memory.sessions.list(user_id="alex") == []
        assert await memory.admin.usage() == []


async def test_without_memory_the_ledger_is_not_opened(tmp_path: Path, llm: ScriptedLLM) -> None:
    script(llm, "Hello.")
    memory = memory_of(tmp_path / "home", llm)
    agent = agent_of(memory, enable_memory=False)
    assert (await agent.run("Hi there")).text == "Hello."
    await agent.close()
    assert not (tmp_path / "home").exists()


async def test_a_run_starts_with_facts_episodes_and_the_conversation_in_order(
    memory: AsyncMemory, llm: ScriptedLLM
) -> None:
    agent = agent_of(memory)
    await memory.add(PORT, user_id="alex", project_id="payments")
    await deploys(agent, llm)
    script(llm, "8443.")
    answer = await agent.run(QUESTION, **MONDAY, state="after the restart")
    visible = recalled(llm)
    headings = [
        "Long-term Facts:\n- ",
        "Relevant Past Episodes:\n- Episode 1: Goal: Restart the payment service",
        "Conversation History:\n- Previous invocation 1: ",
        "Current Task:\nState: after the restart",
        "Working Memory:\n- ",
        f"Question: {QUESTION}",
        "Think step by step",
    ]
    assert [visible.find(each) for each in headings] == sorted(visible.find(each) for each in headings)
    assert all(each in visible for each in headings)
    assert PORT in visible
    assert "persistent memory" in messages(agent_requests(llm)[-1])[0]["content"]
    assert tool_names(agent_requests(llm)[-1]) == ["port_of", "restart", *MEMORY_TOOL_NAMES]
    assert len(answer.episodes) == 1
    await agent.close()


async def test_a_run_starts_with_five_facts_and_three_episodes(memory: AsyncMemory, llm: ScriptedLLM) -> None:
    for number in range(8):
        await memory.add(f"Service {number} listens on port {9000 + number}", user_id="alex", project_id="payments")
        steps = [{"kind": "action", "content": f"look {number}"}, {"kind": "action", "content": "restart"}]
        where = {"user_id": "alex", "project_id": "payments", "session_id": f"day {number}"}
        await memory.sessions.end_run(f"Restart service {number}", **where, steps=steps, answer="done")
    script(llm, "Many.")
    answer = await agent_of(memory).run("Which port does a service listen on?", **MONDAY)
    assert (len(answer.facts), len(answer.episodes)) == (5, 3)


async def test_the_question_is_embedded_once(tmp_path: Path, llm: ScriptedLLM) -> None:
    embedder = FakeEmbedder()
    settings = memory_of(tmp_path, llm, worker=False, embedding_cache_mb=0).settings
    async with AsyncMemory(settings=settings, embedder=embedder) as memory:
        await memory.add(PORT, user_id="alex", project_id="payments")
        agent = agent_of(memory)
        script(llm, "8443.", "8443.")
        await agent.run(QUESTION, **MONDAY)
        await agent.settled()
        embedder.roles.clear()
        await agent.run(QUESTION, **MONDAY)
        assert embedder.roles.count("query") == 1
        await agent.close()


async def test_a_task_is_stored_as_an_episode_with_lessons(memory: AsyncMemory, llm: ScriptedLLM) -> None:
    agent = agent_of(memory)
    await deploys(agent, llm)
    [episode] = await episodes(memory)
    assert episode.detail["goal"] == "Restart the payment service"
    assert episode.detail["steps"] == [
        'port_of(service="billing") (failed)',
        'port_of(service="payments")',
        'restart(service="payments")',
    ]
    assert episode.detail["outcome"] == "It runs on 8443 again."
    lesson = 'port_of(service="billing") failed: LookupError: no service billing; port_of(service="payments") worked.'
    assert episode.detail["lessons"] == lesson
    assert episode.detail["success"] is True
    [conversation] = await memory.sessions.list(user_id="alex")
    [invocation] = conversation.invocations
    assert (invocation["query"], invocation["result"]) == ("Restart the payment service", "It runs on 8443 again.")


async def test_a_simple_answer_is_no_episode(memory: AsyncMemory, llm: ScriptedLLM) -> None:
    agent = agent_of(memory)
    script(llm, calls(call("port_of", service="payments")), "8443.")
    await agent.run(QUESTION, **MONDAY)
    await agent.settled()
    assert await episodes(memory) == []
    [conversation] = await memory.sessions.list(user_id="alex")
    assert [each["query"] for each in conversation.invocations] == [QUESTION]


async def test_the_model_may_decide_that_a_run_was_no_task(memory: AsyncMemory, llm: ScriptedLLM) -> None:
    story = {"task": False, "goal": "", "steps": [], "outcome": "", "lessons": [], "summary": ""}
    script(llm, calls(call("port_of", service="payments")), calls(call("port_of", service="shop")), "8443 and 8080.")
    llm.when(EPISODE).reply_json(story)
    agent = agent_of(memory)
    await agent.run("Which ports are there?", **MONDAY)
    await agent.settled()
    assert [each for each in llm.calls("chat") if EPISODE in each.text]
    assert await episodes(memory) == []


async def test_a_failed_run_is_an_episode_too(memory: AsyncMemory, llm: ScriptedLLM) -> None:
    agent = agent_of(memory, config=AgentConfig(limits=_few(2)))
    wrong = calls(call("port_of", service="billing"))
    script(llm, wrong, wrong, "I do not know.")
    answer = await agent.run("Which port does billing use?", **MONDAY)
    assert not answer.success
    await agent.settled()
    [episode] = await episodes(memory)
    assert episode.detail["success"] is False
    assert "not finished" in episode.detail["lessons"]
    assert "no service billing" in episode.detail["lessons"]


def _few(iterations: int) -> Any:
    from recollect.agent import AgentLimits

    return AgentLimits(iterations=iterations)


async def test_facts_are_learned_from_question_and_answer(memory: AsyncMemory, llm: ScriptedLLM) -> None:
    agent = agent_of(memory)
    script(llm, "Understood.", "8443.")
    learns(llm, "port 8443", claim(PORT))
    await agent.run("The payment service listens on port 8443, mind that.", **MONDAY)
    await agent.settled()
    await memory.jobs.run_pending()
    await agent.run(QUESTION, **MONDAY)
    assert f"Long-term Facts:\n- {PORT}" in recalled(llm)


async def test_learning_and_episodes_can_be_disabled(tmp_path: Path, llm: ScriptedLLM) -> None:
    async with memory_of(tmp_path, llm, worker=False, agent_learn=False, agent_store_episodes=False) as memory:
        agent = agent_of(memory)
        await deploys(agent, llm)
        assert list(await memory.get_all(user_id="alex", project_id="payments", turns=True)) == []
        # The invocation is still part of the conversation.
        [conversation] = await memory.sessions.list(user_id="alex")
        assert len(conversation.invocations) == 1


async def test_a_conversation_continues_across_runs_and_restarts(tmp_path: Path, llm: ScriptedLLM) -> None:
    async with memory_of(tmp_path, llm) as memory, agent_of(memory) as agent:
        await deploys(agent, llm)
    async with memory_of(tmp_path, llm) as memory, agent_of(memory) as agent:
        script(llm, "I restarted payments.", "Still payments.")
        await agent.run("What did you just do?", **MONDAY)
        assert "Previous invocation 1: The user asked “Restart the payment service”" in recalled(llm)
        # The next run waits until the previous one is stored.
        await agent.run("And which one was that?", **MONDAY)
        assert "Previous invocation 2: The user asked “What did you just do?”" in recalled(llm)
        await memory.jobs.run_pending()
        [conversation] = await memory.sessions.list(user_id="alex")
        # Learning from the turns does not add an invocation again.
        assert [each["query"] for each in conversation.invocations] == [
            "Restart the payment service",
            "What did you just do?",
            "And which one was that?",
        ]


async def test_episodes_are_visible_in_other_conversations_and_invocations_are_not(
    memory: AsyncMemory, llm: ScriptedLLM
) -> None:
    agent = agent_of(memory)
    await deploys(agent, llm)
    script(llm, "Done.")
    await agent.run("Restart the payment service", **{**ALEX, "session_id": "tuesday"})
    assert "Episode 1: Goal: Restart the payment service" in recalled(llm)
    assert "Previous invocation" not in recalled(llm)


@pytest.mark.parametrize("other", [{"user_id": "eve"}, {"project_id": "other"}])
async def test_other_users_and_projects_see_nothing(
    memory: AsyncMemory, llm: ScriptedLLM, other: dict[str, Any]
) -> None:
    agent = agent_of(memory)
    await memory.add(PORT, user_id="alex", project_id="payments")
    await deploys(agent, llm)
    script(llm, calls(call("RetrieveFacts", query="port"), call("RecallEpisodes", query="restart")), "I do not know.")
    answer = await agent.run(QUESTION, **{**MONDAY, **other})
    assert [each.text for each in answer.steps[0].observations] == ["No fact fits.", "No episode fits."]
    report = json.dumps([request.json for request in agent_requests(llm)[-2:]])
    assert "8443" not in report
    assert "Restart the payment" not in report


async def test_the_next_run_starts_with_facts_stored_by_tools(memory: AsyncMemory, llm: ScriptedLLM) -> None:
    agent = agent_of(memory)
    script(llm, calls(call("StoreFact", content=PORT)), "Stored.", "8443.")
    await agent.run("Keep in mind where the payment service listens", **MONDAY)
    await agent.run(QUESTION, **{**ALEX, "session_id": "tuesday"})
    assert PORT in recalled(llm)


async def test_a_long_run_is_compressed_and_continues(memory: AsyncMemory, llm: ScriptedLLM) -> None:
    def read_log(page: int) -> str:
        """Read a page of the log."""
        return f"page {page} says code {page}77. " + "Nothing else of note happened. " * 40

    reads = [calls(call("read_log", page=page), thought=f"I read page {page}.") for page in range(12)]
    script(llm, *reads, "The codes are known.")
    llm.when("An agent is working on a task").reply("The log was read page by page.")
    budget = WorkingMemoryLimits(tokens=1500, keep_steps=2, max_tokens=1500)
    agent = agent_of(memory, read_log, config=AgentConfig(working_memory=budget, limits=_few(20)))
    answer = await agent.run("Which codes are in the log?", **MONDAY)
    assert answer.text == "The codes are known."
    last = messages(agent_requests(llm)[-1])
    task = next(each["content"] for each in last if "Working Memory:" in str(each["content"]))
    assert "Working Memory:\nThe log was read page by page." in task
    # Old results are in the digest, the last steps are verbatim.
    assert "read_log(page=3) -> page 3 says code 377" in task, task
    assert [each["content"] for each in last if each["role"] == "tool"][-1].startswith("page 11 says code 1177")
    steps = [each for each in last if each["role"] in ("assistant", "tool")]
    assert sum(count_tokens(json.dumps(each)) for each in steps) < 2 * budget.tokens
    assert max(request.json["messages"].__len__() for request in agent_requests(llm)) < 12
    await agent.close()


async def test_a_run_continues_while_memory_is_unavailable(
    memory: AsyncMemory, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: object, **__: object) -> None:
        raise StoreUnavailable("the ledger does not answer")

    service = await memory.service()
    for operation in ("search", "remember"):
        monkeypatch.setattr(service, operation, unavailable)
    script(llm, calls(call("port_of", service="payments")), "8443.")
    answer = await agent_of(memory).run(QUESTION, **MONDAY)
    assert answer.text == "8443."
    assert any("without memory" in note for note in answer.notes)
    assert any("not remembered" in note for note in answer.notes)


async def test_a_cancelled_run_stores_nothing(memory: AsyncMemory, llm: ScriptedLLM) -> None:
    started = asyncio.Event()

    async def wait() -> str:
        """Wait for ever."""
        started.set()
        await asyncio.sleep(3600)
        return "never"

    script(llm, calls(call("wait")))
    agent = agent_of(memory, wait)
    running = asyncio.create_task(agent.run("Wait for it", **MONDAY))
    await asyncio.wait_for(started.wait(), 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await agent.close()
    assert await memory.sessions.list(user_id="alex") == []


async def test_memories_with_a_withheld_tag_are_not_shown(tmp_path: Path, llm: ScriptedLLM) -> None:
    async with memory_of(tmp_path, llm, worker=False, recall_excluded_tags="private") as memory:
        await memory.add(PORT, user_id="alex", project_id="payments", tags=["private"])
        agent = agent_of(memory)
        script(llm, calls(call("RetrieveFacts", query="port")), "I do not know.")
        answer = await agent.run(QUESTION, **MONDAY)
        assert answer.facts == ()
        assert answer.steps[0].observations[0].text == "No fact fits."


async def test_the_end_of_a_conversation_promotes_what_matters(memory: AsyncMemory, llm: ScriptedLLM) -> None:
    agent = agent_of(memory)
    script(llm, "Understood.", "8443.")
    learns(llm, "port 8443", claim(PORT, importance=0.9))
    await agent.run("The payment service listens on port 8443, mind that.", **MONDAY)
    await agent.settled()
    await memory.jobs.run_pending()
    await memory.sessions.end(user_id="alex", project_id="payments", session_id="monday", wait=True)
    await agent.run(QUESTION, **{**ALEX, "session_id": "tuesday"})
    assert PORT in recalled(llm)
    assert len(await episodes(memory)) == 1


async def test_calls_of_memory_tools_are_no_task(memory: AsyncMemory, llm: ScriptedLLM) -> None:
    agent = agent_of(memory)
    lookups = [calls(call("RetrieveFacts", query="port")), calls(call("ForgetFact", number="f9"))]
    script(llm, *lookups, "I do not know.")
    await agent.run(QUESTION, **MONDAY)
    await agent.settled()
    assert await episodes(memory) == []


async def test_the_usage_of_runs_is_recorded_and_limited_per_day(tmp_path: Path, llm: ScriptedLLM) -> None:
    async with memory_of(tmp_path, llm, worker=False, llm_user_tokens_per_day=100) as memory:
        agent = agent_of(memory)
        script(llm, calls(call("port_of", service="payments")), "8443.")
        answer = await agent.run(QUESTION, **MONDAY)
        await agent.settled()
        [spent] = [each for each in await memory.admin.usage(user_id="alex") if each.step == "agent"]
        assert (spent.calls, spent.tokens_in, spent.tokens_out) == (2, answer.tokens_in, answer.tokens_out)
        before = len(agent_requests(llm))
        refused = await agent.run(QUESTION, **MONDAY)
        assert (refused.ended, len(agent_requests(llm))) == ("tokens", before)
        assert refused.notes
        await agent.close()


async def test_memory_requires_a_memory_and_a_user(memory: AsyncMemory, llm: ScriptedLLM) -> None:
    chat = OpenAIChat(llm.base_url, model="m")
    with pytest.raises(InvalidInput, match="no memory"):
        await Agent(None, chat).run("Hi there", user_id="alex", enable_memory=True)
    with pytest.raises(InvalidInput, match="user_id"):
        await Agent(memory, chat).run("Hi there", enable_memory=True)
    with pytest.raises(InvalidInput, match="AsyncMemory"):
        Agent(Memory(), chat)  # type: ignore[arg-type]
    await chat.close()


FACTS, EPISODES = 1000, 500
PLACES = ("Lyon", "Oslo", "Porto", "Quito", "Riga", "Sofia", "Turin", "Utrecht", "Vienna", "Warsaw")
THINGS = ("gateway", "printer", "warehouse", "invoice", "contract", "backup", "door", "server", "parcel", "refund")
SCOPE = Scope("alex", "office", "monday")


def lines() -> list[dict[str, object]]:
    made: list[dict[str, object]] = []
    for number in range(FACTS):
        thing, place = THINGS[number % 10], PLACES[number // 10 % 10]
        text = f"The {thing} number {number} in {place} is looked after by team {number % 37}"
        made.append({"id": new_id(), "memory": text, "project_id": "office"})
    for number in range(EPISODES):
        thing, place = THINGS[number % 10], PLACES[number // 10 % 10]
        goal = f"Repair the {thing} number {number} in {place}"
        steps = [f"inspect(id={number})", f"replace_part(id={number}, part={number % 91})"]
        report = f"Goal: {goal}\nSteps: 1. {steps[0]} 2. {steps[1]}\nOutcome: it works"
        detail = {"goal": goal, "steps": steps, "outcome": "it works", "lessons": ""}
        made.append(
            {"id": new_id(), "memory": report, "project_id": "office", "category": "episode", "detail": detail}
        )
    return made


async def test_the_right_fact_and_episode_are_found_among_many(tmp_path: Path, llm: ScriptedLLM) -> None:
    settings = memory_of(tmp_path, llm, worker=False, late_interaction=False).settings
    async with AsyncMemory(settings=settings, embedder=FakeEmbedder()) as memory:
        done = await memory.import_(lines(), user_id="alex")
        assert done.added == FACTS + EPISODES
        tool_memory = ToolMemory(service=await memory.service(), scope=SCOPE, by=Author("test"))
        for number in (123, 17, 499):
            thing, place = THINGS[number % 10], PLACES[number // 10 % 10]
            question = f"Repair the {thing} number {number} in {place}"
            started = await start_run(tool_memory, question, state="", config=AgentConfig(recall_s=60))
            assert (len(started.facts), len(started.episodes)) == (5, 3)
            assert f"Goal: {question} Steps: 1. inspect(id={number})" in started.block
            assert f"The {thing} number {number} in {place}" in started.block
