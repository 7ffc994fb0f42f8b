"""The log: what was said in a session, in order, and the conversation it makes up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from recollect.errors import Conflict
from recollect.ledger.protocol import Ledger
from recollect.model.change import ChangeKind, Forget
from recollect.model.job import Appended
from recollect.model.memory import Category, Trust
from recollect.model.query import Listing
from recollect.model.scope import Level, Scope
from recollect.model.turn import Conversation, Role
from recollect.testing.suite_samples import ANN, BY, NOON, add, change, everything, listed, memory, say, turn

MONDAY = Scope("ann", "p", "monday")


class TurnSuite:
    """Appending turns and reading them back."""

    async def test_turns_come_back_in_order_with_positions_from_one(self, ledger: Ledger) -> None:
        inputs = await say(ledger, MONDAY, "hello", "tea?", "yes")
        assert [(each.position, each.content) for each in inputs] == [(1, "hello"), (2, "tea?"), (3, "yes")]
        assert await ledger.turns(MONDAY) == list(inputs)

    async def test_every_field_of_a_turn_comes_back(self, ledger: Ledger) -> None:
        logged = turn("hello", role=Role.ASSISTANT, said_at=NOON + timedelta(microseconds=1), name="helper")
        await ledger.append(MONDAY, [logged], vectors=[None], by=BY)
        assert await ledger.turns(MONDAY) == [replace(logged, scope=MONDAY, position=1)]

    async def test_appending_again_goes_on_counting(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, "one", "two")
        assert [each.position for each in await say(ledger, MONDAY, "three", "two")] == [3, 4]
        assert [each.content for each in await ledger.turns(MONDAY)] == ["one", "two", "three", "two"]

    async def test_sessions_that_go_on_side_by_side_count_each_on_its_own(self, ledger: Ledger) -> None:
        rest = [
            Scope("ann", "p", "tuesday"),
            Scope("ann", "q", "monday"),
            Scope("ann", "", "monday"),
            Scope("ann", "p"),
        ]
        for n in range(3):
            for scope in (MONDAY, *rest):
                (logged,) = await say(ledger, scope, f"{n}")
                assert logged.position == n + 1
        for scope in (MONDAY, *rest):
            assert [each.content for each in await ledger.turns(scope)] == ["0", "1", "2"]
            assert (await ledger.conversation(scope)).turn_count == 3

    async def test_turns_are_read_after_a_position_and_up_to_a_limit(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, *"abcdef")
        assert [each.content for each in await ledger.turns(MONDAY, after=2, limit=3)] == ["c", "d", "e"]
        assert await ledger.turns(MONDAY, after=6) == []

    async def test_those_who_append_at_once_get_positions_of_their_own(self, ledger: Ledger) -> None:
        inputs = await asyncio.gather(*(say(ledger, MONDAY, f"{n} first", f"{n} second") for n in range(25)))
        assert sorted(each.position for turns in inputs for each in turns) == list(range(1, 51))
        assert all(first.position + 1 == second.position for first, second in inputs)
        assert {each.content: each.position for each in await ledger.turns(MONDAY)} == {
            each.content: each.position for turns in inputs for each in turns
        }

    async def test_appending_nothing_begins_nothing(self, ledger: Ledger) -> None:
        assert await ledger.append(MONDAY, [], vectors=[], by=BY) == Appended()
        assert await ledger.conversation(MONDAY) == Conversation(scope=MONDAY)

    async def test_a_turn_is_not_appended_twice(self, ledger: Ledger) -> None:
        logged = turn("hello")
        await ledger.append(MONDAY, [logged], vectors=[None], by=BY)
        before = await everything(ledger, ["ann"])
        for repeated in (
            [logged],
            [turn("new"), logged],
            [turn("new", said_at=NOON), replace(logged, content="other")],
        ):
            with pytest.raises(Conflict):
                await ledger.append(MONDAY, repeated, vectors=[None] * len(repeated), by=BY)
        with pytest.raises(Conflict):
            await ledger.append(Scope("ann", "", "new"), [logged], vectors=[None], by=BY)
        twin = turn("twice")
        with pytest.raises(Conflict):
            await ledger.append(MONDAY, [twin, twin], vectors=[None, None], by=BY)
        assert await everything(ledger, ["ann"]) == before
        assert (await ledger.conversation(MONDAY)).turn_count == 1
        assert await ledger.conversation(Scope("ann", "", "new")) == Conversation(scope=Scope("ann", "", "new"))

    async def test_a_conversation_tells_how_long_it_is_and_when_it_was(self, ledger: Ledger) -> None:
        times = [NOON, NOON + timedelta(minutes=1), NOON + timedelta(minutes=2)]
        first = [turn("a", said_at=times[0]), turn("b", said_at=times[1])]
        await ledger.append(MONDAY, first, vectors=[None, None], by=BY)
        await ledger.append(MONDAY, [turn("c", said_at=times[2])], vectors=[None], by=BY)
        results = await ledger.conversation(MONDAY)
        assert (results.turn_count, results.started_at, results.last_turn_at) == (3, times[0], times[2])
        assert (results.scope, results.closed_at, results.summary) == (MONDAY, None, "")
        assert results.version == 2

    async def test_a_session_that_has_not_begun_has_no_turns(self, ledger: Ledger) -> None:
        assert await ledger.conversation(MONDAY) == Conversation(scope=MONDAY)
        assert await ledger.turns(MONDAY) == []

    async def test_a_turn_is_a_memory_seen_where_what_is_learned_there_is(self, ledger: Ledger) -> None:
        mine, theirs = turn("I like tea"), turn("noted", role=Role.ASSISTANT)
        await ledger.append(MONDAY, [mine, theirs], vectors=[None, None], by=BY)
        one, two = await ledger.get(ANN, [mine.id, theirs.id])
        assert (one.category, one.level, one.scope, one.trust) == (Category.TURN, Level.PROJECT, MONDAY, Trust.HIGH)
        assert two.trust is Trust.LOW
        assert await listed(ledger, Scope("ann", "p", "tuesday"), visible=True) == {"I like tea", "noted"}
        assert await listed(ledger, Scope("ann", "q"), visible=True) == set()

    async def test_a_turn_has_history(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "hello")
        (line,) = await ledger.history(ANN, memory_id=logged.id)
        assert (line.verb, line.by, line.version) == (ChangeKind.ADD, BY, 1)

    async def test_a_forgotten_turn_leaves_the_log_and_its_position_stays_empty(self, ledger: Ledger) -> None:
        _, second, _ = await say(ledger, MONDAY, "one", "two", "three")
        await change(ledger, Forget(second.id))
        assert [each.position for each in await ledger.turns(MONDAY)] == [1, 3]
        (fourth,) = await say(ledger, MONDAY, "four")
        assert fourth.position == 4

    async def test_memories_of_a_session_are_not_turns_of_it(self, ledger: Ledger) -> None:
        await add(
            ledger, memory(scope=MONDAY, level=Level.SESSION), memory("x", scope=MONDAY, category=Category.TURN)
        )
        assert await ledger.turns(MONDAY) == []
        assert (await ledger.conversation(MONDAY)).turn_count == 0

    async def test_a_long_session_is_kept_whole(self, ledger: Ledger) -> None:
        for start in range(0, 600, 200):
            await say(ledger, MONDAY, *(f"turn {n}" for n in range(start, start + 200)))
        assert [each.position for each in await ledger.turns(MONDAY, limit=1000)] == list(range(1, 601))
        assert await ledger.count(MONDAY, Listing()) == 600
