"""The exact index: the same as comparing with every vector, within its memory, up to date at every search."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from recollect.index.exact import ExactIndex
from recollect.ledger.ledger import Ledger
from recollect.ledger.sqlite import open_sqlite
from recollect.model.change import Add, Author, Forget, Supersede, Update
from recollect.model.ids import new_id
from recollect.model.memory import MemoryRecord
from recollect.model.query import EVERYTHING, parse_filter
from recollect.model.scope import Scope
from recollect.model.turn import Role, Turn
from recollect.models.embedding import EmbeddingModel
from recollect.models.traits import Trait
from recollect.write.draft import draft

MODEL = EmbeddingModel("random", 16)
BY = Author("test")
ANN = Scope("ann")
NOON = datetime(2026, 3, 15, 12, tzinfo=UTC)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    ledger = await open_sqlite(tmp_path / "recollect.db", MODEL)
    yield ledger
    await ledger.close()


def index_of(ledger: Ledger, *, budget: int = 1 << 30) -> ExactIndex:
    return ExactIndex(ledger, MODEL, budget_bytes=budget)


def unit_vectors(count: int, *, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, MODEL.dimensions)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


async def fill(
    ledger: Ledger, scope: Scope, count: int, *, seed: int = 0, **fields: object
) -> Sequence[MemoryRecord]:
    vectors = unit_vectors(count, seed=seed)
    records = [draft(scope, f"memory {seed} {n}", fields) for n in range(count)]
    await ledger.apply(scope, [Add(r, v) for r, v in zip(records, vectors, strict=True)], by=BY)
    return records


async def nearest_ids(
    ledger: Ledger, index: ExactIndex, scope: Scope, vector: np.ndarray, **arguments: object
) -> list[str]:
    options = {"filter": EVERYTHING, "limit": 10, **arguments}
    view = await index.view(scope, options["filter"])  # type: ignore[arg-type]
    scored = await view.nearest(vector, limit=options["limit"])  # type: ignore[arg-type]
    by_row = {each.row: each.record.id for each in await ledger.fetch(scope, scored.rows.tolist(), filter=EVERYTHING)}
    return [by_row[row] for row in scored.rows.tolist()]


async def test_it_finds_what_comparing_with_every_vector_finds(ledger: Ledger) -> None:
    records, vectors = await fill(ledger, ANN, 500, seed=1), unit_vectors(500, seed=1)
    index = index_of(ledger)
    for question in unit_vectors(20, seed=2):
        cosines = vectors.astype(np.float16).astype(np.float32) @ question
        best = np.argsort(-cosines)[:10]
        assert await nearest_ids(ledger, index, ANN, question) == [records[at].id for at in best]
        scored = await (await index.view(ANN, EVERYTHING)).nearest(question, limit=10)
        # The question is rounded to half precision, as the vectors are.
        np.testing.assert_allclose(scored.scores, np.maximum(cosines[best], 0), atol=3e-4)


async def test_a_search_does_not_leak_references(ledger: Ledger) -> None:
    await fill(ledger, ANN, 50, seed=1)
    view, [question] = await index_of(ledger).view(ANN, EVERYTHING), unit_vectors(1, seed=2)
    before = sys.getrefcount(None)
    for _ in range(500):
        await view.nearest(question, limit=10)
    # A library that counts wrongly loses one with each call, and in time the interpreter.
    assert sys.getrefcount(None) > before - 250


async def test_a_user_without_memories_finds_nothing(ledger: Ledger) -> None:
    index, [question] = index_of(ledger), unit_vectors(1, seed=0)
    assert await nearest_ids(ledger, index, ANN, question) == []
    nobody = await index.view(ANN, EVERYTHING)
    assert (await nobody.similarity(question, np.array([1, 2]))).tolist() == [0, 0]


async def test_a_filter_applies_before_the_best_are_chosen(ledger: Ledger) -> None:
    await fill(ledger, ANN, 200, seed=1)
    rare = await fill(ledger, ANN, 3, seed=2, tags=["rare"])
    [question] = unit_vectors(1, seed=3)
    request = {"filter": parse_filter({"tags": "rare"}), "limit": 3}
    assert set(await nearest_ids(ledger, index_of(ledger), ANN, question, **request)) == {
        record.id for record in rare
    }


async def test_only_the_places_seen_from_the_scope_are_found(ledger: Ledger) -> None:
    here, there = Scope("ann", "x"), Scope("ann", "y")
    own = await fill(ledger, here, 5, seed=1)
    await fill(ledger, there, 5, seed=2)
    await fill(ledger, Scope("bob", "x"), 5, seed=3)
    [question] = unit_vectors(1, seed=4)
    assert set(await nearest_ids(ledger, index_of(ledger), here, question)) == {record.id for record in own}


async def test_changes_of_any_kind_are_visible_in_the_next_search(ledger: Ledger) -> None:
    first, second = (await fill(ledger, ANN, 2, seed=1))[:2]
    vectors, index = unit_vectors(2, seed=1), index_of(ledger)
    assert (await nearest_ids(ledger, index, ANN, vectors[0]))[0] == first.id
    await ledger.apply(ANN, [Forget(first.id)], by=BY)
    assert await nearest_ids(ledger, index, ANN, vectors[0]) == [second.id]
    await ledger.apply(ANN, [Update(second.id, {"content": "new words"})], by=BY)
    assert await nearest_ids(ledger, index, ANN, vectors[1]) == []
    [third] = await fill(ledger, ANN, 1, seed=9)
    assert await nearest_ids(ledger, index, ANN, unit_vectors(1, seed=9)[0]) == [third.id]


@pytest.mark.parametrize("count", [1, 32, 33, 200])
async def test_all_rows_added_since_the_last_search_are_found(ledger: Ledger, count: int) -> None:
    await fill(ledger, ANN, 10, seed=1)
    index = index_of(ledger)
    assert (await index.view(ANN, EVERYTHING)).count == 10
    await fill(ledger, ANN, count, seed=2)
    assert (await index.view(ANN, EVERYTHING)).count == 10 + count


async def test_the_least_recently_used_users_are_dropped_beyond_the_budget(ledger: Ledger) -> None:
    scopes = [Scope(f"user {n}") for n in range(6)]
    for n, scope in enumerate(scopes):
        await fill(ledger, scope, 100, seed=n)
    await nearest_ids(ledger, probe := index_of(ledger), scopes[0], unit_vectors(1, seed=50)[0])
    one_user = probe.nbytes
    index, [question] = index_of(ledger, budget=3 * one_user), unit_vectors(1, seed=50)
    for scope in scopes:
        assert len(await nearest_ids(ledger, index, scope, question)) == 10
        assert index.nbytes <= 3 * one_user
    assert [n for n in range(6) if index.loaded_rows(f"user {n}")] == [3, 4, 5]


async def test_concurrent_searches_and_writes_are_consistent(ledger: Ledger) -> None:
    index, questions = index_of(ledger), unit_vectors(40, seed=7)
    await fill(ledger, ANN, 50, seed=1)

    async def write(n: int) -> None:
        await fill(ledger, ANN, 20, seed=100 + n)

    async def search(n: int) -> None:
        assert len(await nearest_ids(ledger, index, ANN, questions[n])) == 10

    await asyncio.gather(*(write(n) if n % 4 == 0 else search(n) for n in range(40)))
    ids = await nearest_ids(ledger, index, ANN, questions[0], limit=1000)
    assert len(set(ids)) == len(ids) == index.loaded_rows("ann") == 50 + 20 * 10


SESSION, OTHER = Scope("ann", "", "s"), Scope("ann", "", "t")


async def say(ledger: Ledger, scope: Scope, *texts: str, seed: int = 0, name: str | None = None) -> Sequence[Turn]:
    turns = [
        Turn(id=new_id(), scope=scope, role=Role.USER, content=text, said_at=NOON + timedelta(seconds=n), name=name)
        for n, text in enumerate(texts)
    ]
    return (await ledger.append(scope, turns, vectors=list(unit_vectors(len(texts), seed=seed)), by=BY)).turns


async def rows_of(ledger: Ledger, scope: Scope, *records: Turn | MemoryRecord) -> np.ndarray:
    numbers = []
    for record in records:
        [row] = await ledger.matching(scope, parse_filter({"id": record.id}))
        numbers.append(row)
    return np.array(numbers, np.int64)


async def test_neighbors_are_the_turns_before_and_after_in_the_session(ledger: Ledger) -> None:
    one, two = await say(ledger, SESSION, "one", "two")
    [lone] = await say(ledger, OTHER, "elsewhere", seed=1)
    fact = (await fill(ledger, ANN, 1, seed=2))[0]
    index = index_of(ledger)
    await index.view(SESSION, EVERYTHING)
    [three] = await say(ledger, SESSION, "three", seed=3)
    view = await index.view(SESSION, EVERYTHING)
    rows = await rows_of(ledger, SESSION, one, two, three, fact)
    before, after = view.neighbors(rows)
    assert before.tolist() == [-1, rows[0], rows[1], -1]
    assert after.tolist() == [rows[1], rows[2], -1, -1]
    elsewhere = await rows_of(ledger, OTHER, lone)
    assert [side.tolist() for side in (await index.view(OTHER, EVERYTHING)).neighbors(elsewhere)] == [[-1], [-1]]
    assert [side.tolist() for side in view.neighbors(np.array([10**6]))] == [[-1], [-1]]
    assert [side.tolist() for side in view.neighbors(np.empty(0, np.int64))] == [[], []]


async def test_an_invisible_turn_is_no_neighbor(ledger: Ledger) -> None:
    one, two, three = await say(ledger, SESSION, "one", "two", "three")
    index = index_of(ledger)
    rows = await rows_of(ledger, SESSION, one, two, three)
    filtered = await index.view(SESSION, parse_filter({"id": {"ne": two.id}}))
    assert [side.tolist() for side in filtered.neighbors(rows[[0, 2]])] == [[-1, -1], [-1, -1]]
    await ledger.apply(SESSION, [Forget(two.id)], by=BY)
    view = await index.view(SESSION, EVERYTHING)
    assert [side.tolist() for side in view.neighbors(rows[[0, 2]])] == [[-1, -1], [-1, -1]]
    assert view.is_visible(rows).tolist() == [True, False, True]


async def test_a_turn_of_another_project_is_no_neighbor(ledger: Ledger) -> None:
    there = Scope("ann", "p", "s")
    turns = await say(ledger, there, "one", "two", "three")
    index, rows = index_of(ledger), await rows_of(ledger, there, *turns)
    assert (await index.view(there, EVERYTHING)).neighbors(rows)[0].tolist() == [-1, rows[0], rows[1]]
    for scope in (ANN, Scope("ann", "q", "s"), Scope("bob", "p", "s")):
        assert [side.tolist() for side in (await index.view(scope, EVERYTHING)).neighbors(rows)] == [
            [-1] * 3,
            [-1] * 3,
        ]


async def test_a_view_does_not_see_a_later_turn(ledger: Ledger) -> None:
    [one] = await say(ledger, SESSION, "one")
    index = index_of(ledger)
    earlier = await index.view(SESSION, EVERYTHING)
    [two] = await say(ledger, SESSION, "two", seed=1)
    later = await index.view(SESSION, EVERYTHING)
    rows = await rows_of(ledger, SESSION, one, two)
    assert earlier.neighbors(rows[:1])[1].tolist() == [-1]
    assert later.neighbors(rows[:1])[1].tolist() == [rows[1]]
    assert earlier.is_visible(rows).tolist() == [True, False]


async def test_vectors_are_returned_in_the_order_of_the_rows(ledger: Ledger) -> None:
    records, vectors = await fill(ledger, ANN, 4, seed=1), unit_vectors(4, seed=1)
    bare = draft(ANN, "without a vector", {})
    await ledger.apply(ANN, [Add(bare)], by=BY)
    view = await index_of(ledger).view(ANN, EVERYTHING)
    rows = await rows_of(ledger, ANN, records[2], bare, records[0])
    results = await view.vectors(np.append(rows, 10**6))
    np.testing.assert_allclose(results[[0, 2]], vectors[[2, 0]], atol=1e-3)
    assert not results[[1, 3]].any()
    assert (await view.vectors(np.empty(0, np.int64))).shape == (0, MODEL.dimensions)
    nobody = await index_of(ledger).view(Scope("nobody"), EVERYTHING)
    assert (await nobody.vectors(np.array([1, 2]))).tolist() == [[0.0] * MODEL.dimensions] * 2


async def test_traits_have_codes_for_sessions_and_speakers(ledger: Ledger) -> None:
    one, two = await say(ledger, SESSION, "I prefer tea", "Is it 5?", name="Ann Lee")
    [other] = await say(ledger, OTHER, "hello", seed=1, name="Bob")
    [fact] = await fill(ledger, ANN, 1, seed=2, importance=0.9, occurred_at=NOON)
    index = index_of(ledger)
    view = await index.view(SESSION, EVERYTHING)
    rows = await rows_of(ledger, SESSION, one, two, fact)
    report = view.traits(np.append(rows, 10**6))
    assert view.speakers_called({"ann", "bob", "lee"}) == {"ann lee": 0, "bob": 1}
    assert report.speakers.tolist() == [0, 0, -1, -1]
    assert report.sessions[0] == report.sessions[1] >= 0
    assert report.sessions.tolist()[2:] == [-1, -1]
    assert report.words.tolist() == [3, 3, 3, 0]
    assert report.flags.tolist()[0] == Trait.TURN | Trait.USER | Trait.FIRST_PERSON | Trait.PREFERS
    assert report.flags.tolist()[1] == Trait.TURN | Trait.USER | Trait.ASKS | Trait.COUNTS
    assert report.at_s.tolist() == [NOON.timestamp(), NOON.timestamp() + 1, NOON.timestamp(), 0]
    assert report.embedded.tolist() == [True, True, True, False]
    theirs = (await index.view(OTHER, EVERYTHING)).traits(await rows_of(ledger, OTHER, other))
    assert theirs.sessions[0] != report.sessions[0]
    await ledger.apply(ANN, [Update(fact.id, {"content": "Am I late?"})], by=BY)
    anew = (await index.view(ANN, EVERYTHING)).traits(rows[2:])
    assert anew.flags.tolist() == [Trait.ASKS | Trait.FIRST_PERSON]


async def test_a_view_as_of_a_moment_finds_what_was_valid_then(ledger: Ledger) -> None:
    [old], vectors = await fill(ledger, ANN, 1, seed=1, valid_from=NOON), unit_vectors(1, seed=1)
    new = draft(ANN, "took its place", {"valid_from": NOON + timedelta(days=9)})
    await ledger.apply(ANN, [Supersede(old.id, new, vector=vectors[0])], by=BY)
    index = index_of(ledger)
    for moment, expected in (
        (NOON - timedelta(days=1), []),
        (NOON + timedelta(days=1), [old.id]),
        (NOON + timedelta(days=10), [new.id]),
        (None, [new.id]),
    ):
        view = await index.view(ANN, EVERYTHING, as_of=moment)
        near = await view.nearest(vectors[0], limit=5)
        seen = await ledger.fetch(ANN, near.rows.tolist(), filter=EVERYTHING, as_of=moment)
        assert [each.record.id for each in seen] == expected
        assert near.count == len(expected)
        assert view.is_visible(near.rows).all()
    bob = await index.view(Scope("bob"), EVERYTHING, as_of=NOON + timedelta(days=1))
    assert (await bob.nearest(vectors[0], limit=5)).count == 0
