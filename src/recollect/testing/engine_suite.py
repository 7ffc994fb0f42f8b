"""The promise of `FedEngine`, as tests. An engine inherits them and says how it is opened:

    class TestMyEngine(EngineSuite):
        @pytest.fixture
        def open_engine(self, tmp_path):
            return lambda model: MyEngine(tmp_path, model)

Every call opens the same store. Needs pytest-asyncio in auto mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from time import monotonic

import numpy as np
import pytest

from recollect.errors import InvalidInput
from recollect.index.engine import FedEngine, Kept, place_mark, user_mark
from recollect.models.embedding import EmbeddingModel
from recollect.testing.index_suite import MODEL, ODD_NAMES, unit_vectors

OpenEngine = Callable[[EmbeddingModel], FedEngine]
ANN, BOB = user_mark("ann"), user_mark("bob")
HERE, THERE = place_mark("here"), place_mark("there")


def kept(first: int, count: int, *, user: str = ANN, place: str = HERE, seed: int = 1) -> list[Kept]:
    """Rows with vectors by the seed."""
    vectors = unit_vectors(count, seed=seed)
    return [Kept(first + n, user, place, vector) for n, vector in enumerate(vectors)]


async def nearest(engine: FedEngine, row: Kept, *, places: Sequence[str] = (HERE,), limit: int = 5) -> list[int]:
    """The rows nearest to a row, as one of its user finds them."""
    found = await engine.nearest(row.user, row.vector, places=places, limit=limit)
    assert np.isfinite(found.scores).all()
    return [int(each) for each in found.rows]


async def seen(engine: FedEngine, row: Kept, *, first: int | None) -> list[int]:
    """The same once changes can be seen, which is once the row named is first or, if None, is not there."""
    give_up = monotonic() + engine.settles_s + 10
    while True:
        found = await nearest(engine, row)
        if (row.row not in found) if first is None else found[:1] == [first]:
            return found
        assert monotonic() < give_up, f"not seen: {found}"
        await asyncio.sleep(0.1)


class EngineSuite:
    """Everything an engine with a store of its own promises."""

    @pytest.fixture
    def open_engine(self) -> OpenEngine:
        raise NotImplementedError("say how the engine is opened: override the fixture `open_engine`")

    @pytest.fixture
    async def engine(self, open_engine: OpenEngine) -> AsyncIterator[FedEngine]:
        engine = open_engine(MODEL)
        yield engine
        await engine.close()

    async def test_it_keeps_finds_drops_and_tells_what_it_has(self, engine: FedEngine) -> None:
        assert not await engine.rows(ANN)
        assert not await engine.users()
        own, hers = kept(1, 40), kept(100, 40, user=BOB, seed=2)
        await engine.put([*own, *hers])
        assert list(await engine.rows(ANN)) == list(range(1, 41))
        assert sorted(await engine.users()) == sorted([ANN, BOB])
        found = await seen(engine, own[7], first=8)
        assert set(found) <= set(range(1, 41))
        await engine.drop([8, 9, 10**9])
        assert list(await engine.rows(ANN)) == [n for n in range(1, 41) if n not in (8, 9)]
        assert 8 not in await seen(engine, own[7], first=None)
        assert await engine.drop_user(ANN) == 38
        assert await engine.drop_user(ANN) == 0
        assert list(await engine.rows(ANN)) == []
        assert list(await engine.users()) == [BOB]
        await engine.clear()
        assert list(await engine.users()) == []
        await engine.put(own)
        assert len(await engine.rows(ANN)) == 40

    async def test_a_row_put_again_is_kept_once_as_it_came_last(self, engine: FedEngine) -> None:
        rows = kept(1, 20)
        await engine.put(rows)
        await engine.put(rows)
        assert len(await engine.rows(ANN)) == 20
        [other] = kept(5, 1, place=THERE, seed=9)
        await engine.put([other])
        assert len(await engine.rows(ANN)) == 20
        await seen(engine, rows[4], first=None)
        assert await nearest(engine, other, places=[THERE]) == [5]
        assert 5 not in await nearest(engine, other, places=[HERE], limit=20)

    async def test_a_user_in_a_place_finds_nothing_from_elsewhere(self, engine: FedEngine) -> None:
        here, there = kept(1, 10), kept(20, 10, place=THERE, seed=2)
        hers = kept(40, 10, user=BOB, seed=3)
        await engine.put([*here, *there, *hers])
        await seen(engine, hers[0], first=40)
        assert set(await nearest(engine, here[0], limit=40)) == set(range(1, 11))
        assert set(await nearest(engine, here[0], places=[HERE, THERE], limit=40)) == {*range(1, 11), *range(20, 30)}
        assert await nearest(engine, here[0], places=[place_mark("nowhere")], limit=40) == []

    @pytest.mark.parametrize("name", [*ODD_NAMES, "", "ann", ANN.upper(), ANN + '" or true', "\x00" * 32])
    async def test_it_refuses_what_is_no_mark(self, engine: FedEngine, name: str) -> None:
        [vector] = unit_vectors(1, seed=1)
        with pytest.raises(InvalidInput):
            await engine.nearest(name, vector, places=[HERE], limit=5)
        with pytest.raises(InvalidInput):
            await engine.nearest(ANN, vector, places=[HERE, name], limit=5)
        with pytest.raises(InvalidInput):
            await engine.put([Kept(1, name, HERE, vector)])
        with pytest.raises(InvalidInput):
            await engine.put([Kept(1, ANN, name, vector)])
        with pytest.raises(InvalidInput):
            await engine.drop_user(name)
        with pytest.raises(InvalidInput):
            await engine.rows(name)

    async def test_two_models_are_kept_apart_and_what_is_kept_outlives_who_kept_it(
        self, open_engine: OpenEngine
    ) -> None:
        first = open_engine(MODEL)
        await first.put(kept(1, 3))
        await first.close()
        other = open_engine(EmbeddingModel("another", 8))
        wide = np.eye(8, dtype=np.float32)
        await other.put([Kept(n, ANN, HERE, wide[n]) for n in range(1, 6)])
        assert len(await other.rows(ANN)) == 5
        await other.close()
        again = open_engine(MODEL)
        assert list(await again.rows(ANN)) == [1, 2, 3]
        await again.close()
        third = open_engine(EmbeddingModel("another", 8))
        await third.clear()
        await third.close()
        last = open_engine(MODEL)
        assert list(await last.rows(ANN)) == [1, 2, 3]
        await last.close()
