"""Vectors beside the memories, and what an index is told of them."""

from __future__ import annotations

import numpy as np
import pytest

from recollect.errors import InvalidInput
from recollect.ledger.protocol import IndexRow, Ledger
from recollect.model.change import Add, Forget, Supersede, Update
from recollect.model.scope import Level, Scope
from recollect.testing.suite_samples import (
    ANN,
    BOB,
    BY,
    MODEL,
    OTHER_MODEL,
    add,
    change,
    direction,
    last_entry,
    memory,
    now_of,
    row_of,
    turn,
)


class VectorSuite:
    """Vectors, revisions, and the rows that changed."""

    async def test_a_vector_comes_back_to_half_precision(self, ledger: Ledger) -> None:
        vector = np.random.default_rng(7).normal(size=MODEL.dimensions).astype(np.float32)
        vector /= np.linalg.norm(vector)
        await change(ledger, Add(memory(), vector))
        (row,) = await _rows(ledger)
        assert row.vector is not None
        assert np.frombuffer(row.vector, "<f2").astype(np.float32) == pytest.approx(vector, abs=1e-3)

    async def test_vectors_are_given_by_the_ids_of_their_memories_to_their_user_alone(self, ledger: Ledger) -> None:
        one, two = memory("one"), memory("two")
        await change(ledger, Add(one, direction(1)), Add(two))
        (row,) = [row for row in await _rows(ledger) if row.vector]
        ids = [one.id, two.id, "nothing"]
        assert await ledger.vectors("ann", ids, model=MODEL) == {one.id: row.vector}
        assert await ledger.vectors("bob", ids, model=MODEL) == {}
        assert await ledger.vectors("ann", ids, model=OTHER_MODEL) == {}

    async def test_an_index_row_says_where_the_memory_lives_and_how_it_stands(self, ledger: Ledger) -> None:
        record = memory(scope=Scope("ann", "p", "s"), level=Level.SESSION)
        await change(ledger, Add(record))
        (row,) = await _rows(ledger)
        assert (row.visibility_key, row.status, row.vector) == (record.visibility_key, "active", None)

    async def test_rows_are_numbered_once_and_stay(self, ledger: Ledger) -> None:
        one, two = await add(ledger, memory("one"), memory("two"))
        numbers = {await row_of(ledger, one), await row_of(ledger, two)}
        await change(ledger, Update(one.id, {"content": "three"}), Forget(two.id))
        await add(ledger, memory("four"))
        assert numbers < {row.row for row in await _rows(ledger)}
        assert len(await _rows(ledger)) == 3

    async def test_every_write_makes_a_new_revision(self, ledger: Ledger) -> None:
        seen = [await ledger.revision("ann")]
        (one,) = await add(ledger, memory())
        seen.append(await ledger.revision("ann"))
        await change(ledger, Update(one.id, {"importance": 1.0}))
        seen.append(await ledger.revision("ann"))
        await ledger.undo(ANN, (await last_entry(ledger)).id, by=BY)
        seen.append(await ledger.revision("ann"))
        await ledger.append(Scope("ann", "", "s"), [turn("hello")], vectors=[None], by=BY)
        seen.append(await ledger.revision("ann"))
        await ledger.embed(MODEL, {await row_of(ledger, one): direction(1)}, user="ann")
        seen.append(await ledger.revision("ann"))
        numbers = [each.number for each in seen]
        assert numbers == sorted(set(numbers))
        assert {each.epoch for each in seen} == {0}

    async def test_another_users_write_makes_no_revision(self, ledger: Ledger) -> None:
        await add(ledger, memory())
        before = await ledger.revision("ann")
        await add(ledger, memory(scope=BOB))
        assert await ledger.revision("ann") == before

    async def test_a_failed_write_makes_no_revision(self, ledger: Ledger) -> None:
        await add(ledger, memory())
        before = await ledger.revision("ann")
        with pytest.raises(InvalidInput):
            await change(ledger, Add(memory("x")), Update("y", {"colour": 1}))
        assert await ledger.revision("ann") == before

    async def test_index_rows_are_those_changed_since_a_revision(self, ledger: Ledger) -> None:
        one, two, three = await add(ledger, memory("one"), memory("two"), memory("three"))
        rows = {each.content: await row_of(ledger, each) for each in (one, two, three)}
        revision, all_rows = await ledger.index_rows("ann", model=MODEL, after=0)
        assert {row.row for row in all_rows} == set(rows.values())
        assert revision == await ledger.revision("ann")
        assert await ledger.index_rows("ann", model=MODEL, after=revision.number) == (revision, [])
        await change(ledger, Forget(two.id))
        newer, changed = await ledger.index_rows("ann", model=MODEL, after=revision.number)
        assert [(row.row, row.status) for row in changed] == [(rows["two"], "forgotten")]
        assert newer.number > revision.number

    async def test_superseding_changes_both_rows(self, ledger: Ledger) -> None:
        (old,) = await add(ledger, memory("Paris", key="city"))
        revision = await ledger.revision("ann")
        await change(ledger, Supersede(old.id, memory("Rome", key="city"), vector=direction(1)))
        _, changed = await ledger.index_rows("ann", model=MODEL, after=revision.number)
        assert sorted((row.status, row.vector is not None) for row in changed) == [
            ("active", True),
            ("superseded", False),
        ]

    async def test_a_touch_changes_no_row_for_an_index(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory())
        revision = await ledger.revision("ann")
        await ledger.touch(ANN, [one.id], at=one.created_at)
        assert await ledger.index_rows("ann", model=MODEL, after=revision.number) == (revision, [])

    async def test_a_changed_text_drops_its_vector(self, ledger: Ledger) -> None:
        record = memory("tea")
        await change(ledger, Add(record, direction(1)))
        await ledger.embed(OTHER_MODEL, {await row_of(ledger, record): direction(1, OTHER_MODEL)}, user="ann")
        await change(ledger, Update(record.id, {"content": "coffee"}))
        assert [row.vector for row in await _rows(ledger)] == [None]
        assert [each.content for each in await ledger.unembedded(MODEL, limit=9)] == ["coffee"]
        assert [each.content for each in await ledger.unembedded(OTHER_MODEL, limit=9)] == ["coffee"]

    async def test_a_changed_text_takes_the_vector_that_comes_with_it(self, ledger: Ledger) -> None:
        record = memory("tea")
        await change(ledger, Add(record, direction(1)))
        await change(ledger, Update(record.id, {"content": "coffee"}, vector=direction(2)))
        assert [row.vector for row in await _rows(ledger)] == [direction(2).astype("<f2").tobytes()]

    async def test_a_text_changed_twice_in_a_batch_keeps_no_vector_of_the_first(self, ledger: Ledger) -> None:
        record = memory("tea")
        await change(ledger, Add(record, direction(1)), Update(record.id, {"content": "coffee"}))
        assert [row.vector for row in await _rows(ledger)] == [None]
        await change(
            ledger,
            Update(record.id, {"content": "milk"}, vector=direction(2)),
            Update(record.id, {"content": "water"}),
        )
        assert [row.vector for row in await _rows(ledger)] == [None]

    async def test_a_change_of_something_else_keeps_the_vector(self, ledger: Ledger) -> None:
        record = memory("tea")
        await change(ledger, Add(record, direction(1)))
        await change(ledger, Update(record.id, {"importance": 0.9}), Forget(record.id))
        assert [row.vector for row in await _rows(ledger)] == [direction(1).astype("<f2").tobytes()]

    async def test_undoing_a_change_of_text_drops_the_vector_of_the_new_one(self, ledger: Ledger) -> None:
        record = memory("tea")
        await change(ledger, Add(record, direction(1)))
        await change(ledger, Update(record.id, {"content": "coffee"}, vector=direction(2)))
        await ledger.undo(ANN, (await last_entry(ledger)).id, by=BY)
        assert [row.vector for row in await _rows(ledger)] == [None]

    async def test_a_fact_said_again_keeps_the_vector_it_has(self, ledger: Ledger) -> None:
        await change(ledger, Add(memory("tea"), direction(1)))
        await change(ledger, Add(memory("TEA"), direction(2)))
        assert [row.vector for row in await _rows(ledger)] == [direction(1).astype("<f2").tobytes()]

    async def test_turns_keep_their_vectors(self, ledger: Ledger) -> None:
        vectors = [direction(1), None]
        await ledger.append(Scope("ann", "", "s"), [turn("tea"), turn("milk")], vectors=vectors, by=BY)
        assert sorted(row.vector is not None for row in await _rows(ledger)) == [False, True]

    async def test_a_vector_of_the_wrong_length_is_refused_and_leaves_nothing(self, ledger: Ledger) -> None:
        with pytest.raises(InvalidInput):
            await change(ledger, Add(memory(), direction(1, OTHER_MODEL)))
        assert await ledger.users() == []

    async def test_vectors_made_later_are_kept_and_told_to_indexes(self, ledger: Ledger) -> None:
        one, _ = await add(ledger, memory("one"), memory("two"))
        revision = await ledger.revision("ann")
        row = await row_of(ledger, one)
        await ledger.embed(MODEL, {row: direction(3)}, user="ann")
        _, changed = await ledger.index_rows("ann", model=MODEL, after=revision.number)
        assert [(each.row, each.vector) for each in changed] == [(row, direction(3).astype("<f2").tobytes())]
        assert await now_of(ledger, one) == one

    async def test_a_vector_for_a_row_that_is_not_there_is_let_go(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory())
        await ledger.embed(MODEL, {await row_of(ledger, one) + 1000: direction(1)}, user="ann")
        await ledger.embed(MODEL, {1: direction(1)}, user="nobody")
        assert sum((await ledger.models()).values()) == 0
        assert await ledger.users() == ["ann"]

    async def test_what_lacks_a_vector_is_paged_in_order_of_rows(self, ledger: Ledger) -> None:
        hers = await add(ledger, *(memory(f"tea {n}") for n in range(5)))
        await add(ledger, memory("bob's", scope=BOB))
        await ledger.embed(MODEL, {await row_of(ledger, hers[1]): direction(1)}, user="ann")
        seen = []
        after = 0
        while page := await ledger.unembedded(MODEL, limit=2, after=after):
            assert len(page) <= 2
            seen += page
            after = page[-1].row
        assert [(each.user, each.content) for each in seen] == [
            ("ann", "tea 0"), ("ann", "tea 2"), ("ann", "tea 3"), ("ann", "tea 4"), ("bob", "bob's"),
        ]  # fmt: skip

    async def test_models_are_counted_each_on_its_own(self, ledger: Ledger) -> None:
        one, two = memory("one"), memory("two")
        await change(ledger, Add(one, direction(1)), Add(two, direction(2)))
        await ledger.embed(OTHER_MODEL, {await row_of(ledger, one): direction(1, OTHER_MODEL)}, user="ann")
        assert await ledger.models() == {MODEL: 2, OTHER_MODEL: 1}
        assert len(await ledger.unembedded(OTHER_MODEL, limit=9)) == 1
        _, rows = await ledger.index_rows("ann", model=OTHER_MODEL, after=0)
        assert sorted(len(row.vector or b"") for row in rows) == [0, OTHER_MODEL.dimensions * 2]

    async def test_a_model_that_is_dropped_leaves_no_vectors(self, ledger: Ledger) -> None:
        record = memory()
        await change(ledger, Add(record, direction(1)))
        await ledger.embed(OTHER_MODEL, {await row_of(ledger, record): direction(1, OTHER_MODEL)}, user="ann")
        await ledger.drop_model(MODEL)
        await ledger.drop_model(MODEL)
        assert await ledger.models() == {OTHER_MODEL: 1}
        assert [row.vector for row in await _rows(ledger)] == [None]
        assert await ledger.get(ANN, [record.id]) == [record]


async def _rows(ledger: Ledger) -> list[IndexRow]:
    return (await ledger.index_rows("ann", model=MODEL, after=0))[1]
