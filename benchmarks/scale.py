"""Measure a million memories of ten thousand users, in each store in turn (`make bench-scale`).

Ordinary users have 100 memories each at every size of the store; the others share the rest unevenly: the second half
as many as the first, the third a third. Recalls of ordinary users alternate between a small store and the large one,
so that noise of the machine affects both alike.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from benchmarks.corpus import questions, sentences
from benchmarks.harness import AUTHOR, Timing, fill, recall_once, resident_mb, running_service, summarize
from recollect.config.settings import load
from recollect.index.pgvector import open_pgvector
from recollect.model.scope import Scope
from recollect.remember import MemoryInput
from recollect.service.service import Service
from recollect.wiring import open_ledger
from tests.support.milvus_server import running_milvus
from tests.support.postgres_server import PLAIN_ROLE, running_server

EACH = 100
LARGEST = "crowd-0"


class SqliteStore:
    """One file; searched in memory."""

    name = "SQLite, exact search in memory"
    # The server whose memory is reported too.
    process = ""

    @asynccontextmanager
    async def options(self, home: Path) -> AsyncIterator[dict[str, Any]]:
        """Start what the store needs; yield the settings for it."""
        yield {"home": home}

    async def prepare(self, service: Service, options: dict[str, Any]) -> None:
        """Bring the imported memories to where they are searched."""

    async def disk_bytes(self, home: Path, service: Service) -> int:
        """Return the disk space of the store."""
        return _folder_bytes(home)


class PgvectorStore(SqliteStore):
    """PostgreSQL on this machine; pgvector searches users with very many memories."""

    name = "PostgreSQL, exact search in memory, pgvector for users with very many memories"
    process = "postgres"

    @asynccontextmanager
    async def options(self, home: Path) -> AsyncIterator[dict[str, Any]]:
        server = running_server()
        async with server.database(role=PLAIN_ROLE) as dsn:
            await server.run("CREATE EXTENSION vector", database=urlsplit(dsn).path.lstrip("/"))
            yield {"home": home, "database": dsn, "index": "pgvector"}

    async def prepare(self, service: Service, options: dict[str, Any]) -> None:
        settings = load(options, environ={}).settings
        ledger = await open_ledger(settings, service.model)
        store = open_pgvector(ledger, service.model)
        await store.rebuild(large=settings.index_exact_rows)
        await store.close()
        await ledger.close()

    async def disk_bytes(self, home: Path, service: Service) -> int:
        return (await service.stats())["bytes"]


class MilvusStore(SqliteStore):
    """One file; Milvus on this machine searches users with very many memories. Its disk is not counted."""

    name = "SQLite, exact search in memory, Milvus for users with very many memories"
    process = "milvus"

    @asynccontextmanager
    async def options(self, home: Path) -> AsyncIterator[dict[str, Any]]:
        # The small and the large store share a server, with a collection each.
        collection = f"scale_{blake2b(str(home).encode(), digest_size=6).hexdigest()}"
        address = running_milvus().url
        yield {"home": home, "index": "milvus", "milvus_address": address, "milvus_collection": collection}

    async def prepare(self, service: Service, options: dict[str, Any]) -> None:
        assert service.jobs.index_sync is not None
        started = perf_counter()
        rows = await service.jobs.index_sync.sync()
        print(f"  {rows:,} rows were sent to Milvus at {rows / (perf_counter() - started):,.0f}/s", flush=True)


STORES = {"sqlite": SqliteStore(), "pgvector": PgvectorStore(), "milvus": MilvusStore()}


@dataclass(frozen=True, slots=True)
class FilledStore:
    """A service with memories, and how long it took to import them."""

    service: Service
    memories: int
    users: int
    largest: int
    took_s: float


def crowd(memories: int, users: int) -> Iterator[tuple[str, int]]:
    """Yield the users besides the ordinary ones with their numbers of memories: shares of 1, 1/2, 1/3 and so on."""
    share = memories / sum(1 / rank for rank in range(1, users + 1))
    for rank in range(users):
        yield f"crowd-{rank}", max(1, round(share / (rank + 1)))


async def fill_store(service: Service, ordinary: Sequence[str], memories: int, users: int) -> FilledStore:
    """Import the memories of ordinary users, then those of the crowd; print the progress."""
    started = reported = perf_counter()
    done = 0
    others = list(crowd(memories - len(ordinary) * EACH, users - len(ordinary)))
    for number, (user, count) in enumerate([*((user, EACH) for user in ordinary), *others]):
        await fill(service, user, count, seed=number)
        done += count
        if perf_counter() - reported > 15:
            reported = perf_counter()
            print(f"    {done:,} of {memories:,} memories, {done / (reported - started):,.0f}/s", flush=True)
    return FilledStore(service, done, users, others[0][1], perf_counter() - started)


async def alternate(stores: Sequence[FilledStore], users: Sequence[str], queries: Sequence[str]) -> list[Timing]:
    """Ask the same questions of the same users in each store, alternating."""
    samples: list[list[float]] = [[] for _ in stores]
    for number, query in enumerate(queries):
        for store, took in zip(stores, samples, strict=True):
            took.append(await recall_once(store.service, users[number % len(users)], query))
    return [summarize(took) for took in samples]


async def measure_adds(service: Service, users: Sequence[str], count: int) -> tuple[float, float]:
    """Return adds per second, each on disk: one at a time, and all concurrently."""
    texts = sentences(77)

    async def add(number: int) -> None:
        await service.add(Scope(users[number % len(users)]), MemoryInput(content=next(texts)), by=AUTHOR)

    alone = count // 5
    started = perf_counter()
    for number in range(alone):
        await add(number)
    between = perf_counter()
    await asyncio.gather(*(add(number) for number in range(count)))
    return alone / (between - started), count / (perf_counter() - between)


async def measure(store: SqliteStore, args: argparse.Namespace) -> None:
    """Fill a small store and a large one, and measure both."""
    queries = list(islice(questions(3), args.questions))
    ordinary = [f"ordinary-{number}" for number in range(args.ordinary)]
    async with AsyncExitStack() as parts:
        homes = [Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="recollect-scale-"))) for _ in range(2)]
        options = [await parts.enter_async_context(store.options(home)) for home in homes]
        # Every question is embedded, as if it were new.
        small_service, large_service = [
            await parts.enter_async_context(running_service(embedding_cache_mb=0, **each)) for each in options
        ]
        print(f"\n{store.name}", flush=True)
        small = await fill_store(small_service, ordinary, args.small, max(args.ordinary * 2, args.small // 100))
        before_mb = resident_mb()
        large = await fill_store(large_service, ordinary, args.memories, args.users)
        rate = large.memories / large.took_s
        print(f"  {large.memories:,} memories of {large.users:,} users were imported at {rate:,.0f}/s")
        await store.prepare(large_service, options[1])
        await measure_recalls(small, large, ordinary, queries)
        rates = [await measure_adds(each.service, ordinary, args.adds) for each in (small, large)]
        for name, (few, many) in zip(("one at a time", "concurrently"), zip(*rates, strict=True), strict=True):
            print(f"  adds, {name}: {few:,.0f}/s and {many:,.0f}/s")
        disk = await store.disk_bytes(homes[1], large_service)
        print(f"  disk {disk / 2**20:,.0f} MiB, {disk / large.memories:,.0f} bytes a memory")
        server = f"; {store.process} {_process_mb(store.process):,.0f} MiB" if store.process else ""
        print(f"  this process {resident_mb():,.0f} MiB, {before_mb:,.0f} before{server}", flush=True)


async def measure_recalls(
    small: FilledStore, large: FilledStore, ordinary: Sequence[str], queries: Sequence[str]
) -> None:
    """Print the latency of recalls: of ordinary users in both stores, cold and warm, and of the largest user."""
    for name, request in (("cold", queries[: len(ordinary)]), ("warm", queries)):
        few, many = await alternate([small, large], ordinary, request)
        ratios = f"{many.p50_us / few.p50_us:4.2f}x at p50, {many.p99_us / few.p99_us:4.2f}x at p99"
        print(f"  ordinary user, {name}:  {small.memories:>9,} {few}   {large.memories:>9,} {many}   {ratios}")
    [first] = await alternate([large], [LARGEST], queries[:1])
    [largest] = await alternate([large], [LARGEST], queries[: len(queries) // 2])
    print(f"  largest user, {large.largest:,} memories: {largest}; the first time {first.p50_us / 1e3:,.0f} ms")


def _folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _process_mb(name: str) -> float:
    """Return the resident memory of all processes of a program; shared pages count once for each."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:
            continue
        if lines["Name"].strip() == name:
            total += int(lines.get("VmRSS", "0 kB").split()[0])
    return total / 1024


async def main() -> None:
    """Measure each store in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--memories", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--ordinary", type=int, default=50, help=f"users of {EACH} memories among them")
    parser.add_argument("--small", type=int, default=10_000, help="memories in the small store")
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--adds", type=int, default=1000)
    args = parser.parse_args()
    print(f"{args.questions} questions to each store, {args.ordinary} ordinary users of {EACH} memories")
    for name in args.stores.split(","):
        await measure(STORES[name], args)


if __name__ == "__main__":
    asyncio.run(main())
