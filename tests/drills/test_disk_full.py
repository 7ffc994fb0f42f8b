"""A full disk: a clear error, acknowledged data stays readable, and writes work once there is space."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from recollect.errors import DiskFull
from recollect.ledger.ledger import Ledger
from tests.drills.findings import examine
from tests.drills.notes import Notes, read_notes
from tests.drills.sizes import Sizes
from tests.drills.stores import open_store
from tests.drills.writers import Writer
from tests.support.power_cut import SimulatedDisk

BALLAST = 2 << 20
HEAL_S = 60.0


class SmallDisk(Protocol):
    """A folder with little space, part of it used by a file that can be removed."""

    folder: Path
    vfs: str | None

    def free_space(self) -> None: ...


class _Tmpfs:
    """Yield a small tmpfs."""

    vfs = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "ballast").write_bytes(bytes(BALLAST))

    def free_space(self) -> None:
        (self.folder / "ballast").unlink()


class _Simulated:
    """Yield a simulated full disk, for machines where mounting is not allowed."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self._size = folder, size
        self.disk = SimulatedDisk(seed=0)
        self.disk.capacity_bytes = size - BALLAST
        self.vfs = self.disk.vfs

    def free_space(self) -> None:
        self.disk.capacity_bytes = self._size


@pytest.fixture(params=["tmpfs", "simulated"])
def small_disk(request: pytest.FixtureRequest, sizes: Sizes, tmp_path: Path) -> Iterator[SmallDisk]:
    """Yield a small disk: a tmpfs if it can be mounted, else a simulated one."""
    folder = tmp_path / "small"
    folder.mkdir()
    size = sizes.small_disk_mb << 20
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if request.param == "tmpfs" and subprocess.run(mount, capture_output=True).returncode == 0:
        yield _Tmpfs(folder)
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
    else:
        yield (simulated := _Simulated(folder, size))
        simulated.disk.close()


async def _fill(ledger: Ledger, notes: Notes, writers: list[Writer]) -> list[DiskFull]:
    """Write until every writer has an error about the full disk."""

    async def fill(writer: Writer) -> DiskFull:
        while True:
            try:
                await writer.go_on(ledger, notes, steps=1)
            except DiskFull as error:
                return error

    return await asyncio.gather(*map(fill, writers))


async def test_a_full_disk_loses_nothing_and_heals_without_reopening(
    small_disk: SmallDisk, seed: int, tmp_path: Path, say: Callable[[str], None]
) -> None:
    notes = Notes(tmp_path / "notes")
    ledger = await open_store(str(small_disk.folder / "recollect.db"), vfs=small_disk.vfs)
    writers = [Writer(n, user=f"user-{n // 2}", seed=seed) for n in range(2, 8)]
    for error in await _fill(ledger, notes, writers):
        assert "no space left" in str(error)
        assert "free some" in str(error)
        assert error.retryable

    # Acknowledged data can be read and searched while the disk is full, also by a new process.
    report = read_notes(tmp_path / "notes")
    assert (await examine(ledger, report)).wrong == []
    other = await open_store(str(small_disk.folder / "recollect.db"), vfs=small_disk.vfs)
    assert (await examine(other, report)).wrong == []
    await other.close()
    full_later = await _fill(ledger, notes, [Writer(1, user="late", seed=seed)])
    assert len(full_later) == 1

    small_disk.free_space()
    space_at = time.monotonic()
    writer = Writer(0, user="later", seed=seed)
    while True:
        try:
            await writer.go_on(ledger, notes, steps=20)
            break
        except DiskFull:
            assert time.monotonic() - space_at < HEAL_S, "it does not heal"
    healed_s = time.monotonic() - space_at
    findings = await examine(ledger, read_notes(tmp_path / "notes"))
    assert findings.wrong + await ledger.check() == []
    await ledger.close()
    ledger = await open_store(str(small_disk.folder / "recollect.db"))
    findings = await examine(ledger, read_notes(tmp_path / "notes"))
    assert findings.wrong + await ledger.check() == []
    await ledger.close()
    say(f"{findings.acked:,} acknowledged writes, none lost; wrote again after {healed_s:.2f} s")
