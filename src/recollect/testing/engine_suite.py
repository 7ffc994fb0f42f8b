"""The promise of `ExternalVectorStore`, as tests. An engine inherits them and says how it is opened:

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
from recollect.index.engine import ExternalVectorStore, StoredVector, hash_place, hash_user
from recollect.models.embedding import EmbeddingModel
from recollect.testing.index_suite import MODEL, ODD_NAMES, unit_vectors

OpenEngine = Callable[[EmbeddingModel], ExternalVectorStore]
ANN_MARK, BOB_MARK = hash_user("ann"), hash_user("bob")
HERE, THERE = hash_place("here"), hash_place("there")


def stored_rows(
    first: int, count: int, *, user: str = ANN_MARK, place: str = HERE, seed: int = 1
) -> list[StoredVector]:
    """Rows with vectors by the seed."""
    vectors = unit_vectors(count, seed=seed)
    return [StoredVector(first + n, user, place, vector) for n, vector in enumerate(vectors)]


async def nearest(
    engine: ExternalVectorStore, row: StoredVector, *, places: Sequence[str] = (HERE,), limit: int = 5
) -> list[int]:
    """The rows nearest to a row, as one of its user finds them."""
    hits = await engine.nearest(row.user, row.vector, places=places, limit=limit)
    assert np.isfinite(hits.scores).all()
    return [int(each) for each in hits.rows]


async def seen(engine: ExternalVectorStore, row: StoredVector, *, first: int | None) -> list[int]:
    """The same once changes can be seen, which is once the row named is first or, if None, is not there."""
    give_up = monotonic() + engine.settles_s + 10
    while True:
        hits = await nearest(engine, row)
        if (row.row not in hits) if first is None else hits[:1] == [first]:
            return hits
        assert monotonic() < give_up, f"not seen: {hits}"
        await asyncio.sleep(0.1)


class EngineSuite:
    """Everything an engine with a store of its own promises."""

    @pytest.fixture
    def open_engine(self) -> OpenEngine:
        raise NotImplementedError("say how the engine is opened: override the fixture `open_engine`")

    @pytest.fixture
    async def engine(self, open_engine: OpenEngine) -> AsyncIterator[ExternalVectorStore]:
        engine = open_engine(MODEL)
        yield engine
        await engine.close()

    async def test_it_keeps_finds_drops_and_tells_what_it_has(self, engine: ExternalVectorStore) -> None:
        assert not await engine.rows(ANN_MARK)
        assert not await engine.users()
        own, hers = stored_rows(1, 40), stored_rows(100, 40, user=BOB_MARK, seed=2)
        await engine.put([*own, *hers])
        assert list(await engine.rows(ANN_MARK)) == list(range(1, 41))
        assert sorted(await engine.users()) == sorted([ANN_MARK, BOB_MARK])
        results = await seen(engine, own[7], first=8)
        assert set(results) <= set(range(1, 41))
        await engine.drop([8, 9, 10**9])
        assert list(await engine.rows(ANN_MARK)) == [n for n in range(1, 41) if n not in (8, 9)]
        assert 8 not in await seen(engine, own[7], first=None)
        assert await engine.drop_user(ANN_MARK) == 38
        assert await engine.drop_user(ANN_MARK) == 0
        assert list(await engine.rows(ANN_MARK)) == []
        assert list(await engine.users()) == [BOB_MARK]
        await engine.clear()
        assert list(await engine.users()) == []
        await engine.put(own)
        assert len(await engine.rows(ANN_MARK)) == 40

    async def test_a_row_put_again_is_kept_once_as_it_came_last(self, engine: ExternalVectorStore) -> None:
        rows = stored_rows(1, 20)
        await engine.put(rows)
        await engine.put(rows)
        assert len(await engine.rows(ANN_MARK)) == 20
        [other] = stored_rows(5, 1, place=THERE, seed=9)
        await engine.put([other])
        assert len(await engine.rows(ANN_MARK)) == 20
        await seen(engine, rows[4], first=None)
        assert await nearest(engine, other, places=[THERE]) == [5]
        assert 5 not in await nearest(engine, other, places=[HERE], limit=20)

    async def test_a_user_in_a_place_finds_nothing_from_elsewhere(self, engine: ExternalVectorStore) -> None:
        here, there = stored_rows(1, 10), stored_rows(20, 10, place=THERE, seed=2)
        hers = stored_rows(40, 10, user=BOB_MARK, seed=3)
        await engine.put([*here, *there, *hers])
        await seen(engine, hers[0], first=40)
        assert set(await nearest(engine, here[0], limit=40)) == set(range(1, 11))
        assert set(await nearest(engine, here[0], places=[HERE, THERE], limit=40)) == {*range(1, 11), *range(20, 30)}
        assert await nearest(engine, here[0], places=[hash_place("nowhere")], limit=40) == []

    @pytest.mark.parametrize("name", [*ODD_NAMES, "", "ann", ANN_MARK.upper(), ANN_MARK + '" or true', "\x00" * 32])
    async def test_it_refuses_what_is_no_mark(self, engine: ExternalVectorStore, name: str) -> None:
        [vector] = unit_vectors(1, seed=1)
        with pytest.raises(InvalidInput):
            await engine.nearest(name, vector, places=[HERE], limit=5)
        with pytest.raises(InvalidInput):
            await engine.nearest(ANN_MARK, vector, places=[HERE, name], limit=5)
        with pytest.raises(InvalidInput):
            await engine.put([StoredVector(1, name, HERE, vector)])
        with pytest.raises(InvalidInput):
            await engine.put([StoredVector(1, ANN_MARK, name, vector)])
        with pytest.raises(InvalidInput):
            await engine.drop_user(name)
        with pytest.raises(InvalidInput):
            await engine.rows(name)

    async def test_two_models_are_kept_apart_and_what_is_kept_outlives_who_kept_it(
        self, open_engine: OpenEngine
    ) -> None:
        first = open_engine(MODEL)
        await first.put(stored_rows(1, 3))
        await first.close()
        other = open_engine(EmbeddingModel("another", 8))
        wide = np.eye(8, dtype=np.float32)
        await other.put([StoredVector(n, ANN_MARK, HERE, wide[n]) for n in range(1, 6)])
        assert len(await other.rows(ANN_MARK)) == 5
        await other.close()
        repeated = open_engine(MODEL)
        assert list(await repeated.rows(ANN_MARK)) == [1, 2, 3]
        await repeated.close()
        third = open_engine(EmbeddingModel("another", 8))
        await third.clear()
        await third.close()
        last = open_engine(MODEL)
        assert list(await last.rows(ANN_MARK)) == [1, 2, 3]
        await last.close()
