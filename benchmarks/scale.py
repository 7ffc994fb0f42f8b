"""`make bench-scale`: a million memories of ten thousand users, in each of the stores in turn.

Ordinary users have 100 memories each, at every size of the whole; the others share the rest unevenly, as people do:
the second half as many as the first, the third a third. What a recall costs an ordinary user is measured in a small
store and in the large one, one question here and one there, so that a noisy machine is as unkind to both.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter

from benchmarks.corpus import questions, sentences
from benchmarks.run import fill
from benchmarks.scale_stores import STORES, Store
from benchmarks.timing import Timing, resident_mb, summary
from recollect.config.settings import load
from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.models.embedding import Embedder
from recollect.recall import RecallRequest
from recollect.remember import MemoryInput
from recollect.service.service import Service
from recollect.wiring import open_embedder, open_service

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


BY = Author("bench")
ORDINARY = 50
EACH = 100
LARGEST = "crowd-0"
_ADDS = 200


@dataclass(frozen=True, slots=True)
class Filled:
    """A store with memories in it, and how long it took to bring them there."""

    service: Service
    memories: int
    users: int
    largest: int
    took_s: float


def ordinary() -> list[str]:
    """The users who are the same wherever they are."""
    return [f"ordinary-{number}" for number in range(ORDINARY)]


def crowd(memories: int, users: int) -> Iterator[tuple[str, int]]:
    """How many memories each of the others has: in all so many, shared as 1, 1/2, 1/3 ..., one at least."""
    share = memories / sum(1 / rank for rank in range(1, users + 1))
    for rank in range(users):
        yield f"crowd-{rank}", max(1, round(share / (rank + 1)))


async def filled(service: Service, embedder: Embedder, memories: int, users: int) -> Filled:
    """Bring in the ordinary users first, then the crowd, and say how far it is."""
    started = report = perf_counter()
    done = 0
    everyone = [(user, EACH) for user in ordinary()]
    everyone += crowd(memories - ORDINARY * EACH, users - ORDINARY)
    for number, (user, count) in enumerate(everyone):
        await fill(service, embedder, user, count, seed=number)
        done += count
        if perf_counter() - report > 15:
            report = perf_counter()
            print(f"    {done:,} of {memories:,} memories, {done / (report - started):,.0f}/s", flush=True)
    return Filled(service, done, users, everyone[ORDINARY][1], perf_counter() - started)


async def recalled(service: Service, user: str, text: str) -> float:
    """How long one recall takes, in seconds."""
    request = RecallRequest(messages=({"role": "user", "content": text},), at=now(), limit=10, min_score=0.0)
    started = perf_counter()
    hits = await service.recall(Scope(user), request)
    took = perf_counter() - started
    if not hits.context.used:
        raise RuntimeError(f"{user} was given nothing for {text!r}: {hits.outcome}, {hits.reason}")
    return took


async def in_turn(stores: Sequence[Filled], users: Sequence[str], messages: Sequence[str]) -> list[Timing]:
    """The same questions of the same users to each store, one here and one there."""
    took: list[list[float]] = [[] for _ in stores]
    for number, words in enumerate(messages):
        for store, times in zip(stores, took, strict=True):
            times.append(await recalled(store.service, users[number % len(users)], words))
    return [summary(times) for times in took]


async def adds(service: Service, users: Sequence[str]) -> tuple[float, float]:
    """How many memories a second are kept, each on disk: one after the other, and a thousand at once."""
    texts = sentences(77)

    async def add(number: int) -> None:
        await service.add(Scope(users[number % len(users)]), MemoryInput(content=next(texts)), by=BY)

    started = perf_counter()
    for number in range(_ADDS):
        await add(number)
    alone = _ADDS / (perf_counter() - started)
    started = perf_counter()
    await asyncio.gather(*(add(number) for number in range(1000)))
    return alone, 1000 / (perf_counter() - started)


@asynccontextmanager
async def opened(store: Store, home: Path) -> AsyncIterator[Service]:
    """The service on a fresh store of this kind, for as long as it is measured."""
    async with store.running(home) as inputs:
        # Every question is embedded, as if it had never been asked.
        service = await open_service(load({"home": home, "embedding_cache_mb": 0, **inputs}, environ={}).settings)
        try:
            yield service
        finally:
            await service.close()


async def measure(store: Store, args: argparse.Namespace, embedder: Embedder) -> None:
    """Fill a small store and a large one of a kind, and ask them in turn."""
    text = list(islice(questions(3), args.questions))
    async with AsyncExitStack() as parts:
        homes = [Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="recollect-scale-"))) for _ in range(2)]
        small_service = await parts.enter_async_context(opened(store, homes[0]))
        large_service = await parts.enter_async_context(opened(store, homes[1]))
        print(f"\n{store.name}", flush=True)
        small = await filled(small_service, embedder, args.small, max(ORDINARY * 2, args.small // 100))
        before_mb = resident_mb()
        large = await filled(large_service, embedder, args.memories, args.users)
        rate = large.memories / large.took_s
        print(f"  {large.memories:,} memories of {large.users:,} users came in at {rate:,.0f}/s")
        await store.settle(large_service)
        await recalls(small, large, text)
        rates = [await adds(each.service, ordinary()) for each in (small, large)]
        for way, (few, many) in zip(("one by one", "a thousand at once"), zip(*rates, strict=True), strict=True):
            print(f"  adds, {way}: {few:,.0f}/s and {many:,.0f}/s")
        disk = await store.disk_bytes(homes[1], large_service)
        print(f"  disk {disk / 2**20:,.0f} MiB, {disk / large.memories:,.0f} bytes a memory")
        print(f"  this process {resident_mb():,.0f} MiB, {before_mb:,.0f} before{store.memory()}", flush=True)


async def recalls(small: Filled, large: Filled, messages: Sequence[str]) -> None:
    """What a recall takes: of ordinary users in both, who were not heard of lately and who were; of the largest."""
    for name, request in (("cold", messages[:ORDINARY]), ("warm", messages)):
        few, many = await in_turn([small, large], ordinary(), request)
        ratios = f"{many.p50_us / few.p50_us:4.2f}x at p50, {many.p99_us / few.p99_us:4.2f}x at p99"
        print(f"  ordinary user, {name}:  {small.memories:>9,} {few}   {large.memories:>9,} {many}   {ratios}")
    [loading] = await in_turn([large], [LARGEST], messages[:1])
    [largest] = await in_turn([large], [LARGEST], messages[: len(messages) // 2])
    print(f"  largest user, {large.largest:,} memories: {largest}; the first time {loading.p50_us / 1e3:,.0f} ms")


async def main() -> None:
    """Each store in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stores", default=",".join(STORES), help="which, in turn")
    parser.add_argument("--memories", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--small", type=int, default=10_000, help="memories in the small store beside it")
    parser.add_argument("--questions", type=int, default=300)
    args = parser.parse_args()
    embedder = await open_embedder(load({"embedding_cache_mb": 0}, environ={}).settings)
    print(f"{embedder.model}, {args.questions} questions to each store, {ORDINARY} ordinary users of {EACH} memories")
    for name in args.stores.split(","):
        await measure(STORES[name], args, embedder)


if __name__ == "__main__":
    asyncio.run(main())
