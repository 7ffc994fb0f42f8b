"""An index over pgvector keeps the promise of every index, before a user is made ready for it and after."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from recollect.index.pgvector import PgvectorStore, open_pgvector
from recollect.index.protocol import Index
from recollect.index.vector_store import VectorStore
from recollect.index.vector_store_index import VectorStoreIndex, VectorStoreLimits, VectorStoreView
from recollect.ledger.ledger import Ledger
from recollect.ledger.postgres import open_postgres
from recollect.ledger.types import ScoredRows
from recollect.model.query import EVERYTHING
from recollect.model.scope import Scope
from tests.support.index_suite import ANN, MODEL, IndexSuite, OpenIndex, fill, unit_vectors
from tests.support.postgres_server import PLAIN_ROLE, running_server

ALWAYS = VectorStoreLimits(exact_rows=0, few_rows=0, timeout_s=30.0)
TEMPLATE = "with_pgvector"
MADE: list[str] = []


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    server = running_server()
    if not MADE:
        # Done once, then copied.
        dsn = await server.make(TEMPLATE, role=PLAIN_ROLE)
        await server.run("CREATE EXTENSION vector", database=TEMPLATE)
        await (await open_postgres(dsn, MODEL)).close()
        MADE.append(dsn)
    async with server.database(TEMPLATE, role=PLAIN_ROLE) as dsn:
        ledger = await open_postgres(dsn, MODEL)
        yield ledger
        await ledger.close()


async def open_index(ledger: Ledger) -> VectorStoreIndex:
    return VectorStoreIndex(ledger, MODEL, open_pgvector(ledger, MODEL), limits=ALWAYS)


async def make_ready(ledger: Ledger, index: Index) -> None:
    assert isinstance(index, VectorStoreIndex)
    assert isinstance(index.store, PgvectorStore)
    if await ledger.models():
        await index.store.make_ready(await ledger.users())


class TestPgvectorIndex(IndexSuite):
    @pytest.fixture
    async def ledger(self, ledger: Ledger) -> Ledger:
        self.stored = ledger
        return ledger

    @pytest.fixture
    def open_index(self) -> OpenIndex:
        return open_index

    async def settled(self, index: Index) -> None:
        await make_ready(self.stored, index)


def recorded_answers(store: VectorStore, monkeypatch: pytest.MonkeyPatch) -> list[ScoredRows]:
    """Return a list to which the answers of the store are added."""
    answers, nearest = list[ScoredRows](), store.nearest

    async def record(*args: Any, **kwargs: Any) -> ScoredRows:
        answers.append(await nearest(*args, **kwargs))
        return answers[-1]

    monkeypatch.setattr(store, "nearest", record)
    return answers


async def test_a_large_user_is_searched_by_pgvector_and_not_by_reading_all(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(ledger, ANN, 300, seed=1)
    index = await open_index(ledger)
    await make_ready(ledger, index)
    view = await index.view(ANN, EVERYTHING)
    assert isinstance(view, VectorStoreView)
    answers = recorded_answers(index.store, monkeypatch)
    assert len((await view.nearest(unit_vectors(1, seed=2)[0], limit=10)).rows) == 10
    assert len(answers) == 1
    await index.close()


async def test_users_who_are_not_ready_do_not_open_the_breaker(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(ledger, ANN, 300, seed=1)
    late = [Scope(f"late {number}") for number in range(30)]
    for scope in late:
        await fill(ledger, scope, 1, seed=2)
    index = await open_index(ledger)
    assert isinstance(index.store, PgvectorStore)
    await index.store.make_ready(["ann"])
    # They stay as they are, however long this takes.
    monkeypatch.setattr(index.store, "request_build", lambda user: None)
    question = unit_vectors(1, seed=3)[0]
    for scope in late:
        view = await index.view(scope, EVERYTHING)
        assert len((await view.nearest(question, limit=1)).rows) == 1
    assert index.last_error == ""
    answers = recorded_answers(index.store, monkeypatch)
    view = await index.view(ANN, EVERYTHING)
    assert len((await view.nearest(question, limit=10)).rows) == 10
    assert len(answers) == 1
    await index.close()
