"""LlamaIndex's agents and chat engines with a memory of Recollect."""

import asyncio
import tempfile
from pathlib import Path

from framework_report import BUDGET, QUESTION, print_report
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.llms.openai import OpenAI

from recollect import AsyncMemory, Memory
from recollect.integrations.llama_index import RecollectMemory


def scripted() -> OpenAI:
    """Return a model for one event loop."""
    return OpenAI("gpt-5-mini", max_retries=0)


def weather(city: str) -> str:
    """How the weather is."""
    return "sunny"


def ask(memory: Memory, user: str, session: str, words: str) -> str:
    chat_memory = RecollectMemory.from_defaults(memory=memory, user_id=user, session_id=session)
    if session == "tuesday":
        return str(SimpleChatEngine.from_defaults(llm=scripted(), memory=chat_memory).chat(words))

    async def run() -> str:
        return str(
            await FunctionAgent(llm=scripted(), tools=[weather], streaming=False).run(words, memory=chat_memory)
        )

    return asyncio.run(run())


async def check_history(home: Path) -> None:
    """Tools are called, recalled memories are in no history, and messages that are set are not learned from."""
    async with AsyncMemory(home=home) as memory:
        first = RecollectMemory.from_defaults(memory=memory, user_id="sam", session_id="first")
        agent = FunctionAgent(llm=scripted(), tools=[weather], streaming=False)
        assert str(await agent.run("How is the weather?", memory=first)) == "Hilo is sunny"
        assert [each.role.value for each in await first.aget_all()] == ["user", "assistant", "tool", "assistant"]
        turns = await memory.sessions.turns(user_id="sam", session_id="first")
        assert [turn.content for turn in turns] == ["How is the weather?", "Hilo is sunny"]
        await first.aput(ChatMessage(BUDGET))
        second = RecollectMemory.from_defaults(memory=memory, user_id="sam", session_id="second", token_limit=2000)
        await second.aput(ChatMessage(QUESTION))
        [shown] = await second.aget()
        assert BUDGET in shown.content
        assert shown.content.endswith(QUESTION)
        assert [each.content for each in await second.aget_all()] == [QUESTION]
        await second.aset([ChatMessage("I live in Oslo")])
        assert len(await memory.sessions.turns(user_id="sam", session_id="second")) == 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check_history(Path(folder)))
    print_report(ask)
