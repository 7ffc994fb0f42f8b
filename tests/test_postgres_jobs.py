"""Workers of several processes on one PostgreSQL: they pass over what another holds, and never take a job twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import asyncpg
import pytest

from recollect.ledger.postgres import open_postgres
from recollect.ledger.sql.ledger import SqlLedger
from recollect.model.job import Job, JobKind, NewJob
from recollect.model.scope import Scope
from recollect.testing.postgres_server import PLAIN_ROLE, SUPERUSER, running_server
from recollect.testing.suite_samples import MODEL

PEOPLE = [Scope(f"user {n:02}", "", "s") for n in range(40)]
# Far longer than taking a job takes, and shorter than anyone waits for a lock.
SOON_S = 15.0


@pytest.fixture
async def ledgers() -> AsyncIterator[list[SqlLedger]]:
    """Several processes' ledgers, held to row-level security; everybody has jobs."""
    async with running_server().database(role=PLAIN_ROLE) as dsn:
        ledgers = [await open_postgres(dsn, MODEL) for _ in range(4)]
        for person in PEOPLE:
            await ledgers[0].enqueue(person, [NewJob(kind=JobKind.EXTRACT, key=f"{n}") for n in range(2)])
        yield ledgers
        for ledger in ledgers:
            await ledger.close()


async def taken(ledger: SqlLedger, limit: int) -> list[Job]:
    return await ledger.lease(worker=f"{id(ledger)}", limit=limit, lease_s=60)


async def test_a_user_whom_another_holds_is_passed_over_at_once(ledgers: list[SqlLedger]) -> None:
    dsn = ledgers[0].engine._address["dsn"]  # type: ignore[attr-defined]
    admin = await asyncpg.connect(dsn.replace(f"//{PLAIN_ROLE}@", f"//{SUPERUSER}@"))
    async with admin.transaction():
        await admin.execute("SELECT 1 FROM job_users WHERE user_id = 'user 00' FOR UPDATE")
        jobs = await asyncio.wait_for(taken(ledgers[0], 100), SOON_S)
        assert {job.scope.user for job in jobs} == {person.user for person in PEOPLE[1:]}
    assert [job.scope.user for job in await taken(ledgers[1], 100)] == ["user 00"]
    await admin.close()


async def test_those_who_take_jobs_at_once_take_different_ones(ledgers: list[SqlLedger]) -> None:
    async def work(ledger: SqlLedger) -> list[str]:
        done: list[str] = []
        while jobs := await taken(ledger, 3):
            for job in jobs:
                await ledger.finish(job, result={})
                done.append(job.id)
        return done

    done = await asyncio.wait_for(asyncio.gather(*(work(ledger) for ledger in ledgers)), 60)
    counted = Counter(id for each in done for id in each)
    # Whoever comes last may find that all that is left is being done by others.
    left = await work(ledgers[0])
    assert set(counted.values()) == {1}
    assert len(counted) + len(left) == 2 * len(PEOPLE)
