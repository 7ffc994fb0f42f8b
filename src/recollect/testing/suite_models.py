"""Which embedding model is searched, and who makes the vectors of another."""

from __future__ import annotations

from datetime import timedelta

from recollect.errors import Unsupported
from recollect.ledger.model_states import EmbeddingProgress, ModelOrigin, current_model_state, find_model_state
from recollect.ledger.protocol import Ledger
from recollect.model.change import Add
from recollect.model.times import now
from recollect.testing.suite_samples import MODEL, OTHER_MODEL, Open, add, change, direction, memory, row_of

ORIGIN = ModelOrigin("openai:old", "http://127.0.0.1:1/v1", 8)
OTHER_ORIGIN = ModelOrigin("bundled")


class ModelSuite:
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

    async def test_who_comes_second_changes_nothing_and_is_told_who_was_first(self, ledger: Ledger) -> None:
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

    async def test_a_model_that_is_current_has_its_origin_put_down_anew(self, ledger: Ledger) -> None:
        made = await ledger.make_current(MODEL, ORIGIN, replacing=None)
        repeated = await ledger.make_current(MODEL, OTHER_ORIGIN, replacing=MODEL)
        assert repeated.origin == OTHER_ORIGIN
        assert repeated.current_at == made.current_at

    async def test_one_at_a_time_makes_the_vectors_of_a_model(self, ledger: Ledger) -> None:
        assert await ledger.lease_model(MODEL, ORIGIN, owner="a", lease_s=60)
        assert await ledger.lease_model(MODEL, ORIGIN, owner="a", lease_s=60)
        assert not await ledger.lease_model(MODEL, ORIGIN, owner="b", lease_s=60)
        assert await ledger.lease_model(OTHER_MODEL, ORIGIN, owner="b", lease_s=60)
        await ledger.lease_model(MODEL, ORIGIN, owner="a", lease_s=0)
        assert await ledger.lease_model(MODEL, ORIGIN, owner="b", lease_s=60)

    async def test_whoever_makes_vectors_says_how_far_it_is(self, ledger: Ledger) -> None:
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
        try:
            repeated = await store()
        except Unsupported:
            return
        assert await repeated.model_states() == await ledger.model_states()
        await repeated.close()
