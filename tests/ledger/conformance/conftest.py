"""Run every test of this folder on each ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recollect.ledger.ledger import Ledger
from tests.support.empty_ledgers import empty_postgres, empty_sqlite
from tests.support.ledger_samples import Open


@pytest.fixture(params=["sqlite", "postgres", pytest.param("partitioned", marks=pytest.mark.drill)])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Open an empty ledger; opening it again gives a second one on the same data."""
    if request.param == "sqlite":
        return await empty_sqlite(tmp_path)
    return await empty_postgres(partitions=8 if request.param == "partitioned" else 0)


@pytest.fixture
async def ledger(store: Open) -> AsyncIterator[Ledger]:
    opened = await store()
    yield opened
    await opened.close()
