"""The loop of an agent: modes of calling tools, errors as observations, limits, cancellation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from recollect.agent import Agent, AgentConfig, AgentLimits, Answer, Event
from recollect.agent.types import EventKind
from recollect.errors import InvalidInput
from recollect.models.openai_chat import OpenAIChat
from recollect.testing.llm_replies import ScriptedReply, ToolCall
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.agent_samples import agent_requests, call, calls, messages, port_of, restart, script, tool_names
from tests.support.llm_faults import hang, http_error

QUESTION = "Which port does payments use?"


@pytest.fixture
async def chat(llm: ScriptedLLM) -> AsyncIterator[OpenAIChat]:
    chat = OpenAIChat(llm.base_url, model="m", timeout_s=60)
    yield chat
    await chat.close()


def agent(chat: OpenAIChat, *tools: Any, tool_calls: Any = "auto", **limits: Any) -> Agent:
    config = AgentConfig(limits=AgentLimits(**limits), tool_calls=tool_calls)
    return Agent(None, chat, tools or (port_of, restart), config=config)


async def stream_events(agent: Agent, question: str = QUESTION, **more: Any) -> list[Event]:
    return [event async for event in agent.stream(question, **more)]


def seen(answer: Answer) -> list[str]:
    return [each.text for step in answer.steps for each in step.observations]


async def test_a_run_thinks_acts_observes_and_answers(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    script(llm, calls(call("port_of", service="payments"), thought="I look it up."), "It is 8443.")
    events = await stream_events(agent(chat))
    assert [(event.kind, event.text) for event in events] == [
        ("thought", "I look it up."),
        ("action", 'port_of(service="payments")'),
        ("observation", "8443"),
        ("answer", "It is 8443."),
    ]
    answer = events[-1].answer
    assert answer is not None
    assert (answer.ended, answer.success, answer.actions) == ("answered", True, 1)
    first, second = agent_requests(llm)
    assert tool_names(first) == ["port_of", "restart"]
    assert [each["role"] for each in messages(first)] == ["system", "user"]
    assert messages(second)[:2] == messages(first)
    [dialogue, result] = messages(second)[2:]
    assert dialogue["tool_calls"][0]["function"] == {"name": "port_of", "arguments": '{"service": "payments"}'}
    assert result == {"role": "tool", "tool_call_id": dialogue["tool_calls"][0]["id"], "content": "8443"}
    assert answer.tokens_in == llm.stats.prompt_tokens
    assert answer.tokens_out == llm.stats.completion_tokens


async def test_an_error_of_a_tool_is_an_observation(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    script(
        llm,
        calls(call("port_of", service="billing")),
        calls(call("port_of", place="payments")),
        calls(call("port_of", service="payments")),
        "It is 8443.",
    )
    answer = await agent(chat).run(QUESTION)
    [first, second, third] = seen(answer)
    assert first == "LookupError: no service billing"
    assert "service: Field required" in second
    assert third == "8443"
    assert [step.observations[0].failed for step in answer.steps] == [True, True, False]
    assert answer.success


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (ToolCall("fly", {"to": "Rome"}), "there is no tool 'fly'; there are port_of, restart"),
        (ToolCall("port_of", "not json {"), "the arguments must be one JSON object"),
        (ToolCall("port_of", '{"service": "paym'), "the arguments must be one JSON object"),
        (ToolCall("port_of", "[1, 2]"), "the arguments must be one JSON object"),
        (ToolCall("", "{}"), "there is no tool ''"),
        (ToolCall("port_of", ""), "service: Field required"),
    ],
)
async def test_a_malformed_call_is_an_observation_and_is_replayed_as_json(
    llm: ScriptedLLM, chat: OpenAIChat, made: ToolCall, expected: str
) -> None:
    script(llm, calls(made), "I give up.")
    answer = await agent(chat, port_of, restart).run(QUESTION)
    assert expected in seen(answer)[0]
    assert answer.text == "I give up."
    assert not answer.success
    [dialogue, _] = messages(agent_requests(llm)[1])[2:]
    assert dialogue["tool_calls"][0]["function"]["arguments"].startswith("{")
    assert dialogue["tool_calls"][0]["function"]["name"]


async def test_almost_valid_json_arguments_are_parsed(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    script(llm, calls(ToolCall("port_of", '```json\n{"service": "shop",}\n```')), "It is 8080.")
    assert seen(await agent(chat).run(QUESTION)) == ["8080"]


async def test_calls_of_one_step_run_concurrently_and_are_observed_in_order(
    llm: ScriptedLLM, chat: OpenAIChat
) -> None:
    both = asyncio.Barrier(2)

    async def meet(name: str) -> str:
        """Wait for the other."""
        await both.wait()
        return f"met {name}"

    script(llm, calls(call("meet", name="one"), call("meet", name="two"), call("nowhere")), "They met.")
    answer = await agent(chat, meet).run(QUESTION)
    assert seen(answer) == ["met one", "met two", "there is no tool 'nowhere'; there are meet"]
    ids = [each["tool_call_id"] for each in messages(agent_requests(llm)[1])[3:]]
    assert len(set(ids)) == 3


async def test_calls_above_the_limit_per_step_are_refused(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    script(llm, calls(*(call("restart", service=str(at)) for at in range(5))), "Done.")
    answer = await agent(chat, restart, calls=2).run(QUESTION)
    assert [each.failed for each in answer.steps[0].observations] == [False, False, True, True, True]
    assert "2 calls at once are the limit" in seen(answer)[2]


async def test_a_hanging_tool_times_out(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    stopped = asyncio.Event()

    async def wait() -> str:
        """Wait for ever."""
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()
        return "never"

    script(llm, calls(call("wait")), "It hangs.")
    answer = await agent(chat, wait, tool_s=0.05).run(QUESTION)
    assert seen(answer) == ["wait did not answer in 0.05 s"]
    assert stopped.is_set()


async def test_after_the_last_step_the_model_is_asked_to_answer(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    repeated = calls(call("port_of", service="payments"))
    script(llm, repeated, repeated, repeated, "As far as I know, 8443.")
    answer = await agent(chat, iterations=3).run(QUESTION)
    assert (answer.ended, answer.text, answer.success) == ("iterations", "As far as I know, 8443.", False)
    assert len(answer.steps) == 3
    assert "no steps left" in messages(agent_requests(llm)[-1])[-1]["content"]


async def test_tool_calls_after_the_last_step_are_ignored(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    llm.default = calls(call("restart", service="payments"))
    answer = await agent(chat, iterations=2).run(QUESTION)
    assert (answer.ended, answer.actions) == ("iterations", 2)
    assert answer.text.startswith("I could not finish")


async def test_a_run_ends_when_its_time_is_up(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    llm.fault(hang(), times=None)
    started = time.monotonic()
    answer = await agent(chat, time_s=0.3).run(QUESTION)
    assert answer.ended == "time"
    assert time.monotonic() - started < 30


async def test_a_tool_does_not_outlast_the_time_of_the_run(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    async def wait() -> str:
        """Wait long."""
        await asyncio.sleep(3600)
        return "never"

    script(llm, calls(call("wait")))
    answer = await agent(chat, wait, time_s=3).run(QUESTION)
    assert (answer.ended, answer.actions) == ("time", 1)


async def test_a_run_ends_when_its_tokens_are_used_up(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    llm.default = calls(call("restart", service="payments"))
    answer = await agent(chat, tokens=300, iterations=50).run(QUESTION)
    assert answer.ended == "tokens"
    # Only the last request may exceed the limit.
    assert answer.tokens_in + answer.tokens_out < 900
    assert answer.actions < 6


async def test_an_unavailable_model_yields_an_error_and_an_answer(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    llm.fault(http_error(401), times=None)
    events = await stream_events(agent(chat))
    assert [event.kind for event in events] == ["error", "answer"]
    assert events[-1].answer is not None
    assert events[-1].answer.ended == "failed"


async def test_an_empty_answer_is_retried_once(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    script(llm, ScriptedReply(""), "It is 8443.")
    assert (await agent(chat).run(QUESTION)).text == "It is 8443."
    script(llm, ScriptedReply(""), ScriptedReply(""), ScriptedReply(""))
    assert (await agent(chat).run(QUESTION)).ended == "failed"


async def test_cancelling_a_run_stops_its_tools(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        """Wait for ever."""
        started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()
        return "never"

    script(llm, calls(call("wait")))
    running = asyncio.create_task(agent(chat, wait).run(QUESTION))
    await asyncio.wait_for(started.wait(), 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert stopped.is_set()
    assert len(agent_requests(llm)) == 1


async def test_closing_the_stream_stops_the_run(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    llm.default = calls(call("restart", service="payments"), thought="Again.")
    stream = agent(chat, iterations=100).stream(QUESTION)
    async for event in stream:
        if event.kind == EventKind.OBSERVATION:
            break
    await stream.aclose()
    assert len(agent_requests(llm)) == 1


SAYS = """Thought: I look it up.
Action: port_of
Action Input: {"service": "payments"}
Observation: 1234
Final Answer: It is 1234."""


async def test_text_mode_calls_tools_with_action_lines(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    script(llm, SAYS, "Thought: Now I know.\nFinal Answer: It is 8443.\nIndeed.")
    events = await stream_events(agent(chat, tool_calls="text"))
    assert [(event.kind, event.text) for event in events] == [
        ("thought", "I look it up."),
        ("action", 'port_of(service="payments")'),
        # An observation that the model made up is ignored.
        ("observation", "8443"),
        ("thought", "Now I know."),
        ("answer", "It is 8443.\nIndeed."),
    ]
    first, second = agent_requests(llm)
    assert tool_names(first) == []
    assert '"service"' in messages(first)[0]["content"]
    assert messages(second)[2]["content"] == (
        'Thought: I look it up.\nAction: port_of\nAction Input: {"service": "payments"}'
    )
    assert messages(second)[3] == {"role": "user", "content": "Observation: 8443"}


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("Action: port_of\nAction Input: payments", 'port_of(service="payments")'),
        ("**Action:** `port_of`\n**Action Input:** {'service': 'payments'}", 'port_of(service="payments")'),
        ('action: port_of("payments")\naction input: {"service": "payments"}', 'port_of(service="payments")'),
        ("I think so.\nAction: fly", "fly()"),
    ],
)
async def test_action_lines_are_parsed_leniently(llm: ScriptedLLM, chat: OpenAIChat, reply: str, action: str) -> None:
    script(llm, reply, "Final Answer: done")
    events = await stream_events(agent(chat, port_of, tool_calls="text"))
    assert [event.text for event in events if event.kind == "action"] == [action]
    assert events[-1].text == "done"


async def test_a_thought_without_action_is_corrected_once_and_then_becomes_the_answer(
    llm: ScriptedLLM, chat: OpenAIChat
) -> None:
    script(llm, "Thought: Hm.", "Thought: It is 8443, I think.")
    events = await stream_events(agent(chat, tool_calls="text"))
    assert [event.kind for event in events] == ["thought", "observation", "answer"]
    assert "Final Answer" in events[1].text
    assert events[-1].text == "It is 8443, I think."
    script(llm, "It is 8443.")
    assert (await agent(chat, tool_calls="text").run(QUESTION)).text == "It is 8443."


@pytest.mark.parametrize("status", [400, 500])
async def test_text_mode_is_used_when_the_endpoint_refuses_tools(
    llm: ScriptedLLM, chat: OpenAIChat, status: int
) -> None:
    refusal = ScriptedReply(faults=[http_error(status, {"error": {"message": "tools param requires --jinja flag"}})])
    script(llm, "Final Answer: It is 8443.")
    llm.when(lambda request: bool(request.json.get("tools"))).reply(refusal)
    subject = agent(chat)
    assert (await subject.run(QUESTION)).text == "It is 8443."
    before = len(llm.calls("chat"))
    script(llm, "Final Answer: Still 8443.")
    # The agent remembers that the endpoint refuses tools.
    assert (await subject.run(QUESTION)).text == "Still 8443."
    assert len(llm.calls("chat")) == before + 1
    llm.when(lambda request: bool(request.json.get("tools"))).reply(refusal)
    assert (await agent(chat, tool_calls="native").run(QUESTION)).ended == "failed"


async def test_schema_mode_calls_tools_as_json(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    script(
        llm,
        '{"thought": "I look.", "tool": "port_of", "arguments": {"service": "payments"}}',
        '{"thought": "", "tool": "fly", "arguments": {}}',
        '{"thought": "Now I know.", "answer": "It is 8443."}',
    )
    events = await stream_events(agent(chat, tool_calls="schema"))
    assert [(event.kind, event.text) for event in events] == [
        ("thought", "I look."),
        ("action", 'port_of(service="payments")'),
        ("observation", "8443"),
        ("action", "fly()"),
        ("observation", "there is no tool 'fly'; there are port_of, restart"),
        ("thought", "Now I know."),
        ("answer", "It is 8443."),
    ]
    request = agent_requests(llm)[1]
    choices = request.json["response_format"]["json_schema"]["schema"]["anyOf"]
    assert [each["properties"].get("tool", {}).get("enum") for each in choices] == [["port_of"], ["restart"], None]
    assert messages(request)[-1] == {"role": "user", "content": "Observation: 8443"}
    script(llm, "It is 8443, in plain words.")
    assert (await agent(chat, tool_calls="schema").run(QUESTION)).text == "It is 8443, in plain words."


async def test_a_run_continues_from_earlier_steps(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    script(llm, "It is 8443.")
    history = [
        {"thought": "I look.", "action": "port_of", "arguments": {"service": "payments"}, "observation": "8443"},
        {"thought": "So that is it."},
    ]
    answer = await agent(chat).run(QUESTION, history=history, state="half done")
    assert answer.steps == ()
    [request] = agent_requests(llm)
    assert [each["role"] for each in messages(request)] == ["system", "user", "assistant", "tool", "assistant"]
    assert messages(request)[1]["content"] == f"State: half done\n\n{QUESTION}"
    with pytest.raises(InvalidInput):
        await agent(chat).run(QUESTION, history=[{"toughts": "x"}])


async def test_only_the_tools_of_the_group_are_offered_and_run(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    from recollect.agent import Toolbox

    box = Toolbox.of([port_of, restart], {"default": ["port_of"], "ops": ["*"]})
    subject = Agent(None, chat, box)
    script(llm, calls(call("restart", service="payments")), "I may not.")
    answer = await subject.run(QUESTION)
    assert tool_names(agent_requests(llm)[0]) == ["port_of"]
    assert seen(answer) == ["there is no tool 'restart'; there are port_of"]
    script(llm, calls(call("restart", service="payments")), "Done.")
    assert seen(await subject.run(QUESTION, group=["ops"])) == ['{"restarted": "payments"}']
    with pytest.raises(InvalidInput, match="no group"):
        await subject.run(QUESTION, group=["root"])


async def test_an_empty_question_is_refused(chat: OpenAIChat) -> None:
    with pytest.raises(InvalidInput):
        await agent(chat).run("  ")
