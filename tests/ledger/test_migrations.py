"""A ledger of an older schema is brought up to date when it is opened, and then knows what it would have known."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from recollect import Memory
from recollect.config.settings import Settings
from recollect.index.exact import ExactIndex
from recollect.ledger.ledger import Ledger
from recollect.ledger.postgres import MIGRATION_LOCK_S, PostgresEngine, open_postgres
from recollect.ledger.sql import migrate
from recollect.ledger.sql.migrate import migrations
from recollect.ledger.sqlite import open_sqlite
from recollect.ledger.types import IndexRow, ModelOrigin
from recollect.model.change import Add, Forget, ModelUsage
from recollect.model.query import EVERYTHING, Listing
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.usage import SpentToday
from recollect.testing.fake_embedder import FakeEmbedder
from tests.support.ledger_samples import ANN, BY, MODEL, OTHER_MODEL, direction, memory, row_of, scores_of, turn
from tests.support.postgres_server import PLAIN_ROLE, running_server

SESSION = Scope("ann", "", "s")
# SQLite does not add a column twice.
DROP_ACTOR = "ALTER TABLE history DROP COLUMN actor"
# What schema 2 added is taken away again: all else is as schema 1 left it.
TO_SCHEMA_1 = (
    DROP_ACTOR,
    "ALTER TABLE memories DROP COLUMN traits",
    "ALTER TABLE memories DROP COLUMN speaker",
    "UPDATE meta SET value = '1' WHERE name = 'schema'",
    "DELETE FROM meta WHERE name = 'schema_2_at'",
    "UPDATE meta SET value = '1/15.0.0/2.2.0' WHERE name = 'terms'",
)


async def fill(ledger: Ledger) -> tuple[list[IndexRow], dict[str, float]]:
    """Some turns and memories; gives what indexes are told of them, and what full text finds."""
    turns = [turn("I prefer green tea", name="Ann"), turn("Why is that?")]
    await ledger.append(SESSION, turns, vectors=[direction(1), None], by=BY)
    records = [memory("Always answer in 3 words", importance=0.9), *(memory(f"tea {n}") for n in range(1500))]
    await ledger.apply(ANN, [Add(record, direction(2)) for record in records], by=BY)
    return await index_state(ledger)


async def index_state(ledger: Ledger) -> tuple[list[IndexRow], dict[str, float]]:
    _, rows = await ledger.index_rows("ann", model=MODEL, after=0)
    return sorted(rows, key=lambda row: row.row), await scores_of(ledger, SESSION, "green tea words")


def make_old(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        for statement in TO_SCHEMA_1:
            connection.execute(statement)
        connection.commit()


def tables(file: Path) -> Any:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()


async def test_a_sqlite_ledger_of_schema_1_is_migrated_and_its_traits_are_computed(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    ledger = await open_sqlite(file, MODEL)
    before = await fill(ledger)
    await ledger.close()
    make_old(file)
    assert "traits" not in str(tables(file))
    ledger = await open_sqlite(file, MODEL)
    assert await index_state(ledger) == before
    assert {row.traits for row in before[0]} != {0}
    assert {row.speaker for row in before[0]} == {"ann", ""}
    assert await ledger.check() == []
    await ledger.close()
    with contextlib.closing(sqlite3.connect(file)) as connection:
        stored = dict(connection.execute("SELECT name, value FROM meta"))
    assert int(stored["schema"]) == max(migrations("sqlite"))
    assert "schema_2_at" in stored


async def test_a_postgres_ledger_of_schema_1_is_migrated_and_its_traits_are_computed(dsn: str) -> None:
    ledger = await open_postgres(dsn, MODEL)
    before = await fill(ledger)
    await ledger.close()
    connection = await asyncpg.connect(dsn)
    for statement in TO_SCHEMA_1:
        await connection.execute(statement)
    await connection.close()
    ledger = await open_postgres(dsn, MODEL)
    assert await index_state(ledger) == before
    assert await ledger.check() == []
    await ledger.close()


async def test_traits_of_other_rules_are_recomputed(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    ledger = await open_sqlite(file, MODEL)
    before = await fill(ledger)
    index = ExactIndex(ledger, MODEL, budget_bytes=1 << 30)
    await index.view(ANN, EVERYTHING)
    await ledger.close()
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE memories SET traits = 7, speaker = 'someone'")
        connection.execute("UPDATE meta SET value = 'other rules' WHERE name = 'terms'")
        connection.commit()
    ledger = await open_sqlite(file, MODEL)
    assert await index_state(ledger) == before
    await ledger.close()


def test_memories_from_before_the_migration_are_recalled_after_it(tmp_path: Path) -> None:
    # Nothing is learned: only the turn has a speaker.
    settings = Settings(home=tmp_path, learn="off")
    with Memory(settings=settings, embedder=FakeEmbedder(16)) as old:
        old.remember([{"role": "user", "name": "Ann", "content": "I drink green tea"}], user_id="a", session_id="s")
    make_old(tmp_path / "recollect.db")
    with Memory(settings=settings, embedder=FakeEmbedder(16)) as memory:
        hits = memory.search("What does Ann drink?", user_id="a", session_id="s", min_score=0, trace=True)
        assert hits[0].memory == "I drink green tea"
        assert hits.candidates[0].features["speaker_named"] == 1
        assert memory.recall("What does Ann drink?", user_id="a", session_id="s", min_score=0)


async def test_turns_that_were_forgotten_before_schema_12_are_recognised(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    ledger = await open_sqlite(file, MODEL)
    logged_turn = await ledger.append(SESSION, [turn("I smoke"), turn("tea")], vectors=[None, None], by=BY)
    await ledger.apply(ANN, [Forget(logged_turn.turns[0].id)], by=BY)
    await ledger.close()
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute(DROP_ACTOR)
        connection.execute("DROP TABLE tombstones")
        connection.execute("DELETE FROM meta WHERE name LIKE 'tombstone%'")
        connection.execute("UPDATE meta SET value = '11' WHERE name = 'schema'")
        connection.commit()
    ledger = await open_sqlite(file, MODEL)
    assert await ledger.tombstoned("ann", [("user", "i smoke"), ("user", "tea")]) == {("user", "i smoke")}
    await ledger.close()


TO_SCHEMA_5 = (DROP_ACTOR, "DROP TABLE usage_of_all", "UPDATE meta SET value = '5' WHERE name = 'schema'")


async def spend(ledger: Ledger) -> None:
    for user in ("ann", "bob"):
        await ledger.apply(Scope(user), [Add(memory(scope=Scope(user)))], by=BY)
        spent = ModelUsage(user=user, step="extract", model="m", calls=2, tokens_in=5, tokens_out=2, at=now())
        await ledger.apply(Scope(user), [], by=BY, effects=[spent])


async def test_what_was_spent_before_schema_6_counts_for_all_in_sqlite(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    ledger = await open_sqlite(file, MODEL)
    await spend(ledger)
    await ledger.close()
    with contextlib.closing(sqlite3.connect(file)) as connection:
        for statement in TO_SCHEMA_5:
            connection.execute(statement)
        connection.commit()
    ledger = await open_sqlite(file, MODEL)
    assert await ledger.spent_today(None) == SpentToday(tokens=14, calls=4)
    await ledger.close()


async def test_what_was_spent_before_schema_6_counts_for_all_in_postgres(dsn: str) -> None:
    ledger = await open_postgres(dsn, MODEL)
    await spend(ledger)
    await ledger.close()
    connection = await asyncpg.connect(dsn)
    for statement in TO_SCHEMA_5:
        await connection.execute(statement)
    await connection.close()
    ledger = await open_postgres(dsn, MODEL)
    assert await ledger.spent_today(None) == SpentToday(tokens=14, calls=4)
    await ledger.close()


TO_SCHEMA_7 = """
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT tablename FROM pg_policies LOOP
        EXECUTE format('DROP POLICY mine ON %I', name);
        EXECUTE format('ALTER TABLE %I DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY', name);
    END LOOP;
END $$;
ALTER TABLE terms DROP COLUMN user_id;
DROP FUNCTION recollect_said;
UPDATE meta SET value = '7' WHERE name = 'schema'
"""


async def test_a_ledger_from_before_row_level_security_keeps_its_rows_and_gets_policies() -> None:
    async with running_server().database(role=PLAIN_ROLE) as dsn:
        ledger = await open_postgres(dsn, MODEL)
        before = await fill(ledger)
        await ledger.close()
        connection = await asyncpg.connect(dsn)
        await connection.execute(TO_SCHEMA_7)
        assert await connection.fetchval("SELECT count(*) FROM terms") == 1503
        ledger = await open_postgres(dsn, MODEL)
        assert await index_state(ledger) == before
        assert await ledger.check() == await ledger.security_warnings() == []
        assert await connection.fetchval("SELECT count(*) FROM terms") == 0
        await connection.close()
        await ledger.close()


async def test_an_older_ledger_is_searched_by_the_model_with_most_vectors(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    ledger = await open_sqlite(file, MODEL)
    records = [memory("one"), memory("two")]
    await ledger.apply(ANN, [Add(record, direction(1)) for record in records], by=BY)
    row = await row_of(ledger, records[0])
    await ledger.embed(OTHER_MODEL, {row: direction(1, OTHER_MODEL)}, user="ann")
    await ledger.close()
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute(DROP_ACTOR)
        connection.execute("DROP TABLE model_states")
        connection.execute("DROP TABLE current_model")
        connection.execute("UPDATE meta SET value = '10' WHERE name = 'schema'")
        connection.commit()
    ledger = await open_sqlite(file, MODEL)
    [state] = await ledger.model_states()
    assert (state.model, state.is_current, state.origin) == (MODEL, True, ModelOrigin())
    await ledger.close()


async def test_evidence_of_an_older_sqlite_ledger_is_found_after_its_migration(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    ledger = await open_sqlite(file, MODEL)
    before = await learned_from_turns(ledger)
    await ledger.close()
    with contextlib.closing(sqlite3.connect(file)) as connection:
        for statement in BEFORE_EVIDENCE:
            connection.execute(statement)
        connection.commit()
    ledger = await open_sqlite(file, MODEL)
    assert await ledger.derived(ANN, ["t1", "t2"]) == before
    assert await ledger.check() == []
    await ledger.close()


async def test_evidence_of_an_older_postgres_ledger_is_found_after_its_migration() -> None:
    async with running_server().database(role=PLAIN_ROLE) as dsn:
        ledger = await open_postgres(dsn, MODEL)
        before = await learned_from_turns(ledger)
        await ledger.close()
        connection = await asyncpg.connect(dsn)
        for statement in BEFORE_EVIDENCE:
            await connection.execute(statement)
        await connection.close()
        ledger = await open_postgres(dsn, MODEL)
        assert await ledger.derived(ANN, ["t1", "t2"]) == before
        assert await ledger.check() == []
        await ledger.close()


BEFORE_EVIDENCE = (
    DROP_ACTOR,
    "DROP TABLE evidence",
    "UPDATE meta SET value = '12' WHERE name = 'schema'",
    "DELETE FROM meta WHERE name = 'schema_13_at'",
)


async def learned_from_turns(ledger: Ledger) -> Any:
    """Memories with evidence, twice the same among it, and without; gives what was derived from two turns."""
    records = [
        memory("one", evidence=("t1", "t2", "t1")),
        memory("two", evidence=("t2",), detail={"evidence": ["t1"]}),
        memory("none"),
    ]
    await ledger.apply(ANN, [Add(record) for record in records], by=BY)
    results = await ledger.derived(ANN, ["t1", "t2"])
    assert {turn: len(derived) for turn, derived in results.items()} == {"t1": 1, "t2": 2}
    return results


BEFORE_MENTIONS = (
    DROP_ACTOR,
    "DROP TABLE mentions",
    "UPDATE meta SET value = '14' WHERE name = 'schema'",
    "DELETE FROM meta WHERE name IN ('schema_15_at', 'mentions')",
)


async def mentioned(ledger: Ledger) -> list[str]:
    """The ids of the memories that mention a name or have a key."""
    return [each.id for each in await ledger.mentioning(ANN, ["anna"], ["city"], superseded=False, limit=9)]


async def with_names(ledger: Ledger) -> None:
    records = [memory("met Anna", id="a"), memory("city: Rome", id="b", key="city", value="Rome"), memory("tea")]
    await ledger.apply(ANN, [Add(record) for record in records], by=BY)
    assert await mentioned(ledger) == ["b", "a"]
    await ledger.close()


async def test_names_of_an_older_sqlite_ledger_are_found_after_its_migration(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    await with_names(await open_sqlite(file, MODEL))
    with contextlib.closing(sqlite3.connect(file)) as connection:
        for statement in BEFORE_MENTIONS:
            connection.execute(statement)
        connection.commit()
    ledger = await open_sqlite(file, MODEL)
    assert (await mentioned(ledger), await ledger.check()) == (["b", "a"], [])
    await ledger.close()


async def test_names_of_an_older_postgres_ledger_are_found_after_its_migration() -> None:
    async with running_server().database(role=PLAIN_ROLE) as dsn:
        await with_names(await open_postgres(dsn, MODEL))
        connection = await asyncpg.connect(dsn)
        for statement in BEFORE_MENTIONS:
            await connection.execute(statement)
        await connection.close()
        ledger = await open_postgres(dsn, MODEL)
        assert (await mentioned(ledger), await ledger.check()) == (["b", "a"], [])
        await ledger.close()


async def test_names_are_found_anew_while_nobody_writes() -> None:
    async with running_server().database(role=PLAIN_ROLE) as dsn:
        await with_names(await open_postgres(dsn, MODEL))
        writer, watcher = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
        await watcher.execute("DELETE FROM meta WHERE name = 'mentions'")
        writing = writer.transaction()
        await writing.start()
        await writer.execute("UPDATE users SET revision = revision")
        opening = asyncio.create_task(open_postgres(dsn, MODEL))
        waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'users'::regclass"
        while not await watcher.fetch(waits):
            assert not opening.done()
            await asyncio.sleep(0.01)
        await writing.rollback()
        ledger = await opening
        assert await mentioned(ledger) == ["b", "a"]
        await ledger.close()
        for connection in (writer, watcher):
            await connection.close()


PEOPLE = [Scope(f"user {n}") for n in range(4)]
# Far more than anything here takes, and less than a writer waits for a lock.
SOON_S = 25.0


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more migration than there is: made twice, it fails."""
    existing = migrate.migrations("postgres")
    statements = (
        "ALTER TABLE users ADD COLUMN extra TEXT",
        "ALTER TABLE memories ADD COLUMN extra TEXT",
        "CREATE TABLE made_once (extra TEXT)",
    )
    monkeypatch.setattr(migrate, "migrations", lambda dialect: existing | {max(existing) + 1: statements})


@dataclass
class Load:
    """People who write and read all the time through a server that knows nothing of the migration."""

    ledger: Ledger
    acked: list[tuple[Scope, str]] = field(default_factory=list)
    slowest_s: float = 0.0
    step: asyncio.Event = field(default_factory=asyncio.Event)

    async def go_on(self, person: Scope) -> None:
        for number in itertools.count():
            began = time.monotonic()
            applied = await self.ledger.apply(person, [Add(memory(f"tea {number}", scope=person))], by=BY)
            self.acked.append((person, applied.outcomes[0].record.id))
            await self.ledger.find(person, Listing(limit=5))
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            self.step.set()

    async def more(self, count: int) -> None:
        """Return when so many more were acknowledged."""
        expected = len(self.acked) + count
        while len(self.acked) < expected:
            self.step.clear()
            await self.step.wait()


@asynccontextmanager
async def under_load(dsn: str) -> AsyncIterator[Load]:
    engine = PostgresEngine(dsn)
    await engine.open()
    load = Load(Ledger(engine, MODEL))
    people = [asyncio.create_task(load.go_on(person)) for person in PEOPLE]
    try:
        await load.more(20)
        yield load
        await load.more(20)
    finally:
        for task in people:
            task.cancel()
        done = await asyncio.gather(*people, return_exceptions=True)
        await engine.close()
    assert all(isinstance(each, asyncio.CancelledError) for each in done), done


async def test_two_servers_that_start_concurrently_migrate_once_while_others_write(dsn: str, later: None) -> None:
    await (await before(dsn)).close()
    async with under_load(dsn) as load:
        async with asyncio.timeout(60):
            ledgers = await asyncio.gather(open_postgres(dsn, MODEL), open_postgres(dsn, MODEL))
    for person, id in load.acked:
        assert [record.id for record in await ledgers[0].get(person, [id])] == [id]
    assert await ledgers[1].check() == []
    for ledger in ledgers:
        await ledger.close()


async def test_a_migration_that_waits_for_a_lock_does_not_block_other_statements(dsn: str, later: None) -> None:
    await (await before(dsn)).close()
    reader = await asyncpg.connect(dsn)
    async with under_load(dsn) as load:
        # Somebody's long report.
        await reader.execute("BEGIN; SELECT count(*) FROM users")
        opening = asyncio.create_task(open_postgres(dsn, MODEL))
        await waits_for_a_lock(dsn)
        began = time.monotonic()
        await load.more(50)
        assert time.monotonic() - began < SOON_S
        assert not opening.done()
        await reader.execute("COMMIT")
        async with asyncio.timeout(60):
            ledger = await opening
        await load.more(10)
    assert load.slowest_s < MIGRATION_LOCK_S + SOON_S / 2
    await reader.close()
    await ledger.close()


async def before(dsn: str) -> Ledger:
    """A ledger of the version before."""
    existing = migrate.migrations("postgres")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "migrations", lambda dialect: {n: existing[n] for n in list(existing)[:-1]})
        return await open_postgres(dsn, MODEL)


async def waits_for_a_lock(dsn: str) -> None:
    """Return when somebody waits for a whole table."""
    connection = await asyncpg.connect(dsn)
    async with asyncio.timeout(60):
        while not await connection.fetchval(  # noqa: ASYNC110
            "SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock' LIMIT 1"
        ):
            await asyncio.sleep(0.01)
    await connection.close()
