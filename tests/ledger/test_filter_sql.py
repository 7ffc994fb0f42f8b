"""A filter can ask for anything without ever becoming SQL: names inside metadata are parameters, like values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.ledger.ledger import Ledger
from recollect.ledger.postgres import open_postgres
from recollect.ledger.postgres_dialect import PostgresDialect
from recollect.ledger.sql.memories import filter_condition
from recollect.ledger.sqlite import open_sqlite
from recollect.ledger.sqlite_connection import SqliteDialect
from recollect.model.query import OPERATORS, Kind, Listing, Op, Where
from tests.support.ledger_samples import ANN, BOB, MODEL, add, memory

ATTACKS = [
    """metadata.a"') IN ('text'), 1=0)) OR user_id='bob' --""",
    "metadata.a') = '1'::jsonb, 1=0)) OR user_id='bob' --",
    """metadata.a" """,
    "metadata.'",
]
VALUES: dict[Op, Any] = {Op.IN: ("v", 1, True)}
NAMES = st.text() | st.text("ab\"'$.[]:;- \\%)(") | st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_ -]{0,63}", fullmatch=True)


def forced(field: str, op: Op, value: Any) -> Where:
    """A comparison that got past its own checks."""
    comparison = Where("metadata.a", op, value)
    object.__setattr__(comparison, "field", field)
    return comparison


@pytest.fixture(params=["sqlite", "postgres"])
async def ledger(request: pytest.FixtureRequest, dsn: str, tmp_path: Path) -> AsyncIterator[Ledger]:
    on_sqlite = request.param == "sqlite"
    ledger = await (open_sqlite(tmp_path / "ledger.db", MODEL) if on_sqlite else open_postgres(dsn, MODEL))
    yield ledger
    await ledger.close()


async def test_a_metadata_name_cannot_inject_sql(ledger: Ledger) -> None:
    await add(ledger, memory("bob's safe code", scope=BOB))
    await add(ledger, memory("likes tea", metadata={"a": "v"}))
    for field, op in product(ATTACKS, sorted(OPERATORS[Kind.JSON])):
        filter = forced(field, op, VALUES.get(op, "v"))
        results = await asyncio.gather(ledger.find(ANN, Listing(filter=filter)), return_exceptions=True)
        contents = {record.content for page in results if not isinstance(page, BaseException) for record in page}
        assert contents <= ({"likes tea"} if op is Op.NE else set())


async def test_a_field_name_cannot_inject_sql(ledger: Ledger) -> None:
    for field in ("key = 'x' OR 1=1 --", "key.x OR 1=1 --", "tags.x') OR 1=1 --"):
        with pytest.raises(KeyError):
            await ledger.find(ANN, Listing(filter=forced(field, Op.EQ, "v")))


@settings(max_examples=30)
@given(NAMES, st.sampled_from(sorted(OPERATORS[Kind.JSON])))
def test_the_sql_of_a_comparison_is_the_same_for_every_metadata_name(name: str, op: Op) -> None:
    value = VALUES.get(op, "v")
    for dialect in (SqliteDialect(), PostgresDialect()):
        params: dict[str, Any] = {}
        sql = filter_condition(forced(f"metadata.{name}", op, value), dialect, params)
        assert sql == filter_condition(Where("metadata.other", op, value), dialect, {})
        assert name in params.values()
