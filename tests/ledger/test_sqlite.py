"""What is particular to SQLite: the cost of statements, connections, and ledgers in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect.errors import StoreUnavailable, Unsupported
from recollect.ledger import sqlite_connection
from recollect.ledger.sql.tx import run_now
from recollect.ledger.sql.vectors import drop_vectors
from recollect.ledger.sqlite import open_in_memory, open_sqlite
from recollect.ledger.sqlite_connection import SqliteTx
from recollect.model.change import Add, Change, ChangeKind, Forget, Update
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.memory import Status
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.models.embedding import EmbeddingModel
from tests.support.ledger_samples import ALL, ANN, BY, MODEL, memory, say, turn

MODELS = (EmbeddingModel("old", 4), EmbeddingModel("new", 4))
_EVERY = 10


def _fill(connection: apsw.Connection, rows: int) -> None:
    for number, model in enumerate(MODELS, start=1):
        connection.execute(
            "INSERT INTO models (number, name, dimensions, created_at) VALUES (?, ?, ?, 0)",
            (number, model.name, model.dimensions),
        )
        connection.executemany(
            "INSERT INTO vectors (user_id, model, row, vector) VALUES ('ada', ?, ?, x'00')",
            [(number, row) for row in range(rows)],
        )


async def _steps_to_drop_one(home: Path, rows: int) -> int:
    """What it costs SQLite to remove the vectors of one row among many, in steps of its machine."""
    path = home / f"{rows}.db"
    await (await open_sqlite(path, MODELS[1])).close()
    connection = apsw.Connection(str(path))
    _fill(connection, rows)
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += _EVERY
        return False

    connection.set_progress_handler(count, _EVERY)
    run_now(drop_vectors(SqliteTx(connection), "ada", [7]))
    connection.set_progress_handler(None)
    left = connection.execute("SELECT model, count(*), min(abs(row - 7)) FROM vectors GROUP BY model").fetchall()
    connection.close()
    assert left == [(number, rows - 1, 1) for number in (1, 2)]
    return steps


async def test_changing_a_text_costs_the_same_however_many_vectors_a_user_has(tmp_path: Path) -> None:
    few, many = [await _steps_to_drop_one(tmp_path, rows) for rows in (10, 5_000)]
    assert many <= few + 2 * _EVERY


MONDAY = Scope("ann", "p", "monday")


async def test_sessions_are_listed_by_an_index_however_many_there_are(tmp_path: Path) -> None:
    ledger = await open_sqlite(tmp_path / "recollect.db", MODEL)
    plans = []
    connect = sqlite_connection.connect(tmp_path / "recollect.db")
    run = sqlite_connection.SqliteTx.rows

    async def explained(self: Any, sql: str, params: Any) -> Any:
        if "FROM conversations" in sql:
            plans.append(" ".join(row[3] for row in connect.execute(f"EXPLAIN QUERY PLAN {sql}", params)))
        return await run(self, sql, params)

    await say(ledger, MONDAY, "hello")
    (last,) = await ledger.conversations()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_connection.SqliteTx, "rows", explained)
        await ledger.conversations(order="newest", limit=10)
        await ledger.conversations(idle_before=now(), order="newest", limit=1)
        await ledger.conversations(open=True, idle_before=now(), limit=10, after=last)
        await ledger.conversations("ann", order="newest", limit=10)
        await ledger.conversations("ann", limit=10, after=last)
    connect.close()
    await ledger.close()
    assert len(plans) == 5
    assert not [plan for plan in plans if "TEMP B-TREE" in plan]
    assert ["conversations_open" in plan for plan in plans] == [False, False, True, False, False]
    assert all("SEARCH" in plan for plan in plans[1:])


async def test_a_ledger_in_memory_serves_concurrent_readers_and_writers() -> None:
    ledger, other = await open_in_memory(MODEL), await open_in_memory(MODEL)
    scopes = [Scope(f"user {n}", "", "s") for n in range(5)]

    async def write_and_read(n: int) -> None:
        scope = scopes[n % len(scopes)]
        await say(ledger, scope, f"turn {n}")
        assert await ledger.turns(scope, limit=1)
        await ledger.find(scope, ALL)

    await asyncio.gather(*(write_and_read(n) for n in range(100)))
    assert [len(await ledger.find(scope, ALL)) for scope in scopes] == [20] * 5
    assert await ledger.check() == await other.users() == []
    assert (await ledger.stats())["bytes"] > 0
    await ledger.close()
    await other.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await ledger.users()


async def test_a_ledger_in_memory_erases_and_has_no_backup(tmp_path: Path) -> None:
    ledger = await open_in_memory(MODEL)
    scope = Scope("ann", "", "s")
    await say(ledger, scope, "a secret")
    receipt = await ledger.erase(Scope("ann"), ErasureRequest(Target.USER), by=BY)
    assert receipt.reached
    assert await ledger.users() == []
    with pytest.raises(Unsupported, match="export"):
        await ledger.backup(tmp_path / "backup.db", lambda done, total: None)
    await ledger.close()


async def test_changes_that_wait_together_see_each_other_in_the_order_of_their_calls(tmp_path: Path) -> None:
    ledger = await open_sqlite(tmp_path / "ledger.db", MODEL)
    tea, again, key = memory("likes tea"), memory("likes tea"), memory("likes tea", scope=Scope("bob"))
    changes: list[Change] = [Add(tea), Update(tea.id, {"content": "likes coffee"}), Add(again), Forget(tea.id)]
    applied = await asyncio.gather(
        *(ledger.apply(ANN, [each], by=BY) for each in changes), ledger.apply(key.scope, [Add(key)], by=BY)
    )
    assert all(each.outcomes[0].changed for each in applied)
    assert {each.id: each.status for each in await ledger.get(ANN, [tea.id, again.id])} == {
        tea.id: Status.FORGOTTEN,
        again.id: Status.ACTIVE,
    }
    verbs = [line.verb for line in reversed(await ledger.history(ANN))]
    assert verbs == [ChangeKind.ADD, ChangeKind.UPDATE, ChangeKind.ADD, ChangeKind.FORGET]
    assert [(await ledger.revision(user)).number for user in ("ann", "bob")] == [4, 1]
    assert await ledger.check() == []
    await ledger.close()


async def test_a_turn_that_is_sent_twice_at_once_is_stored_once_and_both_callers_get_it(tmp_path: Path) -> None:
    ledger = await open_sqlite(tmp_path / "ledger.db", MODEL)
    twice, other = turn("I like tea"), turn("I like coffee")
    results = await asyncio.gather(
        *(ledger.append(MONDAY, [each], vectors=[None], by=BY, received_at=now()) for each in (twice, other, twice))
    )
    assert [[(each.id, each.position) for each in result.turns] for result in results] == [
        [(twice.id, 1)],
        [(other.id, 2)],
        [(twice.id, 1)],
    ]
    assert [each.id for each in await ledger.turns(MONDAY)] == [twice.id, other.id]
    await ledger.close()
