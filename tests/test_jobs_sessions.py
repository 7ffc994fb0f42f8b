"""Sessions are found by an index, however many there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recollect.ledger import sqlite_file
from recollect.ledger.sqlite import open_sqlite
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.testing.suite_samples import MODEL, say

MONDAY = Scope("ann", "p", "monday")


async def test_sessions_are_listed_by_an_index_however_many_there_are(tmp_path: Path) -> None:
    ledger = await open_sqlite(tmp_path / "recollect.db", MODEL)
    plans = []
    connect = sqlite_file.connect(tmp_path / "recollect.db")
    run = sqlite_file.SqliteTx.rows

    async def explained(self: Any, sql: str, params: Any) -> Any:
        if "FROM conversations" in sql:
            plans.append(" ".join(row[3] for row in connect.execute(f"EXPLAIN QUERY PLAN {sql}", params)))
        return await run(self, sql, params)

    await say(ledger, MONDAY, "hello")
    (last,) = await ledger.conversations()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_file.SqliteTx, "rows", explained)
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
