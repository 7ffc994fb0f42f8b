"""`make bench`: what a search, a write and remembering cost, beside the floor they cannot go below.

The floor of a search is embedding the question and one product of a numpy matrix of that user's vectors.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks import remember as remembering
from benchmarks.corpus import questions, sentences
from benchmarks.timing import Timing, resident_mb, timed
from recollect.config.settings import load
from recollect.model.change import Add, Author
from recollect.model.result import RecallResult, SearchResult
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.models.embedding import Embedder
from recollect.recall import RecallRequest
from recollect.search import SearchRequest
from recollect.service.service import Service
from recollect.wiring import open_embedder, open_service
from recollect.write.draft import draft

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


BY = Author("bench")
BATCH = 1000


async def fill(service: Service, embedder: Embedder, user: str, count: int, *, seed: int) -> np.ndarray:
    """Give a user memories, a thousand a transaction; gives their vectors."""
    texts, scope, parts = sentences(seed), Scope(user), []
    for start in range(0, count, BATCH):
        batch = list(islice(texts, min(BATCH, count - start)))
        vectors = await embedder.embed(batch)
        changes = [Add(draft(scope, text, {}), vector) for text, vector in zip(batch, vectors, strict=True)]
        await service._ledger.apply(scope, changes, by=BY)
        parts.append(vectors)
    return np.concatenate(parts)


async def floor(embedder: Embedder, matrix: np.ndarray, request: list[str]) -> Timing:
    """Embed the question, one product, the ten best."""

    async def call(number: int) -> None:
        [vector] = await embedder.embed([request[number]], role="query")
        scores = matrix @ vector
        np.argpartition(-scores, 10)[:10]

    return await timed(call, times=len(request) - 5)


async def search(service: Service, user: str, request: list[str]) -> tuple[Timing, dict[str, float]]:
    """The whole search, and the share of each step."""
    scope = Scope(user)
    return await by_steps(
        lambda number: service.search(scope, SearchRequest(query=request[number], limit=10)), len(request)
    )


async def recall(service: Service, user: str, request: list[str]) -> tuple[Timing, dict[str, float]]:
    """A whole recall, from the message to the messages with memories in them, and the share of each step."""
    scope = Scope(user)

    async def call(number: int) -> RecallResult:
        text = ({"role": "user", "content": request[number]},)
        return await service.recall(scope, RecallRequest(messages=text, at=now(), limit=10, min_score=0.0))

    return await by_steps(call, len(request))


async def by_steps(
    call: Callable[[int], Awaitable[SearchResult | RecallResult]], count: int
) -> tuple[Timing, dict[str, float]]:
    """How long calls take, and the median of each of their steps."""
    steps: dict[str, list[float]] = {}

    async def stepped(number: int) -> None:
        for step, took in (await call(number)).steps_us.items():
            steps.setdefault(step, []).append(took)

    timing = await timed(stepped, times=count - 5)
    return timing, {step: float(np.median(took)) for step, took in steps.items()}


async def vector_part(
    service: Service, embedder: Embedder, user: str, matrix: np.ndarray, request: list[str]
) -> float:
    """How much longer the index takes than the bare product, for the same question vectors."""
    from recollect.model.query import EVERYTHING

    vectors = await embedder.embed(request, role="query")
    scope = Scope(user)

    async def bare(number: int) -> None:
        np.argpartition(-(matrix @ vectors[number]), 10)[:10]

    async def ours(number: int) -> None:
        await (await service._search_deps.index.view(scope, EVERYTHING)).nearest(vectors[number], limit=10)

    base = await timed(bare, times=len(request) - 5)
    return (await timed(ours, times=len(request) - 5)).p50_us / base.p50_us


async def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="1000,10000,100000", help="memories of each measured user")
    parser.add_argument("--others", type=int, default=1000, help="other users in the same file")
    parser.add_argument("--questions", type=int, default=300)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as home:
        await measure(Path(home), args)
        print()
        await remembering.measure(Path(home) / "remember")


async def measure(home: Path, args: argparse.Namespace) -> None:
    """Fill a ledger step by step, and measure after each step."""
    # Without a cache of vectors: every question is embedded, as the floor does it.
    settings = load({"home": home, "embedding_cache_mb": 0}, environ={}).settings
    embedder = await open_embedder(settings)
    service = await open_service(settings)
    request = list(islice(questions(1), args.questions + 5))
    await embedder.embed(["warm"])
    print(f"{embedder.model}, {args.questions} questions each, one file\n")

    print("search                       floor                       whole search                 ratio  vectors")
    matrices = {}
    for size in map(int, args.sizes.split(",")):
        user = f"user-{size}"
        start = perf_counter()
        matrices[user] = await fill(service, embedder, user, size, seed=size)
        rate = size / (perf_counter() - start)
        cold = perf_counter()
        await service.search(Scope(user), SearchRequest(query=request[0], limit=10))
        cold = perf_counter() - cold
        await report(service, embedder, user, matrices[user], request)
        print(
            f"    filled at {rate:,.0f}/s in batches of {BATCH}; first search, loading the user, {cold * 1e3:,.0f} ms"
        )

    start = perf_counter()
    for number in range(args.others):
        await fill(service, embedder, f"other-{number}", 100, seed=10_000_000 + number)
    print(f"\nafter {args.others} other users with 100 memories each ({perf_counter() - start:.0f} s):")
    for user, matrix in matrices.items():
        await report(service, embedder, user, matrix, request)

    await writes(service)
    await sizes(service, home)
    await service.close()


async def report(service: Service, embedder: Embedder, user: str, matrix: np.ndarray, request: list[str]) -> None:
    """One line of the table, and where the microseconds go."""
    base = await floor(embedder, matrix, request)
    whole, steps = await search(service, user, request)
    vectors = await vector_part(service, embedder, user, matrix, request)
    print(f"{len(matrix):>8,} memories  {base}  {whole}  {whole.p50_us / base.p50_us:5.1f}x {vectors:5.1f}x")
    print("    " + "   ".join(f"{step} {took:,.0f} us" for step, took in steps.items()))
    whole, steps = await recall(service, user, request)
    print(f"    recall, the trace off: {whole}")
    print("    " + "   ".join(f"{step} {took:,.0f} us" for step, took in steps.items()))


async def writes(service: Service) -> None:
    """Adds through the whole service, each on disk before it returns."""
    texts = sentences(99)

    async def add(number: int) -> None:
        from recollect.remember import MemoryInput

        await service.add(Scope(f"writer-{number % 50}"), MemoryInput(content=next(texts)), by=BY)

    alone = await timed(add, times=300)
    start = perf_counter()
    await asyncio.gather(*(add(number) for number in range(5000)))
    print(f"\nadds, synced to disk: one at a time {alone} = {1e6 / alone.p50_us:,.0f}/s; "
          f"5,000 at once {5000 / (perf_counter() - start):,.0f}/s")  # fmt: skip


async def sizes(service: Service, home: Path) -> None:
    """Memory and disk."""
    stats = await service.stats()
    text = sum([len(line["memory"]) async for line in service.export(Scope("user-1000"))]) / 1000
    bytes_each = stats["bytes"] / stats["memories"]
    print(f"\n{stats['memories']:,} memories: {stats['bytes'] / 2**20:,.0f} MiB on disk, "
          f"{bytes_each:,.0f} bytes each (text {text:.0f}, vector {2 * service.model.dimensions}); "
          f"process {resident_mb():,.0f} MiB")  # fmt: skip


if __name__ == "__main__":
    asyncio.run(main())
