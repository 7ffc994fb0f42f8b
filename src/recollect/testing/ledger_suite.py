"""The promise of `Ledger`, as tests. A backend inherits them and says how it is opened:

    class TestMyLedger(LedgerSuite):
        @pytest.fixture
        def store(self, tmp_path):
            return lambda: open_my_ledger(tmp_path / "file", MODEL)

The first call of `store()` opens an empty ledger, every further one the same store again, while it is open
or after it was closed; a ledger that claims neither raises Unsupported there. Needs pytest-asyncio in auto mode.
"""

# ruff: noqa: E402
from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

# So that a failed assert in a suite shows its values, as it does in a test file.
pytest.register_assert_rewrite(
    *(
        f"recollect.testing.suite_{theme}"
        for theme in (
            "records", "scopes", "filters", "changes", "versions", "history", "finding", "said", "keyed", "as_of",
            "vectors", "traits", "turns", "turns_again", "upkeep", "jobs", "job_lists", "turn_taking", "chores",
            "effects", "usage", "evidence", "erase", "erase_again", "responses", "response_erase", "keys", "feeds",
            "models", "tombstones",
        )
    )
)  # fmt: skip

from recollect.ledger.protocol import Ledger
from recollect.testing.suite_as_of import AsOfSuite
from recollect.testing.suite_changes import ChangeSuite
from recollect.testing.suite_chores import MaintenanceQueueSuite
from recollect.testing.suite_effects import EffectSuite
from recollect.testing.suite_erase import EraseSuite
from recollect.testing.suite_erase_again import EraseReplaySuite
from recollect.testing.suite_evidence import EvidenceSuite
from recollect.testing.suite_feeds import FeedSuite
from recollect.testing.suite_filters import FilterSuite
from recollect.testing.suite_finding import FullTextSuite
from recollect.testing.suite_history import HistorySuite
from recollect.testing.suite_job_lists import JobListSuite
from recollect.testing.suite_jobs import JobSuite
from recollect.testing.suite_keyed import KeyedSuite
from recollect.testing.suite_keys import KeySuite
from recollect.testing.suite_models import ModelSuite
from recollect.testing.suite_records import RecordSuite
from recollect.testing.suite_response_erase import ResponseEraseSuite
from recollect.testing.suite_responses import ResponseSuite
from recollect.testing.suite_said import CoverageSuite
from recollect.testing.suite_samples import MODEL, Open
from recollect.testing.suite_scopes import ScopeSuite
from recollect.testing.suite_tombstones import TombstoneSuite
from recollect.testing.suite_traits import TraitSuite
from recollect.testing.suite_turn_taking import FairSchedulingSuite
from recollect.testing.suite_turns import TurnSuite
from recollect.testing.suite_turns_again import TurnIdempotencySuite
from recollect.testing.suite_upkeep import IntegritySuite
from recollect.testing.suite_usage import UsageSuite
from recollect.testing.suite_vectors import VectorSuite
from recollect.testing.suite_versions import VersionSuite

__all__ = ["MODEL", "LedgerSuite", "Open"]


class LedgerSuite(
    RecordSuite,
    ScopeSuite,
    FilterSuite,
    ChangeSuite,
    VersionSuite,
    HistorySuite,
    FullTextSuite,
    CoverageSuite,
    KeyedSuite,
    AsOfSuite,
    VectorSuite,
    TraitSuite,
    TurnSuite,
    TurnIdempotencySuite,
    IntegritySuite,
    JobSuite,
    JobListSuite,
    FairSchedulingSuite,
    MaintenanceQueueSuite,
    EffectSuite,
    UsageSuite,
    EvidenceSuite,
    EraseSuite,
    EraseReplaySuite,
    ResponseSuite,
    ResponseEraseSuite,
    KeySuite,
    FeedSuite,
    ModelSuite,
    TombstoneSuite,
):
    """Everything a ledger promises."""

    @pytest.fixture
    def store(self) -> Open:
        raise NotImplementedError("say how the ledger is opened: override the fixture `store`")

    @pytest.fixture
    async def ledger(self, store: Open) -> AsyncIterator[Ledger]:
        opened = await store()
        yield opened
        await opened.close()
