"""An index over pgvector keeps the promise of every index, before a user is made ready for it and after."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from recollect.index.engine_index import EngineIndex, Sizes
from recollect.index.engine_view import EngineView
from recollect.index.pgvector import PgvectorEngine, open_pgvector
from recollect.index.protocol import Index
from recollect.ledger.postgres import open_postgres
from recollect.ledger.protocol import Ledger
from recollect.ledger.sql.ledger import SqlLedger
from recollect.model.query import EVERYTHING
from recollect.model.scope import Scope
from recollect.testing.index_suite import ANN, MODEL, IndexSuite, OpenIndex, fill, unit_vectors
from recollect.testing.postgres_server import PLAIN_ROLE, running_server

ALWAYS = Sizes(exact_rows=0, few_rows=0, timeout_s=30.0)
TEMPLATE = "with_pgvector"
MADE: list[str] = []


@pytest.fixture
async def ledger() -> AsyncIterator[SqlLedger]:
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


async def open_index(ledger: Ledger) -> EngineIndex:
    return EngineIndex(ledger, MODEL, open_pgvector(ledger, MODEL), sizes=ALWAYS)


async def make_ready(ledger: Ledger, index: Index) -> None:
    assert isinstance(index, EngineIndex)
    assert isinstance(index._engine, PgvectorEngine)
    if await ledger.models():
        await index._engine.near.make_ready(await ledger.users())


class TestPgvectorIndex(IndexSuite):
    @pytest.fixture
    async def ledger(self, ledger: SqlLedger) -> SqlLedger:
        self.held = ledger
        return ledger

    @pytest.fixture
    def open_index(self) -> OpenIndex:
        return open_index

    async def settled(self, index: Index) -> None:
        await make_ready(self.held, index)


async def test_a_large_user_is_searched_by_pgvector_and_not_by_reading_all(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(ledger, ANN, 300, seed=1)
    index = await open_index(ledger)
    await make_ready(ledger, index)
    view = await index.view(ANN, EVERYTHING)
    assert isinstance(view, EngineView)
    monkeypatch.delattr(EngineView, "_compared")
    assert len((await view.nearest(unit_vectors(1, seed=2)[0], limit=10)).rows) == 10
    await index.close()


async def test_users_who_are_not_ready_keep_nobody_from_pgvector(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(ledger, ANN, 300, seed=1)
    late = [Scope(f"late {number}") for number in range(30)]
    for scope in late:
        await fill(ledger, scope, 1, seed=2)
    index = await open_index(ledger)
    assert isinstance(index.engine, PgvectorEngine)
    await index.engine.near.make_ready(["ann"])
    # They stay as they are, however long this takes.
    monkeypatch.setattr(index.engine.near, "want", lambda user: None)
    question = unit_vectors(1, seed=3)[0]
    for scope in late:
        view = await index.view(scope, EVERYTHING)
        assert len((await view.nearest(question, limit=1)).rows) == 1
    assert (index.trouble, index._asked.is_away) == ("", False)
    monkeypatch.delattr(EngineView, "_compared")
    view = await index.view(ANN, EVERYTHING)
    assert len((await view.nearest(question, limit=10)).rows) == 10
    await index.close()
