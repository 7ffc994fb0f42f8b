"""Learning, measured: what was done once takes fewer steps the second time, and only with memory."""

from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path

from evals.agent_tasks.measure import measure
from evals.agent_tasks.policy import decide
from evals.agent_tasks.tasks import TASKS
from recollect import AsyncMemory
from recollect.agent import Agent, AgentConfig, AgentLimits
from recollect.config.settings import load
from recollect.models.openai_chat import OpenAIChat
from recollect.testing.scripted_llm import ScriptedLLM


async def test_with_memory_every_task_takes_fewer_steps_the_second_time(tmp_path: Path) -> None:
    on = await measure(tmp_path / "on", memory=True)
    off = await measure(tmp_path / "off", memory=False)
    assert all(each.right for each in (*on, *off))
    assert all(each.second < each.first for each in on)
    # Without memory nothing is learned; and what was never done before, memory does not help with.
    assert all(each.second == each.first for each in off)
    assert [each.first for each in on] == [each.first for each in off]
    assert sum(each.second for each in on) * 3 < sum(each.second for each in off)


async def test_the_policys_decisions_depend_only_on_the_prompt_it_is_given(tmp_path: Path) -> None:
    task = TASKS[0]
    settings = load({"home": tmp_path, "preset": "react-mem", "recall_timeout_s": 60}, environ={}).settings
    with ScriptedLLM() as llm:
        llm.default = lambda request: decide(request.json)
        async with AsyncMemory(settings=settings) as memory:
            chat = OpenAIChat(llm.base_url, model="policy")
            config = AgentConfig(limits=AgentLimits(iterations=40, time_s=600))
            async with Agent(memory, chat, task.tools(), config=config, enable_memory=True) as agent:
                for number, question in enumerate((task.question, task.rephrased)):
                    await agent.run(question, user_id="alex", session_id=str(number))
                    await agent.settled()
            await chat.close()
        requests = [request.json for request in llm.calls("chat")]
    messages = [decide(copy.deepcopy(each)) for each in requests]
    # In any order, at any time, and read anew from its text, a request is answered as it was.
    order = list(range(len(requests)))
    random.Random(7).shuffle(order)
    assert all(decide(json.loads(json.dumps(requests[at]))) == messages[at] for at in order)
    # The first request of the second run: without the episode in it, the policy is back to trying things out.
    second = next(
        each for each in requests if task.rephrased in str(each["messages"]) and "Episode 1" in str(each["messages"])
    )
    assert decide(second).tool_calls[0].arguments == {"folder": "legal"}
    forgetful = copy.deepcopy(second)
    for message in forgetful["messages"]:
        message["content"] = re.sub(r"(?m)^- Episode.*$", "", message["content"])
    assert decide(forgetful).tool_calls[0].arguments == {"folder": "attic"}
