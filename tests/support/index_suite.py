"""Conformance tests for indexes. Inherit them and say how the index is opened over a ledger:

    class TestMyIndex(IndexSuite):
        @pytest.fixture
        def open_index(self):
            return lambda ledger: MyIndex(ledger, MODEL)

An index that processes changes in the background overrides `settled`, which waits for it. Most tests search before
and after that: what is written must be found at once. Needs pytest-asyncio in auto mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from recollect.errors import InvalidInput
from recollect.index.exact import ExactIndex
from recollect.index.protocol import Index
from recollect.index.vector_store import ExternalVectorStore, StoredVector, hash_place, hash_user
from recollect.ledger.ledger import Ledger
from recollect.ledger.sqlite import open_sqlite
from recollect.model.change import Add, Author, Forget, Update
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.ids import new_id
from recollect.model.memory import MemoryRecord
from recollect.model.query import EVERYTHING, parse_filter, without_turns_of
from recollect.model.scope import Scope
from recollect.model.turn import Role, Turn
from recollect.models.embedding import EmbeddingModel
from recollect.write.draft import draft

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]


OpenIndex = Callable[[Ledger], Awaitable[Index]]

MODEL = EmbeddingModel("random", 32)
BY = Author("test")
ANN, BOB = Scope("ann"), Scope("bob")
NOON = datetime(2026, 3, 15, 12, tzinfo=UTC)
# Names that would be syntax if a store put them into a query unquoted.
ODD_NAMES = (
    'x" or true or user == "y',
    "x' or '1'=='1",
    "back\\slash\\",
    '"] or row > 0 or place in ["',
    "ünïcödé 名前 🙂",
    "x) or (1 == 1",
    "{{user}}%00",
    "n" * 300,
)


def unit_vectors(count: int, *, seed: int) -> Vectors:
    """Return random vectors of length 1."""
    rows = np.random.default_rng(seed).normal(size=(count, MODEL.dimensions)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


async def fill(ledger: Ledger, scope: Scope, count: int, *, seed: int, **fields: Any) -> Sequence[MemoryRecord]:
    """Add memories with random vectors to a scope."""
    vectors = unit_vectors(count, seed=seed)
    records = [draft(scope, f"memory {seed} {n}", fields) for n in range(count)]
    await ledger.apply(scope, [Add(r, v) for r, v in zip(records, vectors, strict=True)], by=BY)
    return records


class IndexSuite:
    """Tests for every index."""

    # The share of the ten nearest that an index must find, on average over queries.
    min_overlap = 0.95

    @pytest.fixture
    def open_index(self) -> OpenIndex:
        raise NotImplementedError("say how the index is opened: override the fixture `open_index`")

    @pytest.fixture
    async def ledger(self, tmp_path: Path) -> AsyncIterator[Ledger]:
        ledger = await open_sqlite(tmp_path / "recollect.db", MODEL)
        yield ledger
        await ledger.close()

    @pytest.fixture
    async def index(self, ledger: Ledger, open_index: OpenIndex) -> AsyncIterator[Index]:
        index = await open_index(ledger)
        yield index
        await index.close()

    async def settled(self, index: Index) -> None:
        """Wait until the index has processed all changes."""

    async def ids(self, ledger: Ledger, index: Index, scope: Scope, vector: Vectors, **arguments: Any) -> list[str]:
        """Return the ids of the nearest memories."""
        options = {"filter": EVERYTHING, "limit": 10, **arguments}
        view = await index.view(scope, options["filter"])
        near = await view.nearest(vector, limit=options["limit"])
        by_row = {
            each.row: each.record.id for each in await ledger.fetch(scope, near.rows.tolist(), filter=EVERYTHING)
        }
        assert len(by_row) == len(near.rows)
        assert near.scores.tolist() == sorted(near.scores.tolist(), reverse=True)
        return [by_row[row] for row in near.rows.tolist()]

    async def both(
        self, ledger: Ledger, index: Index, scope: Scope, vector: Vectors, **options: Any
    ) -> list[list[str]]:
        """Return the ids of the nearest memories before and after changes were processed."""
        before = await self.ids(ledger, index, scope, vector, **options)
        await self.settled(index)
        return [before, await self.ids(ledger, index, scope, vector, **options)]

    async def test_it_finds_what_comparing_with_every_vector_finds(self, ledger: Ledger, index: Index) -> None:
        records, vectors = await fill(ledger, ANN, 600, seed=1), unit_vectors(600, seed=1)
        await fill(ledger, BOB, 300, seed=3)
        await self.settled(index)
        shared = []
        for question in unit_vectors(20, seed=2):
            cosines = vectors @ question
            best = [records[at].id for at in np.argsort(-cosines)[:10]]
            view = await index.view(ANN, EVERYTHING)
            near = await view.nearest(question, limit=10)
            assert (near.count, view.count) == (600, 600)
            assert near.mean == pytest.approx(float(np.maximum(cosines, 0).mean()), abs=0.02)
            assert near.deviation == pytest.approx(float(np.maximum(cosines, 0).std()), abs=0.02)
            shared.append(len({*best} & {*await self.ids(ledger, index, ANN, question)}) / 10)
        assert np.mean(shared) >= self.min_overlap

    async def test_scores_vectors_and_traits_are_those_of_the_exact_index(self, ledger: Ledger, index: Index) -> None:
        await fill(ledger, ANN, 80, seed=1)
        await ledger.apply(ANN, [Add(draft(ANN, "no vector", {}))], by=BY)
        await self.settled(index)
        exact = await ExactIndex(ledger, MODEL, budget_bytes=1 << 30).view(ANN, EVERYTHING)
        view, [question] = await index.view(ANN, EVERYTHING), unit_vectors(1, seed=2)
        rows = np.asarray([*await ledger.matching(ANN, EVERYTHING), 10**9], np.int64)
        np.testing.assert_allclose(
            await view.similarity(question, rows), await exact.similarity(question, rows), atol=1e-3
        )
        np.testing.assert_array_equal(await view.vectors(rows), await exact.vectors(rows))
        np.testing.assert_array_equal(view.is_visible(rows), exact.is_visible(rows))
        np.testing.assert_array_equal(view.traits(rows).embedded, exact.traits(rows).embedded)
        assert view.count == exact.count == 81

    async def test_someone_without_memories_finds_nothing(self, ledger: Ledger, index: Index) -> None:
        await fill(ledger, BOB, 5, seed=1)
        [question] = unit_vectors(1, seed=0)
        assert await self.both(ledger, index, ANN, question) == [[], []]
        view = await index.view(ANN, EVERYTHING)
        assert view.count == 0
        assert (await view.similarity(question, np.array([1, 2]))).tolist() == [0, 0]
        assert (await view.vectors(np.array([1, 2]))).tolist() == [[0.0] * MODEL.dimensions] * 2

    async def test_a_memory_just_added_is_found_at_once(self, ledger: Ledger, index: Index) -> None:
        await fill(ledger, ANN, 50, seed=1)
        await self.settled(index)
        for seed in range(100, 110):
            [new] = await fill(ledger, ANN, 1, seed=seed)
            assert (await self.ids(ledger, index, ANN, unit_vectors(1, seed=seed)[0]))[0] == new.id
        await self.settled(index)
        assert (await self.ids(ledger, index, ANN, unit_vectors(1, seed=105)[0], limit=1)) != []

    async def test_what_was_forgotten_or_changed_is_not_found_as_it_was(self, ledger: Ledger, index: Index) -> None:
        first, second, third = await fill(ledger, ANN, 3, seed=1)
        vectors, [other] = unit_vectors(3, seed=1), unit_vectors(1, seed=9)
        await self.settled(index)
        await ledger.apply(ANN, [Forget(first.id), Update(second.id, {"content": "new"}, None, other)], by=BY)
        for result in await self.both(ledger, index, ANN, other):
            assert result[0] == second.id
            assert set(result) == {second.id, third.id}
        await ledger.apply(ANN, [Update(second.id, {"content": "without a vector"})], by=BY)
        assert await self.both(ledger, index, ANN, vectors[1]) == [[third.id], [third.id]]

    async def test_a_filter_applies_before_the_best_are_chosen(self, ledger: Ledger, index: Index) -> None:
        await fill(ledger, ANN, 200, seed=1)
        rare = await fill(ledger, ANN, 3, seed=2, tags=["rare"])
        [question] = unit_vectors(1, seed=3)
        for result in await self.both(ledger, index, ANN, question, filter=parse_filter({"tags": "rare"}), limit=3):
            assert set(result) == {record.id for record in rare}

    async def test_only_the_places_seen_from_the_scope_are_found(self, ledger: Ledger, index: Index) -> None:
        here, there = Scope("ann", "x"), Scope("ann", "y")
        own = await fill(ledger, here, 5, seed=1)
        everywhere = await fill(ledger, ANN, 2, seed=5)
        await fill(ledger, there, 5, seed=2)
        await fill(ledger, Scope("bob", "x"), 5, seed=3)
        [question] = unit_vectors(1, seed=4)
        for result in await self.both(ledger, index, here, question, limit=20):
            assert set(result) == {record.id for record in (*own, *everywhere)}
        for result in await self.both(ledger, index, ANN, question, limit=20):
            assert set(result) == {record.id for record in everywhere}

    async def test_all_places_of_the_user_can_be_looked_at_at_once(self, ledger: Ledger, index: Index) -> None:
        scopes = (ANN, Scope("ann", "x"), Scope("ann", "y"), Scope("ann", "y", "monday"))
        own = [await fill(ledger, scope, 5, seed=seed, level=_level(scope)) for seed, scope in enumerate(scopes)]
        await fill(ledger, Scope("bob", "x"), 5, seed=5)
        [question] = unit_vectors(1, seed=6)
        for result in await self.both(ledger, index, Scope("ann", everywhere=True), question, limit=40):
            assert set(result) == {record.id for records in own for record in records}

    async def test_no_name_is_more_than_a_name(self, ledger: Ledger, index: Index) -> None:
        own = {}
        for seed, name in enumerate(ODD_NAMES):
            for scope in (Scope(name[:256]), Scope("ann", name[:256]), Scope("ann", "p", name[:256])):
                own[scope] = {record.id for record in await fill(ledger, scope, 2, seed=seed, level=_level(scope))}
        [question] = unit_vectors(1, seed=99)
        await self.settled(index)
        for scope, ids in own.items():
            assert set(await self.ids(ledger, index, scope, question, limit=100)) == ids

    async def test_without_turns_only_what_was_distilled_is_found(self, ledger: Ledger, index: Index) -> None:
        session = Scope("ann", "", "monday")
        turns = [
            Turn(id=new_id(), scope=session, role=Role.USER, content=f"turn {n}", said_at=NOON) for n in range(20)
        ]
        await ledger.append(session, turns, vectors=list(unit_vectors(20, seed=1)), by=BY)
        records = await fill(ledger, ANN, 3, seed=2)
        await self.settled(index)
        view = await index.view(session, EVERYTHING, turns=False)
        near = await view.nearest(unit_vectors(1, seed=3)[0], limit=10)
        assert (view.count, len(near.rows)) == (3, 3)
        fetched = await ledger.fetch(session, near.rows.tolist(), filter=EVERYTHING)
        assert {each.record.id for each in fetched} == {record.id for record in records}
        everything = await index.view(session, EVERYTHING)
        rows = np.asarray(await ledger.matching(session, EVERYTHING), np.int64)
        before, after = everything.neighbors(rows)
        assert [int((each >= 0).sum()) for each in (before, after)] == [19, 19]

    async def test_the_turns_of_one_session_can_be_left_out(self, ledger: Ledger, index: Index) -> None:
        monday, tuesday = Scope("ann", "", "monday"), Scope("ann", "", "tuesday")
        for seed, scope in enumerate((monday, tuesday)):
            turns = [
                Turn(id=new_id(), scope=scope, role=Role.USER, content=f"turn {n}", said_at=NOON) for n in range(5)
            ]
            await ledger.append(scope, turns, vectors=list(unit_vectors(5, seed=seed)), by=BY)
        await fill(ledger, monday, 3, seed=2)
        await self.settled(index)
        for session in ("monday", "tuesday", "sunday"):
            filter = without_turns_of(session)
            view, rows = await index.view(monday, filter), await ledger.matching(monday, filter)
            near = await view.nearest(unit_vectors(1, seed=3)[0], limit=20)
            assert sorted(near.rows.tolist()) == sorted(rows)
            assert view.count == len(rows)
        assert len(rows) == 5 + len(await ledger.matching(monday, without_turns_of("monday")))

    async def test_what_held_at_another_moment_is_found_as_of_then(self, ledger: Ledger, index: Index) -> None:
        [old] = await fill(ledger, ANN, 1, seed=1, valid_from=NOON, valid_to=NOON + timedelta(days=1))
        [new] = await fill(ledger, ANN, 1, seed=2, valid_from=NOON + timedelta(days=1))
        await self.settled(index)
        for moment, expected in ((NOON + timedelta(hours=1), old), (NOON + timedelta(days=2), new)):
            view = await index.view(ANN, EVERYTHING, as_of=moment)
            near = await view.nearest(unit_vectors(1, seed=3)[0], limit=10)
            fetched = await ledger.fetch(ANN, near.rows.tolist(), filter=EVERYTHING, as_of=moment)
            assert [each.record.id for each in fetched] == [expected.id]

    async def test_a_vector_that_is_like_nothing_breaks_nothing(self, ledger: Ledger, index: Index) -> None:
        await fill(ledger, ANN, 20, seed=1)
        await self.settled(index)
        view = await index.view(ANN, EVERYTHING)
        near = await view.nearest(np.zeros(MODEL.dimensions, np.float32), limit=10)
        assert near.count == 20
        assert not near.scores.any()

    async def test_what_was_erased_is_nowhere_any_more(self, ledger: Ledger, index: Index) -> None:
        records, vectors = await fill(ledger, ANN, 20, seed=1), unit_vectors(20, seed=1)
        await fill(ledger, BOB, 5, seed=2)
        await self.settled(index)
        await self.ids(ledger, index, ANN, vectors[3])
        await ledger.erase(ANN, ErasureRequest(Target.MEMORY, records[3].id), by=BY)
        cleared = await index.forget("ann")
        assert (cleared.store, cleared.reached) == ("index", True)
        for result in await self.both(ledger, index, ANN, vectors[3], limit=30):
            assert set(result) == {record.id for record in records} - {records[3].id}
        await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
        await index.forget("ann")
        assert await self.both(ledger, index, ANN, vectors[3]) == [[], []]
        assert len(await self.ids(ledger, index, BOB, vectors[3])) == 5

    async def test_one_who_was_erased_can_come_back(self, ledger: Ledger, index: Index) -> None:
        await fill(ledger, ANN, 20, seed=1)
        await self.settled(index)
        await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
        await index.forget("ann")
        records = await fill(ledger, ANN, 4, seed=2)
        for result in await self.both(ledger, index, ANN, unit_vectors(1, seed=3)[0]):
            assert set(result) == {record.id for record in records}

    async def test_another_that_is_opened_later_finds_the_same(
        self, ledger: Ledger, index: Index, open_index: OpenIndex
    ) -> None:
        await fill(ledger, ANN, 100, seed=1)
        await self.settled(index)
        [question] = unit_vectors(1, seed=2)
        results = await self.ids(ledger, index, ANN, question)
        await index.close()
        repeated = await open_index(ledger)
        assert await self.ids(ledger, repeated, ANN, question) == results
        await repeated.close()


def _level(scope: Scope) -> str:
    return "session" if scope.session else "project" if scope.project else "user"


OpenEngine = Callable[[EmbeddingModel], ExternalVectorStore]
ANN_MARK, BOB_MARK = hash_user("ann"), hash_user("bob")
HERE, THERE = hash_place("here"), hash_place("there")


def stored_rows(
    first: int, count: int, *, user: str = ANN_MARK, place: str = HERE, seed: int = 1
) -> list[StoredVector]:
    """Return rows with random vectors."""
    vectors = unit_vectors(count, seed=seed)
    return [StoredVector(first + n, user, place, vector) for n, vector in enumerate(vectors)]


async def nearest(
    engine: ExternalVectorStore, row: StoredVector, *, places: Sequence[str] = (HERE,), limit: int = 5
) -> list[int]:
    """Return the rows nearest to a row that its user finds."""
    hits = await engine.nearest(row.user, row.vector, places=places, limit=limit)
    assert np.isfinite(hits.scores).all()
    return [int(each) for each in hits.rows]


async def seen(engine: ExternalVectorStore, row: StoredVector, *, first: int | None) -> list[int]:
    """Return the nearest rows once `first` is the first one or, if None, once the row is gone."""
    give_up = monotonic() + engine.settles_s + 10
    while True:
        hits = await nearest(engine, row)
        if (row.row not in hits) if first is None else hits[:1] == [first]:
            return hits
        assert monotonic() < give_up, f"not seen: {hits}"
        await asyncio.sleep(0.1)


class EngineSuite:
    """Tests for every external vector store."""

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
