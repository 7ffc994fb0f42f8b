"""Real engines: Milvus as a file and as a server, Chroma in a folder and as a server."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from recollect.index.chroma import ChromaEngine, ChromaOptions
from recollect.index.engine import FedEngine
from recollect.index.engine_index import EngineIndex, Sizes
from recollect.index.feeder import Feeder
from recollect.index.milvus import MilvusEngine, MilvusOptions
from recollect.index.protocol import Index
from recollect.ledger.protocol import Ledger
from recollect.models.embedding import EmbeddingModel
from recollect.testing.chroma_server import running_chroma
from recollect.testing.engine_suite import EngineSuite, OpenEngine
from recollect.testing.index_suite import IndexSuite, OpenIndex
from recollect.testing.milvus_server import running_milvus

_numbers = count(1)
# Every question goes to the engine, and none is given up.
ALWAYS = Sizes(exact_rows=0, few_rows=0, timeout_s=30.0)


def index_over(ledger: Ledger, engine: FedEngine, model: EmbeddingModel) -> EngineIndex:
    feeder = Feeder(ledger, model, engine, fed_as=engine.name)
    return EngineIndex(ledger, model, engine, sizes=ALWAYS, feeder=feeder)


class OfEngine(IndexSuite):
    """The suite of indexes over an engine."""

    @pytest.fixture
    def open_index(self, open_engine: OpenEngine) -> OpenIndex:
        from recollect.testing.index_suite import MODEL

        async def opened(ledger: Ledger) -> Index:
            return index_over(ledger, open_engine(MODEL), MODEL)

        return opened

    async def settled(self, index: Index) -> None:
        assert isinstance(index, EngineIndex)
        assert index.feeder is not None
        await index.feeder.feed()


class WithMilvusLite:
    @pytest.fixture
    def open_engine(self, tmp_path: Path) -> OpenEngine:
        return lambda model: MilvusEngine(MilvusOptions(address=str(tmp_path / "milvus.db")), model)


class WithMilvusServer:
    @pytest.fixture
    def open_engine(self) -> OpenEngine:
        name = f"test_{next(_numbers)}"
        address = running_milvus().url
        return lambda model: MilvusEngine(MilvusOptions(address=address, collection=name, timeout_s=60), model)


class WithChroma:
    @pytest.fixture
    def open_engine(self, tmp_path: Path) -> OpenEngine:
        return lambda model: ChromaEngine(ChromaOptions(address=str(tmp_path / "chroma")), model)


class WithChromaServer:
    @pytest.fixture
    def open_engine(self) -> OpenEngine:
        name = f"test_{next(_numbers)}"
        address = running_chroma().url
        return lambda model: ChromaEngine(ChromaOptions(address=address, collection=name, timeout_s=60), model)


class TestMilvusLite(WithMilvusLite, EngineSuite): ...


class TestMilvusServer(WithMilvusServer, EngineSuite): ...


class TestChroma(WithChroma, EngineSuite): ...


class TestChromaServer(WithChromaServer, EngineSuite): ...


class TestIndexOverMilvusLite(WithMilvusLite, OfEngine): ...


class TestIndexOverMilvusServer(WithMilvusServer, OfEngine): ...


class TestIndexOverChroma(WithChroma, OfEngine): ...


class TestIndexOverChromaServer(WithChromaServer, OfEngine): ...
