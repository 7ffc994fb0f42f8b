"""The exact index: the same as comparing with every vector, within its memory, up to date at every search."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from recollect.index.exact import ExactIndex
from recollect.ledger.protocol import Ledger
from recollect.ledger.sqlite import open_sqlite
from recollect.model.change import Add, By, Forget, Update
from recollect.model.filters import read_filter
from recollect.model.memory import MemoryRecord
from recollect.model.query import EVERYTHING
from recollect.model.scope import Scope
from recollect.models.embedding import EmbeddingModel
from recollect.write.draft import draft

MODEL = EmbeddingModel("random", 16)
BY = By("test")
ANN = Scope("ann")


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


async def found(ledger: Ledger, index: ExactIndex, scope: Scope, vector: np.ndarray, **asked: object) -> list[str]:
    options = {"filter": EVERYTHING, "limit": 10, **asked}
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
        assert await found(ledger, index, ANN, question) == [records[at].id for at in best]
        scored = await (await index.view(ANN, EVERYTHING)).nearest(question, limit=10)
        np.testing.assert_allclose(scored.scores, np.maximum(cosines[best], 0), atol=1e-5)


async def test_someone_without_memories_finds_nothing(ledger: Ledger) -> None:
    index, [question] = index_of(ledger), unit_vectors(1, seed=0)
    assert await found(ledger, index, ANN, question) == []
    assert (await index.view(ANN, EVERYTHING)).similarity(question, np.array([1, 2])).tolist() == [0, 0]


async def test_a_filter_applies_before_the_best_are_chosen(ledger: Ledger) -> None:
    await fill(ledger, ANN, 200, seed=1)
    rare = await fill(ledger, ANN, 3, seed=2, tags=["rare"])
    [question] = unit_vectors(1, seed=3)
    asked = {"filter": read_filter({"tags": "rare"}), "limit": 3}
    assert set(await found(ledger, index_of(ledger), ANN, question, **asked)) == {record.id for record in rare}


async def test_only_the_places_seen_from_the_scope_are_found(ledger: Ledger) -> None:
    here, there = Scope("ann", "x"), Scope("ann", "y")
    own = await fill(ledger, here, 5, seed=1)
    await fill(ledger, there, 5, seed=2)
    await fill(ledger, Scope("bob", "x"), 5, seed=3)
    [question] = unit_vectors(1, seed=4)
    assert set(await found(ledger, index_of(ledger), here, question)) == {record.id for record in own}


async def test_changes_of_any_kind_show_at_the_next_search(ledger: Ledger) -> None:
    first, second = (await fill(ledger, ANN, 2, seed=1))[:2]
    vectors, index = unit_vectors(2, seed=1), index_of(ledger)
    assert (await found(ledger, index, ANN, vectors[0]))[0] == first.id
    await ledger.apply(ANN, [Forget(first.id)], by=BY)
    assert await found(ledger, index, ANN, vectors[0]) == [second.id]
    await ledger.apply(ANN, [Update(second.id, {"content": "new words"})], by=BY)
    assert await found(ledger, index, ANN, vectors[1]) == []
    [third] = await fill(ledger, ANN, 1, seed=9)
    assert await found(ledger, index, ANN, unit_vectors(1, seed=9)[0]) == [third.id]


async def test_the_least_used_leave_when_memory_runs_short(ledger: Ledger) -> None:
    scopes = [Scope(f"user {n}") for n in range(6)]
    for n, scope in enumerate(scopes):
        await fill(ledger, scope, 100, seed=n)
    await found(ledger, probe := index_of(ledger), scopes[0], unit_vectors(1, seed=50)[0])
    one_user = probe.nbytes
    index, [question] = index_of(ledger, budget=3 * one_user), unit_vectors(1, seed=50)
    for scope in scopes:
        assert len(await found(ledger, index, scope, question)) == 10
        assert index.nbytes <= 3 * one_user
    assert list(index._shards) == ["user 3", "user 4", "user 5"]


async def test_searches_and_writes_at_once_never_disagree(ledger: Ledger) -> None:
    index, questions = index_of(ledger), unit_vectors(40, seed=7)
    await fill(ledger, ANN, 50, seed=1)

    async def write(n: int) -> None:
        await fill(ledger, ANN, 20, seed=100 + n)

    async def search(n: int) -> None:
        assert len(await found(ledger, index, ANN, questions[n])) == 10

    await asyncio.gather(*(write(n) if n % 4 == 0 else search(n) for n in range(40)))
    shard = index._shards["ann"]
    await search(0)
    assert (np.diff(shard.rows[: shard.count]) > 0).all()
    assert shard.count == 50 + 20 * 10
