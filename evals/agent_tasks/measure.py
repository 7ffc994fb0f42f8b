"""Do every task twice, with memory and without, and count the calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evals.agent_tasks.policy import policy
from evals.agent_tasks.tasks import TASKS, Task
from recollect import AsyncMemory
from recollect.agent import Agent, AgentConfig, AgentLimits
from recollect.config.settings import load
from recollect.models.openai_chat import OpenAIChat
from recollect.testing.scripted_llm import ScriptedLLM

_LIMITS = AgentLimits(iterations=40, time_s=600, tokens=0)


@dataclass(frozen=True, slots=True)
class Measured:
    """How many calls a task took the first time and the second, and whether both gave the answer."""

    task: str
    first: int
    second: int
    right: bool


async def measure(home: Path, *, memory: bool, tasks: Sequence[Task] = TASKS) -> list[Measured]:
    """All tasks once, in one memory, then all once more in other words, each in a conversation of its own."""
    settings = load({"home": home, "preset": "react-mem", "recall_timeout_s": 60}, environ={}).settings
    with ScriptedLLM() as llm:
        llm.default = policy
        async with AsyncMemory(settings=settings) as stored:
            chat = OpenAIChat(llm.base_url, model="policy")
            first = [await _done(task, task.question, stored, chat, memory, f"{task.name} 1") for task in tasks]
            second = [await _done(task, task.rephrased, stored, chat, memory, f"{task.name} 2") for task in tasks]
            await chat.close()
    return [
        Measured(task.name, one[0], two[0], one[1] and two[1])
        for task, one, two in zip(tasks, first, second, strict=True)
    ]


async def _done(
    task: Task, question: str, stored: AsyncMemory, chat: OpenAIChat, memory: bool, conversation: str
) -> tuple[int, bool]:
    """How many calls it took, and whether the answer is right."""
    where = {"user_id": "alex", "project_id": "office", "session_id": conversation} if memory else {}
    config = AgentConfig(limits=_LIMITS)
    async with Agent(stored, chat, task.tools(), config=config, enable_memory=memory) as agent:
        answer = await agent.run(question, **where)
    return answer.actions, answer.text == f"The answer is {task.answer}"
