"""Forgetting a fact also forgets its repetitions, and one undo restores all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from recollect import AsyncMemory, Status
from recollect.config.settings import Settings
from recollect.erasure import content_terms, repeats
from recollect.model.turn import Turn

ILL = "I was diagnosed with epilepsy, and I bake bread"
REPEATED = "I am sorry that you were diagnosed with epilepsy."
FACT, OTHER = "The user was diagnosed with epilepsy", "The user bakes bread"
S: dict[str, Any] = {"user_id": "ann", "session_id": "s"}


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AsyncMemory]:
    async with AsyncMemory(settings=Settings(home=tmp_path, learn="off")) as memory:
        yield memory


async def talk(memory: AsyncMemory, *texts: tuple[str, str], **scope: Any) -> list[Turn]:
    """Store a conversation of (role, text)."""
    messages = [{"role": role, "content": text} for role, text in texts]
    return list(await memory.remember(messages, **{**S, **scope}))


async def active(memory: AsyncMemory) -> set[str]:
    """Return the texts of all active memories and turns."""
    lines = [line async for line in memory.export(sessions=False)]
    return {line["memory"] for line in lines if line["status"] == "active"}


async def add(memory: AsyncMemory, text: str, *turns: Turn) -> str:
    """Add a memory that was learned from turns."""
    return (await memory.add(text, user_id="ann", evidence=[turn.id for turn in turns])).id


async def test_forgetting_a_memory_forgets_its_turns_and_the_assistants_repetition(memory: AsyncMemory) -> None:
    turns = await talk(memory, ("user", ILL), ("assistant", REPEATED), ("user", "ok"), ("assistant", "Bread, then."))
    fact = await add(memory, FACT, turns[0])
    await add(memory, OTHER, turns[0])
    before = await active(memory)
    await memory.delete(fact, user_id="ann")
    assert await active(memory) == {OTHER, "ok", "Bread, then."}
    await memory.undo(user_id="ann")
    assert await active(memory) == before


async def test_an_answer_that_does_not_repeat_the_memory_stays(memory: AsyncMemory) -> None:
    turns = await talk(memory, ("user", ILL), ("assistant", "Thanks for telling me."))
    await memory.delete(await add(memory, FACT, turns[0]), user_id="ann")
    assert await active(memory) == {"Thanks for telling me."}


async def test_forgetting_a_turn_forgets_memories_of_it_alone(memory: AsyncMemory) -> None:
    turns = await talk(
        memory, ("user", ILL), ("assistant", REPEATED), ("user", "Bread is what I bake"), ("assistant", "Nice")
    )
    await add(memory, FACT, turns[0])
    await add(memory, "The user has epilepsy", turns[0], turns[1])
    await add(memory, OTHER, turns[0], turns[2])
    before = await active(memory)
    await memory.delete(turns[0].id, user_id="ann")
    assert await active(memory) == {OTHER, "Bread is what I bake", "Nice"}
    await memory.delete(turns[2].id, user_id="ann")
    assert await active(memory) == {"Nice"}
    await memory.undo(user_id="ann")
    await memory.undo(user_id="ann")
    assert await active(memory) == before


async def test_copies_in_the_session_are_forgotten_but_not_small_talk_or_other_sessions(memory: AsyncMemory) -> None:
    first = await talk(memory, ("user", ILL), ("assistant", "Thanks"), ("user", "ok"))
    await talk(memory, ("user", ILL), ("assistant", "Epilepsy was diagnosed, and you bake."), ("user", "ok"))
    elsewhere = await talk(memory, ("user", ILL), session_id="other")
    await memory.delete(first[0].id, user_id="ann")
    statuses = {}
    for session in ("s", "other"):
        turns = await memory.sessions.turns(user_id="ann", session_id=session)
        statuses[session] = [turn.content for turn in turns]
    assert statuses == {"s": ["Thanks", "ok", "ok"], "other": [ILL]}
    assert (await memory.get(elsewhere[0].id, user_id="ann")).status is Status.ACTIVE
    await memory.delete(first[2].id, user_id="ann")
    assert [turn.content for turn in await memory.sessions.turns(**S)] == ["Thanks", "ok"]


async def test_forgetting_by_a_filter_is_one_change(memory: AsyncMemory) -> None:
    turns = await talk(memory, ("user", ILL), ("assistant", REPEATED))
    await add(memory, FACT, turns[0])
    await add(memory, OTHER, turns[0])
    before = await active(memory)
    assert await memory.delete_all(user_id="ann", filters={"content": FACT}) == 1
    assert await active(memory) == {OTHER}
    await memory.undo(user_id="ann")
    assert await active(memory) == before


async def test_forgetting_a_session_forgets_facts_learned_from_it(memory: AsyncMemory) -> None:
    turns = await talk(memory, ("user", ILL))
    rest = await talk(memory, ("user", "Bread is what I bake"), session_id="other")
    await add(memory, FACT, turns[0])
    await add(memory, OTHER, turns[0], rest[0])
    await memory.delete_all(**S)
    assert await active(memory) == {OTHER, "Bread is what I bake"}


async def test_erasing_a_turn_erases_copies_and_repetitions(memory: AsyncMemory) -> None:
    turns = await talk(memory, ("user", ILL), ("assistant", REPEATED), ("user", ILL), ("assistant", "Yes"))
    await add(memory, FACT, turns[0], turns[1])
    await memory.erasure.erase(user_id="ann", turn_id=turns[0].id)
    left = [line async for line in memory.export(sessions=False)]
    assert [line["memory"] for line in left] == ["Yes"]


async def test_erasing_a_memory_forgets_the_turns_that_say_it(memory: AsyncMemory) -> None:
    turns = await talk(memory, ("user", ILL), ("assistant", REPEATED), ("user", ILL), ("assistant", "Yes"))
    fact = await add(memory, FACT, turns[0])
    await add(memory, OTHER, turns[0])
    receipt = await memory.erasure.erase(user_id="ann", memory_id=fact)
    assert set(receipt.hidden) == {turn.id for turn in turns[:3]}
    assert receipt.stays == (turns[0].id,)
    assert await active(memory) == {OTHER, "Yes"}


@pytest.mark.parametrize(
    ("answer", "statement", "expected"),
    [
        ("Sorry to hear you were diagnosed with epilepsy", "The user was diagnosed with epilepsy in 2025", True),
        ("Epilepsy can run in families", "The user was diagnosed with epilepsy in 2025", False),
        ("Kündigen bei Brinkmann will überlegt sein", "Der Nutzer will bei seinem Chef Brinkmann kündigen", True),
        ("Thanks!", "The user lives in Oslo", False),
        ("Anything", "the user", False),
    ],
)
def test_an_answer_repeats_a_statement_with_most_of_its_content_words(
    answer: str, statement: str, expected: bool
) -> None:
    assert repeats(answer, statement) is expected
    assert not content_terms(statement) & {"the", "user", "was", "der"}
