"""Measure searching by each engine beside the exact index, in one run: python -m benchmarks.engines [ENGINE...]

For a user of 1,000 and one of 50,000 memories in one ledger: how long the nearest 64 take, how many of the ten best
of them comparing with every vector finds as well, how fast an engine is fed, what a memory takes in this process.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from recollect.index.chroma import ChromaOptions, ChromaVectorStore
from recollect.index.exact import ExactIndex
from recollect.index.milvus import MilvusOptions, MilvusVectorStore
from recollect.index.protocol import Index
from recollect.index.store_sync import IndexSync
from recollect.index.vector_store import ExternalVectorStore
from recollect.index.vector_store_index import VectorStoreIndex, VectorStoreLimits
from recollect.ledger.protocol import Ledger
from recollect.ledger.sqlite import open_sqlite
from recollect.model.change import Add, Author
from recollect.model.query import EVERYTHING
from recollect.model.scope import Scope
from recollect.models.embedding import EmbeddingModel
from recollect.models.static_embedder import StaticEmbedder
from recollect.write.draft import draft
from tests.support.chroma_server import ChromaServer
from tests.support.milvus_server import MilvusServer
from tests.support.user_corpus import memories, questions

SIZES = (1_000, 50_000)
QUESTIONS = 100
ENGINES = ("milvus-server", "chroma-server", "chroma-folder", "milvus-lite")


async def fill(ledger: Ledger, embedder: StaticEmbedder) -> list[Scope]:
    scopes = [Scope(f"user of {size}") for size in SIZES]
    for scope, size in zip(scopes, SIZES, strict=True):
        texts = memories(size, seed=size)
        for start in range(0, size, 1000):
            some = texts[start : start + 1000]
            pairs = zip(some, await embedder.embed(some), strict=True)
            await ledger.apply(
                scope, [Add(draft(scope, text, {}), vector) for text, vector in pairs], by=Author("bench")
            )
    return scopes


async def ask(index: Index, scope: Scope, vectors: np.ndarray) -> tuple[list[float], list[set[int]]]:
    took, results = [], []
    for vector in vectors:
        started = time.perf_counter()
        near = await (await index.view(scope, EVERYTHING)).nearest(vector, limit=64)
        took.append(1000 * (time.perf_counter() - started))
        results.append(set(near.rows[:10].tolist()))
    return took, results


def describe_latency(took: Sequence[float]) -> str:
    ordered = sorted(took)
    return f"p50 {ordered[len(ordered) // 2]:8.2f} ms   p99 {ordered[int(len(ordered) * 0.99)]:8.2f} ms"


async def measure(
    name: str,
    engine: ExternalVectorStore,
    ledger: Ledger,
    scopes: list[Scope],
    vectors: np.ndarray,
    model: EmbeddingModel,
) -> None:
    feeder = IndexSync(ledger, model, engine, feed_name=name)
    sizes = VectorStoreLimits(exact_rows=0, few_rows=0, timeout_s=60)
    index = VectorStoreIndex(ledger, model, engine, limits=sizes, sync=feeder)
    exact = ExactIndex(ledger, model, budget_bytes=1 << 30)
    started = time.perf_counter()
    rows = await feeder.sync()
    print(f"{name}: fed {rows:,} rows, {rows / (time.perf_counter() - started):,.0f} a second", flush=True)
    await asyncio.sleep(engine.settles_s)
    for scope, size in zip(scopes, SIZES, strict=True):
        some = vectors if name != "milvus-lite" or size < 10_000 else vectors[:10]
        for each in (index, exact):
            await ask(each, scope, some[:5])
        (took, results), (plain, true) = await ask(index, scope, some), await ask(exact, scope, some)
        shared = np.mean([len(a & b) / 10 for a, b in zip(results, true, strict=True)])
        print(
            f"  {size:>6,} memories   {describe_latency(took)}   exact {describe_latency(plain)}   "
            f"{shared:.3f} of the ten nearest",
            flush=True,
        )
    light, full = (each / sum(SIZES) for each in (index._light.nbytes, exact.nbytes))
    print(f"  in this process a memory takes {light:.0f} B light, {full:.0f} B with its vector", flush=True)
    await index.close()


async def main(names: Sequence[str]) -> None:
    folder, embedder = Path(tempfile.mkdtemp(prefix="recollect-engines-")), StaticEmbedder()
    ledger = await open_sqlite(folder / "recollect.db", embedder.model)
    scopes = await fill(ledger, embedder)
    vectors = await embedder.embed(questions(QUESTIONS, seed=1), role="query")
    for name in names:
        server = MilvusServer() if name == "milvus-server" else ChromaServer() if name == "chroma-server" else None
        if server is not None:
            server.start()
        address = server.url if server is not None else str(folder / f"{name}.db")
        engine: ExternalVectorStore = (
            MilvusVectorStore(MilvusOptions(address=address, timeout_s=60), embedder.model)
            if name.startswith("milvus")
            else ChromaVectorStore(ChromaOptions(address=address, timeout_s=60), embedder.model)
        )
        try:
            await measure(name, engine, ledger, scopes, vectors, embedder.model)
        finally:
            if server is not None:
                server.close()
    await ledger.close()
    print(f"most memory of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ENGINES))
