"""Sessions begin before their first turn, record invocations of agents, and end with an episode."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from recollect import AsyncMemory
from recollect.errors import NotFound
from recollect.model.change import Add, Author
from recollect.model.memory import Category
from recollect.model.scope import Scope
from recollect.models.openai_chat import OpenAIChat
from recollect.service.service import SessionService
from recollect.sessions.compress import session_episode
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.remember_samples import opened_async
from tests.support.session_samples import ANN, DAY, HAWAII, NOW, a_ledger, apply, state, stored_memories, talk

HERE = Scope("alex", "", "monday")
BY = Author("test")


def invocation(number: int) -> dict[str, str]:
    return {"query": f"question {number}", "summary": "", "result": "", "timestamp": "2026-03-15T10:00:00+00:00"}


async def sessions_of(memory: AsyncMemory) -> SessionService:
    return (await memory.service()).sessions


@pytest.fixture(params=["sqlite", "memory:"])
def more(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {} if request.param == "sqlite" else {"database": request.param}


async def test_a_session_exists_once_it_has_begun(tmp_path: Path, more: dict[str, Any]) -> None:
    async with opened_async(tmp_path, **more) as memory:
        sessions = await sessions_of(memory)
        with pytest.raises(NotFound, match="no session monday"):
            await sessions.get(HERE)
        started = await sessions.begin(HERE, by=BY)
        assert (started.scope, started.turn_count) == (HERE, 0)
        assert await sessions.get(HERE) == started
        # Again changes nothing, and neither another user nor another project has it.
        assert await sessions.begin(HERE, by=BY) == started
        for other in (Scope("eve", "", "monday"), Scope("alex", "work", "monday")):
            with pytest.raises(NotFound):
                await sessions.get(other)


async def test_concurrent_begins_create_one_session(tmp_path: Path) -> None:
    async with opened_async(tmp_path) as memory:
        sessions = await sessions_of(memory)
        started = await asyncio.gather(*(sessions.begin(HERE, by=BY) for _ in range(20)))
        assert len({str(each.metadata) for each in started}) == 1


async def test_concurrent_invocations_are_all_recorded(tmp_path: Path, more: dict[str, Any]) -> None:
    async with opened_async(tmp_path, **more) as memory:
        sessions = await sessions_of(memory)
        await asyncio.gather(*(sessions.record_invocation(HERE, invocation(number)) for number in range(20)))
        report = {each["query"] for each in (await sessions.get(HERE)).invocations}
        assert report == {f"question {number}" for number in range(20)}


async def test_an_erased_session_does_not_exist(tmp_path: Path) -> None:
    async with opened_async(tmp_path) as memory:
        sessions = await sessions_of(memory)
        await sessions.begin(HERE, by=BY)
        await memory.erasure.erase(user_id="alex", session_id="monday")
        with pytest.raises(NotFound):
            await sessions.get(HERE)


class TestTheEndOfASession:
    """The worked example: On Dec 29 2024, user planned Hawaii vacation with $10K budget."""

    async def test_the_end_of_a_session_writes_one_dated_episode(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        llm.reply("On Dec 29 2024, user planned Hawaii vacation with $10K budget")
        turns = talk(*HAWAII)
        ledger = await a_ledger(turns)
        await apply(ledger, state(turns), await session_episode(ANN, turns, chat=chat, now=NOW))
        [episode] = await stored_memories(ledger)
        assert episode.content == "On Dec 29 2024, user planned Hawaii vacation with $10K budget"
        assert (episode.category, episode.detail["kind"], episode.occurred_at) == (
            Category.EPISODE,
            "session",
            turns[0].said_at,
        )
        assert episode.evidence == tuple(turn.id for turn in turns)
        assert "On Dec 29 2024, the user planned a trip to Lisbon" in llm.calls("chat")[0].text

    async def test_a_missing_date_is_prefixed(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        llm.reply("The user planned a Hawaii vacation with a budget of $10,000.")
        turns = talk(*HAWAII)
        [change] = (await session_episode(ANN, turns, chat=chat, now=NOW)).changes
        assert isinstance(change, Add)
        assert change.record.content == "On Dec 29 2024: The user planned a Hawaii vacation with a budget of $10,000."

    async def test_without_a_model_the_episode_quotes_the_user(self) -> None:
        turns = talk(*HAWAII)
        [change] = (await session_episode(ANN, turns, chat=None, now=NOW)).changes
        assert isinstance(change, Add)
        assert change.record.content.startswith("On Dec 29 2024, the user said: “")
        assert "$10,000" in change.record.content
        assert change.record.detail["made"] == "extract"

    async def test_an_episode_of_several_days_names_the_first_and_the_last(self) -> None:
        turns = [*talk(*HAWAII), *talk("My flight moved to May 5.", "Noted.", first=7, day=DAY + timedelta(days=4))]
        [change] = (await session_episode(ANN, turns, chat=None, now=NOW)).changes
        assert isinstance(change, Add)
        assert change.record.content.startswith("On Dec 29 2024 to Jan 2 2025, the user said")

    async def test_a_greeting_makes_no_episode_and_no_llm_call(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        turns = talk("Hello!", "Hi! How can I help you?")
        output = await session_episode(ANN, turns, chat=chat, now=NOW)
        assert output.changes == ()
        assert not llm.calls("chat")

    async def test_a_summary_that_fails_the_checks_is_replaced_by_quotes(
        self, llm: ScriptedLLM, chat: OpenAIChat
    ) -> None:
        llm.default = "On Dec 29 2024, the user planned a Hawaii vacation with a budget of $99,000."
        turns = talk(*HAWAII)
        output = await session_episode(ANN, turns, chat=chat, now=NOW)
        [change] = output.changes
        assert isinstance(change, Add)
        assert "99,000" not in change.record.content
        assert output.reasons == ("the model's summary was not used: 99,000 is not in the conversation",)
