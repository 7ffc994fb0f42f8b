"""Processes to be killed, forked from one that has everything imported."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from recollect.errors import Conflict, RecollectError
from recollect.index.exact import ExactIndex
from recollect.ledger.ledger import Ledger
from recollect.ledger.sql import migrate
from recollect.ledger.sql.tx import Tenant, Tx
from recollect.model.change import Add, Applied, IdempotencyToken, Update
from recollect.model.ids import new_id
from recollect.model.scope import Scope
from recollect.read.calibration import EmbedderCalibration
from recollect.remember import MemoryInput
from recollect.search import SearchDeps
from recollect.service.service import Service
from recollect.testing.fake_embedder import FakeEmbedder
from tests.drills.notes import Notes, Step
from tests.drills.stores import open_store
from tests.drills.writers import BY, MODEL, Writer, record, take
from tests.support.forked import fork_context
from tests.support.power_cut import SimulatedDisk


def start(body: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> BaseProcess:
    """Run a coroutine function of this package in another process."""
    child = fork_context().Process(target=_run, args=(body, arguments), daemon=True)
    child.start()
    return child


def queue() -> Any:
    """Return a queue for the answers of children."""
    return fork_context().SimpleQueue()


def barrier(parties: int) -> Any:
    """Return a barrier for children."""
    return fork_context().Barrier(parties)


def _run(body: Callable[..., Coroutine[Any, Any, None]], arguments: tuple[Any, ...]) -> None:
    asyncio.run(body(*arguments))


async def write_for_ever(address: str, notes: Path, numbers: range, seed: int, too_soon: bool = False) -> None:
    """Run several writers, two for each user, until the process is killed."""
    ledger = await open_store(address)
    if too_soon:
        acknowledge_too_soon(ledger)
    log = Notes(notes)
    writers = [Writer(number, user=f"user-{number // 2}", seed=seed) for number in numbers]
    await asyncio.gather(*(writer.go_on(ledger, log) for writer in writers))


def acknowledge_too_soon(ledger: Ledger) -> None:
    """Break the engine on purpose: it acknowledges before it commits."""
    engine: Any = ledger.engine
    write, pending = engine.write, set[asyncio.Task[Any]]()

    async def write_later(body: Callable[[Tx], Coroutine[Any, Any, Any]], *, tenant: Tenant) -> Any:
        loop = asyncio.get_running_loop()
        result = loop.create_future()

        async def answer_first(tx: Tx) -> Any:
            value = await body(tx)
            # Once, though it is run a second time if another write fails.
            loop.call_soon_threadsafe(lambda: result.done() or result.set_result(value))
            # In the thread of the writer.
            time.sleep(0.01)  # noqa: ASYNC251
            return value

        task = asyncio.create_task(write(answer_first, tenant=tenant))
        pending.add(task)
        task.add_done_callback(pending.discard)
        return await result

    async def write_each_later(body: Any, request: Any, *, tenant: Tenant) -> Any:
        [answer] = await write_later(lambda tx: body(tx, [request]), tenant=tenant)
        return answer

    engine.write, engine.write_each = write_later, write_each_later


async def die_while_taking(address: str, step: Step, point: int, kind: str) -> None:
    """Take a step and be killed before its n-th statement or file call, if it has so many."""
    countdown = Countdown(point)
    # SQLite needs the disk to stay referenced.
    disk = SimulatedDisk(seed=0, on_call=lambda call, name: countdown.tick()) if kind == "file call" else None
    if disk is None:
        watch_statements(address, countdown)
    ledger = await open_store(address, vfs=disk.vfs if disk else None)
    countdown.runs = True
    await take(ledger, step)
    os._exit(0)


async def die_while_opening(address: str, point: int, later: bool) -> None:
    """Open a ledger and be killed before the n-th statement, if there are so many."""
    if later:
        migrate.migrations = later_migrations
    countdown = Countdown(point)
    watch_statements(address, countdown)
    countdown.runs = True
    ledger = await open_store(address)
    countdown.runs = False
    await ledger.close()


class Countdown:
    """Kills this process at the n-th tick after it was set going."""

    def __init__(self, left: int) -> None:
        self.left, self.runs = left, False

    def tick(self) -> None:
        if self.runs:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def watch_statements(address: str, countdown: Countdown) -> None:
    """Have the countdown tick before every statement that this process sends."""
    if not address.startswith("postgresql://"):
        import apsw

        def trace(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
            countdown.tick()
            return True

        apsw.connection_hooks.append(lambda connection: connection.set_exec_trace(trace))
        return
    from asyncpg.connection import Connection

    for name in ("execute", "executemany", "fetch"):
        setattr(Connection, name, _ticking(getattr(Connection, name), countdown))


def _ticking(send: Callable[..., Any], countdown: Countdown) -> Callable[..., Any]:
    async def sent(*arguments: Any, **named: Any) -> Any:
        countdown.tick()
        return await send(*arguments, **named)

    return sent


_migrations = migrate.migrations
_LATER = {
    2: (
        "ALTER TABLE memories ADD COLUMN extra TEXT",
        "UPDATE memories SET extra = content",
        "CREATE INDEX memories_by_extra ON memories (user_id, extra)",
    ),
    3: (
        "CREATE TABLE extras (id TEXT PRIMARY KEY, extra TEXT NOT NULL)",
        "INSERT INTO extras (id, extra) SELECT id, extra FROM memories",
        "DROP INDEX memories_by_extra",
        "ALTER TABLE memories DROP COLUMN extra",
    ),
}


def later_migrations(dialect: str) -> dict[int, tuple[str, ...]]:
    """The migrations there are, and two that may come one day."""
    existing = _migrations(dialect)
    newest = max(existing)
    return existing | {newest - 1 + number: statements for number, statements in _LATER.items()}


async def write_concurrently(address: str, numbers: range, task: Crowd, meet: Any, answers: Any) -> None:
    """Add and count up together with other processes; answers how it went."""
    ledger = await open_store(address)
    await ledger.users()
    meet.wait()
    fared = Fared()
    began = time.monotonic()
    await asyncio.gather(*(_one_of_many(ledger, number, task, fared) for number in numbers))
    fared.took_s = time.monotonic() - began
    await ledger.close()
    answers.put(fared)


@dataclass(frozen=True, slots=True)
class Crowd:
    """What each of many writers does: so many adds, so many increments of a counter that all share.

    A `careful` one says which version of the counter it has seen.
    """

    counter: str
    adds: int
    increments: int
    careful: bool = True


@dataclass(slots=True)
class Fared:
    """How the writers of one process fared."""

    slowest_s: float = 0.0
    took_s: float = 0.0
    increments: int = 0
    conflicts: int = 0
    errors: list[str] = field(default_factory=list)


async def _one_of_many(ledger: Ledger, number: int, task: Crowd, fared: Fared) -> None:
    scope = Scope(f"user-{number % 8}")
    try:
        for n in range(task.adds):
            began = time.monotonic()
            new = record(scope, f"{number}-{n}", f"writer {number} adds {n}")
            await ledger.apply(scope, [Add(new)], by=BY)
            fared.slowest_s = max(fared.slowest_s, time.monotonic() - began)
        scope, done = Scope("everyone"), 0
        while done < task.increments:
            [counter] = await ledger.get(scope, [task.counter])
            fields = {"value": str(int(counter.value or 0) + 1)}
            try:
                seen = counter.version if task.careful else None
                await ledger.apply(scope, [Update(task.counter, fields, seen)], by=BY)
            except Conflict:
                fared.conflicts += 1
                await asyncio.sleep(random.uniform(0, 0.02))
                continue
            done += 1
            fared.increments += 1
    except RecollectError as error:
        fared.errors.append(repr(error))


async def add_the_same(address: str, times: int, meet: Any, answers: Any) -> None:
    """Say one thing many times at once, through the service; answers the ids that were given back."""
    async with _service(address) as service:
        meet.wait()
        new = MemoryInput(content="The user lives in Utrecht.")
        outcomes = await asyncio.gather(*(service.add(Scope("user"), new, by=BY) for _ in range(times)))
        answers.put([(outcome.id, outcome.changed) for outcome in outcomes])


async def ask_once(address: str, requests: range, meet: Any, answers: Any) -> None:
    """Make requests with one idempotency key at once, each with words of its own; answers what they came to."""
    ledger = await open_store(address)
    await ledger.users()
    meet.wait()
    applied = await asyncio.gather(*(ask(ledger, number) for number in requests))
    await ledger.close()
    answers.put([(each.batch, [o.record.content for o in each.outcomes], each.replayed) for each in applied])


async def ask(ledger: Ledger, number: int, *, digest: str = "the same") -> Applied:
    """One request with the key that all share."""
    scope = Scope("user")
    new = record(scope, new_id(), f"request {number}")
    return await ledger.apply(scope, [Add(new)], by=BY, once=IdempotencyToken("key", digest))


@asynccontextmanager
async def _service(address: str) -> AsyncIterator[Service]:
    ledger = await open_store(address)
    await ledger.users()
    embedder = FakeEmbedder(MODEL.dimensions, name=MODEL.name)
    service = Service(
        SearchDeps(ledger, ExactIndex(ledger, MODEL, budget_bytes=1 << 20), embedder, EmbedderCalibration(embedder))
    )
    try:
        yield service
    finally:
        await service.close()
