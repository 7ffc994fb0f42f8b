"""Forgotten turns leave the summaries, invocations and episodes of their conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from recollect import AsyncMemory
from recollect.config.settings import Settings
from recollect.errors import Conflict
from recollect.model.change import Author, ConversationUpdate
from recollect.model.memory import Category
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Turn
from recollect.sessions.step_output import StepOutput, ensure_unchanged
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.remember_samples import SUMMARY, opened_async

HERE = Scope("ann", "", "monday")
SAID = (
    "My sister Maria lives in Honolulu and teaches surfing there",
    "I was diagnosed with epilepsy in March, at the clinic in Bergen",
    "My budget for the trip to Hawaii is 9000 dollars",
    "We fly on 3 May with my brother Tom and his two children",
)
DERIVED = (Category.SUMMARY, Category.EPISODE)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AsyncMemory]:
    settings = Settings(home=tmp_path, summary_every=2, store_invocations=True)
    async with AsyncMemory(settings=settings) as memory:
        yield memory


async def talk(memory: AsyncMemory) -> list[Turn]:
    """Store a conversation, and derive everything from it."""
    turns: list[Turn] = []
    for text in SAID:
        messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "Thank you, I see."}]
        stored = await memory.remember(messages, user_id="ann", session_id="monday", wait=True)
        turns.append(stored.turns[0])
    await memory.sessions.end(user_id="ann", session_id="monday")
    await memory.jobs.run_pending()
    return turns


async def derived_texts(memory: AsyncMemory) -> list[str]:
    """Return the summary, the invocations, and the active memories about the conversation as a whole."""
    service = await memory.service()
    conversation = await service.conversation(HERE)
    records = [each for each in await service.find(Scope("ann"), Listing(limit=100)) if each.category in DERIVED]
    return [
        conversation.summary,
        *(str(each) for each in conversation.invocations),
        *(each.content for each in records),
    ]


async def test_a_forgotten_turn_leaves_the_summaries_at_once_and_when_they_are_remade(memory: AsyncMemory) -> None:
    turns = await talk(memory)
    before = await derived_texts(memory)
    assert sum("epilepsy" in text for text in before) >= 4
    await memory.delete(turns[1].id, user_id="ann")
    assert not [text for text in await derived_texts(memory) if "epilepsy" in text]
    await memory.jobs.run_pending()
    remade = await derived_texts(memory)
    assert not [text for text in remade if "epilepsy" in text]
    assert "Honolulu" in remade[0]
    assert len(remade) >= len(before) - 1


async def test_a_summary_that_is_left_without_a_turn_is_no_longer_the_models(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    llm.when(SUMMARY).reply("Maria, the sister of the user, lives in Honolulu and teaches surfing there.")
    async with opened_async(tmp_path, llm, summary_every=2) as memory:
        turns = await talk(memory)

        async def detail() -> Mapping[str, Any]:
            [summary] = await memory.get_all(user_id="ann", filters={"category": "summary"})
            return summary.detail

        assert (await detail())["model"] == "scripted"
        await memory.delete(turns[1].id, user_id="ann")
        assert "model" not in await detail()


async def test_forgetting_by_a_filter_and_undoing_a_message_retract_it(memory: AsyncMemory) -> None:
    await talk(memory)
    await memory.delete_all(user_id="ann", filters={"content": SAID[1]})
    assert not [text for text in await derived_texts(memory) if "epilepsy" in text]
    await memory.undo(user_id="ann")
    await memory.undo(user_id="ann")
    assert not [text for text in await derived_texts(memory) if "3 May" in text]


async def test_a_summary_of_a_turn_that_is_forgotten_meanwhile_is_refused(memory: AsyncMemory) -> None:
    turns = await talk(memory)
    service = await memory.service()
    before = await service.conversation(HERE)
    await memory.delete(turns[3].id, user_id="ann")
    current = await service.conversation(HERE)
    with pytest.raises(Conflict, match="forgotten in the meantime"):
        ensure_unchanged(before, current, [StepOutput(marks={"compress": 4})])


async def test_an_episode_that_was_remade_stays_when_the_turn_is_forgotten_again(memory: AsyncMemory) -> None:
    turns = await talk(memory)
    await memory.delete(turns[1].id, user_id="ann")
    await memory.jobs.run_pending()
    remade = await derived_texts(memory)
    await memory.delete(turns[1].id, user_id="ann")
    await memory.jobs.run_pending()
    assert await derived_texts(memory) == remade


async def test_a_summary_whose_turns_were_all_forgotten_returns_with_the_next_turns(memory: AsyncMemory) -> None:
    async def say(text: str) -> list[Turn]:
        messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "Thank you, I see."}]
        stored = await memory.remember(messages, user_id="ann", session_id="monday", wait=True)
        await memory.jobs.run_pending()
        return list(stored.turns)

    async def summaries() -> list[str]:
        records = await (await memory.service()).find(Scope("ann"), Listing(limit=100))
        return [each.content for each in records if each.category is Category.SUMMARY]

    turns = await say(SAID[1])
    assert len(await summaries()) == 1
    for turn in turns:
        await memory.delete(turn.id, user_id="ann")
    await memory.jobs.run_pending()
    assert await summaries() == []
    await say(SAID[0])
    [summary] = await summaries()
    assert "Honolulu" in summary
    assert "epilepsy" not in summary


async def test_a_turn_is_forgotten_although_another_writer_is_always_first(memory: AsyncMemory) -> None:
    turns = await talk(memory)
    service = await memory.service()
    ledger, read = service.responses, service.responses.conversation
    writes = 0

    async def read_before_another_writer(scope: Scope) -> Conversation:
        nonlocal writes
        conversation = await read(scope)
        writes += 1
        update = ConversationUpdate(scope, {"metadata": {**conversation.metadata, "other": writes}})
        await ledger.apply(scope, [], by=Author("other"), effects=[update])
        return conversation

    ledger.conversation = read_before_another_writer  # type: ignore[method-assign]
    await memory.delete(turns[1].id, user_id="ann")
    ledger.conversation = read  # type: ignore[method-assign]
    assert writes > 5
    assert not [text for text in await derived_texts(memory) if "epilepsy" in text]
