"""PostgreSQL itself keeps users apart: whatever a statement forgets, it finds and changes nobody else's rows."""

from __future__ import annotations

import asyncio
import os
import random
import re
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from recollect.errors import Conflict, NotFound
from recollect.ledger import postgres_dialect
from recollect.ledger.ledger import Ledger
from recollect.ledger.postgres import PostgresEngine, open_postgres
from recollect.ledger.sql.tx import ALL_TENANTS, NO_TENANT, Tx
from recollect.model.change import Add, Update
from recollect.model.erasure import ErasureRequest, Target, user_digest
from recollect.model.memory import Status
from recollect.model.query import EVERYTHING, Listing
from recollect.model.scope import Scope
from recollect.model.times import now
from tests.support.cli_runner import Cli
from tests.support.ledger_samples import BY, MODEL, direction, memory
from tests.support.paths import ROOT
from tests.support.postgres_server import PLAIN_ROLE, SUPERUSER, running_server
from tests.support.rls_samples import ANN, BOB, OF_NOBODY, Store, opened

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


async def test_every_table_with_a_user_column_has_a_policy_that_applies_to_its_owner(store: Store) -> None:
    rows = await store.admin.fetch(
        "SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity AND p.polrelid IS NOT NULL FROM pg_class c "
        "LEFT JOIN pg_policy p ON p.polrelid = c.oid WHERE c.relkind IN ('r', 'p') "
        "AND c.relnamespace = 'public'::regnamespace"
    )
    bare = {table for table, is_guarded in rows if not is_guarded}
    assert bare == set(OF_NOBODY), "give the table a policy in its migration, or say here why it needs none"


async def test_a_connection_without_a_tenant_sees_nothing(store: Store, raw: Any) -> None:
    for table in await store.tables():
        assert await raw.fetch(f"SELECT * FROM {table}") == [], table
    for text in ("", "ann", "=", "everyone", "%"):
        await raw.execute(SET_USER, text, text)
        assert await raw.fetch("SELECT * FROM memories") == []


async def test_a_connection_with_a_tenant_sees_that_users_rows_only(store: Store, raw: Any) -> None:
    for user in ("ann", "bob"):
        await set_user(raw, user)
        for table, own in (await store.everything(user)).items():
            assert own, f"the test has nothing of {user} in {table}"
            assert {row[0] for row in await raw.fetch(f"SELECT t::text FROM {table} t")} == own


async def test_the_tenant_of_a_transaction_ends_with_it(raw: Any) -> None:
    async with raw.transaction():
        await raw.execute("SET LOCAL recollect.whose = '=ann'")
        assert await raw.fetch("SELECT * FROM memories")
    assert await raw.fetch("SELECT * FROM memories") == []


async def test_rows_of_other_users_cannot_be_changed_or_deleted(store: Store, raw: Any) -> None:
    await set_user(raw, "ann")
    before = await store.everything("bob")
    for table in await store.tables():
        assert await raw.execute(f"UPDATE {table} SET user_id = user_id WHERE user_id LIKE 'bob%'") == "UPDATE 0"
        assert await raw.execute(f"DELETE FROM {table} WHERE user_id LIKE 'bob%'") == "DELETE 0"
        await raw.execute(f"DELETE FROM {table}")
    assert await store.everything("bob") == before
    assert not any((await store.everything("ann")).values())


async def test_rows_of_other_users_cannot_be_inserted(store: Store, raw: Any) -> None:
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


async def test_all_tenants_is_not_a_user_of_that_name(store: Store, raw: Any) -> None:
    await store.ledger.apply(Scope("*"), [Add(memory("of the star", scope=Scope("*")))], by=BY)
    await set_user(raw, "*")
    assert [row[0] for row in await raw.fetch("SELECT content FROM memories")] == ["of the star"]
    await raw.execute(SET_USER, "*", "*")
    assert {row[0] for row in await raw.fetch("SELECT user_id FROM memories")} == {"ann", "bob", "*"}


async def test_writing_a_row_of_another_user_is_a_conflict(store: Store) -> None:
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
async def test_users_who_share_connections_see_their_own_rows(store: Store, quick: bool) -> None:
    engine = PostgresEngine(store.dsn, connections=3)
    await engine.open()
    draw = random.Random(7)
    requests = [draw.choice(["ann", "bob", "nobody"]) for _ in range(300)]

    async def look(user: str) -> None:
        assert await engine.read(rows_seen, tenant=user, quick=quick) <= {user}

    for begin in range(0, 300, 30):
        tasks = [asyncio.create_task(look(user)) for user in requests[begin : begin + 30]]
        # Some are cut off at any point, also while they say who they are.
        for task in tasks[::3]:
            asyncio.get_running_loop().call_later(draw.uniform(0, 0.02), task.cancel)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert not [end for end in ends if isinstance(end, Exception)]
    for user in ("ann", "bob"):
        assert await engine.read(rows_seen, tenant=user, quick=quick) == {user}
    assert await engine.read(rows_seen, tenant=NO_TENANT, quick=quick) == set()
    assert await engine.read(rows_seen, tenant=ALL_TENANTS, quick=quick) == {"ann", "bob"}
    await engine.close()


async def test_behind_a_pooler_no_setting_outlives_a_transaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A pooler gives out numbers of its own for the processes that serve.
    monkeypatch.setattr(asyncpg.Connection, "get_server_pid", lambda connection: 0)
    pools, create_pool = [], asyncpg.create_pool
    monkeypatch.setattr(asyncpg, "create_pool", lambda **options: pools.append(create_pool(**options)) or pools[0])
    engine = PostgresEngine(store.dsn, connections=1)
    await engine.open()
    assert await engine.read(rows_seen, tenant="ann", quick=True) == {"ann"}
    async with pools[0].acquire() as connection:
        assert not await connection.fetchval("SELECT current_setting('recollect.whose', true)")
    await engine.close()


async def test_odd_tenant_names_are_escaped_whatever_the_servers_string_syntax(store: Store) -> None:
    users = ["o'neil", "\\", "\\'", "a\\'; SELECT 1; --", "=ann", "$1", "日本 👩🏽‍🚀", "'", "x" * 300]
    for more in ("", "&standard_conforming_strings=off"):
        ledger = await open_postgres(store.dsn + more, MODEL)
        for user in users:
            scope = Scope(user)
            await ledger.apply(scope, [Add(memory(f"{user} likes tea", scope=scope))], by=BY)
            assert [each.content for each in await ledger.find(scope, Listing())] == [f"{user} likes tea"]
            assert (await ledger.revision(user)).number == 1
        await ledger.close()


async def test_a_role_exempt_from_policies_is_reported(store: Store, unguarded: Store) -> None:
    assert await store.ledger.security_warnings() == []
    (caution,) = await unguarded.ledger.security_warnings()
    assert "superuser or has BYPASSRLS" in caution
    await store.admin.execute(
        "ALTER TABLE turns NO FORCE ROW LEVEL SECURITY; ALTER TABLE jobs DISABLE ROW LEVEL SECURITY"
    )
    (caution,) = await store.ledger.security_warnings()
    assert "off for jobs, turns;" in caution


async def test_doctor_warns_of_an_exempt_role_only(tmp_path: Path) -> None:
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


async def test_a_backup_as_all_tenants_is_complete_and_can_be_restored(store: Store) -> None:
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


async def test_tables_of_a_superuser_can_be_transferred_as_documented(unguarded: Store) -> None:
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
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


def forget_to_name_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no statement of the ledger says whose rows it means."""
    real = postgres_dialect.positional
    of_user = re.compile(r"(\w+\.)?user_id = :(user|digest)\b|(?<=WHERE )number = :number")
    monkeypatch.setattr(postgres_dialect, "positional", lambda sql: real(of_user.sub("TRUE", sql)))


async def tells_of_bob(store: Store, question: Callable[[Ledger, dict[str, Any]], Awaitable[Any]]) -> bool:
    """Whether an answer holds bob's name or an id of his."""
    try:
        answer = repr(await question(store.ledger, store.ids["bob"]))
    except NotFound:
        return False
    return any(word in answer for word in ("bob", *(store.ids["bob"][kind] for kind in ("memory", "turn", "job"))))


# Each asks as ann for what is bob's, or for all that there is.
READS: dict[str, Callable[[Ledger, dict[str, Any]], Awaitable[Any]]] = {
    "get": lambda ledger, of_bob: ledger.get(ANN, [of_bob["memory"]]),
    "find": lambda ledger, of_bob: ledger.find(ANN, Listing(statuses=tuple(Status), limit=100)),
    "history": lambda ledger, of_bob: ledger.history(ANN),
    "entry": lambda ledger, of_bob: ledger.entry(ANN, of_bob["entry"]),
    "turns": lambda ledger, of_bob: ledger.turns(ANN),
    "fetch": lambda ledger, of_bob: ledger.fetch(ANN, [of_bob["row"]], filter=EVERYTHING),
    "keyed": lambda ledger, of_bob: ledger.keyed_facts(ANN, EVERYTHING, min_importance=0, limit=10),
    "job": lambda ledger, of_bob: ledger.job("ann", of_bob["job"]),
    "jobs": lambda ledger, of_bob: ledger.jobs("ann"),
    "conversations": lambda ledger, of_bob: ledger.conversations("ann"),
}


@pytest.mark.parametrize("name", READS)
async def test_a_query_without_a_user_condition_reads_no_rows_of_others(
    store: Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    forget_to_name_the_user(monkeypatch)
    assert not await tells_of_bob(store, READS[name])


async def test_without_policies_such_statements_would_read_and_erase_them(
    unguarded: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_to_name_the_user(monkeypatch)
    for name, question in READS.items():
        assert await tells_of_bob(unguarded, question), name
    await unguarded.ledger.erase(Scope("ann"), ErasureRequest(Target.USER), by=BY)
    assert not (await unguarded.everything("bob"))["memories"]


async def test_counts_and_index_rows_are_the_users_own(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = store.ledger

    async def counted() -> list[Any]:
        rows = await ledger.index_rows("ann", model=MODEL, after=0)
        matching = sorted(await ledger.matching(ANN, EVERYTHING))
        jobs = (await ledger.job_stats("ann")).waiting
        return [rows, matching, await ledger.stats("ann"), await ledger.usage("ann"), jobs]

    before = await counted()
    forget_to_name_the_user(monkeypatch)
    assert await counted() == before


@pytest.mark.parametrize(
    ("scope", "target"), [(Scope("ann"), Target.USER), (Scope("ann", "p"), Target.PROJECT), (ANN, Target.SESSION)]
)
async def test_an_erasure_without_a_user_condition_leaves_other_users_intact(
    store: Store, monkeypatch: pytest.MonkeyPatch, scope: Scope, target: Target
) -> None:
    before = await store.everything("bob")
    forget_to_name_the_user(monkeypatch)
    await store.ledger.erase(scope, ErasureRequest(target), by=BY)
    assert await store.everything("bob") == before
    assert not (await store.everything("ann"))["memories"]


async def test_changes_without_a_user_condition_leave_other_users_intact(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, of_bob = await store.everything("bob"), store.ids["bob"]
    forget_to_name_the_user(monkeypatch)
    await store.ledger.touch(ANN, [of_bob["memory"]], at=now())
    with pytest.raises(NotFound):
        await store.ledger.apply(ANN, [Update(of_bob["memory"], {"importance": 0.1})], by=BY)
    with pytest.raises(NotFound):
        await store.ledger.undo(ANN, of_bob["entry"], by=BY)
    assert await store.ledger.cancel("ann", [of_bob["job"]]) == []
    await store.ledger.embed(MODEL, {of_bob["row"]: direction(7)}, user="ann")
    assert await store.everything("bob") == before
