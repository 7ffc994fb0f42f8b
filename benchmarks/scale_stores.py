"""The stores that are measured at scale: what they need to run, and what they take."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol
from urllib.parse import urlsplit

from recollect.config.settings import Settings
from recollect.index.pgvector import PgvectorStore
from recollect.index.vector_store import VectorStore
from recollect.index.vector_store_index import VectorStoreIndex
from recollect.service.service import Service
from tests.support.milvus_server import running_milvus
from tests.support.postgres_server import PLAIN_ROLE, running_server


class Store(Protocol):
    """One kind of store."""

    name: str

    def running(self, home: Path) -> Any:
        """What runs it, as a context that gives the settings for it."""
        ...

    async def settle(self, service: Service) -> None:
        """Wait until what was brought in is where it is searched."""
        ...

    async def disk_bytes(self, home: Path, service: Service) -> int:
        """How much disk it takes."""
        ...

    def memory(self) -> str:
        """What runs beside this process, and how much memory it takes."""
        ...


def _folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


class Sqlite:
    """One file, and the vectors of those who ask in memory."""

    name = "SQLite, exact search in memory"

    @asynccontextmanager
    async def running(self, home: Path) -> AsyncIterator[Mapping[str, Any]]:
        yield {}

    async def settle(self, service: Service) -> None:
        return None

    async def disk_bytes(self, home: Path, service: Service) -> int:
        return _folder_bytes(home)

    def memory(self) -> str:
        return ""


class Pgvector:
    """A PostgreSQL of this machine; users with very many memories are searched by pgvector."""

    name = "PostgreSQL, exact search in memory, pgvector for users with very many memories"

    @asynccontextmanager
    async def running(self, home: Path) -> AsyncIterator[Mapping[str, Any]]:
        server = running_server()
        async with server.database(role=PLAIN_ROLE) as dsn:
            await server.run("CREATE EXTENSION vector", database=urlsplit(dsn).path.lstrip("/"))
            yield {"database": dsn, "index": "pgvector"}

    async def settle(self, service: Service) -> None:
        engine = _engine_of(service)
        assert isinstance(engine, PgvectorStore)
        await engine.hnsw_index.rebuild(large=Settings().index_exact_rows)

    async def disk_bytes(self, home: Path, service: Service) -> int:
        return (await service.stats())["bytes"]

    def memory(self) -> str:
        return f"; PostgreSQL {_resident_mb('postgres'):,.0f} MiB, shared pages counted once for each process"


class Milvus:
    """One file, and a Milvus of this machine for users with very many memories."""

    name = "SQLite, exact search in memory, Milvus for users with very many memories"

    @asynccontextmanager
    async def running(self, home: Path) -> AsyncIterator[Mapping[str, Any]]:
        # Two stores of one server, in collections of their own.
        name = f"scale_{blake2b(str(home).encode(), digest_size=6).hexdigest()}"
        yield {"index": "milvus", "milvus_address": running_milvus().url, "milvus_collection": name}

    async def settle(self, service: Service) -> None:
        assert service.jobs.index_sync is not None
        started = perf_counter()
        rows = await service.jobs.index_sync.sync()
        took = perf_counter() - started
        print(f"  {rows:,} rows were brought to Milvus at {rows / took:,.0f}/s", flush=True)

    async def disk_bytes(self, home: Path, service: Service) -> int:
        return _folder_bytes(home)

    def memory(self) -> str:
        return f"; Milvus {_resident_mb('milvus'):,.0f} MiB; its disk is not counted"


def _engine_of(service: Service) -> VectorStore:
    index = service._search_deps.index
    assert isinstance(index, VectorStoreIndex)
    return index._store


def _resident_mb(name: str) -> float:
    """What all processes of a program hold."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:
            continue
        if lines["Name"].strip() == name:
            total += int(lines.get("VmRSS", "0 kB").split()[0])
    return total / 1024


STORES: dict[str, Store] = {"sqlite": Sqlite(), "pgvector": Pgvector(), "milvus": Milvus()}
