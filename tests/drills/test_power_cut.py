"""Power cuts: unsynced writes may be lost, torn or reordered; acknowledged writes are complete."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from recollect.ledger import sqlite_connection
from tests.drills.findings import Findings, examine
from tests.drills.notes import Notes, WriterReport, read_notes
from tests.drills.sizes import Sizes
from tests.drills.stores import open_store
from tests.drills.writers import Writer
from tests.support.power_cut import SimulatedDisk

WRITERS = 4
FILE = "recollect.db"
_MOST_CALLS_BETWEEN_CUTS = 200


@dataclass(frozen=True, slots=True)
class Cut:
    """A moment at which the power went: what the disk was left with, and what had been told until then.

    `before` is what was told in lives that other cuts had ended.
    """

    folder: Path
    reports: Mapping[str, WriterReport]
    before: Mapping[str, WriterReport]


async def _life(home: Cut, number: int, *, cuts: int, seed: int) -> list[Cut]:
    """Continue from the state after a cut, and cut the power repeatedly, each time into another folder."""
    chance = random.Random(f"{seed} {number}")
    noted = home.folder.parent / f"notes-{number}"
    notes = Notes(noted)
    moments: list[tuple[Path, int]] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    calls_left = chance.randint(1, _MOST_CALLS_BETWEEN_CUTS)

    def cut_now_and_then(kind: str, name: str) -> None:
        nonlocal calls_left
        calls_left -= 1
        if calls_left > 0 or len(moments) >= cuts:
            return
        calls_left = chance.randint(1, _MOST_CALLS_BETWEEN_CUTS)
        # Writes noted before the cut were acknowledged before it.
        size = noted.stat().st_size
        folder = home.folder.parent / f"cut-{number}-{len(moments)}"
        disk.cut(folder)
        moments.append((folder, size))
        if len(moments) == cuts:
            loop.call_soon_threadsafe(done.set)

    disk = SimulatedDisk(seed=seed + number, on_call=cut_now_and_then)
    ledger = await open_store(str(home.folder / FILE), vfs=disk.vfs)
    writers = [Writer(1 + number * WRITERS + n, user=f"user-{number}-{n % 3}", seed=seed) for n in range(WRITERS)]
    at_work = [asyncio.create_task(writer.go_on(ledger, notes)) for writer in writers]
    ended = asyncio.create_task(done.wait())
    await asyncio.wait([*at_work, ended], return_when=asyncio.FIRST_COMPLETED)
    assert ended.done(), "a writer ended by itself"
    for task in at_work:
        task.cancel()
    await asyncio.gather(*at_work, return_exceptions=True)
    await ledger.close()
    disk.close()
    notes.close()
    before = {**home.before, **home.reports}
    return [Cut(folder, read_notes(noted, size=size), before) for folder, size in moments]


async def _examine_after(cut: Cut, *, all_lives: bool = False) -> Findings:
    ledger = await open_store(str(cut.folder / FILE))
    try:
        findings = await examine(ledger, {**cut.before, **cut.reports} if all_lives else cut.reports)
        findings.wrong += await ledger.check()
    finally:
        await ledger.close()
    return findings


def _pragmas(monkeypatch: pytest.MonkeyPatch, synchronous: str) -> None:
    """Set the sync level of the ledger, and checkpoint often."""
    assert "synchronous = FULL" in sqlite_connection.PRAGMAS
    changed = sqlite_connection.PRAGMAS.replace("synchronous = FULL", f"synchronous = {synchronous}")
    monkeypatch.setattr(sqlite_connection, "PRAGMAS", changed + "PRAGMA wal_autocheckpoint = 60;")


async def test_nothing_acknowledged_is_lost_to_power_cuts(
    sizes: Sizes, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, say: Callable[[str], None]
) -> None:
    _pragmas(monkeypatch, "FULL")
    chance = random.Random(seed)
    home = Cut(tmp_path / "first", {}, {})
    acked = cuts = 0
    for number in range(sizes.cut_lives):
        made = await _life(home, number, cuts=sizes.cuts // sizes.cut_lives, seed=seed)
        for cut in made:
            results = await _examine_after(cut)
            assert results.wrong == [], f"after {cut.folder}"
            acked, cuts = acked + results.acked, cuts + 1
        home = chance.choice(made)
        assert (await _examine_after(home, all_lives=True)).wrong == []
        for cut in made:
            if cut is not home:
                shutil.rmtree(cut.folder)
    say(f"FULL: {cuts} cuts, 0 of {acked:,} acknowledged writes looked for were lost")


async def test_the_power_cut_drill_catches_a_ledger_that_does_not_sync_every_commit(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, say: Callable[[str], None]
) -> None:
    _pragmas(monkeypatch, "NORMAL")
    lost = acked = 0
    for cut in await _life(Cut(tmp_path / "first", {}, {}), 0, cuts=12, seed=seed):
        results = await _examine_after(cut)
        lost, acked = lost + results.lost, acked + results.acked
    say(f"NORMAL: 12 cuts, {lost} of {acked:,} acknowledged writes lost")
    assert lost
