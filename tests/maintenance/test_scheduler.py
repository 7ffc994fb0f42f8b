"""The scheduler queues each task once for every user, purges old rows, and survives wrong clocks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recollect.ledger import sqlite, sqlite_connection
from recollect.ledger.ledger import Ledger
from recollect.ledger.sqlite import open_sqlite
from recollect.maintenance import scheduler
from recollect.maintenance.scheduler import MaintenanceSchedule, Scheduler, follow_up_job
from recollect.maintenance.tasks import MaintenanceReport, MaintenanceStep, MaintenanceTask
from recollect.model.change import Add, Forget, IdempotencyToken
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.job import JobKind, JobState, MaintenancePayload, NewJob
from recollect.model.memory import Status
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.model.times import now
from tests.support.ledger_samples import ANN, BY, MODEL, add, change, keep, memory, response, say, thread, turn

MONDAY = Scope("ann", "p", "monday")
EVERY_STATUS = Listing(statuses=tuple(Status))


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    ledger = await open_sqlite(tmp_path / "recollect.db", MODEL)
    yield ledger
    await ledger.close()


def keeper(ledger: Ledger, *tasks: MaintenanceTask, idle_s: float = 0) -> Scheduler:
    table = MaintenanceSchedule(tasks=frozenset(tasks), spread_s=0, idle_s=idle_s)
    return Scheduler(ledger, table)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sets the clock of the scheduler relative to now."""

    def shown(**ahead: float) -> datetime:
        moment = now() + timedelta(**ahead)
        monkeypatch.setattr(scheduler, "now", lambda: moment)
        return moment

    return shown


async def forgotten(ledger: Ledger) -> None:
    fact = memory("likes tea")
    await add(ledger, fact)
    await change(ledger, Forget(fact.id))


def is_anywhere(folder: Path, words: bytes) -> bool:
    return any(words in file.read_bytes() for file in folder.iterdir())


async def has_jobs(ledger: Ledger, user: str) -> None:
    """Wait until there are jobs."""
    for _ in range(6_000):
        if await ledger.jobs(user):
            return
        await asyncio.sleep(0.01)
    pytest.fail("nothing was queued")


async def run_pending(ledger: Ledger) -> list[str]:
    """Run all due jobs; return their keys."""
    done = []
    while taken := await ledger.lease(worker="w", limit=50, lease_s=60):
        for job in taken:
            await ledger.finish(job)
            done.append(job.key)
    return done


async def test_a_task_is_queued_once(ledger: Ledger) -> None:
    await say(ledger, MONDAY, "hello")
    time = keeper(ledger, MaintenanceTask.EXPIRE, MaintenanceTask.CONSOLIDATE)
    assert await time.tick() == 2
    await run_pending(ledger)
    await ledger.enqueue(Scope("busy"), [NewJob(kind=JobKind.EXTRACT, key=str(n)) for n in range(1100)])
    while taken := await ledger.lease(worker="w", limit=1, lease_s=60):
        await ledger.finish(taken[0])
    assert await time.tick() == 0
    assert await ledger.jobs("ann", states=[JobState.WAITING]) == []


async def test_changes_count_from_the_start_of_the_last_run(ledger: Ledger, at: Any) -> None:
    await say(ledger, MONDAY, "hello")
    time = keeper(ledger, MaintenanceTask.CONSOLIDATE)
    await time.tick()
    (job,) = await ledger.lease(worker="w", limit=1, lease_s=60)
    taken = now()
    await asyncio.sleep(0.02)
    await say(ledger, MONDAY, "said while it ran")
    await ledger.finish(job)
    at(days=1, hours=1)
    assert await time.tick() == 1
    (job,) = await ledger.jobs("ann", states=[JobState.WAITING])
    assert isinstance(job.payload, MaintenancePayload)
    assert job.payload.after is not None
    assert job.payload.after <= taken


async def test_users_without_sessions_are_maintained(ledger: Ledger) -> None:
    await add(ledger, memory(scope=Scope("adder")))
    assert await keeper(ledger, MaintenanceTask.EXPIRE).tick() == 1
    assert await run_pending(ledger) == ["expire"]


async def test_many_users_are_queued_over_several_ticks(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("_PAGE", 3), ("_PAGES", 2), ("_BATCH", 2)):
        monkeypatch.setattr(scheduler, name, size)
    for n in range(14):
        await say(ledger, Scope(f"user {n:02}", "", "s"), "hello")
    time = keeper(ledger, MaintenanceTask.EXPIRE, idle_s=0.001)
    await asyncio.sleep(0.01)
    # Of six users each time the chore, of six sessions the end.
    assert [await time.tick() for _ in range(3)] == [12, 12, 4]
    assert len(await ledger.jobs(limit=100)) == 28
    assert len({job.scope.user for job in await ledger.jobs(limit=100)}) == 14


async def test_a_session_that_cannot_be_ended_is_not_retried_forever(ledger: Ledger) -> None:
    await ledger.append(MONDAY, [turn("hi", said_at=now() - timedelta(hours=1))], vectors=[None], by=BY)
    time = keeper(ledger, idle_s=60)
    assert await time.tick() == 1
    (job,) = await ledger.lease(worker="w", limit=1, lease_s=60)
    await ledger.fail(job, error="poison", retry_at=None)
    assert [await time.tick() for _ in range(3)] == [0, 0, 0]
    assert len(await ledger.jobs()) == 1


async def test_a_user_erased_during_a_tick_is_not_recreated(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    await ledger.append(MONDAY, [turn("hi", said_at=now() - timedelta(hours=1))], vectors=[None], by=BY)
    tend = ledger.enqueue_due

    async def erased_before(due: Any) -> int:
        await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
        return await tend(due)

    monkeypatch.setattr(ledger, "enqueue_due", erased_before)
    assert await keeper(ledger, MaintenanceTask.EXPIRE, idle_s=60).tick() == 0
    assert (await ledger.users(), await ledger.jobs(), await ledger.conversations()) == ([], [], [])


async def test_nothing_is_purged_when_the_clock_jumps_ahead(
    ledger: Ledger, at: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await forgotten(ledger)
    await ledger.enqueue(ANN, [NewJob(kind=JobKind.EXTRACT)])
    await run_pending(ledger)
    at(days=3650)
    with caplog.at_level(logging.WARNING, "recollect"):
        await keeper(ledger).tick()
    assert "may have jumped ahead" in caplog.text
    # Not even after a day of it, with someone writing at that time.
    at(days=3652)
    await keeper(ledger).tick()
    assert (await ledger.count(ANN, EVERY_STATUS), len(await ledger.jobs())) == (1, 1)
    at(days=3651 + 31)
    await keeper(ledger).tick()
    assert (await ledger.count(ANN, EVERY_STATUS), len(await ledger.jobs())) == (0, 0)


async def test_a_corrected_clock_is_trusted(ledger: Ledger, at: Any) -> None:
    await forgotten(ledger)
    at(days=3650)
    await keeper(ledger).tick()
    at(days=40)
    await keeper(ledger).tick()
    assert await ledger.count(ANN, EVERY_STATUS) == 0


async def test_old_rows_are_purged_once_a_day(ledger: Ledger, at: Any) -> None:
    await ledger.apply(ANN, [Add(memory("tea"))], by=BY, once=IdempotencyToken("key", "digest"))
    at(days=40)
    time = keeper(ledger)
    await time.tick()
    assert not (
        await ledger.apply(ANN, [Add(memory("milk"))], by=BY, once=IdempotencyToken("key", "digest"))
    ).replayed
    await forgotten(ledger)
    at(days=40, hours=23)
    await keeper(ledger).tick()
    assert await ledger.count(ANN, Listing(statuses=(Status.FORGOTTEN,))) == 1
    at(days=41, hours=1)
    await time.tick()
    assert await ledger.count(ANN, Listing(statuses=(Status.FORGOTTEN,))) == 0


async def test_expired_responses_and_conversations_are_purged(ledger: Ledger, at: Any) -> None:
    for days in (1, 9):
        until = now() + timedelta(days=days)
        await keep(ledger, response(f"resp_{days}", expires_at=until))
        await ledger.save_thread(ANN, thread(f"conv_{days}", expires_at=until))
    at(days=2)
    await keeper(ledger).tick()
    # What is left is all that a look from another time would find.
    assert await ledger.prune_responses(now() + timedelta(days=5)) == 0
    assert await ledger.prune_responses(now() + timedelta(days=10)) == 2


def rewrite_count(home: Path) -> int:
    """Return a number that grows with each VACUUM, and otherwise only when a table is made."""
    connection = sqlite_connection.connect(home / "recollect.db")
    count = int(connection.pragma("schema_version"))
    connection.close()
    return count


async def test_purging_does_not_rewrite_the_file(ledger: Ledger, tmp_path: Path) -> None:
    fact = memory("qvzkanaribu")
    await add(ledger, fact, *(memory(f"note {n}") for n in range(200)))
    await change(ledger, Forget(fact.id))
    before = rewrite_count(tmp_path)
    done = await ledger.purge(now() + timedelta(seconds=1))
    assert (done.counts["memories"], done.reached) == (1, True)
    assert rewrite_count(tmp_path) == before
    assert not is_anywhere(tmp_path, b"qvzkanaribu")


async def test_an_unfinished_erasure_is_retried_hourly(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: Any
) -> None:
    monkeypatch.setattr(sqlite, "MAX_WAIT_S", 0.1)
    await add(ledger, memory("qvzkanaribu"))
    before = rewrite_count(tmp_path)
    reader = sqlite_connection.connect(tmp_path / "recollect.db")
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM memories").fetchall()
    receipt = await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
    assert (receipt.reached, rewrite_count(tmp_path)) == (False, before + 1)
    for _ in range(5):
        await keeper(ledger).tick()
    assert rewrite_count(tmp_path) == before + 2
    reader.close()
    at(hours=2)
    await keeper(ledger).tick()
    at(hours=4)
    await keeper(ledger).tick()
    assert rewrite_count(tmp_path) == before + 3
    assert not is_anywhere(tmp_path, b"qvzkanaribu")


async def test_a_file_that_is_too_large_is_not_retried(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "MAX_BYTES", 1)
    await add(ledger, memory("tea"))
    receipt = await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
    assert not receipt.reached
    assert "too large" in receipt.stores[0].note
    monkeypatch.setattr(ledger.engine, "scrub", lambda *tables: pytest.fail("it was tried again"))
    assert (await ledger.finish_erasures()).reached


async def test_the_scheduler_ticks_when_it_is_started(ledger: Ledger) -> None:
    await say(ledger, MONDAY, "hello")
    time = Scheduler(ledger, MaintenanceSchedule(), every_s=60)
    time.start()
    await has_jobs(ledger, "ann")
    await time.stop()


def test_the_scheduler_can_be_started_in_another_event_loop(tmp_path: Path) -> None:
    async def opened() -> Ledger:
        return await open_sqlite(tmp_path / "recollect.db", MODEL)

    ledger = asyncio.run(opened())
    time = Scheduler(ledger, MaintenanceSchedule(), every_s=0.01)

    async def one_life(user: str) -> None:
        await say(ledger, Scope(user, "", "s"), "hello")
        time.start()
        await has_jobs(ledger, user)

    for user in ("ann", "bob"):
        asyncio.run(one_life(user))

    async def closed() -> None:
        await time.stop()
        await ledger.close()

    asyncio.run(closed())


async def test_a_run_with_progress_is_continued_by_a_follow_up_job(ledger: Ledger) -> None:
    payload = MaintenancePayload(chore="expire")
    await ledger.enqueue(ANN, [NewJob(kind=JobKind.UPKEEP, key="expire", payload=payload, priority=-10)])
    (job,) = await ledger.lease(worker="w", limit=1, lease_s=60)
    step = MaintenanceStep(verb="forget", id="x", content="tea")  # type: ignore[arg-type]
    whole, part = (
        MaintenanceReport(chore=MaintenanceTask.EXPIRE, user="ann", steps=(step,), more=more)
        for more in (False, True)
    )
    assert follow_up_job(job, whole) is None
    assert follow_up_job(job, MaintenanceReport(chore=MaintenanceTask.EXPIRE, user="ann", more=True)) is None
    next_job = follow_up_job(job, part)
    assert next_job is not None
    assert (next_job.kind, next_job.key, next_job.payload, next_job.priority) == (
        job.kind, job.key, job.payload, job.priority,
    )  # fmt: skip
