"""Calls cancelled at any moment: no partial batch, no leaked connection or thread, no destroyed task."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from recollect.errors import Conflict, NotFound
from recollect.index.exact import ExactIndex
from recollect.ledger.ledger import Ledger
from recollect.model.change import Add
from recollect.model.ids import new_id
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.read.calibration import EmbedderCalibration
from recollect.remember import MemoryInput
from recollect.search import SearchDeps, SearchRequest
from recollect.service.service import Service
from recollect.testing.fake_embedder import FakeEmbedder
from tests.drills.findings import everything
from tests.drills.sizes import Sizes
from tests.drills.stores import open_store
from tests.drills.writers import BY, MODEL, record
from tests.support.postgres_server import running_server

BATCH = 3
AT_ONCE = 40
USERS = 4


class _Caller:
    """A caller that reads and writes at random, and notes acknowledged writes."""

    def __init__(self, ledger: Ledger, service: Service, *, seed: int) -> None:
        self._ledger, self._service = ledger, service
        self.random = random.Random(seed)
        self.acked: set[str] = set()
        self.requests: set[str] = set()

    async def call(self, number: int) -> None:
        """Make one random call."""
        scope = Scope(f"user-{number % USERS}", session="s")
        match self.random.choice("bbbarslfu"):
            case "b":
                await self._batch(scope, f"b{number}")
            case "a":
                await self._service.add(scope, MemoryInput(content=f"a{number} was added"), by=BY)
            case "r":
                await self._service.remember(scope, f"r{number} was said", by=BY)
            case "s":
                await self._service.search(scope, SearchRequest(query="what was added", limit=5))
            case "l":
                await self._ledger.lexical(scope, "added")
            case "f":
                await self._ledger.find(scope, Listing(limit=20))
            case "u":
                try:
                    await self._service.undo(scope, by=BY)
                except (NotFound, Conflict):
                    pass  # Another caller was there first.

    async def _batch(self, scope: Scope, name: str) -> None:
        self.requests.add(name)
        new = [Add(record(scope, new_id(), f"{name} part {n} of a batch")) for n in range(BATCH)]
        await self._ledger.apply(scope, new, by=BY)
        self.acked.add(name)


@asynccontextmanager
async def _watched() -> AsyncIterator[list[str]]:
    """Yield the errors reported by the event loop, including those at garbage collection."""
    complaints: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(str(context)))
    try:
        yield complaints
        await asyncio.sleep(0)
        gc.collect()
        await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(None)


async def _cancel_at_random(caller: _Caller, cancellations: int) -> int:
    """Run many calls concurrently, and cancel most of them at random moments; return how many were cancelled."""
    made = cancelled = 0
    while cancelled < cancellations:
        tasks = [asyncio.create_task(caller.call(made + n)) for n in range(AT_ONCE)]
        made += AT_ONCE
        for task in caller.random.sample(tasks, len(tasks)):
            if caller.random.random() < 0.25:
                await asyncio.sleep(caller.random.choice((0, 0.0005, 0.002, 0.005)))
            if caller.random.random() < 0.8:
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        cancelled += sum(isinstance(result, asyncio.CancelledError) for result in results)
        rest = [result for result in results if result and not isinstance(result, asyncio.CancelledError)]
        assert rest == []
    return cancelled


def _open_files(path: Path) -> int:
    """Return how often this process has the file open."""
    handles = Path("/proc/self/fd").iterdir()
    return sum(handle.is_symlink() and os.path.realpath(handle) == os.path.realpath(path) for handle in handles)


async def _connections(store: str) -> int:
    """Return the number of connections to the database, without our own."""
    database = store.partition("@/")[2].partition("?")[0]
    sql = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'"
    return int((await running_server().run(sql))[0][0])


async def test_cancelled_calls_leave_nothing_half_done_and_nothing_behind(
    store: str, sizes: Sizes, seed: int, caplog: pytest.LogCaptureFixture, say: Callable[[str], None]
) -> None:
    threads = set(threading.enumerate())
    async with _watched() as complaints:
        ledger = await open_store(store)
        embedder = FakeEmbedder(MODEL.dimensions, name=MODEL.name)
        service = Service(
            SearchDeps(
                ledger, ExactIndex(ledger, MODEL, budget_bytes=1 << 20), embedder, EmbedderCalibration(embedder)
            )
        )
        caller = _Caller(ledger, service, seed=seed)
        cancelled = await _cancel_at_random(caller, sizes.cancellations)

        # Further calls are served, with the usual number of connections.
        await asyncio.wait_for(asyncio.gather(*(caller.call(-n) for n in range(1, AT_ONCE))), 60)
        parts = Counter[str]()
        for user in await ledger.users():
            parts.update(each.content.split()[0] for each in await everything(ledger, user) if "part" in each.content)
        assert await ledger.check() == []
        if store.startswith("postgresql"):
            assert await _connections(store) <= 10
        else:
            # Six readers, the writer, the handle that identifies the file, and one that SQLite keeps for its check.
            assert _open_files(Path(store)) <= 9
        await service.close()
    assert set(parts.values()) == {BATCH}
    assert caller.acked <= set(parts) <= caller.requests
    assert complaints == []
    assert [entry.getMessage() for entry in caplog.records if entry.name == "asyncio"] == []
    left = [each for each in set(threading.enumerate()) - threads if each.name.startswith("recollect")]
    for thread in left:
        await asyncio.to_thread(thread.join, 30)
    assert [each.name for each in left if each.is_alive()] == []
    if store.startswith("postgresql"):
        # The server notices closed connections a moment later.
        async with asyncio.timeout(60):
            while await _connections(store):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    say(f"{cancelled:,} cancellations; of {len(caller.requests):,} batches {len(parts):,} landed whole, none in part")
