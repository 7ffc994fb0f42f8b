"""A disk with random errors: nothing acknowledged is lost, no failed sync is trusted, and the ledger recovers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.errors import StoreUnavailable
from recollect.ledger import sqlite, sqlite_connection
from recollect.ledger.ledger import Ledger
from recollect.ledger.sqlite_writer import SqliteWriter
from tests.drills.findings import examine
from tests.drills.notes import Notes, read_notes
from tests.drills.sizes import Sizes
from tests.drills.stores import open_store
from tests.drills.writers import Writer
from tests.support.power_cut import SimulatedDisk

WRITERS = 4
FAIL_SHARE = 0.02
_ROUND = 10


class _Trial:
    """Writers that retry on a failing disk, until enough was written and enough has failed."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.disk = SimulatedDisk(seed=seed)
        self.notes = Notes(folder / "notes")
        self.errors = 0

    async def run(self, writes: int) -> Ledger:
        """Write with failures, then once without; return the ledger."""
        ledger = await open_store(str(self.folder / "disk" / "recollect.db"), vfs=self.disk.vfs)
        writers = [Writer(n, user=f"user-{n // 2}", seed=self.seed) for n in range(2, 2 + WRITERS)]

        async def write(writer: Writer) -> None:
            for _ in range(_ROUND):
                await writer.insist(ledger, self.notes, writer.next_step(), self._count)

        self.disk.fail_share = FAIL_SHARE
        while writes > 0 or not _logs(self.disk.failed_syncs):
            await asyncio.gather(*map(write, writers))
            writes -= WRITERS * _ROUND
        self.disk.fail_share = 0.0
        await writers[0].go_on(ledger, self.notes, steps=1)
        return ledger

    def _count(self, error: Exception) -> None:
        self.errors += 1


def _logs(names: list[str]) -> list[str]:
    return [name for name in names if name.endswith("-wal")]


@pytest.fixture(autouse=True)
def _small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoint often, so that checkpoints fail too."""
    monkeypatch.setattr(sqlite_connection, "PRAGMAS", sqlite_connection.PRAGMAS + "PRAGMA wal_autocheckpoint = 60;")


async def test_nothing_acknowledged_is_lost_when_two_of_a_hundred_writes_and_syncs_fail(
    sizes: Sizes, seed: int, tmp_path: Path, say: Callable[[str], None]
) -> None:
    trial = _Trial(tmp_path, seed=seed)
    ledger = await trial.run(sizes.failing_writes)
    report = read_notes(tmp_path / "notes")
    # After a power cut now, all acknowledged data is on the disk.
    trial.disk.cut(tmp_path / "cut")
    findings = await examine(ledger, report)
    assert findings.wrong + await ledger.check() == []
    await ledger.close()
    trial.disk.close()
    for folder in ("disk", "cut"):
        ledger = await open_store(str(tmp_path / folder / "recollect.db"))
        assert (await examine(ledger, report)).wrong + await ledger.check() == []
        await ledger.close()
    # A log whose sync failed is closed, not synced again: the system may have marked its pages clean.
    assert _logs(trial.disk.synced_after_failure) == []
    writes, syncs = len(trial.disk.failed_writes), len(trial.disk.failed_syncs)
    say(
        f"{findings.acked:,} acknowledged writes, none lost; {writes} writes and {syncs} syncs failed, "
        f"{trial.errors} errors reached callers"
    )


async def test_the_drill_notices_a_writer_that_keeps_its_handle_after_a_failed_sync(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CarriesOn(SqliteWriter):
        def recover(self, error: BaseException) -> None:
            for connection in self.connections:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    monkeypatch.setattr(sqlite, "SqliteWriter", CarriesOn)
    trial = _Trial(tmp_path, seed=seed)
    ledger = await trial.run(WRITERS * _ROUND)
    await ledger.close()
    trial.disk.close()
    assert _logs(trial.disk.synced_after_failure) != []


async def test_the_ledger_heals_by_itself_after_the_disk_has_failed_altogether(tmp_path: Path, seed: int) -> None:
    notes, writer = Notes(tmp_path / "notes"), Writer(1, user="user", seed=seed)
    disk = SimulatedDisk(seed=seed)
    ledger = await open_store(str(tmp_path / "recollect.db"), vfs=disk.vfs)
    await writer.go_on(ledger, notes, steps=5)
    disk.is_gone = True
    for _ in range(5):
        step = writer.next_step("add")
        with pytest.raises(StoreUnavailable, match=r"recollect\.db"):
            await asyncio.wait_for(writer.insist(ledger, notes, step, _give_up), 30)
    disk.is_gone = False
    await asyncio.wait_for(writer.insist(ledger, notes, step, _give_up), 30)
    findings = await examine(ledger, read_notes(tmp_path / "notes"))
    assert findings.wrong + await ledger.check() == []
    await ledger.close()
    disk.close()


def _give_up(error: Exception) -> None:
    raise error
