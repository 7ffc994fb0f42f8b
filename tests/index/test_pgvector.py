"""The nearest vectors by pgvector: the same as by comparing with all, ready by itself, and never another's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import numpy as np
import pytest

from recollect.errors import IndexUnavailable, InvalidSettings, StoreUnavailable
from recollect.index import pgvector, pgvector_sql
from recollect.index import pgvector_sql as sql
from recollect.index.pgvector import PgvectorStore, open_pgvector
from recollect.ledger.ledger import Ledger
from recollect.ledger.postgres import PostgresEngine, open_postgres
from recollect.ledger.postgres_tables import partition
from recollect.ledger.sql.tx import Tx
from recollect.ledger.sqlite import open_in_memory
from recollect.model.change import Add, Forget, Update
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.scope import Level, Scope
from recollect.models.embedding import EmbeddingModel
from tests.support.ledger_samples import BY, memory
from tests.support.postgres_server import PLAIN_ROLE, SUPERUSER, running_server

MODEL = EmbeddingModel("test", 16)
ANN, BOB = Scope("ann"), Scope("bob")
LONG_S = 60.0


def vectors(count: int, seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    drawn = np.random.default_rng(seed).normal(size=(count, MODEL.dimensions)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@dataclass
class Store:
    """A ledger whose role is nobody special, and a connection that sees everything."""

    ledger: Ledger
    engine: PgvectorStore
    admin: Any
    dsn: str

    async def add(self, scope: Scope, count: int, *, seed: int = 0) -> list[str]:
        adds = [
            Add(memory(f"{seed} {n}", scope=scope, level=Level.PROJECT if scope.project else Level.USER), vector)
            for n, vector in enumerate(vectors(count, seed))
        ]
        return [outcome.record.id for outcome in (await self.ledger.apply(scope, adds, by=BY)).outcomes]

    async def nearest_ids(self, scope: Scope, vector: Any, limit: int = 10) -> list[str]:
        """The ids of what is nearest."""
        scored = await self.engine.nearest(scope.user, vector, places=scope.visible_keys, limit=limit)
        assert np.all(np.diff(scored.scores) <= 0)
        stored = {row["row"]: row["id"] for row in await self.admin.fetch("SELECT row, id FROM memories")}
        return [stored[row] for row in scored.rows.tolist()]

    async def ready(self, *users: str) -> None:
        await self.engine.make_ready(users)


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async for each in opened(extension=True):
        yield each


@pytest.fixture
async def without() -> AsyncIterator[Store]:
    async for each in opened(extension=False):
        yield each


async def opened(*, extension: bool) -> AsyncIterator[Store]:
    async with running_server().database(role=PLAIN_ROLE) as dsn:
        admin = await asyncpg.connect(dsn.replace(f"//{PLAIN_ROLE}@", f"//{SUPERUSER}@"))
        if extension:
            await admin.execute("CREATE EXTENSION vector")
        ledger = await open_postgres(dsn, MODEL)
        engine = open_pgvector(ledger, MODEL)
        yield Store(ledger, engine, admin, dsn)
        await engine.close()
        await admin.close()
        await ledger.close()


async def test_the_nearest_rows_are_those_of_an_exact_search(store: Store) -> None:
    stored, ids = vectors(400, seed=0), await store.add(ANN, 400)
    await store.add(BOB, 400, seed=1)
    await store.ready("ann", "bob")
    missed = 0
    for question in vectors(20, seed=2):
        expected = {ids[n] for n in np.argsort(-(stored.astype(np.float16) @ question))[:10]}
        missed += len(expected - set(await store.nearest_ids(ANN, question)))
    assert missed <= 4, "more than one in fifty was missed"


async def test_a_search_prepares_a_user_who_is_not_ready(store: Store) -> None:
    ids = await store.add(ANN, 50)
    question = vectors(1, seed=0)[0]
    with pytest.raises(IndexUnavailable, match="not ready"):
        await store.nearest_ids(ANN, question)
    async with asyncio.timeout(LONG_S):
        while not ((state := await store.engine.state()).users and state.is_indexed):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await store.nearest_ids(ANN, question))[0] == ids[0]


async def test_later_changes_are_visible_at_once(store: Store) -> None:
    ids = await store.add(ANN, 50)
    await store.ready("ann")
    [new] = await store.add(ANN, 1, seed=5)
    assert (await store.nearest_ids(ANN, vectors(1, seed=5)[0]))[0] == new
    moved = vectors(1, seed=6)[0]
    await store.ledger.apply(ANN, [Update(ids[3], {"content": "something else"}, vector=moved)], by=BY)
    assert (await store.nearest_ids(ANN, moved))[0] == ids[3]
    await store.ledger.apply(ANN, [Forget(new)], by=BY)
    assert new not in await store.nearest_ids(ANN, vectors(1, seed=5)[0], limit=60)
    await store.ledger.erase(ANN, ErasureRequest(Target.MEMORY, ids[3]), by=BY)
    assert ids[3] not in await store.nearest_ids(ANN, moved, limit=60)


async def test_only_rows_in_the_requested_places_are_found(store: Store) -> None:
    everyday = await store.add(ANN, 300)
    at_work = await store.add(Scope("ann", "work"), 5, seed=1)
    await store.add(Scope("ann", "home"), 5, seed=2)
    await store.ready("ann")
    question = vectors(5, seed=2)[0]
    results = await store.nearest_ids(Scope("ann", "work"), question, limit=400)
    assert set(results) == {*everyday, *at_work}
    scored = await store.engine.nearest(
        "ann", question, places=[Scope("ann", "work").visibility_key(Level.PROJECT)], limit=3
    )
    assert len(scored.rows) == 3
    assert not len((await store.engine.nearest("ann", question, places=["nowhere"], limit=3)).rows)


async def test_small_users_take_no_space_in_the_index(store: Store) -> None:
    await store.add(ANN, 30)
    await store.add(BOB, 20, seed=1)
    assert await store.engine.rebuild(large=25) == 30
    results = await store.admin.fetch("SELECT user_id, count(half) FROM vectors GROUP BY user_id ORDER BY user_id")
    assert [tuple(row) for row in results] == [("ann", 30), ("bob", 0)]
    with pytest.raises(IndexUnavailable):
        await store.nearest_ids(BOB, vectors(1, seed=1)[0])


async def test_rows_written_while_a_user_is_prepared_are_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.add(ANN, 60)
    monkeypatch.setattr(pgvector, "FILL_BATCH", 3)
    making = asyncio.create_task(store.ready("ann"))
    output = 0
    while not making.done():
        output += 1
        await store.add(ANN, 1, seed=100 + output)
    await making
    assert output > 1
    for number in range(1, output + 1):
        await store.nearest_ids(ANN, vectors(1, seed=100 + number)[0])
    assert not await store.admin.fetchval("SELECT count(*) FROM vectors WHERE half IS NULL")


async def test_pgvector_is_not_searched_before_there_is_an_index(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.add(ANN, 30)

    with monkeypatch.context() as patch:
        patch.setattr(pgvector_sql, "create_index", lambda *_: "SELECT no_such_column")
        with pytest.raises(StoreUnavailable):
            await store.ready("ann")
    with pytest.raises(IndexUnavailable):
        await store.nearest_ids(ANN, vectors(1, seed=0)[0])
    await store.ready("ann")
    await store.nearest_ids(ANN, vectors(1, seed=0)[0])


async def test_all_kinds_of_half_precision_numbers_are_converted_exactly(store: Store) -> None:
    await store.add(ANN, 1)
    await store.ready("ann")
    kinds = np.array([0, 1, -1, 0.5, -2, 6e-8, -6e-8, 6.1e-5, 65504, -65504, 1 / 3, 1e-3, 5e-5], np.float16)
    report = await store.admin.fetchval("SELECT recollect_half($1)::real[]", kinds.astype("<f2").tobytes())
    assert np.array_equal(np.array(report, np.float16), kinds)


async def test_the_search_goes_by_the_index_under_row_level_security(store: Store) -> None:
    await store.add(ANN, 300)
    await store.ready("ann")
    number = await store.admin.fetchval("SELECT number FROM models")
    request = {
        "user": "ann",
        "model": number,
        "vector": str(vectors(1, 0)[0].tolist()),
        "places": list(ANN.visible_keys),
        "limit": 10,
    }

    async def explained(tx: Tx) -> list[str]:
        await tx.rows(sql.READY, request)
        return [row[0] for row in await tx.rows(f"EXPLAIN {sql.nearest(number, MODEL.dimensions)}", request)]

    plans = await store.ledger.engine.read(explained, tenant="ann")
    assert any("vectors_near_" in line for line in plans), "\n".join(plans)


async def test_an_interrupted_index_build_is_repeated(store: Store) -> None:
    await store.add(ANN, 30)
    await store.ready("ann")
    await store.admin.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = (SELECT oid FROM pg_class "
        "WHERE relname LIKE 'vectors_near_%')"
    )
    assert await store.ledger.check() == []
    assert not (await store.engine.state()).is_indexed
    await store.ready("ann")
    assert (await store.engine.state()).is_indexed


async def test_verify_reports_wrong_and_missing_vectors(store: Store) -> None:
    await store.add(ANN, 30)
    assert await store.engine.verify() == []
    await store.ready("ann")
    assert await store.engine.verify() == [("ann", 30, 0)]
    await store.admin.execute(
        "ALTER TABLE vectors DISABLE TRIGGER keep_half; UPDATE vectors SET half = NULL WHERE row IN "
        "(SELECT row FROM vectors LIMIT 2); ALTER TABLE vectors ENABLE TRIGGER keep_half"
    )
    assert await store.engine.verify() == [("ann", 30, 2)]
    await store.engine.rebuild(large=1)
    assert await store.engine.verify() == [("ann", 30, 0)]


async def test_several_processes_prepare_a_user_once(store: Store) -> None:
    await store.add(ANN, 30)
    rest = [await open_postgres(store.dsn, MODEL) for _ in range(3)]
    engines = [open_pgvector(ledger, MODEL) for ledger in rest]
    await asyncio.gather(*(engine.make_ready(["ann"]) for engine in engines))
    assert (await store.nearest_ids(ANN, vectors(1, seed=0)[0], limit=30)).__len__() == 30
    assert await store.admin.fetchval("SELECT count(*) FROM pg_class WHERE relname LIKE 'vectors_near_%'") == 1
    for ledger in rest:
        await ledger.close()


async def test_partitioned_tables_have_an_index_for_each_partition(store: Store) -> None:
    ids = await store.add(ANN, 40)
    await store.ready("ann")
    engine = store.ledger.engine
    assert isinstance(engine, PostgresEngine)
    await partition(engine, 3)
    with pytest.raises(IndexUnavailable):
        await store.nearest_ids(ANN, vectors(1, seed=0)[0])
    await store.ready("ann")
    assert (await store.nearest_ids(ANN, vectors(1, seed=0)[0]))[0] == ids[0]
    [new] = await store.add(ANN, 1, seed=5)
    assert (await store.nearest_ids(ANN, vectors(1, seed=5)[0]))[0] == new
    assert await store.admin.fetchval("SELECT count(*) FROM pg_class WHERE relname LIKE 'vectors_near_%'") == 3


async def test_without_the_extension_the_remedy_is_reported_and_search_works(without: Store) -> None:
    await without.add(ANN, 3)
    assert "superuser" in (await without.engine.state()).trouble
    with pytest.raises(IndexUnavailable):
        await without.nearest_ids(ANN, vectors(1, seed=0)[0])
    async with asyncio.timeout(LONG_S):
        while "CREATE EXTENSION vector" not in await refusal(without):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def refusal(store: Store) -> str:
    with pytest.raises(IndexUnavailable) as refused:
        await store.nearest_ids(ANN, vectors(1, seed=0)[0])
    return str(refused.value)


async def test_a_ledger_that_is_not_in_postgresql_has_no_pgvector() -> None:
    with pytest.raises(InvalidSettings, match="postgresql://"):
        open_pgvector(await open_in_memory(MODEL), MODEL)
