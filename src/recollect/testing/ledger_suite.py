"""The promise of `Ledger`, as tests. A backend inherits them and says how it is opened:

    class TestMyLedger(LedgerSuite):
        @pytest.fixture
        def store(self, tmp_path):
            return lambda: open_my_ledger(tmp_path / "file", MODEL)

The first call of `store()` opens an empty ledger, every further one the same store again, while it is open
or after it was closed; a ledger that claims neither raises Unsupported there. Needs pytest-asyncio in auto mode.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from recollect.ledger.protocol import Ledger
from recollect.testing.suite_accounts import KeySuite, UsageSuite
from recollect.testing.suite_changes import ChangeSuite, EffectSuite, VersionSuite
from recollect.testing.suite_erasure import EraseReplaySuite, EraseSuite
from recollect.testing.suite_filters import FilterSuite
from recollect.testing.suite_history import AsOfSuite, EvidenceSuite, HistorySuite
from recollect.testing.suite_integrity import IntegritySuite
from recollect.testing.suite_jobs import FairSchedulingSuite, JobListSuite, JobSuite, MaintenanceQueueSuite
from recollect.testing.suite_records import RecordSuite, ScopeSuite
from recollect.testing.suite_responses import ResponseEraseSuite, ResponseSuite
from recollect.testing.suite_samples import MODEL, Open
from recollect.testing.suite_search import CoverageSuite, FullTextSuite, KeyedSuite
from recollect.testing.suite_turns import TombstoneSuite, TurnIdempotencySuite, TurnSuite
from recollect.testing.suite_vectors import FeedSuite, ModelSuite, TraitSuite, VectorSuite

# So that a failed assert in a suite shows its values, as it does in a test file.
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
