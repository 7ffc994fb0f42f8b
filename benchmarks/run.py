"""Measure search, recall, writes, memory and learning (`make bench`).

The floor of a search is embedding the query and one product of a numpy matrix with the user's vectors. Searches and
recalls are measured in CPU time and in turn with the floor, so that their ratio hardly depends on other load.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks import remember
from benchmarks.corpus import questions
from benchmarks.harness import (
    BATCH,
    WARMUP,
    fill,
    measure_costs,
    recall_request,
    resident_mb,
    running_service,
)
from recollect.config.settings import load
from recollect.model.scope import Scope
from recollect.models.embedding import Embedder
from recollect.search import SearchRequest
from recollect.service.service import Service
from recollect.wiring import open_embedder


async def measure_floor(embedder: Embedder, matrix: np.ndarray, query: str) -> None:
    """Embed the query, multiply, select the ten best."""
    [vector] = await embedder.embed([query], role="query")
    np.argpartition(-(matrix @ vector), 10)[:10]


async def measure(home: Path, args: argparse.Namespace) -> None:
    """Fill a ledger user by user, and measure after each."""
    # Without the cache of embeddings: every query is embedded, as in the floor.
    options = {"home": home, "embedding_cache_mb": 0}
    embedder = await open_embedder(load(options, environ={}).settings)
    query = next(questions(0))
    async with running_service(**options) as service, running_service(**options, late_interaction=False) as plain:
        await embedder.embed(["warm"])
        print(f"{embedder.model}, {args.questions} questions each, one file; CPU time\n")
        services = {"": plain, ", late interaction": service}
        matrices = {}
        for size in map(int, args.sizes.split(",")):
            user = f"user-{size}"
            started = perf_counter()
            texts = await fill(service, user, size, seed=size)
            rate = size / (perf_counter() - started)
            matrices[user] = await embedder.embed(texts)
            started = perf_counter()
            await plain.search(Scope(user), SearchRequest(query=query, limit=10))
            first_ms = (perf_counter() - started) * 1e3
            if service.search_deps.late is not None:
                # A search encodes what is not encoded yet, which takes longer.
                await service.search_deps.late.flush(user)
            await report(services, embedder, user, matrices[user], args.questions)
            print(f"    imported at {rate:,.0f}/s in batches of {BATCH}; first search, which loads the user, "
                  f"{first_ms:,.0f} ms")  # fmt: skip

        started = perf_counter()
        for number in range(args.others):
            await fill(service, f"other-{number}", args.other_memories, seed=10_000_000 + number)
        took_s = perf_counter() - started
        print(f"\nwith {args.others} other users of {args.other_memories} memories each (added in {took_s:.0f} s):")
        for user, matrix in matrices.items():
            await report(services, embedder, user, matrix, args.questions)
        await report_sizes(service, next(iter(matrices)))


async def report(
    services: Mapping[str, Service], embedder: Embedder, user: str, matrix: np.ndarray, count: int
) -> None:
    """Print the CPU time of searches and recalls of one user, their ratio to the floor, and the time of each step."""
    scope = Scope(user)
    # Questions of its own for each, because some results are cached by question.
    asked = (islice(questions(seed), count + WARMUP) for seed in itertools.count(1))
    calls: dict[str, Callable[[], Awaitable[object]]] = {}

    def add(name: str, call: Callable[[str], Awaitable[object]]) -> None:
        texts = next(asked)
        calls[name] = lambda: call(next(texts))

    add("floor", lambda text: measure_floor(embedder, matrix, text))
    for kind, service in services.items():
        add(f"search{kind}", lambda text, own=service: own.search(scope, SearchRequest(query=text, limit=10)))
        add(f"recall{kind}", lambda text, own=service: own.recall(scope, recall_request(text)))
    costs = await measure_costs(calls, times=count)
    floor_us = costs["floor"].timing.p50_us
    print(f"{len(matrix):,} memories")
    for name, cost in costs.items():
        print(f"    {name:26}{cost.timing}   {cost.timing.p50_us / floor_us:5.1f}x of the floor")
        if cost.steps_us:
            print("        " + "   ".join(f"{step} {took_us:,.0f}" for step, took_us in cost.steps_us.items()))


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
    parser.add_argument("--turns", type=int, default=4000, help="memories and messages to write")
    parser.add_argument("--jobs", type=int, default=400, help="exchanges to learn from")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as home:
        await measure(Path(home), args)
        print()
        await remember.measure(Path(home) / "remember", turns=args.turns, jobs=args.jobs)


if __name__ == "__main__":
    asyncio.run(main())
