"""Every step of a memory's life is history, and history can be taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import product
from typing import Any

import pytest

from recollect.errors import Conflict
from recollect.ledger.ledger import Ledger
from recollect.ledger.types import Derived
from recollect.model.change import Add, Author, Change, ChangeKind, Forget, HistoryEntry, Restore, Supersede, Update
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust, valid_at
from recollect.model.query import EVERYTHING, Listing, parse_filter
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from tests.support.ledger_samples import (
    ANN,
    BOB,
    BY,
    MODEL,
    NOON,
    ODD_TEXTS,
    add,
    change,
    direction,
    full_memory,
    last_entry,
    listed,
    memory,
    now_of,
    row_of,
    say,
    turn,
)

STEPS: dict[str, Callable[[MemoryRecord], Change]] = {
    "update": lambda one: Update(one.id, {"content": "coffee", "tags": ["a"], "valid_from": NOON, "importance": 0.9}),
    "unset": lambda one: Update(one.id, {"value": None, "metadata": {}, "expires_at": None}),
    "forget": lambda one: Forget(one.id),
    "status": lambda one: Update(one.id, {"status": "review"}),
}


class TestHistory:
    """What history says, and undo."""

    async def test_a_line_says_who_did_what_when_and_why(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory(value="old"))
        start = now()
        applied = await ledger.apply(ANN, [Update(one.id, {"value": "new"})], by=Author("ann", "she said so"))
        line = await last_entry(ledger)
        assert (line.memory_id, line.verb, line.by, line.version) == (
            one.id,
            ChangeKind.UPDATE,
            Author("ann", "she said so"),
            2,
        )
        assert (line.before, line.after, line.batch, line.undoes) == (
            {"value": "old"},
            {"value": "new"},
            applied.batch,
            None,
        )
        assert start - timedelta(seconds=2) <= line.at <= now() + timedelta(seconds=2)
        assert await ledger.entry(ANN, line.id) == line

    async def test_the_chain_of_one_memory_is_whole_and_newest_first(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory("tea"))
        await change(ledger, Update(one.id, {"content": "coffee"}), Update(one.id, {"content": "water"}))
        await change(ledger, Forget(one.id))
        await change(ledger, Restore(one.id))
        lines = await ledger.history(ANN, memory_id=one.id)
        assert [(line.verb, line.version, line.before, line.after) for line in lines] == [
            (ChangeKind.RESTORE, 5, {"status": "forgotten"}, {"status": "active"}),
            (ChangeKind.FORGET, 4, {"status": "active"}, {"status": "forgotten"}),
            (ChangeKind.UPDATE, 3, {"content": "coffee"}, {"content": "water"}),
            (ChangeKind.UPDATE, 2, {"content": "tea"}, {"content": "coffee"}),
            (ChangeKind.ADD, 1, None, {"status": "active"}),
        ]
        assert [line.id for line in lines] == sorted((line.id for line in lines), reverse=True)

    async def test_superseding_is_a_line_of_each_of_the_two(self, ledger: Ledger) -> None:
        (old,) = await add(ledger, memory("Paris", key="city"))
        fresh = memory("Rome", key="city", valid_from=NOON)
        applied = await change(ledger, Supersede(old.id, fresh))
        (ended, _), (started,) = [await ledger.history(ANN, memory_id=id) for id in (old.id, fresh.id)]
        assert (ended.verb, started.verb) == (ChangeKind.SUPERSEDE, ChangeKind.ADD)
        assert ended.after == {"status": "superseded", "superseded_by": fresh.id, "valid_to": NOON.isoformat()}
        assert ended.batch == started.batch == applied.batch

    async def test_changes_made_together_share_a_batch_and_others_do_not(self, ledger: Ledger) -> None:
        await add(ledger, memory("tea"), memory("coffee"))
        await add(ledger, memory("water"))
        water, coffee, tea = await ledger.history(ANN)
        assert tea.batch == coffee.batch != water.batch

    async def test_history_is_paged_without_gaps_and_repeats(self, ledger: Ledger) -> None:
        for n in range(7):
            await add(ledger, memory(f"tea {n}"))
            await add(ledger, memory(f"tea {n}", scope=BOB))
        whole = await ledger.history(ANN)
        assert len(whole) == 7
        for limit in (1, 2, 3, 10):
            pages: list[HistoryEntry] = []
            before: int | None = None
            while page := await ledger.history(ANN, limit=limit, before=before):
                assert len(page) <= limit
                pages += page
                before = page[-1].id
            assert pages == whole
        for before, count in ((0, 0), (-1, 0), (10**30, 7)):
            assert len(await ledger.history(ANN, before=before)) == count

    async def test_history_is_followed_from_an_entry_on_oldest_first(self, ledger: Ledger) -> None:
        for n in range(5):
            await add(ledger, memory(f"tea {n}"))
            await add(ledger, memory(f"tea {n}", scope=BOB))
        whole = (await ledger.history(ANN))[::-1]
        for limit in (1, 3, 10):
            followed: list[HistoryEntry] = []
            after = whole[0].id
            while page := await ledger.history(ANN, limit=limit, after=after):
                assert len(page) <= limit
                followed += page
                after = page[-1].id
            assert followed == whole[1:]
        assert await ledger.history(ANN, after=0) == whole
        assert await ledger.history(ANN, memory_id=whole[2].memory_id, after=0) == [whole[2]]
        assert await ledger.history(ANN, after=whole[0].id, before=whole[3].id) == whole[1:3]

    async def test_history_of_a_place_holds_what_belongs_to_it(self, ledger: Ledger) -> None:
        here = memory("here", scope=Scope("ann", "p"), level=Level.PROJECT)
        await add(ledger, here, memory("elsewhere", scope=Scope("ann", "q"), level=Level.PROJECT))
        assert [line.memory_id for line in await ledger.history(Scope("ann", "p"))] == [here.id]

    async def test_history_stores_any_text_and_undo_brings_it_back(self, ledger: Ledger) -> None:
        names = ("content", "key", "value", "source", "tags", "evidence", "metadata", "detail", "superseded_by")
        empty: dict[str, Any] = {"tags": [], "evidence": [], "metadata": {}, "detail": {}}
        for text in ODD_TEXTS.values():
            odd = full_memory(text, status=Status.ACTIVE, trust=Trust.HIGH)
            await add(ledger, odd)
            await ledger.apply(ANN, [Update(odd.id, dict.fromkeys(names, "plain") | empty)], by=Author(text, text))
            line = await last_entry(ledger)
            assert line.by == Author(text, text)
            await ledger.undo(ANN, line.id, by=BY)
            undone = await now_of(ledger, odd)
            assert [getattr(undone, name) for name in names] == [getattr(odd, name) for name in names]

    @pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
    async def test_undo_gives_every_field_its_value_back(
        self, ledger: Ledger, step: Callable[[MemoryRecord], Change]
    ) -> None:
        (one,) = await add(ledger, memory(value="v", metadata={"a": 1}, expires_at=NOON, tags=("x", "y")))
        await change(ledger, step(one))
        line = await last_entry(ledger)
        applied = await ledger.undo(ANN, line.id, by=Author("ann", "changed my mind"))
        results = await now_of(ledger, one)
        assert results == replace(one, version=3, updated_at=results.updated_at)
        assert [(each.verb, each.record) for each in applied.outcomes] == [(ChangeKind.UNDO, results)]
        report = await last_entry(ledger)
        assert (report.verb, report.undoes, report.by.why, report.version) == (
            ChangeKind.UNDO,
            line.id,
            "changed my mind",
            3,
        )
        assert (report.before, report.after) == (line.after, line.before)

    async def test_undo_of_an_add_forgets_it(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory())
        await ledger.undo(ANN, (await last_entry(ledger)).id, by=BY)
        assert (await now_of(ledger, one)).status is Status.FORGOTTEN

    async def test_undo_of_a_restore_forgets_it_again(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory())
        await change(ledger, Forget(one.id))
        await change(ledger, Restore(one.id))
        await ledger.undo(ANN, (await last_entry(ledger)).id, by=BY)
        assert (await now_of(ledger, one)).status is Status.FORGOTTEN

    @pytest.mark.parametrize("which", [ChangeKind.SUPERSEDE, ChangeKind.ADD])
    async def test_undo_of_superseding_restores_the_old_and_forgets_the_new(
        self, ledger: Ledger, which: ChangeKind
    ) -> None:
        (old,) = await add(ledger, memory("Paris", key="city"))
        fresh = memory("Rome", key="city")
        await change(ledger, Supersede(old.id, fresh), Add(memory("bystander")))
        about = old.id if which is ChangeKind.SUPERSEDE else fresh.id
        line = await last_entry(ledger, memory_id=about)
        assert line.verb is which
        await ledger.undo(ANN, line.id, by=BY)
        back = await now_of(ledger, old)
        assert (back.status, back.superseded_by, back.valid_to) == (Status.ACTIVE, None, None)
        assert (await now_of(ledger, fresh)).status is Status.FORGOTTEN
        assert await listed(ledger, ANN, statuses=(Status.ACTIVE,)) == {"Paris", "bystander"}

    async def test_superseding_by_what_was_there_already_leaves_that_when_undone(self, ledger: Ledger) -> None:
        old, there = await add(ledger, memory("tea"), memory("green tea"))
        await change(ledger, Supersede(old.id, memory("Green tea")))
        await ledger.undo(ANN, (await last_entry(ledger)).id, by=BY)
        assert {(await now_of(ledger, each)).status for each in (old, there)} == {Status.ACTIVE}

    @pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
    async def test_undo_of_an_undo_does_it_again(
        self, ledger: Ledger, step: Callable[[MemoryRecord], Change]
    ) -> None:
        (one,) = await add(ledger, memory(value="v", metadata={"a": 1}, expires_at=NOON))
        await change(ledger, step(one))
        done = await now_of(ledger, one)
        for _ in range(4):
            await ledger.undo(ANN, (await last_entry(ledger)).id, by=BY)
        repeated = await now_of(ledger, one)
        assert repeated == replace(done, version=6, updated_at=repeated.updated_at)

    @pytest.mark.parametrize("index", [0, 1])
    async def test_undo_of_the_undo_of_superseding_supersedes_again(self, ledger: Ledger, index: int) -> None:
        (old,) = await add(ledger, memory("Paris", key="city"))
        fresh = memory("Rome", key="city", valid_from=NOON)
        await change(ledger, Supersede(old.id, fresh))
        await ledger.undo(ANN, (await last_entry(ledger)).id, by=BY)
        undone = await ledger.history(ANN, limit=2)
        assert {line.verb for line in undone} == {ChangeKind.UNDO}
        await ledger.undo(ANN, undone[index].id, by=BY)
        ended = await now_of(ledger, old)
        assert (ended.status, ended.superseded_by, ended.valid_to) == (Status.SUPERSEDED, fresh.id, NOON)
        assert (await now_of(ledger, fresh)).status is Status.ACTIVE

    async def test_undo_is_refused_after_a_later_change_of_the_same_field(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory("tea"))
        await change(ledger, Update(one.id, {"content": "coffee"}))
        line = await last_entry(ledger)
        await change(ledger, Update(one.id, {"content": "water"}))
        with pytest.raises(Conflict, match="content"):
            await ledger.undo(ANN, line.id, by=BY)
        assert (await now_of(ledger, one)).content == "water"

    async def test_undo_goes_through_after_a_later_change_of_another_field(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory("tea"))
        await change(ledger, Update(one.id, {"content": "coffee"}))
        line = await last_entry(ledger)
        await change(ledger, Update(one.id, {"importance": 0.9}))
        await ledger.undo(ANN, line.id, by=BY)
        results = await now_of(ledger, one)
        assert (results.content, results.importance) == ("tea", 0.9)

    async def test_a_line_is_not_undone_twice(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory())
        await change(ledger, Update(one.id, {"value": "x"}))
        line = await last_entry(ledger)
        await ledger.undo(ANN, line.id, by=BY)
        with pytest.raises(Conflict):
            await ledger.undo(ANN, line.id, by=BY)

    async def test_undo_is_refused_where_the_words_were_taken_meanwhile(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory("tea"))
        await change(ledger, Update(one.id, {"content": "coffee"}))
        line = await last_entry(ledger)
        await add(ledger, memory("tea"))
        with pytest.raises(Conflict):
            await ledger.undo(ANN, line.id, by=BY)
        assert await listed(ledger, ANN) == {"tea", "coffee"}

    async def test_undo_of_one_line_leaves_the_rest_of_its_batch(self, ledger: Ledger) -> None:
        one, two = await add(ledger, memory("tea"), memory("milk"))
        await change(ledger, Update(one.id, {"value": "x"}), Update(two.id, {"value": "x"}))
        line = await last_entry(ledger, memory_id=one.id)
        await ledger.undo(ANN, line.id, by=BY)
        assert [each.value for each in await ledger.get(ANN, [one.id, two.id])] == [None, "x"]

    async def test_undo_can_be_asked_for_from_any_place_of_the_user(self, ledger: Ledger) -> None:
        await add(ledger, memory(scope=Scope("ann", "p", "s"), level=Level.SESSION))
        await ledger.undo(Scope("ann", "q"), (await last_entry(ledger)).id, by=BY)
        assert await ledger.count(ANN, Listing()) == 0


TALK = Scope("ann", "p", "monday")


async def derived_ids(ledger: Ledger, *turns: str, scope: Scope = ANN) -> dict[str, list[str]]:
    """The ids of the memories derived from each turn."""
    results = await ledger.derived(scope, turns)
    return {turn: [each.id for each in learned] for turn, learned in results.items()}


async def chain(ledger: Ledger, id: str, scope: Scope = ANN) -> list[str]:
    """The ids of a memory and of those that superseded it."""
    results = await ledger.succession(scope, [id])
    return [each.record.id for each in results.get(id, ())]


class TestEvidence:
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


DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)


async def contents_as_of(
    ledger: Ledger, as_of: datetime | None, *, scope: Scope = ANN, filter: Any = None
) -> set[str]:
    """The words of all that held then; matching and fetching must agree on them."""
    parsed = parse_filter(filter)
    _, rows = await ledger.index_rows(scope.user, model=MODEL, after=0)
    fetched = await ledger.fetch(scope, [row.row for row in rows], filter=parsed, as_of=as_of)
    assert {each.row for each in fetched} == set(await ledger.matching(scope, parsed, as_of=as_of))
    return {each.record.content for each in fetched}


class TestAsOf:
    """What held at a moment."""

    async def test_each_value_of_a_key_is_found_in_its_own_time(self, ledger: Ledger) -> None:
        for n, city in enumerate(("Oslo", "Rome", "Bern")):
            await add(ledger, memory(city, key="city", valid_from=NOON + n * DAY))
        assert await contents_as_of(ledger, NOON - TICK) == set()
        assert await contents_as_of(ledger, NOON) == await contents_as_of(ledger, NOON + DAY - TICK) == {"Oslo"}
        assert (
            await contents_as_of(ledger, NOON + DAY)
            == await contents_as_of(ledger, NOON + 2 * DAY - TICK)
            == {"Rome"}
        )
        assert (
            await contents_as_of(ledger, NOON + 2 * DAY) == await contents_as_of(ledger, NOON + 99 * DAY) == {"Bern"}
        )
        assert await contents_as_of(ledger, None) == {"Bern"}

    async def test_a_value_superseded_without_a_date_holds_until_it_was(self, ledger: Ledger) -> None:
        (old,) = await add(ledger, memory("Paris", key="city", created_at=now() - DAY))
        fresh = memory("Rome", key="city", created_at=now())
        await change(ledger, Supersede(old.id, fresh))
        ended = (await now_of(ledger, old)).valid_to
        assert ended is not None
        assert "Paris" in await contents_as_of(ledger, ended - TICK)
        assert await contents_as_of(ledger, ended) == {"Rome"}

    async def test_superseding_does_not_prolong_what_had_ended_before(self, ledger: Ledger) -> None:
        (old,) = await add(ledger, memory("has a lease in Paris", valid_to=NOON + DAY))
        await change(ledger, Supersede(old.id, memory("has a lease in Rome", valid_from=NOON + 9 * DAY)))
        assert (await now_of(ledger, old)).valid_to == NOON + DAY
        assert await contents_as_of(ledger, NOON + 2 * DAY) == set()

    async def test_superseding_cuts_short_what_was_to_hold_longer(self, ledger: Ledger) -> None:
        (old,) = await add(ledger, memory("has a lease in Paris", valid_to=NOON + 99 * DAY))
        await change(ledger, Supersede(old.id, memory("has a lease in Rome", valid_from=NOON + 9 * DAY)))
        assert await contents_as_of(ledger, NOON + 9 * DAY - TICK) == {"has a lease in Paris"}
        assert await contents_as_of(ledger, NOON + 9 * DAY) == {"has a lease in Rome"}

    async def test_every_way_to_stand_in_time_is_read_alike(self, ledger: Ledger) -> None:
        times = (None, NOON - DAY, NOON + DAY)
        fields = product(Status, (NOON, NOON + 2 * DAY), times, times, times, (NOON, NOON + DAY))
        names = ("status", "created_at", "valid_from", "valid_to", "expires_at", "updated_at")
        records = [
            memory(f"memory {n}", **dict(zip(names, each, strict=True)), occurred_at=NOON - 99 * DAY)
            for n, each in enumerate(fields)
        ]
        await add(ledger, *records)
        moments = [NOON + n * DAY + tick for n in (-1, 0, 1, 2) for tick in (-TICK, timedelta(0), TICK)]
        for moment in moments:
            expected = {record.content for record in records if valid_at(record, moment)}
            assert await contents_as_of(ledger, moment) == expected, moment
        assert await contents_as_of(ledger, moments[-1]) != await contents_as_of(ledger, moments[0])

    async def test_now_is_a_moment_like_any_other(self, ledger: Ledger) -> None:
        long_ago, far_off = NOON - 3650 * DAY, NOON + 36500 * DAY
        await add(
            ledger,
            memory("always"),
            memory("begun", valid_from=long_ago),
            memory("to come", valid_from=far_off),
            memory("over", valid_from=long_ago, valid_to=NOON - 3600 * DAY),
            memory("lasting", valid_to=far_off),
            memory("expired", expires_at=long_ago),
            memory("expiring", expires_at=far_off),
        )
        assert await contents_as_of(ledger, None) == {"always", "begun", "lasting", "expiring"}

    async def test_what_is_forgotten_is_gone_from_the_past_as_well(self, ledger: Ledger) -> None:
        old, fresh = memory("Paris", key="city"), memory("Rome", key="city", valid_from=NOON + DAY)
        await change(ledger, Add(old), Add(fresh))
        await change(ledger, Forget(old.id))
        assert await contents_as_of(ledger, NOON) == set()
        assert await contents_as_of(ledger, NOON + DAY) == {"Rome"}

    async def test_a_superseding_that_was_undone_never_was(self, ledger: Ledger) -> None:
        old, fresh = memory("Paris", key="city"), memory("Rome", key="city", valid_from=NOON + DAY)
        await change(ledger, Add(old))
        await change(ledger, Supersede(old.id, fresh))
        await ledger.undo(ANN, (await last_entry(ledger)).id, by=BY)
        assert await contents_as_of(ledger, NOON + 2 * DAY) == {"Paris"}

    async def test_a_restored_value_holds_on(self, ledger: Ledger) -> None:
        old, fresh = memory("Paris", key="city"), memory("Rome", key="city", valid_from=NOON + DAY)
        await change(ledger, Add(old), Add(fresh))
        await change(ledger, Forget(fresh.id), Restore(old.id))
        assert await contents_as_of(ledger, NOON + 2 * DAY) == {"Paris"}

    async def test_turns_hold_from_when_they_were_said(self, ledger: Ledger) -> None:
        session = Scope("ann", "", "s")
        later = turn("and later", said_at=NOON + DAY)
        await say(ledger, session, "at noon")
        await ledger.append(session, [later], vectors=[None], by=BY)
        assert await contents_as_of(ledger, NOON, scope=session) == {"at noon"}
        assert await contents_as_of(ledger, NOON + DAY, scope=session) == {"at noon", "and later"}

    async def test_scope_and_filter_count_in_the_past_too(self, ledger: Ledger) -> None:
        project = Scope("ann", "p")
        await add(ledger, memory("tea", tags=("hot",)), memory("milk", scope=project, level=Level.PROJECT))
        await add(ledger, memory("coffee", scope=BOB))
        assert await contents_as_of(ledger, NOON) == {"tea"}
        assert await contents_as_of(ledger, NOON, scope=project) == {"tea", "milk"}
        assert await contents_as_of(ledger, NOON, scope=project, filter={"tags": "hot"}) == {"tea"}
        assert await contents_as_of(ledger, NOON, filter={"not": {"tags": "hot"}}) == set()

    async def test_a_superseded_memory_keeps_its_vector_and_its_words(self, ledger: Ledger) -> None:
        old, fresh = memory("lives in Paris", key="city"), memory("lives in Rome", key="city", valid_from=NOON + DAY)
        await change(ledger, Add(old, direction(1)))
        row = await row_of(ledger, old)
        await change(ledger, Supersede(old.id, fresh, vector=direction(2)))
        _, rows = await ledger.index_rows("ann", model=MODEL, after=0)
        assert {each.row: each.vector for each in rows}[row] == direction(1).astype("<f2").tobytes()
        assert (await ledger.lexical(ANN, "Paris")).rows.tolist() == [row]
        await ledger.rebuild_terms()
        assert (await ledger.lexical(ANN, "Paris")).rows.tolist() == [row]
        results = await ledger.fetch(ANN, [row], filter=EVERYTHING, as_of=NOON)
        assert [each.record for each in results] == [await now_of(ledger, old)]
        assert await ledger.fetch(ANN, [row], filter=EVERYTHING) == []

    async def test_what_was_changed_since_a_moment_is_told_with_all_its_lines(self, ledger: Ledger) -> None:
        one, two, _ = await add(ledger, memory("one"), memory("two"), memory("three"))
        await add(ledger, memory("bob's", id="bobs", scope=BOB))
        before = now()
        await change(ledger, Update(one.id, {"content": "one more"}))
        middle = (await last_entry(ledger)).at
        (late,) = await add(ledger, memory("late"))
        await change(ledger, Forget(late.id), Forget(two.id), Update(one.id, {"content": "one"}))
        lines = await ledger.changes_since("ann", before - DAY)
        assert {line.memory_id for line in lines} == {one.id, two.id, late.id}
        assert [line.id for line in lines] == sorted(line.id for line in lines)
        since = await ledger.changes_since("ann", middle)
        assert [str(line.verb) for line in since] == ["add", "forget", "forget", "update"]
        assert await ledger.changes_since("ann", now() + DAY) == await ledger.changes_since("bob", before - DAY) == []

    async def test_a_moment_of_another_zone_is_the_same_moment(self, ledger: Ledger) -> None:
        await add(ledger, memory("tea", valid_to=NOON + DAY))
        for hours in (-8, 0, 5.5, 14):
            local = (NOON + DAY).astimezone(timezone(timedelta(hours=hours)))
            assert await contents_as_of(ledger, local - TICK) == {"tea"}
            assert await contents_as_of(ledger, local) == set()
