"""pgvector as the settings choose it: recall for a large user, and what doctor says of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cli_runner import Cli

from recollect.errors import InvalidSettings
from recollect.index import engine_index
from recollect.index.engine_index import EngineIndex
from recollect.index.pgvector import PgvectorEngine
from recollect.model.change import By
from recollect.model.scope import Scope
from recollect.recall import Search
from recollect.remember import NewMemory
from recollect.settings import load
from recollect.testing.postgres_server import PLAIN_ROLE, running_server
from recollect.wiring import open_service

ANN = Scope("ann")
BY = By("test")


@pytest.fixture
async def plain() -> AsyncIterator[str]:
    async with running_server().database(role=PLAIN_ROLE) as dsn:
        yield dsn


def doctor(home: Path, dsn: str, code: int = 0) -> str:
    (home / "config.toml").write_text('index = "pgvector"\n')
    return Cli(home)("doctor", "--database", dsn, code=code).output


async def test_a_large_user_is_found_by_pgvector_and_doctor_counts_them(
    plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        engine_index.Sizes.__init__,
        "__kwdefaults__",
        {**(engine_index.Sizes.__init__.__kwdefaults__ or {}), "exact_rows": 3, "few_rows": 0, "timeout_s": 30.0},
    )
    database = plain.partition("//")[2].partition("/")[2].partition("?")[0]
    await running_server().run("CREATE EXTENSION vector", database=database)
    settings = load({"home": tmp_path, "database": plain, "index": "pgvector", "worker": False}, environ={}).settings
    service = await open_service(settings)
    for what in ("tea", "chess", "sailing", "the violin", "old maps"):
        await service.add(ANN, NewMemory(content=f"Ann likes {what}"), by=BY)
    index = service._finders.index
    assert isinstance(index, EngineIndex)
    assert isinstance(index._engine, PgvectorEngine)
    await index._engine.near.make_ready(["ann"])
    found = await service.search(ANN, Search(query="Which instrument does she like?", limit=5, min_score=0))
    assert {hit.record.content for hit in found.hits} >= {"Ann likes the violin"}
    assert not index.trouble
    await service.close()
    assert "with 1 large user" in await asyncio.to_thread(doctor, tmp_path, plain)


async def test_doctor_says_what_to_do_where_there_is_no_pgvector(plain: str, tmp_path: Path) -> None:
    told = await asyncio.to_thread(doctor, tmp_path, plain)
    assert "search is exact, in memory" in told
    assert "CREATE EXTENSION vector" in told


async def test_pgvector_for_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="postgresql://"):
        await open_service(load({"home": tmp_path, "index": "pgvector"}, environ={}).settings)
