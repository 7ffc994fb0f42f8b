"""The log: what was said in a session, in order, and the conversation it makes up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from recollect.errors import Conflict
from recollect.ledger.ledger import Ledger
from recollect.model.change import ChangeKind, Forget, Restore, Update
from recollect.model.erasure import ErasureRequest, Target, TombstoneSet, text_digest, user_key
from recollect.model.job import Appended, JobKind, NewJob
from recollect.model.memory import Category, Trust
from recollect.model.query import Listing
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.model.turn import Conversation, Role, Turn
from tests.support.ledger_samples import (
    ANN,
    BOB,
    BY,
    MONDAY,
    NOON,
    add,
    change,
    everything,
    last_entry,
    listed,
    memory,
    say,
    turn,
)


class TestTurn:
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


JOB = NewJob(kind=JobKind.EXTRACT, key="p/monday")


class TestTurnIdempotency:
    """A turn that comes again is there once, and one that was erased stays away."""

    async def test_turns_that_come_again_change_nothing_and_are_given_back(self, ledger: Ledger) -> None:
        logged, at = [turn("hello", name="Ann"), turn("tea?")], now()
        first = await ledger.append(MONDAY, logged, vectors=[None, None], by=BY, jobs=[JOB], received_at=at)
        (job,) = await ledger.lease(worker="w", limit=1, lease_s=60)
        await ledger.finish(job)
        await say(ledger, MONDAY, "later")
        before = await everything(ledger, ["ann"])
        repeated = await ledger.append(MONDAY, logged, vectors=[None, None], by=BY, jobs=[JOB], received_at=at)
        assert repeated == Appended(first.turns)
        assert await everything(ledger, ["ann"]) == before
        assert (await ledger.conversation(MONDAY)).turn_count == 3
        assert await ledger.lease(worker="w", limit=1, lease_s=60) == []

    async def test_of_turns_that_come_again_the_new_ones_are_appended(self, ledger: Ledger) -> None:
        logged, at = [turn("one"), turn("two"), turn("three")], now()
        await ledger.append(MONDAY, logged[1:2], vectors=[None], by=BY, received_at=at)
        appended = await ledger.append(MONDAY, logged, vectors=[None] * 3, by=BY, jobs=[JOB], received_at=at)
        assert [(each.content, each.position) for each in appended.turns] == [("one", 2), ("two", 1), ("three", 3)]
        assert len(appended.jobs) == 1
        assert (await ledger.conversation(MONDAY)).turn_count == 3

    async def test_those_who_append_the_same_at_once_append_it_once(self, ledger: Ledger) -> None:
        logged, at = [turn("one"), turn("two")], now()
        inputs = await asyncio.gather(
            *(ledger.append(MONDAY, logged, vectors=[None, None], by=BY, received_at=at) for _ in range(8))
        )
        assert {each.turns for each in inputs} == {inputs[0].turns}
        assert [each.content for each in await ledger.turns(MONDAY)] == ["one", "two"]

    async def test_a_turn_that_was_forgotten_since_stays_forgotten(self, ledger: Ledger) -> None:
        logged, at = turn("hello"), now()
        await ledger.append(MONDAY, [logged], vectors=[None], by=BY, received_at=at)
        await change(ledger, Forget(logged.id))
        await ledger.append(MONDAY, [logged], vectors=[None], by=BY, received_at=at)
        assert await ledger.turns(MONDAY) == []

    async def test_the_id_of_something_else_is_not_the_id_of_a_turn(self, ledger: Ledger) -> None:
        (fact,) = await add(ledger, memory("I like tea"))
        elsewhere = (await say(ledger, Scope("ann", "p", "tuesday"), "hello"))[0]
        before = await everything(ledger, ["ann"])
        for id in (fact.id, elsewhere.id):
            taken = replace(turn("new"), id=id)
            with pytest.raises(Conflict):
                await ledger.append(MONDAY, [turn("x"), taken], vectors=[None, None], by=BY, received_at=now())
        twin = turn("twice")
        with pytest.raises(Conflict):
            await ledger.append(MONDAY, [twin, twin], vectors=[None, None], by=BY, received_at=now())
        assert await everything(ledger, ["ann"]) == before

    async def test_another_users_turn_of_the_same_id_is_none_of_ours(self, ledger: Ledger) -> None:
        logged = turn("Bob's own words")
        theirs = Scope("bob", "p", "monday")
        await ledger.append(theirs, [logged], vectors=[None], by=BY, received_at=now())
        before = await everything(ledger, ["bob"])
        mine = replace(logged, content="Ann's own words")
        appended = await ledger.append(MONDAY, [mine], vectors=[None], by=BY, received_at=now())
        assert [each.content for each in appended.turns] == ["Ann's own words"]
        assert (await everything(ledger, ["bob"]))["bob"] == before["bob"]
        assert [each.content for each in await ledger.turns(theirs)] == ["Bob's own words"]

    @pytest.mark.parametrize("target", [Target.USER, Target.PROJECT, Target.SESSION, Target.TURN])
    @pytest.mark.parametrize("was_there", [True, False])
    async def test_what_was_given_before_an_erasure_does_not_come_back_after_it(
        self, ledger: Ledger, target: Target, was_there: bool
    ) -> None:
        logged, other, at = turn("a secret"), turn("tea"), now() - timedelta(seconds=1)
        if was_there or target is Target.TURN:
            await ledger.append(MONDAY, [logged], vectors=[None], by=BY, received_at=at)
        scope = {Target.PROJECT: Scope("ann", "p"), Target.SESSION: MONDAY}.get(target, ANN)
        await ledger.erase(scope, ErasureRequest(target, logged.id if target is Target.TURN else ""), by=BY)
        users = await ledger.users()
        assert await ledger.append(MONDAY, [logged], vectors=[None], by=BY, jobs=[JOB], received_at=at) == Appended()
        assert (await ledger.turns(MONDAY), await ledger.users()) == ([], users)
        if target is not Target.TURN:
            assert await ledger.conversation(MONDAY) == Conversation(scope=MONDAY)
        # What is given after it is kept, under any id.
        late = await ledger.append(MONDAY, [other], vectors=[None], by=BY, received_at=now() + timedelta(seconds=1))
        assert [each.content for each in late.turns] == ["tea"]

    async def test_an_erasure_elsewhere_keeps_nothing_out(self, ledger: Ledger) -> None:
        at = now() - timedelta(seconds=1)
        await say(ledger, Scope("ann", "p", "tuesday"), "hello")
        (gone,) = await say(ledger, MONDAY, "gone")
        await ledger.erase(Scope("ann", "p", "tuesday"), ErasureRequest(Target.SESSION), by=BY)
        await ledger.erase(Scope("ann", "q"), ErasureRequest(Target.PROJECT), by=BY)
        await ledger.erase(ANN, ErasureRequest(Target.TURN, gone.id), by=BY)
        await ledger.erase(BOB, ErasureRequest(Target.USER), by=BY)
        appended = await ledger.append(MONDAY, [turn("tea")], vectors=[None], by=BY, received_at=at)
        assert [each.content for each in appended.turns] == ["tea"]


async def buried(ledger: Ledger, *texts: str, user: str = "ann", role: str = "user") -> set[str]:
    """Return those of the texts that match a tombstone."""
    results = await ledger.tombstoned(user, [(role, text) for text in texts])
    return {text for _, text in results}


async def append_at(ledger: Ledger, *turns: Turn, hours: int = 0) -> list[str]:
    """Append turns as given some hours from now; return the words of those that are in the log then."""
    received_at = now() + timedelta(hours=hours)
    appended = await ledger.append(MONDAY, turns, vectors=[None] * len(turns), by=BY, received_at=received_at)
    return [each.content for each in appended.turns]


class TestTombstone:
    """What was forgotten or erased leaves a digest, until it is brought back."""

    async def test_a_forgotten_turn_is_recognised_however_it_is_spelled(self, ledger: Ledger) -> None:
        (logged, _) = await say(ledger, MONDAY, "I have  Epilepsy", "I like tea")
        assert not await ledger.has_tombstones("ann")
        await change(ledger, Forget(logged.id))
        assert await ledger.has_tombstones("ann")
        spelled = ["I have Epilepsy", "  i HAVE\nepilepsy ", "I have \uff25pilepsy", "I have\u00ad epilepsy"]
        assert await buried(ledger, *spelled, "I like tea", "I have epilepsy!") == set(spelled)

    async def test_role_and_user_are_part_of_it(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "I have epilepsy")
        await say(ledger, Scope("bob", "p", "monday"), "I have epilepsy")
        await change(ledger, Forget(logged.id))
        assert not await buried(ledger, "I have epilepsy", role=str(Role.ASSISTANT))
        assert not await buried(ledger, "I have epilepsy", user="bob")
        assert not await ledger.has_tombstones("bob")

    async def test_a_forgotten_memory_that_is_no_turn_leaves_none(self, ledger: Ledger) -> None:
        (fact,) = await add(ledger, memory("I have epilepsy"))
        await change(ledger, Forget(fact.id))
        assert not await ledger.has_tombstones("ann")

    async def test_restoring_or_undoing_removes_it(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "I have epilepsy")
        await change(ledger, Forget(logged.id))
        await change(ledger, Restore(logged.id))
        assert not await buried(ledger, logged.content)
        await change(ledger, Forget(logged.id))
        await ledger.undo(ANN, (await last_entry(ledger)).id, by=BY)
        assert not await buried(ledger, logged.content)
        # An undo that is undone forgets it once more.
        await ledger.undo(ANN, (await last_entry(ledger)).id, by=BY)
        assert await buried(ledger, logged.content)

    async def test_an_append_that_is_undone_leaves_one(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "I have epilepsy")
        await ledger.undo(ANN, (await last_entry(ledger)).id, by=BY, whole=True)
        assert await buried(ledger, logged.content)

    async def test_a_former_wording_of_a_turn_leaves_one(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "I have epilepsy")
        await change(ledger, Update(logged.id, {"content": "I have something"}))
        assert await buried(ledger, "I have epilepsy", "I have something") == {"I have epilepsy"}

    async def test_what_is_said_anew_is_appended_and_the_old_history_is_still_recognised(
        self, ledger: Ledger
    ) -> None:
        (logged,) = await say(ledger, MONDAY, "I have epilepsy")
        await change(ledger, Forget(logged.id))
        tuesday = Scope("ann", "", "tuesday")
        await say(ledger, tuesday, "I have epilepsy")
        assert [each.content for each in await ledger.turns(tuesday)] == ["I have epilepsy"]
        assert await buried(ledger, logged.content)

    @pytest.mark.parametrize("target", [Target.USER, Target.PROJECT, Target.SESSION, Target.TURN])
    async def test_erased_turns_are_recognised(self, ledger: Ledger, target: Target) -> None:
        logged = await say(ledger, MONDAY, "I have epilepsy", "and it is bad")
        scope = {Target.PROJECT: Scope("ann", "p"), Target.SESSION: MONDAY}.get(target, ANN)
        await ledger.erase(scope, ErasureRequest(target, logged[0].id if target is Target.TURN else ""), by=BY)
        gone = {"I have epilepsy"} if target is Target.TURN else {"I have epilepsy", "and it is bad"}
        assert await buried(ledger, "I have epilepsy", "and it is bad") == gone
        assert not await buried(ledger, "I have epilepsy", user="bob")

    async def test_a_turn_that_names_an_erased_one_stays_away_for_ever(self, ledger: Ledger) -> None:
        logged = await say(ledger, MONDAY, "I have epilepsy", "I like tea")
        await ledger.erase(MONDAY, ErasureRequest(Target.SESSION), by=BY)
        assert await append_at(ledger, replace(logged[0], content="other words"), hours=1) == []
        assert await append_at(ledger, turn("I have epilepsy"), hours=1) == ["I have epilepsy"]

    async def test_a_turn_that_was_given_before_its_words_were_forgotten_stays_away(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "I have epilepsy")
        await change(ledger, Forget(logged.id))
        late = turn("I have epilepsy")
        received_at = now() - timedelta(hours=1)
        assert await ledger.append(MONDAY, [late], vectors=[None], by=BY, received_at=received_at) == Appended()
        assert await append_at(ledger, late, turn("I like tea"), hours=-1) == ["I like tea"]
        assert await append_at(ledger, turn("I have epilepsy"), hours=1) == ["I have epilepsy"]

    async def test_they_outlive_what_is_purged(self, ledger: Ledger) -> None:
        (logged, other) = await say(ledger, MONDAY, "I have epilepsy", "I like tea")
        await change(ledger, Forget(logged.id))
        await ledger.purge(now() + timedelta(hours=1))
        assert await buried(ledger, logged.content, other.content) == {logged.content}
        assert await append_at(ledger, replace(logged, content="other words"), hours=1) == []

    async def test_old_ones_are_pruned(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "I have epilepsy")
        await change(ledger, Forget(logged.id))
        assert await ledger.prune_tombstones(now() - timedelta(days=1)) == 0
        assert await buried(ledger, logged.content) == {logged.content}
        assert await ledger.prune_tombstones(now() + timedelta(hours=1)) == 1
        assert await buried(ledger, logged.content) == set()

    async def test_an_evicted_turn_leaves_none(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "I have epilepsy")
        await change(ledger, Forget(logged.id, evicted=True))
        assert await buried(ledger, logged.content) == set()
        # Until somebody asks to forget it.
        await change(ledger, Forget(logged.id))
        assert await buried(ledger, logged.content) == {logged.content}

    async def test_those_of_another_ledger_are_recognised_by_their_key(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "I have epilepsy")
        await change(ledger, Forget(logged.id))
        own = await ledger.tombstones("ann")
        key = user_key("another ledger's secret", "ann")
        moved = TombstoneSet((key, *own.keys), {text_digest(key, "user", "I smoke"): NOON, **own.digests})
        await ledger.put_tombstones("ann", moved)
        await ledger.put_tombstones("ann", moved)
        assert await buried(ledger, "I have epilepsy", "I smoke", "I like tea") == {"I have epilepsy", "I smoke"}
        both = await ledger.tombstones("ann")
        assert set(both.keys) == set(moved.keys)
        assert both.digests == moved.digests
        assert await ledger.tombstones("bob") == TombstoneSet()

    async def test_nothing_of_anyone_is_recognised_where_nothing_was_forgotten(self, ledger: Ledger) -> None:
        assert await ledger.tombstoned("nobody", [("user", "x")]) == frozenset()
        await say(ledger, Scope("bob", "", "s"), "hello")
        assert await ledger.tombstoned(BOB.user, [("user", "hello")]) == frozenset()
        assert await ledger.tombstoned(BOB.user, []) == frozenset()
