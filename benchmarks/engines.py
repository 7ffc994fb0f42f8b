"""Compare vector stores with the exact index: latency of the nearest 64, share of the ten best, speed of filling."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.corpus import questions, sentences
from benchmarks.harness import AUTHOR, BATCH, summarize
from recollect.index.chroma import ChromaOptions, ChromaVectorStore
from recollect.index.exact import ExactIndex
from recollect.index.milvus import MilvusOptions, MilvusVectorStore
from recollect.index.pgvector import open_pgvector
from recollect.index.protocol import Index
from recollect.index.store_sync import IndexSync
from recollect.index.vector_store import ExternalVectorStore
from recollect.index.vector_store_index import VectorStoreIndex, VectorStoreLimits
from recollect.ledger.ledger import Ledger
from recollect.ledger.postgres import open_postgres
from recollect.ledger.sqlite import open_sqlite
from recollect.model.change import Add
from recollect.model.query import EVERYTHING
from recollect.model.scope import Scope
from recollect.models.static_embedder import StaticEmbedder
from recollect.write.draft import draft
from tests.support.chroma_server import ChromaServer
from tests.support.milvus_server import MilvusServer
from tests.support.postgres_server import running_server

STORES = ("pgvector", "milvus-server", "chroma-server", "chroma-folder", "milvus-lite")
# Every search goes to the store, however few memories the user has.
_LIMITS = VectorStoreLimits(exact_rows=0, few_rows=0, timeout_s=60)
_WRITERS = 8


def user_of(size: int) -> Scope:
    """Return the scope of the user with so many memories."""
    return Scope(f"user of {size}")


async def fill(ledger: Ledger, embedder: StaticEmbedder, sizes: Sequence[int]) -> None:
    """Add the memories of every user."""
    for size in sizes:
        texts = sentences(size)
        for start in range(0, size, BATCH):
            await add(ledger, embedder, user_of(size), list(islice(texts, min(BATCH, size - start))))


async def add(ledger: Ledger, embedder: StaticEmbedder, scope: Scope, texts: list[str]) -> None:
    """Add memories in one transaction."""
    vectors = await embedder.embed(texts)
    changes = [Add(draft(scope, text, {}), vector) for text, vector in zip(texts, vectors, strict=True)]
    await ledger.apply(scope, changes, by=AUTHOR)


async def search(index: Index, scope: Scope, vectors: np.ndarray) -> tuple[str, list[set[int]]]:
    """Search for each vector; return the latency and the ten best rows of each."""
    samples, best = [], []
    for vector in vectors:
        started = perf_counter()
        near = await (await index.view(scope, EVERYTHING)).nearest(vector, limit=64)
        samples.append(perf_counter() - started)
        best.append(set(near.rows[:10].tolist()))
    timing = summarize(samples)
    return f"p50 {timing.p50_us / 1000:8.2f} ms   p99 {timing.p99_us / 1000:8.2f} ms", best


async def compare(index: Index, exact: Index, vectors: np.ndarray, sizes: Sequence[int]) -> None:
    """Print the latency of both indexes for each user."""
    for size in sizes:
        scope = user_of(size)
        for each in (index, exact):
            await search(each, scope, vectors[:5])
        (latency, best), (exact_latency, exact_best) = [await search(each, scope, vectors) for each in (index, exact)]
        share = np.mean([len(a & b) / len(b) for a, b in zip(best, exact_best, strict=True)])
        print(f"  {size:>7,} memories   {latency}   exact {exact_latency}   {share:.3f} of the ten best", flush=True)
        if share < 0.5:
            raise RuntimeError(f"only {share:.3f} of the ten best were found")


async def measure_adds(ledger: Ledger, embedder: StaticEmbedder, scope: Scope, seconds: float) -> float:
    """Add memories one at a time by several writers; return the memories per second."""
    texts, done, until = sentences(7), 0, perf_counter() + seconds

    async def write() -> None:
        nonlocal done
        while perf_counter() < until:
            await add(ledger, embedder, scope, [next(texts)])
            done += 1

    await asyncio.gather(*(write() for _ in range(_WRITERS)))
    return done / seconds


async def measure_pgvector(embedder: StaticEmbedder, vectors: np.ndarray, args: argparse.Namespace) -> None:
    """Measure pgvector, which indexes the ledger's own vectors; also the adds before and after it is built."""
    async with running_server().database() as dsn:
        ledger = await open_postgres(dsn, embedder.model)
        await fill(ledger, embedder, args.sizes)
        store = open_pgvector(ledger, embedder.model)
        largest = user_of(max(args.sizes))
        before = await measure_adds(ledger, embedder, largest, args.seconds)
        started = perf_counter()
        await store.make_ready([user_of(size).user for size in args.sizes])
        print(f"pgvector: index built in {perf_counter() - started:.1f} s")
        index = VectorStoreIndex(ledger, embedder.model, store, limits=_LIMITS)
        await compare(index, ExactIndex(ledger, embedder.model, budget_bytes=4 << 30), vectors, args.sizes)
        after = await measure_adds(ledger, embedder, largest, args.seconds)
        print(
            f"  {before:,.0f} adds/s by {_WRITERS} writers of the largest user without the index, {after:,.0f} with"
        )
        await index.close()
        await ledger.close()


@asynccontextmanager
async def external_store(name: str, folder: Path, embedder: StaticEmbedder) -> AsyncIterator[ExternalVectorStore]:
    """Open a store; a server is started for it if it needs one."""
    server = {"milvus-server": MilvusServer, "chroma-server": ChromaServer}.get(name)
    running = server() if server is not None else None
    if running is not None:
        running.start()
    address = running.url if running is not None else str(folder / f"{name}.db")
    try:
        if name.startswith("milvus"):
            yield MilvusVectorStore(MilvusOptions(address=address, timeout_s=60), embedder.model)
        else:
            yield ChromaVectorStore(ChromaOptions(address=address, timeout_s=60), embedder.model)
    finally:
        if running is not None:
            running.close()


async def measure_external(
    name: str, folder: Path, embedder: StaticEmbedder, vectors: np.ndarray, sizes: Sequence[int]
) -> None:
    """Measure a store that is filled from the ledger."""
    ledger = await open_sqlite(folder / "recollect.db", embedder.model)
    if not (await ledger.stats())["memories"]:
        await fill(ledger, embedder, sizes)
    async with external_store(name, folder, embedder) as store:
        sync = IndexSync(ledger, embedder.model, store, feed_name=name)
        index = VectorStoreIndex(ledger, embedder.model, store, limits=_LIMITS, sync=sync)
        started = perf_counter()
        rows = await sync.sync()
        print(f"{name}: filled with {rows:,} rows at {rows / (perf_counter() - started):,.0f}/s", flush=True)
        await asyncio.sleep(store.settles_s)
        await compare(index, ExactIndex(ledger, embedder.model, budget_bytes=1 << 30), vectors, sizes)
        await index.close()
    await ledger.close()


async def main() -> None:
    """Measure the stores in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", default=STORES, help=f"default: {' '.join(STORES)}")
    parser.add_argument("--sizes", default="1000,50000", help="memories of each user")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement of writes")
    args = parser.parse_args()
    args.sizes = [int(size) for size in args.sizes.split(",")]
    embedder = StaticEmbedder()
    vectors = await embedder.embed(list(islice(questions(1), args.questions)), role="query")
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as folder:
        for name in args.stores:
            if name == "pgvector":
                await measure_pgvector(embedder, vectors, args)
            else:
                await measure_external(name, Path(folder), embedder, vectors, args.sizes)


if __name__ == "__main__":
    asyncio.run(main())
