"""Tombstones: forgotten and erased turns are recognised when their words are sent again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from recollect.ledger.protocol import Ledger
from recollect.model.change import Forget, Restore, Update
from recollect.model.erase import ErasureRequest, Target
from recollect.model.job import Appended
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.tombstone import TombstoneSet, new_secret, text_digest, user_key
from recollect.model.turn import Role, Turn
from recollect.testing.suite_samples import ANN, BOB, BY, NOON, add, change, last_entry, memory, say, turn

FORGOTTEN_SESSION = Scope("ann", "p", "monday")


async def buried(ledger: Ledger, *texts: str, user: str = "ann", role: str = "user") -> set[str]:
    """Return those of the texts that match a tombstone."""
    results = await ledger.tombstoned(user, [(role, text) for text in texts])
    return {text for _, text in results}


async def append_at(ledger: Ledger, *turns: Turn, hours: int = 0) -> list[str]:
    """Append turns as given some hours from now; return the words of those that are in the log then."""
    received_at = now() + timedelta(hours=hours)
    appended = await ledger.append(
        FORGOTTEN_SESSION, turns, vectors=[None] * len(turns), by=BY, received_at=received_at
    )
    return [each.content for each in appended.turns]


class TombstoneSuite:
    """What was forgotten or erased leaves a digest, until it is brought back."""

    async def test_a_forgotten_turn_is_recognised_however_it_is_spelled(self, ledger: Ledger) -> None:
        (logged, _) = await say(ledger, FORGOTTEN_SESSION, "I have  Epilepsy", "I like tea")
        assert not await ledger.has_tombstones("ann")
        await change(ledger, Forget(logged.id))
        assert await ledger.has_tombstones("ann")
        spelled = ["I have Epilepsy", "  i HAVE\nepilepsy ", "I have \uff25pilepsy", "I have\u00ad epilepsy"]
        assert await buried(ledger, *spelled, "I like tea", "I have epilepsy!") == set(spelled)

    async def test_role_and_user_are_part_of_it(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, FORGOTTEN_SESSION, "I have epilepsy")
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
        (logged,) = await say(ledger, FORGOTTEN_SESSION, "I have epilepsy")
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
        (logged,) = await say(ledger, FORGOTTEN_SESSION, "I have epilepsy")
        await ledger.undo(ANN, (await last_entry(ledger)).id, by=BY, whole=True)
        assert await buried(ledger, logged.content)

    async def test_a_former_wording_of_a_turn_leaves_one(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, FORGOTTEN_SESSION, "I have epilepsy")
        await change(ledger, Update(logged.id, {"content": "I have something"}))
        assert await buried(ledger, "I have epilepsy", "I have something") == {"I have epilepsy"}

    async def test_what_is_said_anew_is_appended_and_the_old_history_is_still_recognised(
        self, ledger: Ledger
    ) -> None:
        (logged,) = await say(ledger, FORGOTTEN_SESSION, "I have epilepsy")
        await change(ledger, Forget(logged.id))
        tuesday = Scope("ann", "", "tuesday")
        await say(ledger, tuesday, "I have epilepsy")
        assert [each.content for each in await ledger.turns(tuesday)] == ["I have epilepsy"]
        assert await buried(ledger, logged.content)

    @pytest.mark.parametrize("target", [Target.USER, Target.PROJECT, Target.SESSION, Target.TURN])
    async def test_erased_turns_are_recognised(self, ledger: Ledger, target: Target) -> None:
        logged = await say(ledger, FORGOTTEN_SESSION, "I have epilepsy", "and it is bad")
        scope = {Target.PROJECT: Scope("ann", "p"), Target.SESSION: FORGOTTEN_SESSION}.get(target, ANN)
        await ledger.erase(scope, ErasureRequest(target, logged[0].id if target is Target.TURN else ""), by=BY)
        gone = {"I have epilepsy"} if target is Target.TURN else {"I have epilepsy", "and it is bad"}
        assert await buried(ledger, "I have epilepsy", "and it is bad") == gone
        assert not await buried(ledger, "I have epilepsy", user="bob")

    async def test_a_turn_that_names_an_erased_one_stays_away_for_ever(self, ledger: Ledger) -> None:
        logged = await say(ledger, FORGOTTEN_SESSION, "I have epilepsy", "I like tea")
        await ledger.erase(FORGOTTEN_SESSION, ErasureRequest(Target.SESSION), by=BY)
        assert await append_at(ledger, replace(logged[0], content="other words"), hours=1) == []
        assert await append_at(ledger, turn("I have epilepsy"), hours=1) == ["I have epilepsy"]

    async def test_a_turn_that_was_given_before_its_words_were_forgotten_stays_away(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, FORGOTTEN_SESSION, "I have epilepsy")
        await change(ledger, Forget(logged.id))
        late = turn("I have epilepsy")
        received_at = now() - timedelta(hours=1)
        assert (
            await ledger.append(FORGOTTEN_SESSION, [late], vectors=[None], by=BY, received_at=received_at)
            == Appended()
        )
        assert await append_at(ledger, late, turn("I like tea"), hours=-1) == ["I like tea"]
        assert await append_at(ledger, turn("I have epilepsy"), hours=1) == ["I have epilepsy"]

    async def test_they_outlive_what_is_purged(self, ledger: Ledger) -> None:
        (logged, other) = await say(ledger, FORGOTTEN_SESSION, "I have epilepsy", "I like tea")
        await change(ledger, Forget(logged.id))
        await ledger.purge(now() + timedelta(hours=1))
        assert await buried(ledger, logged.content, other.content) == {logged.content}
        assert await append_at(ledger, replace(logged, content="other words"), hours=1) == []

    async def test_those_of_another_ledger_are_recognised_by_their_key(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, FORGOTTEN_SESSION, "I have epilepsy")
        await change(ledger, Forget(logged.id))
        own = await ledger.tombstones("ann")
        key = user_key(new_secret(), "ann")
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
