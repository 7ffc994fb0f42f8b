"""An index with an engine behind a whole service: fed while it runs, told of where operators look, erased from."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from recollect.config.settings import Settings, load
from recollect.errors import InvalidSettings
from recollect.http.app import make_app
from recollect.index import vector_store_index
from recollect.index.exact import ExactIndex
from recollect.index.milvus import MilvusOptions
from recollect.index.pgvector import pgvector_store_of
from recollect.index.vector_store import hash_user
from recollect.index.vector_store_index import VectorStoreIndex
from recollect.ledger.sqlite import open_in_memory
from recollect.model.change import Author
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.scope import Scope
from recollect.remember import MemoryInput
from recollect.search import SearchRequest
from recollect.wiring import open_index, open_service
from tests.support.cli_runner import Cli
from tests.support.faulty_vector_store import FaultyVectorStore
from tests.support.index_suite import MODEL
from tests.support.postgres_server import PLAIN_ROLE, running_server

ANN, BY = Scope("ann"), Author("test")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FaultyVectorStore:
    engine = FaultyVectorStore()
    monkeypatch.setattr("recollect.wiring.open_vector_store", lambda settings, model: engine)
    return engine


def settings_of(home: Path, **more: object) -> Settings:
    options = {"home": home, "index": "milvus", "index_exact_rows": 0, "worker": False, **more}
    return load(options, environ={}).settings


async def test_memories_are_synced_found_and_erased_with_a_receipt(tmp_path: Path, engine: FaultyVectorStore) -> None:
    service = await open_service(settings_of(tmp_path))
    service.jobs.start()
    try:
        for text in ("I play the cello", "My sister lives in Lisbon", "The boiler was repaired in March"):
            await service.add(ANN, MemoryInput(content=text), by=BY)
        async with asyncio.timeout(30):
            await engine.wait_for_rows(3)
        hits = await service.search(ANN, SearchRequest(query="Where does my sister live?", limit=3))
        assert "Lisbon" in hits.hits[0].record.content
        receipt = await service.erasure.erase(ANN, ErasureRequest(Target.MEMORY, hits.hits[0].id), by=BY)
        [report] = [store for store in receipt.stores if store.store == "index"]
        assert report.reached
        # Unless who feeds it behind was sooner.
        assert report.counts["rows in the engine"] in (0, 1)
        assert "unruly" in report.note
        assert len(engine.stored) == 2
        engine.away = True
        receipt = await service.erasure.erase(ANN, ErasureRequest(Target.USER), by=BY)
        [report] = [store for store in receipt.stores if store.store == "index"]
        assert not report.reached
        engine.away = False
        await service.jobs.run_pending()
        assert hash_user("ann") not in await engine.users()
    finally:
        await service.close()


def test_an_unavailable_store_is_reported_and_search_works(
    tmp_path: Path, engine: FaultyVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.index.store_sync.INTERVAL_S", 0.05)
    engine.away = True
    with TestClient(make_app(settings_of(tmp_path, worker=True)), "http://127.0.0.1") as client:
        client.headers["X-Memory-User"] = "ann"
        assert client.post("/recollect/v1/memories", json={"content": "I play the cello"}).is_success
        wait_for(client, "degraded")
        report = client.get("/ready")
        assert report.status_code == 200
        assert "unruly cannot be synced" in report.json()["checks"]["index"]
        assert "index" in report.json()["since"]
        assert "cello" in client.post("/recollect/v1/search", json={"query": "Which instrument do I play?"}).text
        engine.away = False
        assert client.post("/recollect/v1/memories", json={"content": "I live in Lima"}).is_success
        wait_for(client, "ready")
        assert len(engine.stored) == 2


def wait_for(client: TestClient, status: str) -> None:
    give_up = time.monotonic() + 60
    while client.get("/ready").json()["status"] != status:
        assert time.monotonic() < give_up
        time.sleep(0.02)


def test_the_configured_index_is_opened_on_first_use(tmp_path: Path) -> None:
    asyncio.run(opened_and_closed(tmp_path))
    assert list(tmp_path.iterdir()) == []


async def opened_and_closed(tmp_path: Path) -> None:
    ledger = await open_in_memory(MODEL)
    for name, kind in (
        ("auto", ExactIndex),
        ("exact", ExactIndex),
        ("milvus", VectorStoreIndex),
        ("chroma", VectorStoreIndex),
    ):
        index = open_index(settings_of(tmp_path, index=name), ledger, MODEL)
        assert isinstance(index, kind)
        await index.close()


async def test_a_store_at_another_address_is_synced_anew_and_passwords_are_not_recorded(tmp_path: Path) -> None:
    ledger = await open_in_memory(MODEL)
    names = []
    for address in ("http://root:secret@one:19530", "http://two:19530"):
        index = open_index(settings_of(tmp_path, milvus_address=address), ledger, MODEL)
        assert isinstance(index, VectorStoreIndex)
        assert index.sync is not None
        names.append(index.sync.feed_name)
        assert "secret" not in index.sync.feed_name + index.sync.store.name
        await index.close()
    assert len(set(names)) == 2


def test_invalid_index_settings_are_refused(tmp_path: Path) -> None:
    for wrong in ({"milvus_collection": "a b"}, {"milvus_collection": "x;drop"}, {"chroma_collection": "ab"}):
        with pytest.raises(InvalidSettings):
            settings_of(tmp_path, **wrong)


@pytest.mark.parametrize("address", ["milvus", "somewhere/else", "milvus.example.org", "x:y"])
async def test_an_address_that_is_neither_a_file_nor_a_server_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(InvalidSettings, match="milvus_address"):
        open_index(settings_of(tmp_path, milvus_address=address), await open_in_memory(MODEL), MODEL)


@pytest.mark.parametrize(
    ("address", "uri"),
    [
        ("milvus:19530", "http://milvus:19530"),
        ("http://10.0.0.1:19530", "http://10.0.0.1:19530"),
        ("https://in01.example.org", "https://in01.example.org"),
        ("/data/milvus.db", "/data/milvus.db"),
    ],
)
def test_a_server_address_is_distinguished_from_a_file(address: str, uri: str) -> None:
    options = MilvusOptions(address=address)
    assert (options.uri, options.is_lite) == (uri, uri.endswith(".db"))


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
    monkeypatch.setattr(
        vector_store_index, "VectorStoreLimits", partial(vector_store_index.VectorStoreLimits, few_rows=0)
    )
    database = plain.partition("//")[2].partition("/")[2].partition("?")[0]
    await running_server().run("CREATE EXTENSION vector", database=database)
    options = {"index": "pgvector", "index_exact_rows": 3, "index_timeout_s": 30, "worker": False}
    service = await open_service(load({"home": tmp_path, "database": plain, **options}, environ={}).settings)
    for what in ("tea", "chess", "sailing", "the violin", "old maps"):
        await service.add(ANN, MemoryInput(content=f"Ann likes {what}"), by=BY)
    index = service.deps.index
    near = pgvector_store_of(index)
    assert near is not None
    await near.make_ready(["ann"])
    hits = await service.search(ANN, SearchRequest(query="Which instrument does she like?", limit=5, min_score=0))
    assert {hit.record.content for hit in hits.hits} >= {"Ann likes the violin"}
    assert not service.index_trouble
    await service.close()
    assert "large users: 1" in await asyncio.to_thread(doctor, tmp_path, plain)
    cli = Cli(tmp_path)
    (tmp_path / "config.toml").write_text(f'index = "pgvector"\nindex_exact_rows = 3\ndatabase = "{plain}"\n')
    for command, line in (("status", "rows of 1 user"), ("verify", "In sync: 5 rows"), ("rebuild", "Rebuilt 5 rows")):
        assert line in (await asyncio.to_thread(cli, "index", command)).output


async def test_doctor_says_what_to_do_where_there_is_no_pgvector(plain: str, tmp_path: Path) -> None:
    report = await asyncio.to_thread(doctor, tmp_path, plain)
    assert "search is exact, in memory" in report
    assert "CREATE EXTENSION vector" in report


async def test_pgvector_for_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="postgresql://"):
        await open_service(load({"home": tmp_path, "index": "pgvector"}, environ={}).settings)
