"""`python -m benchmarks.lookups`: what Redis in front of lookups saves: one memory, a list, a count.

With SQLite, with PostgreSQL on this machine, and with one that is a few milliseconds away.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.cache import USER, opened
from benchmarks.run import fill
from benchmarks.timing import timed
from recollect.config.settings import load
from recollect.model.query import Listing, parse_filter
from recollect.model.scope import Scope
from recollect.service.service import Service
from recollect.wiring import open_embedder
from tests.support.postgres_server import running_server
from tests.support.redis_server import running_redis

ANN = Scope(USER)
_MOST = 1 << 16


@asynccontextmanager
async def far_away(dsn: str, each_way_s: float) -> AsyncIterator[str]:
    """The address of the same database, as far away as that."""
    place, _, folder = dsn.partition("?host=")

    async def carry(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await source.read(_MOST):
            loop.call_later(each_way_s, to.write, data)
        loop.call_later(each_way_s, to.close)

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.5432")
        await asyncio.gather(carry(reader, back), carry(there, writer))

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield place.replace("@/", f"@127.0.0.1:{port}/")
    finally:
        server.close()


async def measured(service: Service, name: str, times: int) -> None:
    """Print what each kind of lookup takes, again and again."""
    ids = [record.id for record in await service.find(ANN, Listing(limit=20))]
    some = Listing(filter=parse_filter({"content": {"contains": "Hawaii"}}), limit=50)

    async def get(number: int) -> None:
        await service.get(ANN, ids[number % len(ids)])

    async def find(number: int) -> None:
        await service.find(ANN, some)

    async def count(number: int) -> None:
        await service.count(ANN, some)

    report = [f"{(await timed(call, times=times)).p50_us / 1000:7.2f}" for call in (get, find, count)]
    print(f"    {name:24}one {report[0]} ms, 50 of a filter {report[1]} ms, count {report[2]} ms")


async def compare(name: str, args: argparse.Namespace, inputs: dict[str, Any]) -> None:
    """One store: without Redis, and from it."""
    print(f"{name}, {args.memories:,} memories")
    async with opened(**inputs) as service:
        await measured(service, "no Redis", args.times)
    for name, more in (("always looking", {"cache_from_ms": 0}), ("as it is set up", {})):
        redis = {"redis_url": running_redis().url, "cache_lookups": "all", "redis_prefix": name.replace(" ", "-")}
        async with opened(**inputs, **redis, **more) as service:
            await measured(service, name, args.times)


async def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--away-ms", type=float, default=5.0, help="to the PostgreSQL that is away, and back")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as home:
        local: dict[str, Any] = {"home": Path(home)}
        async with running_server().database() as dsn:
            for inputs in (local, {**local, "database": dsn}):
                async with opened(**inputs) as service:
                    embedder = await open_embedder(load(inputs, environ={}).settings)
                    await fill(service, embedder, USER, args.memories, seed=3)
            await compare("SQLite", args, local)
            await compare("PostgreSQL", args, {**local, "database": dsn})
            async with far_away(dsn, args.away_ms / 2000) as address:
                await compare(f"PostgreSQL, {args.away_ms:g} ms away", args, {**local, "database": address})


if __name__ == "__main__":
    asyncio.run(main())
