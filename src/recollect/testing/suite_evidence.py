"""Evidence: the memories derived from a turn, and the chain of those that superseded a memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from recollect.ledger.protocol import Derived, Ledger
from recollect.model.change import Add, Forget, Restore, Supersede, Update
from recollect.model.erase import ErasureRequest, Target
from recollect.model.memory import Category, MemoryType, Status
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.testing.suite_samples import (
    ANN,
    BOB,
    BY,
    NOON,
    add,
    change,
    last_entry,
    memory,
    now_of,
    row_of,
    say,
)

TALK = Scope("ann", "p", "monday")


async def derived_ids(ledger: Ledger, *turns: str, scope: Scope = ANN) -> dict[str, list[str]]:
    """The ids of the memories derived from each turn."""
    results = await ledger.derived(scope, turns)
    return {turn: [each.id for each in learned] for turn, learned in results.items()}


async def chain(ledger: Ledger, id: str, scope: Scope = ANN) -> list[str]:
    """The ids of a memory and of those that superseded it."""
    results = await ledger.succession(scope, [id])
    return [each.record.id for each in results.get(id, ())]


class EvidenceSuite:
    """What was learned from a turn is found by the turn's id."""

    async def test_memories_are_found_by_the_turns_they_were_derived_from(self, ledger: Ledger) -> None:
        first, second, third = await say(ledger, TALK, "I live in Ghent and row", "and I like tea", "bye")
        home = memory("lives in Ghent", id="home", evidence=(first.id,))
        sport = memory("rows", id="sport", evidence=(first.id, second.id), valid_to=NOON)
        tea = memory("likes tea", id="tea", evidence=(second.id,), scope=TALK, level=Level.PROJECT)
        await add(ledger, home, sport, tea)
        assert await derived_ids(ledger, first.id, second.id, third.id, "nothing") == {
            first.id: ["home", "sport"],
            second.id: ["sport", "tea"],
        }
        results = await ledger.derived(ANN, [first.id])
        assert results[first.id][1] == Derived(
            id="sport",
            row=await row_of_any(ledger, "sport"),
            status=Status.ACTIVE,
            type=MemoryType.SEMANTIC,
            category=Category.FACT,
            valid_to=NOON,
        )

    async def test_nothing_is_derived_from_no_turns(self, ledger: Ledger) -> None:
        assert await ledger.derived(ANN, []) == {}
        assert await ledger.derived(ANN, ["\0", "\ud800", "nothing"]) == {}

    async def test_another_users_memories_are_not_derived_from_a_turn(self, ledger: Ledger) -> None:
        await add(ledger, memory("hers", id="hers", evidence=("t",)))
        await add(ledger, memory("his", id="his", evidence=("t",), scope=BOB))
        assert await derived_ids(ledger, "t") == {"t": ["hers"]}
        assert await derived_ids(ledger, "t", scope=BOB) == {"t": ["his"]}
        assert await derived_ids(ledger, "t", scope=Scope("nobody")) == {}

    async def test_a_turn_that_is_named_twice_counts_once(self, ledger: Ledger) -> None:
        await add(ledger, memory(id="m", evidence=("t", "u", "t")))
        assert await derived_ids(ledger, "t", "t") == {"t": ["m"]}

    async def test_superseded_memories_say_what_superseded_them(self, ledger: Ledger) -> None:
        await add(ledger, memory("lives in Ghent", id="old", evidence=("t",)))
        await change(ledger, Supersede("old", memory("lives in Bruges", id="new", evidence=("u",))))
        results = await ledger.derived(ANN, ["t", "u"])
        (old,), (new,) = results["t"], results["u"]
        assert (old.status, old.superseded_by, old.valid_to is not None) == (Status.SUPERSEDED, "new", True)
        assert (new.status, new.superseded_by, new.valid_to) == (Status.ACTIVE, None, None)

    async def test_forgotten_memories_and_those_in_review_are_left_out(self, ledger: Ledger) -> None:
        await add(ledger, memory("one", id="one", evidence=("t",)), memory("two", id="two", evidence=("t",)))
        await add(ledger, memory("three", id="three", evidence=("t",), status=Status.REVIEW))
        await change(ledger, Forget("one"))
        assert await derived_ids(ledger, "t") == {"t": ["two"]}
        await change(ledger, Restore("one"), Update("three", {"status": Status.ACTIVE}))
        assert await derived_ids(ledger, "t") == {"t": ["one", "two", "three"]}

    async def test_evidence_that_changes_is_followed(self, ledger: Ledger) -> None:
        await add(ledger, memory(id="m", evidence=("t",)), memory("other", id="o", evidence=("t",)))
        await change(ledger, Update("m", {"evidence": ("u", "v")}))
        assert await derived_ids(ledger, "t", "u", "v") == {"t": ["o"], "u": ["m"], "v": ["m"]}
        await ledger.undo(ANN, (await last_entry(ledger, memory_id="m")).id, by=BY)
        assert await derived_ids(ledger, "t", "u", "v") == {"t": ["m", "o"]}
        await change(ledger, Update("m", {"evidence": ()}), Update("o", {"content": "another"}))
        assert await derived_ids(ledger, "t", "u", "v") == {"t": ["o"]}

    async def test_evidence_goes_with_an_erased_memory(self, ledger: Ledger) -> None:
        logged, other = await say(ledger, TALK, "I live in Ghent", "I like tea")
        await add(ledger, memory(id="m", evidence=(logged.id,)), memory("tea", id="tea", evidence=(other.id,)))
        await ledger.erase(ANN, ErasureRequest(Target.MEMORY, "m"), by=BY)
        assert await derived_ids(ledger, logged.id, other.id) == {other.id: ["tea"]}
        await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
        assert await derived_ids(ledger, logged.id, other.id) == {}
        await add(ledger, memory("new", id="m"))
        assert await derived_ids(ledger, logged.id, other.id) == {}
        assert await ledger.check() == []

    async def test_evidence_goes_with_a_purged_memory(self, ledger: Ledger) -> None:
        await add(ledger, memory(id="m", evidence=("t",)), memory("other", id="o", evidence=("t",)))
        await change(ledger, Forget("m"))
        await ledger.purge(now() + timedelta(days=1))
        assert await derived_ids(ledger, "t") == {"t": ["o"]}
        assert await ledger.check() == []

    async def test_evidence_survives_a_rebuild(self, ledger: Ledger) -> None:
        await add(ledger, memory(id="m", evidence=("t", "u")), memory("other", id="o"))
        await ledger.rebuild_terms()
        assert await derived_ids(ledger, "t", "u") == {"t": ["m"], "u": ["m"]}

    async def test_a_chain_is_followed_to_its_end(self, ledger: Ledger) -> None:
        await add(ledger, memory("Ghent", id="a"), memory("tea", id="tea"))
        for old, new in (("a", "b"), ("b", "c")):
            await change(ledger, Supersede(old, memory(new, id=new)))
        assert await chain(ledger, "a") == ["a", "b", "c"]
        assert await chain(ledger, "b") == ["b", "c"]
        assert await chain(ledger, "tea") == ["tea"]
        results = await ledger.succession(ANN, ["c", "a", "nothing"])
        assert results.keys() == {"c", "a"}
        last = results["a"][-1]
        assert (last.record, last.row) == (await now_of(ledger, last.record), await row_of(ledger, last.record))
        await change(ledger, Forget("c"))
        assert [each.record.status for each in (await ledger.succession(ANN, ["b"]))["b"]] == [
            Status.SUPERSEDED,
            Status.FORGOTTEN,
        ]

    async def test_a_chain_of_another_user_is_not_followed(self, ledger: Ledger) -> None:
        await add(ledger, memory("mine", id="mine", superseded_by="his", status=Status.SUPERSEDED))
        await add(ledger, memory("his", id="his", scope=BOB))
        assert await chain(ledger, "mine") == ["mine"]
        assert await chain(ledger, "his") == []

    async def test_a_chain_that_returns_to_itself_ends(self, ledger: Ledger) -> None:
        fields = {"status": Status.SUPERSEDED}
        await add(ledger, memory("a", id="a", superseded_by="b", **fields))
        await change(ledger, Add(memory("b", id="b", superseded_by="a", **fields)))
        assert await chain(ledger, "a") == ["a", "b"]


async def row_of_any(ledger: Ledger, id: str) -> int:
    """The row of a memory, whether or not it holds."""
    chains: Sequence[tuple[int, str]] = [
        (each.row, each.record.id) for each in (await ledger.succession(ANN, [id]))[id]
    ]
    return chains[0][0]
