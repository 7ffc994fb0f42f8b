"""What is particular to the ledger in PostgreSQL; tests/ledger/conformance has what all ledgers have in common."""

from __future__ import annotations

import asyncio
import importlib
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import asyncpg
import pytest

from recollect.errors import Conflict, InvalidSettings, InvalidText, MissingExtra, StoreUnavailable, Unsupported
from recollect.ledger import postgres
from recollect.ledger.ledger import Ledger
from recollect.ledger.postgres import CONNECTIONS, PostgresEngine, mask_dsn, open_postgres
from recollect.ledger.postgres_dialect import PostgresTx
from recollect.ledger.sql.tx import NO_TENANT, Row, Tx
from recollect.model.change import Add, IdempotencyToken, Update
from recollect.model.job import Job, JobKind, NewJob
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.model.times import now
from tests.support.ledger_samples import ANN, BY, MODEL, memory
from tests.support.postgres_server import PLAIN_ROLE, SUPERUSER, PostgresServer, running_server

ALL_TENANTS = [Scope(f"user {n}") for n in range(40)]


@pytest.fixture(scope="session")
def server() -> PostgresServer:
    return running_server()


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    server = PostgresServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
async def dsn(server: PostgresServer) -> AsyncIterator[str]:
    async with server.database() as dsn:
        yield dsn


@pytest.fixture
async def ledger(dsn: str) -> AsyncIterator[Ledger]:
    ledger = await open_postgres(dsn, MODEL)
    yield ledger
    await ledger.close()


@pytest.fixture
async def engine(ledger: Ledger, dsn: str) -> AsyncIterator[PostgresEngine]:
    engine = PostgresEngine(dsn)
    await engine.open()
    yield engine
    await engine.close()


@pytest.fixture
async def aside(dsn: str) -> AsyncIterator[Any]:
    """A connection beside the ledger's own."""
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://ann:s3cret@db.example:5433/memory", "postgresql://ann@db.example:5433/memory"),
        ("postgresql://ann:s3c@/r:et@db/memory?sslmode=require", "postgresql://ann@db/memory"),
        ("postgresql://db/memory?user=ann&password=s3cret", "postgresql://db/memory"),
        ("postgresql://db/memory?user=ann&password=s3@cret", "PostgreSQL"),
        ("postgresql://:s3cret@/memory?host=/run/pg&password=s3cret", "postgresql://@/memory?host=/run/pg"),
        ("host=db user=ann password=s3cret", "PostgreSQL"),
    ],
)
def test_an_address_is_shown_without_its_password(dsn: str, shown: str) -> None:
    assert mask_dsn(dsn) == shown


@pytest.mark.parametrize("place", ["127.0.0.1:1/memory", "no-such-host.invalid/memory", "/memory?host=/nowhere"])
async def test_a_server_that_is_down_is_reported_at_once_and_without_the_password(place: str) -> None:
    took = []
    for _ in range(3):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="check that it is running") as caught:
            await open_postgres(f"postgresql://ann:s3cret@{place}", MODEL)
        took.append(time.monotonic() - began)
        assert "s3cret" not in str(caught.value)
    assert min(took) < 30


@pytest.mark.parametrize("dsn", ["postgresql://ann:s3/cret@db/memory", "mysql://ann:s3cret@db/memory"])
async def test_an_invalid_address_is_refused_without_the_password(dsn: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        await open_postgres(dsn, MODEL)
    assert "cret" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_without_its_driver_the_error_has_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    monkeypatch.delitem(sys.modules, "recollect.ledger.postgres")
    with pytest.raises(MissingExtra, match=r"pip install 'recollect\[postgres\]'"):
        importlib.import_module("recollect.ledger.postgres")


async def test_a_missing_database_is_named(server: PostgresServer) -> None:
    with pytest.raises(StoreUnavailable, match='"nothing_here" does not exist'):
        await open_postgres(server.dsn("nothing_here"), MODEL)


async def test_a_server_too_old_is_refused(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "OLDEST", 99)
    with pytest.raises(Unsupported, match="needs 99 or newer"):
        await open_postgres(dsn, MODEL)


@pytest.mark.parametrize("text", ["a\0b", "half \ud800 of one"])
async def test_text_that_cannot_be_stored_is_refused(engine: PostgresEngine, text: str) -> None:
    with pytest.raises(InvalidText):
        await engine.write(
            lambda tx: tx.run("INSERT INTO meta (name, value) VALUES ('text', :text)", {"text": text}),
            tenant=NO_TENANT,
        )


async def test_a_violation_of_a_unique_index_is_a_conflict(engine: PostgresEngine) -> None:
    with pytest.raises(Conflict, match="another active memory"):
        await engine.write(
            lambda tx: tx.run("INSERT INTO meta (name, value) VALUES ('schema', :v)", {"v": ""}), tenant=NO_TENANT
        )


async def test_several_ledgers_can_open_an_empty_database_concurrently(dsn: str) -> None:
    ledgers = await asyncio.gather(*(open_postgres(dsn, MODEL) for _ in range(5)))
    await asyncio.gather(*(ledger.apply(ANN, [Add(memory("likes tea"))], by=BY) for ledger in ledgers))
    assert await ledgers[0].count(ANN, Listing()) == 1
    for ledger in ledgers:
        await ledger.close()


async def test_a_ledger_lives_in_the_schema_that_is_current(dsn: str, aside: Any) -> None:
    await aside.execute("CREATE SCHEMA one; CREATE SCHEMA two")
    ledgers = [await open_postgres(f"{dsn}&search_path={path}", MODEL) for path in ("one,public", "two,public")]
    await ledgers[0].apply(ANN, [Add(memory())], by=BY)
    assert [await ledger.count(ANN, Listing()) for ledger in ledgers] == [1, 0]
    for ledger in ledgers:
        await ledger.close()


async def test_fifty_concurrent_identical_adds_make_one_row(ledger: Ledger, dsn: str) -> None:
    other = await open_postgres(dsn, MODEL)
    adds = [(ledger, other)[n % 2].apply(ANN, [Add(memory("likes tea"))], by=BY) for n in range(50)]
    applied = await asyncio.gather(*adds)
    assert sum(each.outcomes[0].changed for each in applied) == 1
    assert await ledger.count(ANN, Listing()) == 1
    await other.close()


async def test_a_hundred_requests_with_one_idempotency_key_have_one_effect(ledger: Ledger) -> None:
    once = IdempotencyToken("the key", "the digest")
    adds = [ledger.apply(ANN, [Add(memory(f"tea {n}"))], by=BY, once=once) for n in range(100)]
    applied = await asyncio.gather(*adds)
    assert len({each.outcomes[0].record.id for each in applied}) == 1
    assert sum(not each.replayed for each in applied) == 1
    assert len(await ledger.history(ANN)) == 1


async def test_cancelled_writes_leave_the_pool_intact_and_nothing_half_written(
    engine: PostgresEngine, aside: Any
) -> None:
    ledger = Ledger(engine, MODEL)

    async def write_two(n: int) -> None:
        scope = ALL_TENANTS[n % 5]
        await ledger.apply(scope, [Add(memory(f"{half} {n}", scope=scope)) for half in ("left", "right")], by=BY)

    for begin in range(0, 400, 20):
        tasks = [asyncio.create_task(write_two(begin + n)) for n in range(20)]
        for task in tasks:
            asyncio.get_running_loop().call_later(random.uniform(0, 0.1), task.cancel)
        await asyncio.gather(*tasks, return_exceptions=True)
    assert await asyncio.wait_for(asyncio.gather(*(ledger.count(ANN, Listing()) for _ in range(30))), 60)
    open_transactions = "SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
    async with asyncio.timeout(60):
        # Cancelled transactions are ended in the background.
        while await aside.fetch(open_transactions):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    rows = await aside.fetch("SELECT count(*) FROM memories GROUP BY split_part(content, ' ', 2)")
    assert {row[0] for row in rows} <= {2}
    assert await ledger.check() == []


LOCKED = """
    SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
"""


async def test_readers_are_served_while_the_writers_of_a_user_wait(ledger: Ledger, aside: Any) -> None:
    stored = (await ledger.apply(ANN, [Add(memory())], by=BY)).outcomes[0].record
    async with aside.transaction():
        await aside.execute("UPDATE users SET revision = revision")
        waiting = [asyncio.create_task(ledger.apply(ANN, [Add(memory(f"tea {n}"))], by=BY)) for n in range(30)]
        async with asyncio.timeout(60):
            while await aside.fetchval(LOCKED) < CONNECTIONS - 2:
                await aside.execute("SELECT pg_stat_clear_snapshot()")
        assert await asyncio.wait_for(ledger.get(ANN, [stored.id]), 60) == [stored]
    await asyncio.gather(*waiting)


async def test_two_queries_of_a_read_see_one_view(engine: PostgresEngine, aside: Any) -> None:
    async def ask_twice(tx: Tx) -> list[Sequence[Row]]:
        first = await tx.rows("SELECT count(*) FROM meta", {})
        await aside.execute("INSERT INTO meta (name, value) VALUES (gen_random_uuid()::text, '')")
        return [first, await tx.rows("SELECT count(*) FROM meta", {})]

    for quick in (True, False):
        first, second = await engine.read(ask_twice, tenant=NO_TENANT, quick=quick)
        assert first == second


async def test_deadlocked_writers_are_retried(engine: PostgresEngine) -> None:
    both = asyncio.Barrier(2)

    async def lock(tx: Tx, first: str, second: str, *, met: list[bool]) -> None:
        await tx.run("UPDATE meta SET value = value WHERE name = :name", {"name": first})
        if not met:
            met.append(True)
            await both.wait()
        await tx.run("UPDATE meta SET value = value WHERE name = :name", {"name": second})

    one, two = [], []  # type: ignore[var-annotated]
    await asyncio.gather(
        engine.write(lambda tx: lock(tx, "schema", "terms", met=one), tenant=NO_TENANT),
        engine.write(lambda tx: lock(tx, "terms", "schema", met=two), tenant=NO_TENANT),
    )


async def test_an_access_counted_during_a_change_is_not_lost(ledger: Ledger) -> None:
    id = (await ledger.apply(ANN, [Add(memory())], by=BY)).outcomes[0].record.id
    changes = (ledger.apply(ANN, [Update(id, {"importance": n / 40})], by=BY) for n in range(40))
    await asyncio.gather(*changes, *(ledger.touch(ANN, [id], at=now()) for _ in range(40)))
    assert (await ledger.get(ANN, [id]))[0].access_count == 40


async def test_a_change_undone_concurrently_is_undone_once(ledger: Ledger) -> None:
    await ledger.apply(ANN, [Add(memory())], by=BY)
    entry = (await ledger.history(ANN))[0]
    results = await asyncio.gather(*(ledger.undo(ANN, entry.id, by=BY) for _ in range(10)), return_exceptions=True)
    assert sum(isinstance(result, Conflict) for result in results) == 9


async def test_the_full_text_is_complete_when_users_are_added_during_a_rebuild(ledger: Ledger) -> None:
    adds = [ledger.apply(scope, [Add(memory("tea", scope=scope))], by=BY) for scope in ALL_TENANTS]
    await asyncio.gather(*adds[:20])
    await asyncio.gather(ledger.rebuild_terms(), *adds[20:])
    assert await ledger.check() == []


async def test_connections_have_an_application_name(ledger: Ledger, aside: Any) -> None:
    assert await aside.fetchval("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'recollect'")


@pytest.mark.parametrize(
    ("given", "used"), [("off", "on"), ("on", "on"), ("local", "local"), ("remote_apply", "remote_apply")]
)
async def test_a_write_waits_for_the_disk_whatever_the_servers_default(
    dsn: str, aside: Any, given: str, used: str
) -> None:
    name = await aside.fetchval("SELECT current_database()")
    await aside.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = {given}')
    engine = PostgresEngine(dsn, connections=3)
    await engine.open()

    async def setting(tx: Tx) -> Any:
        await asyncio.sleep(0.05)
        return (await tx.rows("SHOW synchronous_commit", {}))[0][0]

    # At once, so that each has a connection of its own; then again, on connections that were given back.
    for _ in range(2):
        results = await asyncio.gather(
            engine.write(setting, tenant=NO_TENANT),
            engine.read(setting, tenant=NO_TENANT),
            engine.read(setting, tenant=NO_TENANT),
        )
        assert results == [used] * 3
    await engine.close()


async def test_a_server_that_does_not_wait_for_its_disk_is_reported(own_server: PostgresServer) -> None:
    ledger = await open_postgres(own_server.dsn(), MODEL)
    assert await ledger.check() == []
    await own_server.run("ALTER SYSTEM SET fsync = off")
    await own_server.run("SELECT pg_reload_conf()")
    async with asyncio.timeout(60):
        # The server reads its settings anew when it gets round to it.
        while not any("fsync is off" in sentence for sentence in await ledger.check()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await ledger.close()


async def test_a_query_of_many_words_takes_as_many_round_trips_as_one(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ledger.apply(ANN, [Add(memory("apple banana cherry"))], by=BY)
    await ledger.lexical(ANN, "apple")
    requests: list[str] = []
    real = PostgresTx.rows

    async def counted(tx: PostgresTx, sql: str, params: Any) -> Sequence[Row]:
        requests.append(sql)
        return await real(tx, sql, params)

    monkeypatch.setattr(PostgresTx, "rows", counted)
    assert len((await ledger.lexical(ANN, "apple banana cherry plum pear fig")).rows) == 1
    assert len(requests) == 2


async def test_a_ledger_works_again_after_a_restart_of_its_server(own_server: PostgresServer) -> None:
    ledger = await open_postgres(own_server.dsn(), MODEL)
    record = (await ledger.apply(ANN, [Add(memory())], by=BY)).outcomes[0].record
    own_server.kill()
    began = time.monotonic()
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await ledger.apply(ANN, [Add(memory("not now"))], by=BY)
    # A timeout of each connection would take 30 s.
    assert time.monotonic() - began < 25
    own_server.start()
    assert await ledger.get(ANN, [record.id]) == [record]
    await ledger.close()


async def test_a_cancelled_caller_does_not_wait_for_a_frozen_server(own_server: PostgresServer) -> None:
    ledger = await open_postgres(own_server.dsn(), MODEL)
    own_server.freeze()
    began = time.monotonic()
    for _ in range(20):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ledger.apply(ANN, [Add(memory())], by=BY), 0.05)
    # Two seconds are given to each rollback, which nobody waits for.
    assert time.monotonic() - began < 35
    own_server.thaw()
    await asyncio.wait_for(ledger.apply(ANN, [Add(memory())], by=BY), 60)
    assert await ledger.count(ANN, Listing()) == 1
    await ledger.close()


PEOPLE = [Scope(f"user {n:02}", "", "s") for n in range(40)]
# Far longer than taking a job takes, and shorter than anyone waits for a lock.
SOON_S = 15.0


@pytest.fixture
async def plain_dsn() -> AsyncIterator[str]:
    async with running_server().database(role=PLAIN_ROLE) as dsn:
        yield dsn


@pytest.fixture
async def ledgers(plain_dsn: str) -> AsyncIterator[list[Ledger]]:
    """Ledgers of several processes with row-level security; every user has jobs."""
    ledgers = [await open_postgres(plain_dsn, MODEL) for _ in range(4)]
    for person in PEOPLE:
        await ledgers[0].enqueue(person, [NewJob(kind=JobKind.EXTRACT, key=f"{n}") for n in range(2)])
    yield ledgers
    for ledger in ledgers:
        await ledger.close()


async def taken(ledger: Ledger, limit: int) -> list[Job]:
    return await ledger.lease(worker=f"{id(ledger)}", limit=limit, lease_s=60)


async def test_a_locked_user_is_skipped_when_jobs_are_leased(ledgers: list[Ledger], plain_dsn: str) -> None:
    admin = await asyncpg.connect(plain_dsn.replace(f"//{PLAIN_ROLE}@", f"//{SUPERUSER}@"))
    async with admin.transaction():
        await admin.execute("SELECT 1 FROM job_users WHERE user_id = 'user 00' FOR UPDATE")
        jobs = await asyncio.wait_for(taken(ledgers[0], 100), SOON_S)
        assert {job.scope.user for job in jobs} == {person.user for person in PEOPLE[1:]}
    assert [job.scope.user for job in await taken(ledgers[1], 100)] == ["user 00"]
    await admin.close()


async def test_concurrent_workers_lease_different_jobs(ledgers: list[Ledger]) -> None:
    async def work(ledger: Ledger) -> list[str]:
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
