"""Helpers for tests of the agent: a scripted model with tools, and agents with memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recollect import AsyncMemory
from recollect.agent import Agent
from recollect.testing.llm_replies import ScriptedReply, ToolCall
from recollect.testing.scripted_llm import RecordedRequest, ScriptedLLM
from tests.support.remember_samples import opened_async

ALEX: dict[str, Any] = {"user_id": "alex", "project_id": "payments", "enable_memory": True}
MONDAY: dict[str, Any] = {**ALEX, "session_id": "monday"}
# The start of the system message of every request of an agent.
AGENT = "You are an agent that answers questions"


def port_of(service: str) -> str:
    """Tell the port of a service."""
    ports = {"payments": "8443", "shop": "8080"}
    if service not in ports:
        raise LookupError(f"no service {service}")
    return ports[service]


def restart(service: str) -> dict[str, str]:
    """Restart a service."""
    return {"restarted": service}


def call(name: str, /, *, id: str = "", **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments, id)


def calls(*made: ToolCall, thought: str | None = None) -> ScriptedReply:
    return ScriptedReply(thought, made)


def messages(request: RecordedRequest) -> list[dict[str, Any]]:
    report: list[dict[str, Any]] = request.json["messages"]
    return report


def agent_requests(llm: ScriptedLLM) -> list[RecordedRequest]:
    """Return the requests of agents, without those of extraction and summaries."""
    return [each for each in llm.calls("chat") if AGENT in str(messages(each)[0]["content"])]


def tool_names(request: RecordedRequest) -> list[str]:
    return [tool["function"]["name"] for tool in request.json.get("tools", [])]


def script(llm: ScriptedLLM, *replies: ScriptedReply | str) -> None:
    """Set the replies to requests of an agent, in order."""
    left = list(replies)

    def next_of(request: RecordedRequest) -> ScriptedReply | str:
        return left.pop(0) if left else "I have nothing more to say."

    llm.when(lambda request: AGENT in request.text).reply(next_of)


def memory_of(home: Path, llm: ScriptedLLM, **more: Any) -> AsyncMemory:
    return opened_async(home, llm, **{"preset": "react-mem", **more})


# Agents that a test may not have closed.
OPENED: list[Agent] = []


def agent_of(memory: AsyncMemory, *tools: Any, **more: Any) -> Agent:
    agent = Agent(memory, None, tools or (port_of, restart), **more)
    OPENED.append(agent)
    return agent


async def close_all() -> None:
    """Close all agents."""
    while OPENED:
        await OPENED.pop().close()
