"""An index with an engine behind a whole service: fed while it runs, told of where operators look, erased from."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from recollect.errors import InvalidSettings
from recollect.http.app import make_app
from recollect.index.engine import hash_user
from recollect.index.engine_index import VectorStoreIndex
from recollect.index.exact import ExactIndex
from recollect.index.milvus import MilvusOptions
from recollect.indexing import open_index
from recollect.ledger.memory import open_in_memory
from recollect.model.change import Author
from recollect.model.erase import ErasureRequest, Target
from recollect.model.scope import Scope
from recollect.recall import SearchRequest
from recollect.remember import MemoryInput
from recollect.settings import Settings, load
from recollect.testing.index_suite import MODEL
from recollect.wiring import open_service
from tests.unruly_engine import FaultyVectorStore

ANN, BY = Scope("ann"), Author("test")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FaultyVectorStore:
    engine = FaultyVectorStore()
    monkeypatch.setattr("recollect.indexing.open_engine", lambda settings, model: engine)
    return engine


def settings_of(home: Path, **more: object) -> Settings:
    options = {"home": home, "index": "milvus", "index_exact_rows": 0, "worker": False, **more}
    return load(options, environ={}).settings


async def test_what_is_kept_is_fed_found_and_erased_with_a_receipt(tmp_path: Path, engine: FaultyVectorStore) -> None:
    service = await open_service(settings_of(tmp_path))
    service.operations.start()
    try:
        for text in ("I play the cello", "My sister lives in Lisbon", "The boiler was repaired in March"):
            await service.add(ANN, MemoryInput(content=text), by=BY)
        async with asyncio.timeout(30):
            await engine.wait_for_rows(3)
        hits = await service.search(ANN, SearchRequest(query="Where does my sister live?", limit=3))
        assert "Lisbon" in hits.hits[0].record.content
        receipt = await service.operations.erase(ANN, ErasureRequest(Target.MEMORY, hits.hits[0].id), by=BY)
        [report] = [store for store in receipt.stores if store.store == "index"]
        assert report.reached
        # Unless who feeds it behind was sooner.
        assert report.counts["rows in the engine"] in (0, 1)
        assert "unruly" in report.note
        assert len(engine.rows) == 2
        engine.away = True
        receipt = await service.operations.erase(ANN, ErasureRequest(Target.USER), by=BY)
        [report] = [store for store in receipt.stores if store.store == "index"]
        assert not report.reached
        engine.away = False
        await service.operations.run_pending()
        assert hash_user("ann") not in await engine.users()
    finally:
        await service.close()


def test_an_engine_that_is_away_is_told_of_and_all_goes_on(
    tmp_path: Path, engine: FaultyVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.index.feeder._EVERY_S", 0.05)
    engine.away = True
    with TestClient(make_app(settings_of(tmp_path, worker=True)), "http://127.0.0.1") as client:
        client.headers["X-Memory-User"] = "ann"
        assert client.post("/recollect/v1/memories", json={"content": "I play the cello"}).is_success
        wait_for(client, "degraded")
        report = client.get("/ready")
        assert report.status_code == 200
        assert "unruly is not fed" in report.json()["checks"]["index"]
        assert "index" in report.json()["since"]
        assert "cello" in client.post("/recollect/v1/search", json={"query": "Which instrument do I play?"}).text
        engine.away = False
        assert client.post("/recollect/v1/memories", json={"content": "I live in Lima"}).is_success
        wait_for(client, "ready")
        assert len(engine.rows) == 2


def wait_for(client: TestClient, status: str) -> None:
    give_up = time.monotonic() + 60
    while client.get("/ready").json()["status"] != status:
        assert time.monotonic() < give_up
        time.sleep(0.02)


def test_the_index_is_the_one_that_is_set_and_nothing_is_opened_before_it_is_needed(tmp_path: Path) -> None:
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


async def test_a_moved_engine_is_fed_anew_and_a_password_is_not_noted(tmp_path: Path) -> None:
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


def test_settings_that_cannot_be_are_refused(tmp_path: Path) -> None:
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
def test_a_server_is_told_from_a_file(address: str, uri: str) -> None:
    options = MilvusOptions(address=address)
    assert (options.uri, options.is_lite) == (uri, uri.endswith(".db"))
