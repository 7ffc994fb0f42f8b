"""PostgreSQL itself keeps users apart: whatever a statement forgets, it finds and changes nobody else's rows."""

from __future__ import annotations

import asyncio
import os
import random
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from cli_runner import Cli
from rows_samples import ANN, BOB, OF_NOBODY, Store, opened

from recollect.errors import Conflict
from recollect.ledger.postgres import PostgresEngine, open_postgres
from recollect.ledger.sql.tx import ALL_TENANTS, NO_TENANT, Tx
from recollect.model.change import Add
from recollect.model.erase import ErasureRequest, Target, user_digest
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.testing.postgres_server import PLAIN_ROLE, SUPERUSER, running_server
from recollect.testing.suite_samples import BY, MODEL, memory

SET_USER = "SELECT set_config('recollect.whose', $1, false), set_config('recollect.digest', $2, false)"


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async for each in opened(PLAIN_ROLE):
        yield each


@pytest.fixture
async def unguarded() -> AsyncIterator[Store]:
    """The same for a role that no policy holds for."""
    async for each in opened(SUPERUSER):
        yield each


@pytest.fixture
async def raw(store: Store) -> AsyncIterator[Any]:
    """A connection of the ledger's own role, on which nothing was said yet."""
    connection = await asyncpg.connect(store.dsn)
    yield connection
    await connection.close()


async def set_user(connection: Any, user: str) -> None:
    await connection.execute(SET_USER, f"={user}", user_digest(user))


async def test_every_table_with_a_user_in_it_has_a_policy_that_holds_for_its_owner(store: Store) -> None:
    rows = await store.admin.fetch(
        "SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity AND p.polrelid IS NOT NULL FROM pg_class c "
        "LEFT JOIN pg_policy p ON p.polrelid = c.oid WHERE c.relkind IN ('r', 'p') "
        "AND c.relnamespace = 'public'::regnamespace"
    )
    bare = {table for table, is_guarded in rows if not is_guarded}
    assert bare == set(OF_NOBODY), "give the table a policy in its migration, or say here why it needs none"


async def test_a_connection_that_says_nothing_sees_nothing(store: Store, raw: Any) -> None:
    for table in await store.tables():
        assert await raw.fetch(f"SELECT * FROM {table}") == [], table
    for text in ("", "ann", "=", "everyone", "%"):
        await raw.execute(SET_USER, text, text)
        assert await raw.fetch("SELECT * FROM memories") == []


async def test_a_connection_that_says_a_user_sees_all_of_theirs_and_nothing_else(store: Store, raw: Any) -> None:
    for user in ("ann", "bob"):
        await set_user(raw, user)
        for table, own in (await store.everything(user)).items():
            assert own, f"the test has nothing of {user} in {table}"
            assert {row[0] for row in await raw.fetch(f"SELECT t::text FROM {table} t")} == own


async def test_what_is_said_in_a_transaction_ends_with_it(raw: Any) -> None:
    async with raw.transaction():
        await raw.execute("SET LOCAL recollect.whose = '=ann'")
        assert await raw.fetch("SELECT * FROM memories")
    assert await raw.fetch("SELECT * FROM memories") == []


async def test_nobody_elses_rows_can_be_changed_or_deleted(store: Store, raw: Any) -> None:
    await set_user(raw, "ann")
    before = await store.everything("bob")
    for table in await store.tables():
        assert await raw.execute(f"UPDATE {table} SET user_id = user_id WHERE user_id LIKE 'bob%'") == "UPDATE 0"
        assert await raw.execute(f"DELETE FROM {table} WHERE user_id LIKE 'bob%'") == "DELETE 0"
        await raw.execute(f"DELETE FROM {table}")
    assert await store.everything("bob") == before
    assert not any((await store.everything("ann")).values())


async def test_no_row_can_be_written_for_anyone_else(store: Store, raw: Any) -> None:
    await set_user(raw, "ann")
    for sql in (
        "INSERT INTO users (user_id, created_at) VALUES ('cat', 0)",
        "INSERT INTO job_users (user_id) VALUES ('bob') ON CONFLICT (user_id) DO UPDATE SET failures = 9",
        "INSERT INTO vectors SELECT 'bob', model, row, vector FROM vectors",
        "INSERT INTO turns SELECT 'bob', project_id, 'x', position, id, parent_id, role, said_at FROM turns",
        f"INSERT INTO terms (row, user_id, words) VALUES ({store.ids['bob']['row']}, 'bob', '')",
        "UPDATE memories SET user_id = 'bob'",
        "UPDATE erasures SET user_id = 'bob'",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            await raw.execute(sql)


async def test_everyones_rows_are_seen_by_who_says_so_and_not_by_a_user_of_that_name(store: Store, raw: Any) -> None:
    await store.ledger.apply(Scope("*"), [Add(memory("of the star", scope=Scope("*")))], by=BY)
    await set_user(raw, "*")
    assert [row[0] for row in await raw.fetch("SELECT content FROM memories")] == ["of the star"]
    await raw.execute(SET_USER, "*", "*")
    assert {row[0] for row in await raw.fetch("SELECT user_id FROM memories")} == {"ann", "bob", "*"}


async def test_a_row_of_another_user_that_we_try_to_write_is_a_conflict(store: Store) -> None:
    engine = PostgresEngine(store.dsn)
    await engine.open()
    sql = "INSERT INTO users (user_id, created_at) VALUES ('cat', 0)"
    for of in (NO_TENANT, "ann"):
        with pytest.raises(Conflict, match="another user"):
            await engine.write(lambda tx: tx.run(sql, {}), tenant=of)
    await engine.write(lambda tx: tx.run(sql, {}), tenant=ALL_TENANTS)
    await engine.close()


async def rows_seen(tx: Tx) -> set[str]:
    return {row[0] for row in await tx.rows("SELECT user_id FROM memories", {})}


@pytest.mark.parametrize("quick", [True, False])
async def test_connections_that_many_users_share_show_each_their_own(store: Store, quick: bool) -> None:
    engine = PostgresEngine(store.dsn, connections=3)
    await engine.open()
    requests = [random.choice(["ann", "bob", "nobody"]) for _ in range(300)]

    async def look(user: str) -> None:
        assert await engine.read(rows_seen, tenant=user, quick=quick) <= {user}

    for begin in range(0, 300, 30):
        tasks = [asyncio.create_task(look(user)) for user in requests[begin : begin + 30]]
        # Some are cut off at any point, also while they say who they are.
        for task in tasks[::3]:
            asyncio.get_running_loop().call_later(random.uniform(0, 0.02), task.cancel)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert not [end for end in ends if isinstance(end, Exception)]
    for user in ("ann", "bob"):
        assert await engine.read(rows_seen, tenant=user, quick=quick) == {user}
    assert await engine.read(rows_seen, tenant=NO_TENANT, quick=quick) == set()
    assert await engine.read(rows_seen, tenant=ALL_TENANTS, quick=quick) == {"ann", "bob"}
    await engine.close()


async def test_behind_a_pooler_nothing_is_said_that_outlives_a_transaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A pooler gives out numbers of its own for the processes that serve.
    monkeypatch.setattr(asyncpg.Connection, "get_server_pid", lambda connection: 0)
    engine = PostgresEngine(store.dsn, connections=1)
    await engine.open()
    assert await engine.read(rows_seen, tenant="ann", quick=True) == {"ann"}
    async with engine._pool.acquire() as connection:
        assert not await connection.fetchval("SELECT current_setting('recollect.whose', true)")
    await engine.close()


async def test_odd_names_are_said_as_they_are_whatever_the_server_makes_of_backslashes(store: Store) -> None:
    users = ["o'neil", "\\", "\\'", "a\\'; SELECT 1; --", "=ann", "$1", "日本 👩🏽‍🚀", "'", "x" * 300]
    for more in ("", "&standard_conforming_strings=off"):
        ledger = await open_postgres(store.dsn + more, MODEL)
        for user in users:
            scope = Scope(user)
            await ledger.apply(scope, [Add(memory(f"{user} likes tea", scope=scope))], by=BY)
            assert [each.content for each in await ledger.find(scope, Listing())] == [f"{user} likes tea"]
            assert (await ledger.revision(user)).number == 1
        await ledger.close()


async def test_a_role_that_policies_do_not_hold_for_is_told_of(store: Store, unguarded: Store) -> None:
    assert await store.ledger.security_warnings() == []
    (caution,) = await unguarded.ledger.security_warnings()
    assert "superuser or has BYPASSRLS" in caution
    await store.admin.execute(
        "ALTER TABLE turns NO FORCE ROW LEVEL SECURITY; ALTER TABLE jobs DISABLE ROW LEVEL SECURITY"
    )
    (caution,) = await store.ledger.security_warnings()
    assert "off for jobs, turns;" in caution


async def test_doctor_warns_of_such_a_role_and_finds_no_fault_in_another(tmp_path: Path) -> None:
    for role, state in ((PLAIN_ROLE, None), (SUPERUSER, "warn")):
        async with running_server().database(role=role) as dsn:
            cli = Cli(tmp_path / role)
            results = await asyncio.to_thread(cli.json, "doctor", "--database", dsn)
            assert results["ok"]
            assert {each["name"]: each["state"] for each in results["checks"]}.get("safety") == state


async def shell(name: str, *arguments: str, input: str = "", options: str = "") -> str:
    """What one of PostgreSQL's own programs says."""
    process = await asyncio.create_subprocess_exec(
        running_server().program(name), *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE,
        env={**os.environ, "PGOPTIONS": options},
    )  # fmt: skip
    out, error = await process.communicate(input.encode())
    assert process.returncode == 0, error.decode()
    return out.decode()


async def test_a_backup_by_the_role_itself_has_all_if_it_says_so_and_can_be_restored(store: Store) -> None:
    whole = await shell("pg_dump", "--enable-row-security", store.dsn, options="-c recollect.whose=*")
    async with running_server().database(role=PLAIN_ROLE) as dsn:
        await shell("psql", "-q", "-v", "ON_ERROR_STOP=1", dsn, input=whole, options="-c recollect.whose=*")
        ledger = await open_postgres(dsn, MODEL)
        for scope in (ANN, BOB):
            assert (await ledger.find(scope, Listing())).records == (
                await store.ledger.find(scope, Listing())
            ).records
        assert await ledger.check() == await ledger.security_warnings() == []
        await ledger.close()


async def test_tables_that_a_superuser_made_can_be_handed_over_as_documented(unguarded: Store) -> None:
    page = (Path(__file__).parent.parent / "docs" / "serving.md").read_text(encoding="utf-8")
    handed_over = page.split("```sql\n")[2].split("```")[0]
    name = await unguarded.admin.fetchval("SELECT current_database()")
    handed_over = handed_over.replace("DATABASE recollect", f"DATABASE {name}")
    await shell("psql", "-q", "-v", "ON_ERROR_STOP=1", unguarded.dsn, input=handed_over)
    ledger = await open_postgres(unguarded.dsn.replace(f"//{SUPERUSER}@", f"//{PLAIN_ROLE}@"), MODEL)
    assert await ledger.security_warnings() == await ledger.check() == []
    await ledger.apply(ANN, [Add(memory("of the new role", scope=ANN))], by=BY)
    await ledger.rebuild_terms()
    await ledger.erase(Scope("bob"), ErasureRequest(Target.USER), by=BY)
    assert await ledger.users() == ["ann"]
    await ledger.close()
