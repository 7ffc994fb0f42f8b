"""SQLite and PostgreSQL give the same results for the same random work."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from recollect.ledger.ledger import Ledger
from tests.support.empty_ledgers import empty_postgres, empty_sqlite
from tests.support.ledger_state_machine import compare_ledgers


# On a difference, finding the shortest example takes many more steps than a run without one.
@pytest.mark.timeout(600)
def test_sqlite_agrees_with_postgres(tmp_path: Path) -> None:
    names = map(str, count())

    async def open_sqlite() -> Ledger:
        return await (await empty_sqlite(tmp_path, next(names)))()

    async def open_postgres() -> Ledger:
        return await (await empty_postgres())()

    compare_ledgers(open_sqlite, open_postgres)
