"""Vectors beside the memories, and what an index is told of them."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from recollect.errors import InvalidInput
from recollect.ledger.ledger import Ledger
from recollect.ledger.types import (
    EmbeddingProgress,
    FeedPosition,
    IndexRow,
    ModelOrigin,
    Revision,
    current_model_state,
    find_model_state,
)
from recollect.model.change import Add, Forget, Supersede, Update
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.memory import Category
from recollect.model.scope import Level, Scope
from recollect.model.times import now, to_micros
from recollect.model.turn import Role
from recollect.models.traits import Trait, compute_traits, trait_flags, trait_word_count
from tests.support.ledger_samples import (
    ANN,
    BOB,
    BY,
    MODEL,
    NOON,
    OTHER_MODEL,
    Open,
    add,
    change,
    direction,
    last_entry,
    memory,
    now_of,
    row_of,
    turn,
)


class TestVector:
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

    async def test_a_vector_for_an_unknown_row_is_dropped(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory())
        await ledger.embed(MODEL, {await row_of(ledger, one) + 1000: direction(1)}, user="ann")
        await ledger.embed(MODEL, {1: direction(1)}, user="nobody")
        assert sum((await ledger.models()).values()) == 0
        assert await ledger.users() == ["ann"]

    async def test_memories_without_a_vector_are_paged_in_order_of_rows(self, ledger: Ledger) -> None:
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


SESSION = Scope("ann", "p", "s")


class TestTrait:
    """Traits, speakers, sessions and times of rows."""

    async def test_a_turn_is_told_with_its_session_its_speaker_and_what_it_is_like(self, ledger: Ledger) -> None:
        turns = [
            turn("I prefer tea", name="  Ann  LEE "),
            turn("Which tea?", role=Role.ASSISTANT, said_at=NOON + timedelta(seconds=1)),
        ]
        await ledger.append(SESSION, turns, vectors=[None, None], by=BY)
        first, second = await rows_of(ledger)
        assert (first.session, first.speaker, first.at) == ("s", "ann lee", to_micros(NOON))
        assert (second.session, second.speaker, second.at) == ("s", "", to_micros(NOON + timedelta(seconds=1)))
        expected = Trait.TURN | Trait.USER | Trait.FIRST_PERSON | Trait.PREFERS
        assert trait_flags(first.traits) == expected
        assert trait_flags(second.traits) == Trait.TURN | Trait.ASSISTANT | Trait.ASKS
        assert (trait_word_count(first.traits), trait_word_count(second.traits)) == (3, 2)

    async def test_a_memory_is_told_with_when_it_happened(self, ledger: Ledger) -> None:
        happened = NOON - timedelta(days=400)
        await add(ledger, memory("one"), memory("two", occurred_at=happened))
        one, two = await rows_of(ledger)
        assert (one.at, two.at) == (to_micros(NOON), to_micros(happened))
        assert (one.session, one.speaker) == ("", "")

    async def test_traits_are_the_same_in_every_ledger(self, ledger: Ledger) -> None:
        texts = ("Always use metric units", "我喜欢绿茶", "x " * 70_000, "Am I late?", "٣ كتب", "🍵")
        records = await add(ledger, *(memory(text) for text in texts))
        assert [row.traits for row in await rows_of(ledger)] == [compute_traits(record) for record in records]

    async def test_a_changed_text_changes_its_traits_and_undoing_changes_them_back(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory("I prefer tea"))
        before = await rows_of(ledger)
        await change(ledger, Update(one.id, {"content": "Is it 5 already?"}))
        [row] = await rows_of(ledger)
        assert trait_flags(row.traits) == Trait.ASKS | Trait.COUNTS
        assert trait_word_count(row.traits) == 4
        await ledger.undo(ANN, (await last_entry(ledger)).id, by=BY)
        assert await rows_of(ledger) == before

    async def test_a_memory_is_told_with_the_bounds_within_which_it_may_be_found(self, ledger: Ledger) -> None:
        soon, later = NOON + timedelta(days=1), NOON + timedelta(days=2)
        await add(
            ledger,
            memory("none"),
            memory("from", valid_from=soon),
            memory("to", valid_to=soon),
            memory("expiring", expires_at=soon),
            memory("to and expiring", valid_to=soon, expires_at=later),
            memory("expiring and to", valid_to=later, expires_at=soon),
        )
        report = [(row.begins, row.ends) for row in await rows_of(ledger)]
        at = to_micros(soon)
        assert report == [(None, None), (at, None), (None, at), (None, at), (None, at), (None, at)]

    async def test_a_change_of_time_is_told(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory("tea"))
        revision = await ledger.revision("ann")
        await change(ledger, Update(one.id, {"occurred_at": NOON - timedelta(days=1)}))
        _, [row] = await ledger.index_rows("ann", model=MODEL, after=revision.number)
        assert row.at == to_micros(NOON - timedelta(days=1))

    async def test_what_is_no_turn_has_no_speaker_whatever_its_detail_says(self, ledger: Ledger) -> None:
        await add(ledger, memory("tea", category=Category.EVENT, detail={"role": "user", "name": "Ann"}))
        [row] = await rows_of(ledger)
        assert (trait_flags(row.traits), row.speaker) == (Trait.NONE, "")

    async def test_a_full_text_made_anew_leaves_every_row_as_it_was(self, ledger: Ledger) -> None:
        await ledger.append(SESSION, [turn("I prefer tea", name="Ann")], vectors=[None], by=BY)
        await add(ledger, memory("Is it 5?", importance=0.7), memory("milk"))
        before = await rows_of(ledger)
        await ledger.rebuild_terms(lambda done: None)
        assert await rows_of(ledger) == before


async def rows_of(ledger: Ledger) -> list[IndexRow]:
    """All rows of Ann, in order."""
    return sorted((await ledger.index_rows("ann", model=MODEL, after=0))[1], key=lambda row: row.row)


INDEX, OTHER = "milvus one", "milvus two"


class TestFeed:
    """Feeding an index."""

    async def test_rows_are_counted_up_to_what_one_wants_to_know(self, ledger: Ledger) -> None:
        assert await ledger.row_count("ann", max_count=10) == 0
        await add(ledger, memory("one"), memory("two"), memory("three"))
        await add(ledger, memory(scope=BOB))
        revision = await ledger.revision("ann")
        await add(ledger, memory("four"))
        assert await ledger.row_count("ann", max_count=10) == 4
        assert await ledger.row_count("ann", max_count=2) == 2
        assert await ledger.row_count("ann", max_count=10, after=revision.number) == 1

    async def test_rows_without_vectors_still_tell_whether_there_is_one(self, ledger: Ledger) -> None:
        await change(ledger, Add(memory("one"), direction(1)), Add(memory("two")))
        whole = await ledger.index_rows("ann", model=MODEL, after=0)
        light = await ledger.index_rows("ann", model=MODEL, after=0, vectors=False)
        assert [(row.row, row.vector is None) for row in light[1]] == [
            (row.row, row.vector is None) for row in whole[1]
        ]
        assert {row.vector for row in light[1]} == {None, b""}
        assert light[0] == whole[0]

    async def test_vectors_are_those_of_the_user_and_the_model(self, ledger: Ledger) -> None:
        await change(ledger, Add(memory("one"), direction(1)), Add(memory("two")))
        await change(ledger, Add(memory("hers", scope=BOB), direction(2)), scope=BOB)
        rows = {row.row: row.vector for row in (await ledger.index_rows("ann", model=MODEL, after=0))[1]}
        (hers,) = (row.row for row in (await ledger.index_rows("bob", model=MODEL, after=0))[1])
        results = await ledger.vectors_of("ann", [*rows, hers, 10**9], model=MODEL)
        assert results == {row: vector for row, vector in rows.items() if vector is not None}
        assert len(results) == 1
        assert await ledger.vectors_of("ann", list(rows), model=OTHER_MODEL) == {}
        assert await ledger.vectors_of("ann", [], model=MODEL) == {}

    async def test_changed_rows_come_page_by_page_in_the_order_of_their_changes(self, ledger: Ledger) -> None:
        records = [memory(f"number {n}") for n in range(5)]
        await change(ledger, *(Add(record, direction(n)) for n, record in enumerate(records)))
        rows = [await row_of(ledger, record) for record in records]
        await change(ledger, Update(records[1].id, {"importance": 0.9}), Forget(records[3].id))
        seen, after = [], (0, 0)
        while page := await ledger.changed_rows("ann", model=MODEL, after=after, limit=2):
            seen += page
            after = (page[-1].revision, page[-1].row.row)
        assert [each.row.row for each in seen] == [rows[0], rows[2], rows[4], rows[1], rows[3]]
        assert [each.row.status for each in seen][-1] == "forgotten"
        assert seen[-1].revision == (await ledger.revision("ann")).number
        assert all(each.row.vector for each in seen[:3])
        assert await ledger.changed_rows("bob", model=MODEL, after=(0, 0), limit=2) == []

    async def test_lagging_users_are_listed_until_their_position_is_saved(self, ledger: Ledger) -> None:
        await add(ledger, memory())
        await add(ledger, memory(scope=BOB))
        assert [each.user for each in await ledger.lagging_users(INDEX, limit=10)] == ["ann", "bob"]
        assert [each.user for each in await ledger.lagging_users(INDEX, limit=1)] == ["ann"]
        assert [each.user for each in await ledger.lagging_users(INDEX, limit=10, after="ann")] == ["bob"]
        ann = await ledger.revision("ann")
        assert await ledger.lease_feed(INDEX, feeder="one", lease_s=60)
        assert await ledger.save_feed_positions(INDEX, {"ann": ann}, feeder="one")
        assert (await ledger.feed_position("ann", index=INDEX)).revision == ann
        assert (
            await ledger.feed_position("ann", index=OTHER)
            == await ledger.feed_position("bob", index=INDEX)
            == FeedPosition()
        )
        assert [each.user for each in await ledger.lagging_users(INDEX, limit=10)] == ["bob"]
        assert len(await ledger.lagging_users(OTHER, limit=10)) == 2
        await add(ledger, memory("more"))
        [first, _] = await ledger.lagging_users(INDEX, limit=10)
        assert (first.user, first.indexed, first.current) == ("ann", ann, await ledger.revision("ann"))
        await ledger.reset_feed(INDEX)
        assert await ledger.feed_position("ann", index=INDEX) == FeedPosition()

    async def test_an_erasure_leaves_an_index_behind_even_where_nothing_else_changed(self, ledger: Ledger) -> None:
        one, _ = await add(ledger, memory("one"), memory("two"))
        await ledger.lease_feed(INDEX, feeder="one", lease_s=60)
        await ledger.save_feed_positions(INDEX, {"ann": await ledger.revision("ann")}, feeder="one")
        assert await ledger.lagging_users(INDEX, limit=10) == []
        await ledger.erase(ANN, ErasureRequest(Target.MEMORY, one.id), by=BY)
        [lagging] = await ledger.lagging_users(INDEX, limit=10)
        assert lagging.indexed.epoch != lagging.current.epoch

    async def test_feed_positions_are_erased_with_the_user(self, ledger: Ledger) -> None:
        await add(ledger, memory())
        revision = await ledger.revision("ann")
        await ledger.lease_feed(INDEX, feeder="one", lease_s=60)
        await ledger.save_feed_positions(INDEX, {"ann": revision}, feeder="one")
        await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
        assert await ledger.feed_position("ann", index=INDEX) == FeedPosition()
        # One who was feeding meanwhile brings nobody back.
        assert await ledger.save_feed_positions(INDEX, {"ann": revision}, feeder="one")
        assert await ledger.feed_position("ann", index=INDEX) == FeedPosition()
        assert await ledger.users() == []

    async def test_one_feeds_at_a_time(self, ledger: Ledger) -> None:
        await add(ledger, memory())
        assert await ledger.lease_feed(INDEX, feeder="one", lease_s=60)
        assert await ledger.lease_feed(INDEX, feeder="one", lease_s=60)
        assert not await ledger.lease_feed(INDEX, feeder="two", lease_s=60)
        assert await ledger.lease_feed(OTHER, feeder="two", lease_s=60)
        assert not await ledger.save_feed_positions(INDEX, {"ann": Revision(1)}, feeder="two")
        assert await ledger.feed_position("ann", index=INDEX) == FeedPosition()

    async def test_an_expired_lease_of_a_feed_can_be_taken_over(self, ledger: Ledger) -> None:
        await add(ledger, memory())
        assert await ledger.lease_feed(INDEX, feeder="one", lease_s=-1)
        assert await ledger.lease_feed(INDEX, feeder="two", lease_s=60)
        assert not await ledger.lease_feed(INDEX, feeder="one", lease_s=60)
        assert not await ledger.save_feed_positions(INDEX, {"ann": Revision(1)}, feeder="one")
        assert await ledger.save_feed_positions(INDEX, {"ann": Revision(1)}, feeder="two")
        assert await ledger.lease_feed(INDEX, feeder="three", lease_s=60, take=True)
        assert not await ledger.lease_feed(INDEX, feeder="two", lease_s=60)

    async def test_the_visible_revision_advances_under_continuous_writes(self, ledger: Ledger) -> None:
        await add(ledger, memory())
        await ledger.lease_feed(INDEX, feeder="one", lease_s=60)
        second, fed = 1_000_000, []
        for number in range(1, 6):
            await ledger.save_feed_positions(INDEX, {"ann": Revision(number)}, feeder="one", settles_s=10)
            fed.append(await ledger.feed_position("ann", index=INDEX))
        first, last = fed[0], fed[-1]
        assert last.revision == Revision(5)
        assert last.visible_revision(10, at=last.noted_at + second) == 0
        assert last.visible_revision(10, at=first.noted_at + 11 * second) in (1, 5)
        assert last.visible_revision(10, at=last.noted_at + 11 * second) == 5
        # As it would be noted much later, with another note just before.
        busy = last.advanced_to(Revision(6), 10, at=last.noted_at + 11 * second)
        assert (
            busy.visible_revision(10, at=busy.noted_at),
            busy.visible_revision(10, at=busy.noted_at + 11 * second),
        ) == (5, 6)
        busier = busy.advanced_to(Revision(7), 10, at=busy.noted_at + 9 * second)
        assert busier.visible_revision(10, at=busy.noted_at + 11 * second) == 6
        assert (
            busier.advanced_to(Revision(1), 10, at=busier.noted_at).visible_revision(10, at=busier.noted_at + second)
            == 0
        )


ORIGIN = ModelOrigin("openai:old", "http://127.0.0.1:1/v1", 8)
OTHER_ORIGIN = ModelOrigin("bundled")


class TestModel:
    """The model that is searched, and the change to another."""

    async def test_a_new_ledger_knows_no_model(self, ledger: Ledger) -> None:
        assert await ledger.model_states() == []

    async def test_the_first_model_becomes_the_one_that_is_searched(self, ledger: Ledger) -> None:
        made = await ledger.make_current(MODEL, ORIGIN, replacing=None)
        assert (made.model, made.origin, made.is_current, made.retired_at) == (MODEL, ORIGIN, True, None)
        assert made.current_at is not None
        assert abs(made.current_at - now()) < timedelta(minutes=5)
        assert await ledger.model_states() == [made]

    async def test_another_model_takes_the_place_of_the_one_that_is_named(self, ledger: Ledger) -> None:
        await ledger.make_current(MODEL, ORIGIN, replacing=None)
        made = await ledger.make_current(OTHER_MODEL, OTHER_ORIGIN, replacing=MODEL)
        assert (made.model, made.origin) == (OTHER_MODEL, OTHER_ORIGIN)
        states = await ledger.model_states()
        assert current_model_state(states) == made
        old = find_model_state(states, MODEL)
        assert old is not None
        assert not old.is_current
        assert old.retired_at is not None
        assert old.origin == ORIGIN

    async def test_the_second_of_two_concurrent_models_changes_nothing(self, ledger: Ledger) -> None:
        await ledger.make_current(MODEL, ORIGIN, replacing=None)
        report = await ledger.make_current(OTHER_MODEL, OTHER_ORIGIN, replacing=None)
        assert report.model == MODEL
        await ledger.make_current(OTHER_MODEL, OTHER_ORIGIN, replacing=MODEL)
        report = await ledger.make_current(MODEL, ORIGIN, replacing=MODEL)
        assert report.model == OTHER_MODEL

    async def test_a_model_that_was_retired_can_come_back(self, ledger: Ledger) -> None:
        await ledger.make_current(MODEL, ORIGIN, replacing=None)
        await ledger.make_current(OTHER_MODEL, OTHER_ORIGIN, replacing=MODEL)
        made = await ledger.make_current(MODEL, ORIGIN, replacing=OTHER_MODEL)
        assert (made.model, made.retired_at) == (MODEL, None)
        other = find_model_state(await ledger.model_states(), OTHER_MODEL)
        assert other is not None
        assert other.retired_at is not None

    async def test_making_the_current_model_current_again_records_its_origin(self, ledger: Ledger) -> None:
        made = await ledger.make_current(MODEL, ORIGIN, replacing=None)
        repeated = await ledger.make_current(MODEL, OTHER_ORIGIN, replacing=MODEL)
        assert repeated.origin == OTHER_ORIGIN
        assert repeated.current_at == made.current_at

    async def test_one_process_at_a_time_computes_the_vectors_of_a_model(self, ledger: Ledger) -> None:
        assert await ledger.lease_model(MODEL, ORIGIN, owner="a", lease_s=60)
        assert await ledger.lease_model(MODEL, ORIGIN, owner="a", lease_s=60)
        assert not await ledger.lease_model(MODEL, ORIGIN, owner="b", lease_s=60)
        assert await ledger.lease_model(OTHER_MODEL, ORIGIN, owner="b", lease_s=60)
        await ledger.lease_model(MODEL, ORIGIN, owner="a", lease_s=0)
        assert await ledger.lease_model(MODEL, ORIGIN, owner="b", lease_s=60)

    async def test_the_lease_of_a_model_records_its_progress(self, ledger: Ledger) -> None:
        await ledger.make_current(MODEL, ORIGIN, replacing=None)
        await ledger.lease_model(OTHER_MODEL, OTHER_ORIGIN, owner="a", lease_s=60, progress=EmbeddingProgress(3, 10))
        await ledger.lease_model(OTHER_MODEL, OTHER_ORIGIN, owner="b", lease_s=60, progress=EmbeddingProgress(9, 10))
        await ledger.lease_model(OTHER_MODEL, OTHER_ORIGIN, owner="a", lease_s=60)
        states = await ledger.model_states()
        state = find_model_state(states, OTHER_MODEL)
        assert state is not None
        assert (state.embedded, state.to_embed, state.origin) == (3, 10, OTHER_ORIGIN)
        assert state.lease_expires_at is not None
        assert state.lease_expires_at > now()
        current = current_model_state(states)
        assert current is not None
        assert current.model == MODEL

    async def test_vectors_are_counted_beside_the_memories_that_lack_one(self, ledger: Ledger) -> None:
        assert await ledger.count_embedded(OTHER_MODEL) == EmbeddingProgress(0, 0)
        await change(ledger, Add(memory("one"), direction(1)), Add(memory("two"), direction(2)))
        (three,) = await add(ledger, memory("three"))
        await ledger.embed(OTHER_MODEL, {await row_of(ledger, three): direction(1, OTHER_MODEL)}, user="ann")
        assert await ledger.count_embedded(MODEL) == EmbeddingProgress(2, 3)
        assert await ledger.count_embedded(OTHER_MODEL) == EmbeddingProgress(1, 3)

    async def test_a_model_is_known_to_have_been_searched_after_its_vectors_are_dropped(self, ledger: Ledger) -> None:
        await change(ledger, Add(memory("one"), direction(1)))
        await ledger.make_current(MODEL, ORIGIN, replacing=None)
        await ledger.make_current(OTHER_MODEL, OTHER_ORIGIN, replacing=MODEL)
        await ledger.drop_model(MODEL)
        assert await ledger.models() == {}
        old = find_model_state(await ledger.model_states(), MODEL)
        assert old is not None
        assert old.retired_at is not None

    async def test_whoever_opens_the_ledger_later_finds_the_same_model(self, ledger: Ledger, store: Open) -> None:
        await ledger.make_current(MODEL, ORIGIN, replacing=None)
        repeated = await store()
        assert await repeated.model_states() == await ledger.model_states()
        await repeated.close()
