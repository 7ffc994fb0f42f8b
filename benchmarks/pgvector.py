"""What pgvector gives and costs: users of three sizes, searched in memory and inside PostgreSQL; writes beside it.

python -m benchmarks.pgvector                      on a server of its own
python -m benchmarks.pgvector postgresql://...     on an empty database that has the extension
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import islice
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.corpus import questions, sentences
from recollect.index.exact import ExactIndex
from recollect.index.pgvector import PgvectorStore, open_pgvector
from recollect.ledger.postgres import open_postgres
from recollect.ledger.sql.ledger import SqlLedger
from recollect.ledger.sql.tx import ALL_TENANTS, Tx
from recollect.model.change import Add, Author
from recollect.model.query import EVERYTHING
from recollect.model.scope import Scope
from recollect.models.static_embedder import StaticEmbedder
from recollect.write.draft import draft

SIZES = {"small": 1_000, "middle": 50_000, "large": 200_000}
BY = Author("benchmark")
QUESTION_COUNT = 60
LIMIT = 50
BATCH = 1_000


def print_latency(what: str, took: list[float], overlap: float | None = None) -> None:
    ordered = sorted(took)
    p50, p99 = (1000 * ordered[int(len(ordered) * share)] for share in (0.5, 0.99))
    recall = "" if overlap is None else f", {overlap:.3f} of the ten nearest"
    print(f"{what:<44} p50 {p50:9.2f} ms  p99 {p99:9.2f} ms{recall}", flush=True)


async def fill(ledger: SqlLedger, embedder: StaticEmbedder) -> None:
    content = sentences(1)
    for user, size in SIZES.items():
        began = time.monotonic()
        for _ in range(0, size, BATCH):
            texts = list(islice(content, min(BATCH, size)))
            vectors = await embedder.embed(texts, role="document")
            scope = Scope(user)
            adds = [Add(draft(scope, text, {}), vector) for text, vector in zip(texts, vectors, strict=True)]
            await ledger.apply(scope, adds, by=BY)
        print(f"{user}: {size:,} memories in {time.monotonic() - began:.0f} s", flush=True)


async def timed(calls: list[Callable[[], Awaitable[Any]]]) -> tuple[list[float], list[Any]]:
    took, answers = [], []
    for call in calls:
        began = time.perf_counter()
        answers.append(await call())
        took.append(time.perf_counter() - began)
    return took, answers


async def search(ledger: SqlLedger, engine: PgvectorStore, request: list[Any]) -> None:
    """Each user in memory, cold and warm, and by pgvector."""
    for user in SIZES:
        scope = Scope(user)
        index = ExactIndex(ledger, engine.hnsw_index._model, budget_bytes=4 << 30)

        async def exact(vector: Any, scope: Scope = scope, index: ExactIndex = index) -> Any:
            return (await (await index.view(scope, EVERYTHING)).nearest(vector, limit=LIMIT)).rows.tolist()

        async def near(vector: Any, scope: Scope = scope) -> Any:
            return (await engine.nearest(scope.user, vector, places=scope.visible_keys, limit=LIMIT)).rows.tolist()

        cold, _ = await timed([lambda: exact(request[0])])
        warm, expected = await timed([lambda v=v: exact(v) for v in request])  # type: ignore[misc]
        await timed([lambda v=v: near(v) for v in request[:5]])  # type: ignore[misc]
        took, results = await timed([lambda v=v: near(v) for v in request])  # type: ignore[misc]
        print_latency(f"{user}: exact in memory, cold", cold)
        print_latency(f"{user}: exact in memory, warm", warm)
        shares = [len({*a[:10]} & {*b[:10]}) / 10 for a, b in zip(expected, results, strict=True)]
        print_latency(f"{user}: pgvector, HNSW", took, mean(shares))


async def adds(ledger: SqlLedger, embedder: StaticEmbedder, users: list[str], seconds: float = 10.0) -> float:
    """How many memories a second are added, one at a time by eight writers."""
    content, done, until = sentences(time.time_ns() % 1000 + 10), 0, time.monotonic() + seconds

    async def write(user: str) -> None:
        nonlocal done
        while time.monotonic() < until:
            text = next(content)
            [vector] = await embedder.embed([text], role="document")
            await ledger.apply(Scope(user), [Add(draft(Scope(user), text, {}), vector)], by=BY)
            done += 1

    await asyncio.gather(*(write(user) for user in users))
    return done / seconds


async def sizes(ledger: SqlLedger) -> None:
    async def ask(tx: Tx) -> Any:
        return await tx.rows(
            "SELECT relname, pg_relation_size(oid) FROM pg_class WHERE relkind IN ('r', 'i', 't') "
            "AND relnamespace = current_schema()::regnamespace ORDER BY 2 DESC LIMIT 12",
            {},
        )

    count = sum(SIZES.values())
    for name, size in await ledger.engine.read(ask, tenant=ALL_TENANTS):
        print(f"{name:<44} {size / count:9.0f} bytes a memory")


async def run(dsn: str) -> None:
    embedder = StaticEmbedder()
    ledger = await open_postgres(dsn, embedder.model)
    engine = open_pgvector(ledger, embedder.model)
    await fill(ledger, embedder)
    small = [f"writer {n}" for n in range(8)]
    print(f"{await adds(ledger, embedder, small):.0f} adds a second by eight users without pgvector")
    print(f"{await adds(ledger, embedder, ['large'] * 8):.0f} adds a second by eight writers of the large user")
    request = list(await embedder.embed(list(islice(questions(2), QUESTION_COUNT)), role="query"))
    began = time.monotonic()
    await engine.hnsw_index.make_ready(list(SIZES))
    print(f"{time.monotonic() - began:.0f} s to make them ready")
    await search(ledger, engine, [np.asarray(each) for each in request])
    print(f"{await adds(ledger, embedder, small):.0f} adds a second by eight users beside pgvector")
    print(f"{await adds(ledger, embedder, ['large'] * 8):.0f} adds a second by eight writers of the large user")
    await sizes(ledger)
    await engine.close()
    await ledger.close()


async def main() -> None:
    if len(sys.argv) > 1:
        await run(sys.argv[1])
        return
    from tests.support.postgres_server import running_server

    async with running_server().database() as dsn:
        await run(dsn)


if __name__ == "__main__":
    asyncio.run(main())
