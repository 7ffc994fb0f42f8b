"""The same turns appended again: once it was not known whether they went through, or while they were on their way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from recollect.errors import Conflict
from recollect.ledger.protocol import Ledger
from recollect.model.change import Forget
from recollect.model.erase import ErasureRequest, Target
from recollect.model.job import Appended, JobKind, NewJob
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation
from recollect.testing.suite_samples import ANN, BOB, BY, add, change, everything, memory, say, turn

RESENT_SESSION = Scope("ann", "p", "monday")
JOB = NewJob(kind=JobKind.EXTRACT, key="p/monday")


class TurnIdempotencySuite:
    """A turn that comes again is there once, and one that was erased stays away."""

    async def test_turns_that_come_again_change_nothing_and_are_given_back(self, ledger: Ledger) -> None:
        logged, at = [turn("hello", name="Ann"), turn("tea?")], now()
        first = await ledger.append(RESENT_SESSION, logged, vectors=[None, None], by=BY, jobs=[JOB], received_at=at)
        (job,) = await ledger.lease(worker="w", limit=1, lease_s=60)
        await ledger.finish(job)
        await say(ledger, RESENT_SESSION, "later")
        before = await everything(ledger, ["ann"])
        repeated = await ledger.append(
            RESENT_SESSION, logged, vectors=[None, None], by=BY, jobs=[JOB], received_at=at
        )
        assert repeated == Appended(first.turns)
        assert await everything(ledger, ["ann"]) == before
        assert (await ledger.conversation(RESENT_SESSION)).turn_count == 3
        assert await ledger.lease(worker="w", limit=1, lease_s=60) == []

    async def test_of_turns_that_come_again_the_new_ones_are_appended(self, ledger: Ledger) -> None:
        logged, at = [turn("one"), turn("two"), turn("three")], now()
        await ledger.append(RESENT_SESSION, logged[1:2], vectors=[None], by=BY, received_at=at)
        appended = await ledger.append(RESENT_SESSION, logged, vectors=[None] * 3, by=BY, jobs=[JOB], received_at=at)
        assert [(each.content, each.position) for each in appended.turns] == [("one", 2), ("two", 1), ("three", 3)]
        assert len(appended.jobs) == 1
        assert (await ledger.conversation(RESENT_SESSION)).turn_count == 3

    async def test_those_who_append_the_same_at_once_append_it_once(self, ledger: Ledger) -> None:
        logged, at = [turn("one"), turn("two")], now()
        inputs = await asyncio.gather(
            *(ledger.append(RESENT_SESSION, logged, vectors=[None, None], by=BY, received_at=at) for _ in range(8))
        )
        assert {each.turns for each in inputs} == {inputs[0].turns}
        assert [each.content for each in await ledger.turns(RESENT_SESSION)] == ["one", "two"]

    async def test_a_turn_that_was_forgotten_since_stays_forgotten(self, ledger: Ledger) -> None:
        logged, at = turn("hello"), now()
        await ledger.append(RESENT_SESSION, [logged], vectors=[None], by=BY, received_at=at)
        await change(ledger, Forget(logged.id))
        await ledger.append(RESENT_SESSION, [logged], vectors=[None], by=BY, received_at=at)
        assert await ledger.turns(RESENT_SESSION) == []

    async def test_the_id_of_something_else_is_not_the_id_of_a_turn(self, ledger: Ledger) -> None:
        (fact,) = await add(ledger, memory("I like tea"))
        elsewhere = (await say(ledger, Scope("ann", "p", "tuesday"), "hello"))[0]
        before = await everything(ledger, ["ann"])
        for id in (fact.id, elsewhere.id):
            with pytest.raises(Conflict):
                taken = replace(turn("new"), id=id)
                await ledger.append(
                    RESENT_SESSION, [turn("x"), taken], vectors=[None, None], by=BY, received_at=now()
                )
        twin = turn("twice")
        with pytest.raises(Conflict):
            await ledger.append(RESENT_SESSION, [twin, twin], vectors=[None, None], by=BY, received_at=now())
        assert await everything(ledger, ["ann"]) == before

    async def test_another_users_turn_of_the_same_id_is_none_of_ours(self, ledger: Ledger) -> None:
        logged = turn("Bob's own words")
        theirs = Scope("bob", "p", "monday")
        await ledger.append(theirs, [logged], vectors=[None], by=BY, received_at=now())
        before = await everything(ledger, ["bob"])
        mine = replace(logged, content="Ann's own words")
        appended = await ledger.append(RESENT_SESSION, [mine], vectors=[None], by=BY, received_at=now())
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
            await ledger.append(RESENT_SESSION, [logged], vectors=[None], by=BY, received_at=at)
        scope = {Target.PROJECT: Scope("ann", "p"), Target.SESSION: RESENT_SESSION}.get(target, ANN)
        await ledger.erase(scope, ErasureRequest(target, logged.id if target is Target.TURN else ""), by=BY)
        users = await ledger.users()
        assert (
            await ledger.append(RESENT_SESSION, [logged], vectors=[None], by=BY, jobs=[JOB], received_at=at)
            == Appended()
        )
        assert (await ledger.turns(RESENT_SESSION), await ledger.users()) == ([], users)
        if target is not Target.TURN:
            assert await ledger.conversation(RESENT_SESSION) == Conversation(scope=RESENT_SESSION)
        # What is given after it is kept, under any id.
        late = await ledger.append(
            RESENT_SESSION, [other], vectors=[None], by=BY, received_at=now() + timedelta(seconds=1)
        )
        assert [each.content for each in late.turns] == ["tea"]

    async def test_an_erasure_elsewhere_keeps_nothing_out(self, ledger: Ledger) -> None:
        at = now() - timedelta(seconds=1)
        await say(ledger, Scope("ann", "p", "tuesday"), "hello")
        (gone,) = await say(ledger, RESENT_SESSION, "gone")
        await ledger.erase(Scope("ann", "p", "tuesday"), ErasureRequest(Target.SESSION), by=BY)
        await ledger.erase(Scope("ann", "q"), ErasureRequest(Target.PROJECT), by=BY)
        await ledger.erase(ANN, ErasureRequest(Target.TURN, gone.id), by=BY)
        await ledger.erase(BOB, ErasureRequest(Target.USER), by=BY)
        appended = await ledger.append(RESENT_SESSION, [turn("tea")], vectors=[None], by=BY, received_at=at)
        assert [each.content for each in appended.turns] == ["tea"]
