"""Google ADK's runner with a memory service of Recollect."""

import asyncio
import tempfile
from pathlib import Path

from framework_report import BUDGET, QUESTION, print_report
from google.adk.agents import LlmAgent
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import load_memory, preload_memory
from google.genai.types import Content, Part

from recollect import AsyncMemory, Memory
from recollect.integrations.google_adk import RecollectMemoryService, remember_turn

APP = "travel"


def runner(memory: Memory | AsyncMemory, sessions: InMemorySessionService) -> Runner:
    tools = [preload_memory, load_memory]
    agent = LlmAgent(
        name="assistant", model=LiteLlm("openai/scripted"), tools=tools, after_agent_callback=remember_turn
    )
    service = RecollectMemoryService(memory)
    return Runner(
        app_name=APP, agent=agent, session_service=sessions, memory_service=service, auto_create_session=True
    )


async def answer(running: Runner, user: str, session: str, words: str) -> str:
    message = Content(role="user", parts=[Part(text=words)])
    events = [event async for event in running.run_async(user_id=user, session_id=session, new_message=message)]
    return events[-1].content.parts[0].text


def ask(memory: Memory, user: str, session: str, words: str) -> str:
    return asyncio.run(answer(runner(memory, InMemorySessionService()), user, session, words))


async def check_service(home: Path) -> None:
    """Events are stored once, memories can be added and deleted, and apps are apart."""
    async with AsyncMemory(home=home) as memory:
        sessions = InMemorySessionService()
        running = runner(memory, sessions)
        service = running.memory_service
        for words in (BUDGET, "Hello"):
            await answer(running, "sam", "one", words)
        session = await sessions.get_session(app_name=APP, user_id="sam", session_id="one")
        for _ in range(2):
            await service.add_session_to_memory(session)
        turns = await memory.sessions.turns(user_id="sam", project_id=APP, session_id="one")
        assert [turn.content for turn in turns] == [BUDGET, "Noted.", "Hello", "Aloha!"]

        async def found(app: str, query: str) -> list[MemoryEntry]:
            return (await service.search_memory(app_name=app, user_id="sam", query=query)).memories

        assert any(entry.content.parts[0].text == BUDGET for entry in await found(APP, QUESTION))
        assert await found("other", QUESTION) == []
        entry = MemoryEntry(content=Content(parts=[Part(text="Sam flies from Oslo")]), custom_metadata={"team": "a"})
        await service.add_memory(app_name=APP, user_id="sam", memories=[entry])
        [flight, *_] = await found(APP, "Where does Sam fly from?")
        assert (flight.content.parts[0].text, bool(flight.timestamp)) == ("Sam flies from Oslo", True)
        await service.delete_memory(app_name=APP, user_id="sam", memory_id=flight.id)
        assert flight.id not in [each.id for each in await found(APP, "Where does Sam fly from?")]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check_service(Path(folder)))
    print_report(ask, project=APP)
