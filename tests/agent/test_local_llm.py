"""The agent with a small model on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recollect import AsyncMemory
from recollect.agent import Agent, AgentConfig, AgentLimits
from recollect.config.settings import load
from recollect.models.local_chat import LocalChat
from tests.support.agent_samples import port_of
from tests.support.local_model import local_model
from tests.support.paths import ROOT

pytestmark = [pytest.mark.local_llm, pytest.mark.timeout(600)]

CACHE = ROOT / ".cache"
OWNER = "The payment service belongs to Priya"


@pytest.fixture(scope="session")
def model() -> str:
    try:
        return str(local_model(CACHE))
    except LookupError as error:
        pytest.skip(f"no model to test with: {error}")


@pytest.mark.parametrize("tool_calls", ["auto", "text", "schema"])
async def test_a_small_local_model_answers_with_memory_and_its_run_is_stored(
    model: str, tmp_path: Path, tool_calls: Any
) -> None:
    chat = LocalChat(model, timeout_s=300, context_tokens=4096)
    settings = load({"home": tmp_path, "preset": "react-mem", "recall_timeout_s": 60}, environ={}).settings
    limits = AgentLimits(iterations=3, time_s=300, answer_tokens=100)
    config = AgentConfig(limits=limits, tool_calls=tool_calls, memory_tools=None)
    async with AsyncMemory(settings=settings) as memory:
        await memory.add(OWNER, user_id="alex")
        agent = Agent(memory, chat, [port_of], config=config, enable_memory=True)
        answers = [
            await agent.run(question, user_id="alex", session_id="monday")
            for question in ("Who does the payment service belong to?", "Which port does the service payments use?")
        ]
        await agent.close()
        [conversation] = await memory.sessions.list(user_id="alex")
    await chat.close()
    for answer in answers:
        print(f"\n{tool_calls}: {answer.ended}, {answer.actions} calls: {answer.text[:200]!r}")
        assert answer.ended in ("answered", "iterations", "tokens")
        assert answer.text.strip()
        assert len(answer.facts) == 1
        assert answer.tokens_in > 0
    assert len(conversation.invocations) == 2
    assert conversation.turn_count == 4
