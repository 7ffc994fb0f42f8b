"""Measure search, recall, writes, memory and learning (`make bench`).

The floor of a search is embedding the query and one product of a numpy matrix with the user's vectors.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks import remember
from benchmarks.corpus import questions, sentences
from benchmarks.harness import (
    AUTHOR,
    BATCH,
    Timing,
    fill,
    recall_request,
    resident_mb,
    running_service,
    time_calls,
)
from recollect.config.settings import load
from recollect.model.result import RecallResult, SearchResult
from recollect.model.scope import Scope
from recollect.models.embedding import Embedder
from recollect.remember import MemoryInput
from recollect.search import SearchRequest
from recollect.service.service import Service
from recollect.wiring import open_embedder


async def time_floor(embedder: Embedder, matrix: np.ndarray, queries: list[str]) -> Timing:
    """Embed the query, multiply, select the ten best."""

    async def call(number: int) -> None:
        [vector] = await embedder.embed([queries[number]], role="query")
        np.argpartition(-(matrix @ vector), 10)[:10]

    return await time_calls(call, times=len(queries) - 5)


async def time_steps(
    call: Callable[[int], Awaitable[SearchResult | RecallResult]], count: int
) -> tuple[Timing, dict[str, float]]:
    """Return the latency of calls, and the median of each of their steps."""
    steps: dict[str, list[float]] = {}

    async def stepped(number: int) -> None:
        for step, took in (await call(number)).steps_us.items():
            steps.setdefault(step, []).append(took)

    timing = await time_calls(stepped, times=count - 5)
    return timing, {step: float(np.median(took)) for step, took in steps.items()}


async def measure(home: Path, args: argparse.Namespace) -> None:
    """Fill a ledger user by user, and measure after each."""
    # Without the cache of embeddings: every query is embedded, as in the floor.
    options = {"home": home, "embedding_cache_mb": 0}
    embedder = await open_embedder(load(options, environ={}).settings)
    queries = list(islice(questions(1), args.questions + 5))
    async with running_service(**options) as service:
        await embedder.embed(["warm"])
        print(f"{embedder.model}, {args.questions} questions each, one file\n")
        print("search                       floor                       whole search                 ratio")
        matrices = {}
        for size in map(int, args.sizes.split(",")):
            user = f"user-{size}"
            started = perf_counter()
            texts = await fill(service, user, size, seed=size)
            rate = size / (perf_counter() - started)
            matrices[user] = await embedder.embed(texts)
            started = perf_counter()
            await service.search(Scope(user), SearchRequest(query=queries[0], limit=10))
            first_ms = (perf_counter() - started) * 1e3
            await report(service, embedder, user, matrices[user], queries)
            print(f"    imported at {rate:,.0f}/s in batches of {BATCH}; first search, which loads the user, "
                  f"{first_ms:,.0f} ms")  # fmt: skip

        started = perf_counter()
        for number in range(args.others):
            await fill(service, f"other-{number}", args.other_memories, seed=10_000_000 + number)
        took_s = perf_counter() - started
        print(f"\nwith {args.others} other users of {args.other_memories} memories each (added in {took_s:.0f} s):")
        for user, matrix in matrices.items():
            await report(service, embedder, user, matrix, queries)
        await measure_adds(service, args.adds)
        await report_sizes(service, next(iter(matrices)))


async def report(service: Service, embedder: Embedder, user: str, matrix: np.ndarray, queries: list[str]) -> None:
    """Print the latency of search and recall for one user, and the time of each step."""
    scope = Scope(user)
    floor = await time_floor(embedder, matrix, queries)
    whole, steps = await time_steps(
        lambda number: service.search(scope, SearchRequest(query=queries[number], limit=10)), len(queries)
    )
    print(f"{len(matrix):>8,} memories  {floor}  {whole}  {whole.p50_us / floor.p50_us:5.1f}x")
    print("    " + "   ".join(f"{step} {took:,.0f} us" for step, took in steps.items()))
    whole, steps = await time_steps(
        lambda number: service.recall(scope, recall_request(queries[number])), len(queries)
    )
    print(f"    recall, without trace: {whole}")
    print("    " + "   ".join(f"{step} {took:,.0f} us" for step, took in steps.items()))


async def measure_adds(service: Service, count: int) -> None:
    """Add memories, each on disk before the call returns: one at a time, then concurrently."""
    texts = sentences(99)

    async def add(number: int) -> None:
        await service.add(Scope(f"writer-{number % 50}"), MemoryInput(content=next(texts)), by=AUTHOR)

    alone = await time_calls(add, times=max(10, count // 15))
    started = perf_counter()
    await asyncio.gather(*(add(number) for number in range(count)))
    print(f"\nadds, synced to disk: one at a time {alone} = {1e6 / alone.p50_us:,.0f}/s; "
          f"{count:,} concurrently {count / (perf_counter() - started):,.0f}/s")  # fmt: skip


async def report_sizes(service: Service, user: str) -> None:
    """Print the disk space and memory used."""
    stats = await service.stats()
    texts = [line["memory"] async for line in service.transfer.export(Scope(user), sessions=False)]
    print(f"\n{stats['memories']:,} memories: {stats['bytes'] / 2**20:,.0f} MiB on disk, "
          f"{stats['bytes'] / stats['memories']:,.0f} bytes each "
          f"(text {sum(map(len, texts)) / len(texts):.0f}, vector {2 * service.model.dimensions}); "
          f"process {resident_mb():,.0f} MiB")  # fmt: skip


async def main() -> None:
    """Run the measurements in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="1000,10000,100000", help="memories of each measured user")
    parser.add_argument("--others", type=int, default=1000, help="other users in the same file")
    parser.add_argument("--other-memories", type=int, default=100, help="memories of each of them")
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--adds", type=int, default=5000)
    parser.add_argument("--turns", type=int, default=4000, help="messages to acknowledge")
    parser.add_argument("--jobs", type=int, default=400, help="exchanges to learn from")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as home:
        await measure(Path(home), args)
        print()
        await remember.measure(Path(home) / "remember", turns=args.turns, jobs=args.jobs)


if __name__ == "__main__":
    asyncio.run(main())
