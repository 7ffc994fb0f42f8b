"""pgvector as the settings choose it: recall for a large user, and what doctor says of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from cli_runner import Cli

from recollect.errors import InvalidSettings
from recollect.index import engine_index
from recollect.index.pgvector import hnsw_index_of
from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.recall import SearchRequest
from recollect.remember import MemoryInput
from recollect.settings import load
from recollect.testing.postgres_server import PLAIN_ROLE, running_server
from recollect.wiring import open_service

ANN = Scope("ann")
BY = Author("test")


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
    monkeypatch.setattr(engine_index, "VectorStoreLimits", partial(engine_index.VectorStoreLimits, few_rows=0))
    database = plain.partition("//")[2].partition("/")[2].partition("?")[0]
    await running_server().run("CREATE EXTENSION vector", database=database)
    options = {"index": "pgvector", "index_exact_rows": 3, "index_timeout_s": 30, "worker": False}
    service = await open_service(load({"home": tmp_path, "database": plain, **options}, environ={}).settings)
    for what in ("tea", "chess", "sailing", "the violin", "old maps"):
        await service.add(ANN, MemoryInput(content=f"Ann likes {what}"), by=BY)
    index = service._search_deps.index
    near = hnsw_index_of(index)
    assert near is not None
    await near.make_ready(["ann"])
    hits = await service.search(ANN, SearchRequest(query="Which instrument does she like?", limit=5, min_score=0))
    assert {hit.record.content for hit in hits.hits} >= {"Ann likes the violin"}
    assert not service.operations.index_trouble
    await service.close()
    assert "with 1 large user" in await asyncio.to_thread(doctor, tmp_path, plain)
    cli = Cli(tmp_path)
    (tmp_path / "config.toml").write_text(f'index = "pgvector"\nindex_exact_rows = 3\ndatabase = "{plain}"\n')
    for command, line in (("status", "rows of 1 user"), ("verify", "All right: 5 rows"), ("rebuild", "Fed 5 rows")):
        assert line in (await asyncio.to_thread(cli, "index", command)).output


async def test_doctor_says_what_to_do_where_there_is_no_pgvector(plain: str, tmp_path: Path) -> None:
    report = await asyncio.to_thread(doctor, tmp_path, plain)
    assert "search is exact, in memory" in report
    assert "CREATE EXTENSION vector" in report


async def test_pgvector_for_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="postgresql://"):
        await open_service(load({"home": tmp_path, "index": "pgvector"}, environ={}).settings)
