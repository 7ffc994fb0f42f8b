"""Measure Redis as a cache of recalls and lookups: what a hit saves, what a miss costs.

A question asked for the first time is a miss, asked again a hit. Stores: SQLite, PostgreSQL on this machine and a few
milliseconds away, and SQLite with an LLM that takes 200 ms to rewrite the query.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.corpus import questions
from benchmarks.harness import Timing, fill, recall_request, running_service, time_calls
from recollect.model.query import Listing, parse_filter
from recollect.model.scope import Scope
from recollect.service.service import Service
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.llm_faults import delay
from tests.support.postgres_server import running_server
from tests.support.redis_server import running_redis

USER = Scope("ann")
_MAX_READ = 1 << 16


@asynccontextmanager
async def distant(dsn: str, each_way_s: float) -> AsyncIterator[str]:
    """Yield an address of the same database with a delay in each direction."""
    start, _, folder = dsn.partition("?host=")

    async def carry(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await source.read(_MAX_READ):
            loop.call_later(each_way_s, to.write, data)
        loop.call_later(each_way_s, to.close)

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, back = await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.5432")
        await asyncio.gather(carry(reader, back), carry(upstream, writer))

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield start.replace("@/", f"@127.0.0.1:{port}/")
    finally:
        server.close()


async def time_recalls(service: Service, queries: list[str]) -> Timing:
    """Recall for each query, one at a time."""
    requests = [recall_request(query) for query in queries]
    return await time_calls(lambda number: service.recall(USER, requests[number]), times=len(queries) - 5)


async def compare_recalls(name: str, options: dict[str, Any], args: argparse.Namespace) -> None:
    """Fill a store, then recall without Redis, with it, and with it for every result however fast."""
    queries = [f"what about my {text}?" for text in islice(questions(7), args.questions + 5)]
    warmup = [f"{text} again" for text in queries][:20]
    redis = {"redis_url": running_redis().url}
    async with running_service(**options) as service:
        await fill(service, USER.user, args.memories, seed=3)
        await time_recalls(service, warmup)
        print(f"{name}, {args.memories:,} memories")
        print(f"    recall, no Redis              {await time_recalls(service, queries)}")
    async with running_service(**options, **redis) as service:
        await time_recalls(service, warmup)
        print(f"    recall, Redis, asked first    {await time_recalls(service, queries)}")
        print(f"    recall, Redis, asked again    {await time_recalls(service, queries)}")
    async with running_service(**options, **redis, cache_min_ms=0) as service:
        others = [f"{text} too" for text in queries]
        await time_recalls(service, warmup)
        print(f"    recall, always cached: miss   {await time_recalls(service, others)}")
        print(f"    recall, always cached: hit    {await time_recalls(service, others)}")


async def time_lookups(service: Service, name: str, times: int) -> None:
    """Print the latency of each kind of lookup, repeated."""
    ids = [record.id for record in await service.find(USER, Listing(limit=20))]
    filtered = Listing(filter=parse_filter({"content": {"contains": "Hawaii"}}), limit=50)
    timings = [
        await time_calls(lambda number: service.get(USER, ids[number % len(ids)]), times=times),
        await time_calls(lambda number: service.find(USER, filtered), times=times),
        await time_calls(lambda number: service.count(USER, filtered), times=times),
    ]
    one, some, count = (f"{timing.p50_us / 1000:7.2f} ms" for timing in timings)
    print(f"    lookups, {name:20} one {one}, 50 of a filter {some}, count {count}")


async def compare_lookups(options: dict[str, Any], times: int) -> None:
    """Look up without Redis, from it always, and from it with the default threshold."""
    async with running_service(**options) as service:
        await time_lookups(service, "no Redis", times)
    for name, threshold in (("always cached", {"cache_min_ms": 0}), ("Redis", {})):
        redis = {"redis_url": running_redis().url, "cache_lookups": "all", "redis_prefix": name.replace(" ", "-")}
        async with running_service(**options, **redis, **threshold) as service:
            await time_lookups(service, name, times)


async def main() -> None:
    """Measure each store in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--distance-ms", type=float, default=5.0, help="round trip to the distant PostgreSQL")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as folder:
        home = Path(folder)
        await compare_recalls("SQLite", {"home": home / "sqlite"}, args)
        await compare_lookups({"home": home / "sqlite"}, args.questions)
        async with running_server().database() as dsn:
            local = {"home": home / "postgres", "database": dsn}
            await compare_recalls("PostgreSQL", local, args)
            await compare_lookups(local, args.questions)
            async with distant(dsn, args.distance_ms / 2000) as address:
                print(f"PostgreSQL, {args.distance_ms:g} ms away")
                await compare_lookups({**local, "database": address}, args.questions)
        with ScriptedLLM() as llm:
            llm.default = "The trip to Hawaii in May costs $10,000"
            llm.fault(delay(0.2), times=None, on="chat")
            options = {"home": home / "llm", "llm": "slow", "llm_url": llm.base_url, "rewrite": "hyde"}
            args.questions = min(args.questions, 40)
            await compare_recalls("SQLite and an LLM of 200 ms", options, args)


if __name__ == "__main__":
    asyncio.run(main())
