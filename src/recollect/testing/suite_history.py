"""Every step of a memory's life is history, and history can be taken back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recollect.errors import Conflict
from recollect.ledger.protocol import Ledger
from recollect.model.change import Add, Author, Change, ChangeKind, Forget, HistoryEntry, Restore, Supersede, Update
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import Listing
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.testing.suite_samples import (
    ANN,
    BOB,
    BY,
    NOON,
    ODD_TEXTS,
    add,
    change,
    full_memory,
    last_entry,
    listed,
    memory,
    now_of,
)

STEPS: dict[str, Callable[[MemoryRecord], Change]] = {
    "update": lambda one: Update(one.id, {"content": "coffee", "tags": ["a"], "valid_from": NOON, "importance": 0.9}),
    "unset": lambda one: Update(one.id, {"value": None, "metadata": {}, "expires_at": None}),
    "forget": lambda one: Forget(one.id),
    "status": lambda one: Update(one.id, {"status": "review"}),
}


class HistorySuite:
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

    @pytest.mark.parametrize("limit", [1, 2, 3, 10])
    async def test_history_is_paged_without_gaps_and_repeats(self, ledger: Ledger, limit: int) -> None:
        for n in range(7):
            await add(ledger, memory(f"tea {n}"))
            await add(ledger, memory(f"tea {n}", scope=BOB))
        whole = await ledger.history(ANN)
        pages: list[HistoryEntry] = []
        before: int | None = None
        while page := await ledger.history(ANN, limit=limit, before=before):
            assert len(page) <= limit
            pages += page
            before = page[-1].id
        assert pages == whole
        assert len(whole) == 7

    @pytest.mark.parametrize("limit", [1, 3, 10])
    async def test_history_is_followed_from_a_line_on_oldest_first(self, ledger: Ledger, limit: int) -> None:
        for n in range(5):
            await add(ledger, memory(f"tea {n}"))
            await add(ledger, memory(f"tea {n}", scope=BOB))
        whole = (await ledger.history(ANN))[::-1]
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

    @pytest.mark.parametrize("before", [0, -1, 10**30])
    async def test_paging_from_a_line_that_cannot_be_is_no_error(self, ledger: Ledger, before: int) -> None:
        await add(ledger, memory())
        assert len(await ledger.history(ANN, before=before)) == (1 if before > 0 else 0)

    async def test_history_of_a_place_holds_what_belongs_to_it(self, ledger: Ledger) -> None:
        here = memory("here", scope=Scope("ann", "p"), level=Level.PROJECT)
        await add(ledger, here, memory("elsewhere", scope=Scope("ann", "q"), level=Level.PROJECT))
        assert [line.memory_id for line in await ledger.history(Scope("ann", "p"))] == [here.id]

    @pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
    async def test_history_keeps_any_text_and_undo_brings_it_back(self, ledger: Ledger, text: str) -> None:
        odd = full_memory(text, status=Status.ACTIVE)
        await add(ledger, odd)
        names = ("content", "key", "value", "source", "tags", "evidence", "metadata", "detail", "superseded_by")
        plain: dict[str, Any] = dict.fromkeys(names, "plain") | {
            "tags": [],
            "evidence": [],
            "metadata": {},
            "detail": {},
        }
        await ledger.apply(ANN, [Update(odd.id, plain)], by=Author(text, text))
        line = await last_entry(ledger)
        assert line.by == Author(text, text)
        await ledger.undo(ANN, line.id, by=BY)
        results = await now_of(ledger, odd)
        assert {name: getattr(results, name) for name in names} == {name: getattr(odd, name) for name in names}

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
