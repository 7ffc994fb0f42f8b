"""An index over an engine that misbehaves: whatever it does, what is found is right, in time, and nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from recollect.aio import breaker
from recollect.aio.breaker import MAX_CONSECUTIVE_FAILURES
from recollect.errors import IndexUnavailable
from recollect.index import store_sync as feeding
from recollect.index import vector_store_index
from recollect.index.exact import ExactIndex, ExactView
from recollect.index.protocol import Index
from recollect.index.store_sync import IndexSync
from recollect.index.vector_store import hash_user
from recollect.index.vector_store_index import VectorStoreIndex, VectorStoreLimits, VectorStoreView
from recollect.ledger.ledger import Ledger
from recollect.ledger.sqlite import open_sqlite
from recollect.model.change import Forget
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.query import EVERYTHING
from recollect.model.scope import Scope
from tests.support.faulty_vector_store import FaultyVectorStore
from tests.support.index_suite import ANN, BOB, BY, MODEL, IndexSuite, OpenIndex, fill, unit_vectors

ALWAYS = VectorStoreLimits(exact_rows=0, few_rows=0, timeout_s=5.0)


def index_over(ledger: Ledger, engine: FaultyVectorStore, sizes: VectorStoreLimits = ALWAYS) -> VectorStoreIndex:
    feeder = IndexSync(ledger, MODEL, engine, feed_name="unruly")
    return VectorStoreIndex(ledger, MODEL, engine, limits=sizes, sync=feeder)


class TestExactIndex(IndexSuite):
    @pytest.fixture
    def open_index(self) -> OpenIndex:
        async def opened(ledger: Ledger) -> Index:
            return ExactIndex(ledger, MODEL, budget_bytes=1 << 30)

        return opened


class TestEngineIndex(IndexSuite):
    @pytest.fixture
    def open_index(self) -> OpenIndex:
        engine = FaultyVectorStore()

        async def opened(ledger: Ledger) -> Index:
            return index_over(ledger, engine)

        return opened

    async def settled(self, index: Index) -> None:
        assert isinstance(index, VectorStoreIndex)
        assert index.sync is not None
        await index.sync.sync()


class TestEngineThatIsNeverFed(TestEngineIndex):
    async def settled(self, index: Index) -> None:
        pass


class TestEngineThatIsAway(TestEngineIndex):
    @pytest.fixture
    def open_index(self) -> OpenIndex:
        async def opened(ledger: Ledger) -> Index:
            engine = FaultyVectorStore()
            engine.away = True
            return index_over(ledger, engine)

        return opened

    async def settled(self, index: Index) -> None:
        pass

    async def test_what_was_erased_is_nowhere_any_more(self, ledger: Ledger, index: Index) -> None:
        records = await fill(ledger, ANN, 20, seed=1)
        await ledger.erase(ANN, ErasureRequest(Target.MEMORY, records[3].id), by=BY)
        # It is not reached; what becomes of that is told below.
        assert not (await index.forget("ann")).reached
        results = await self.ids(ledger, index, ANN, unit_vectors(20, seed=1)[3], limit=30)
        assert set(results) == {record.id for record in records} - {records[3].id}


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    ledger = await open_sqlite(tmp_path / "recollect.db", MODEL)
    yield ledger
    await ledger.close()


async def rows_of(ledger: Ledger, user: str) -> list[int]:
    return sorted(row.row for row in (await ledger.index_rows(user, model=MODEL, after=0))[1])


async def nearest(index: Index, seed: int = 2) -> list[int]:
    view = await index.view(ANN, EVERYTHING)
    return (await view.nearest(unit_vectors(1, seed=seed)[0], limit=10)).rows.tolist()


async def test_rows_of_other_users_are_not_returned_whatever_the_store_suggests(ledger: Ledger) -> None:
    await fill(ledger, ANN, 30, seed=1)
    await fill(ledger, BOB, 30, seed=2)
    [forgotten] = await fill(ledger, ANN, 1, seed=3)
    gone = (await rows_of(ledger, "ann"))[-1]
    await ledger.apply(ANN, [Forget(forgotten.id)], by=BY)
    engine = FaultyVectorStore()
    index = index_over(ledger, engine)
    await index.sync.sync()
    honest = await nearest(index)
    engine.lies = [*await rows_of(ledger, "bob"), gone, -1, 0, 10**15]
    assert await nearest(index) == honest
    assert engine.request_count


async def test_a_store_that_returns_too_few_rows_is_asked_for_more_then_bypassed(ledger: Ledger) -> None:
    await fill(ledger, ANN, 200, seed=1)
    engine = FaultyVectorStore()
    index = index_over(ledger, engine)
    await index.sync.sync()
    engine.stored = dict(list(engine.stored.items())[:5])
    exact = ExactIndex(ledger, MODEL, budget_bytes=1 << 30)
    assert await nearest(index) == await nearest(exact)
    assert engine.request_count == 2


@pytest.mark.parametrize("warm", [True, False])
async def test_rows_that_the_store_shows_late_are_found_meanwhile(ledger: Ledger, warm: bool) -> None:
    engine = FaultyVectorStore()
    engine.settles_s = 60.0
    index = index_over(ledger, engine)
    await fill(ledger, ANN, 100, seed=1)
    await index.sync.sync()
    if warm:
        await nearest(index)
    engine.late = []
    await fill(ledger, ANN, 1, seed=50)
    await index.sync.sync()
    [new] = (await rows_of(ledger, "ann"))[-1:]
    # It says that it has it, and a search does not see it yet.
    assert new not in engine.stored
    for _ in range(3):
        assert (await nearest(index, seed=50))[0] == new


async def test_rows_are_searched_besides_the_store_until_it_has_them(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_store_index, "CHECK_INTERVAL_S", 0.0)
    engine = FaultyVectorStore()
    index = index_over(ledger, engine)
    await fill(ledger, ANN, 100, seed=1)
    best = await nearest(index)
    await index.sync.sync()
    assert await nearest(index) == best
    # Only the store has it by now.
    del engine.stored[best[0]]
    assert best[0] not in await nearest(index)


async def test_a_user_with_few_memories_is_searched_exactly_without_the_store(ledger: Ledger) -> None:
    engine = FaultyVectorStore()
    index = index_over(ledger, engine, VectorStoreLimits(exact_rows=50, few_rows=0))
    await fill(ledger, ANN, 50, seed=1)
    await index.sync.sync()
    assert isinstance(await index.view(ANN, EVERYTHING), ExactView)
    await nearest(index)
    assert not engine.request_count
    # One more, and it is.
    await fill(ledger, ANN, 1, seed=2)
    await index.sync.sync()
    await index.view(ANN, EVERYTHING)
    assert isinstance(await index.view(ANN, EVERYTHING), VectorStoreView)
    await nearest(index)
    assert engine.request_count == 1


async def test_few_visible_rows_are_compared_without_the_store(ledger: Ledger) -> None:
    engine = FaultyVectorStore()
    index = index_over(ledger, engine, VectorStoreLimits(exact_rows=100, few_rows=100))
    await fill(ledger, ANN, 100, seed=1)
    await fill(ledger, Scope("ann", "elsewhere"), 10, seed=2)
    await index.sync.sync()
    assert await nearest(index) == await nearest(ExactIndex(ledger, MODEL, budget_bytes=1 << 30))
    assert not engine.request_count


async def test_without_exact_rows_the_store_is_asked_for_the_first_memory(ledger: Ledger) -> None:
    engine = FaultyVectorStore()
    index = index_over(ledger, engine, VectorStoreLimits(exact_rows=0))
    await fill(ledger, ANN, 1, seed=1)
    await index.sync.sync()
    assert len(await nearest(index)) == 1
    assert engine.request_count == 1


async def test_a_frozen_store_delays_a_few_searches_then_none(ledger: Ledger) -> None:
    await fill(ledger, ANN, 100, seed=1)
    engine = FaultyVectorStore()
    index = index_over(ledger, engine, VectorStoreLimits(exact_rows=0, few_rows=0, timeout_s=0.05))
    await index.sync.sync()
    expected = await nearest(index)
    assert index.last_error == ""
    engine.frozen = True
    for _ in range(MAX_CONSECUTIVE_FAILURES):
        assert await nearest(index) == expected
    assert "unruly does not answer since" in index.last_error
    request = engine.request_count
    for _ in range(10):
        assert await nearest(index) == expected
    assert engine.request_count == request


async def test_a_recovered_store_is_used_again(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker, "OPEN_S", 0.0)
    await fill(ledger, ANN, 100, seed=1)
    engine = FaultyVectorStore()
    index = index_over(ledger, engine)
    await index.sync.sync()
    engine.away = True
    for _ in range(MAX_CONSECUTIVE_FAILURES):
        await nearest(index)
    assert index.last_error
    engine.away = False
    request = engine.request_count
    await nearest(index)
    assert (engine.request_count, index.last_error) == (request + 1, "")


async def test_a_user_too_large_for_memory_is_compared_by_pages_while_the_store_is_down(ledger: Ledger) -> None:
    await fill(ledger, ANN, 300, seed=1)
    engine = FaultyVectorStore()
    engine.away = True
    index = index_over(ledger, engine, VectorStoreLimits(exact_rows=100, few_rows=0, budget_bytes=1))
    expected = await nearest(ExactIndex(ledger, MODEL, budget_bytes=1 << 30))
    for _ in range(MAX_CONSECUTIVE_FAILURES + 1):
        assert await nearest(index) == expected
    assert isinstance(await index.view(ANN, EVERYTHING), VectorStoreView)


async def test_an_erasure_that_does_not_reach_the_store_says_so_and_is_done_later(ledger: Ledger) -> None:
    records = await fill(ledger, ANN, 10, seed=1)
    await fill(ledger, BOB, 10, seed=2)
    engine = FaultyVectorStore()
    index = index_over(ledger, engine)
    await index.sync.sync()
    engine.away = True
    await ledger.erase(ANN, ErasureRequest(Target.MEMORY, records[0].id), by=BY)
    cleared = await index.forget("ann")
    assert not cleared.reached
    assert "unruly does not answer" in cleared.note
    await ledger.erase(BOB, ErasureRequest(Target.USER), by=BY)
    assert not (await index.forget("bob")).reached
    with pytest.raises(IndexUnavailable):
        await index.sync.sync()
    assert len(engine.stored) == 20
    engine.away = False
    # Another process does it: nothing depends on who was told.
    await ledger.lease_feed("unruly", feeder="", lease_s=-1, take=True)
    await IndexSync(ledger, MODEL, engine, feed_name="unruly").sync()
    assert sorted(engine.stored) == await rows_of(ledger, "ann")
    assert await engine.users() == [hash_user("ann")]


async def test_a_row_erased_during_a_sync_does_not_stay(ledger: Ledger) -> None:
    await fill(ledger, ANN, 10, seed=1)
    engine = FaultyVectorStore()
    index = index_over(ledger, engine)
    put = engine.put

    async def erased_first(rows: object) -> None:
        engine.put = put  # type: ignore[method-assign]
        await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
        assert (await index.forget("ann")).reached
        await put(rows)  # type: ignore[arg-type]

    engine.put = erased_first  # type: ignore[method-assign, assignment]
    await index.sync.sync()
    assert engine.stored == {}


async def test_an_interrupted_sync_continues_where_it_stopped(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "BATCH_ROWS", 10)
    for seed in range(6):
        await fill(ledger, ANN, 7, seed=seed)
    engine = FaultyVectorStore()
    feeder = IndexSync(ledger, MODEL, engine, feed_name="unruly")
    put = engine.put

    async def only_two(rows: object) -> None:
        if len(engine.puts) == 2:
            raise IndexUnavailable("gone")
        await put(rows)  # type: ignore[arg-type]

    engine.put = only_two  # type: ignore[method-assign, assignment]
    with pytest.raises(IndexUnavailable):
        await feeder.sync()
    assert 0 < len(engine.stored) < 42
    engine.put = put  # type: ignore[method-assign]
    engine.puts.clear()
    fed = await feeder.sync()
    assert sorted(engine.stored) == await rows_of(ledger, "ann")
    # It did not begin anew.
    assert fed < 42
    assert await feeder.sync() == 0


async def test_a_revision_larger_than_a_batch_is_synced_completely(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "BATCH_ROWS", 10)
    await fill(ledger, ANN, 35, seed=1)
    engine, seen = FaultyVectorStore(), list[int]()
    feeder = IndexSync(ledger, MODEL, engine, feed_name="unruly")
    assert await feeder.sync(seen.append) == 35
    assert sorted(engine.stored) == await rows_of(ledger, "ann")
    assert seen == sorted(seen)
    assert (await ledger.feed_position("ann", index="unruly")).revision == await ledger.revision("ann")


async def test_changes_of_many_users_go_in_one_batch(ledger: Ledger) -> None:
    for n in range(20):
        await fill(ledger, type(ANN)(f"user {n}"), 2, seed=n)
    engine = FaultyVectorStore()
    await IndexSync(ledger, MODEL, engine, feed_name="unruly").sync()
    assert engine.puts == [40]
    assert len(await engine.users()) == 20


async def test_one_process_syncs_and_the_other_stands_by(ledger: Ledger) -> None:
    await fill(ledger, ANN, 5, seed=1)
    engine = FaultyVectorStore()
    first, second = (IndexSync(ledger, MODEL, engine, feed_name="unruly") for _ in range(2))
    assert await first.sync() == 5
    await fill(ledger, ANN, 5, seed=2)
    assert await second.sync() == 0
    assert await first.sync() == 5


async def test_a_suspended_sync_leaves_nothing_that_was_erased_meanwhile(ledger: Ledger) -> None:
    await fill(ledger, ANN, 5, seed=1)
    engine = FaultyVectorStore()
    slow, other = (IndexSync(ledger, MODEL, engine, feed_name="unruly") for _ in range(2))
    put = engine.put

    async def much_later(rows: object) -> None:
        engine.put = put  # type: ignore[method-assign]
        await other.rebuild()
        await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
        await other.sync()
        await put(rows)  # type: ignore[arg-type]

    engine.put = much_later  # type: ignore[method-assign, assignment]
    with pytest.raises(IndexUnavailable, match="another process"):
        await slow.sync()
    assert engine.stored == {}


async def test_a_running_sync_writes_changes_when_woken(ledger: Ledger) -> None:
    engine = FaultyVectorStore()
    feeder = IndexSync(ledger, MODEL, engine, feed_name="unruly", every_s=3600)
    feeder.start()
    try:
        await fill(ledger, ANN, 5, seed=1)
        feeder.wake()
        async with asyncio.timeout(300):
            await engine.wait_for_rows(5)
    finally:
        await feeder.stop()
    # Whoever comes next need not wait for a lease to run out.
    await fill(ledger, ANN, 1, seed=2)
    assert await IndexSync(ledger, MODEL, engine, feed_name="unruly").sync() == 1


async def test_the_mean_and_deviation_of_a_sample_are_near_those_of_all(ledger: Ledger) -> None:
    await fill(ledger, ANN, 4000, seed=1)
    index = index_over(ledger, FaultyVectorStore())
    await index.sync.sync()
    exact = await ExactIndex(ledger, MODEL, budget_bytes=1 << 30).view(ANN, EVERYTHING)
    view = await index.view(ANN, EVERYTHING)
    for question in unit_vectors(10, seed=2):
        report, true = await view.nearest(question, limit=10), await exact.nearest(question, limit=10)
        assert report.mean == pytest.approx(true.mean, abs=0.15 * true.deviation)
        assert report.deviation == pytest.approx(true.deviation, rel=0.15)
        assert np.array_equal(report.rows, true.rows)
