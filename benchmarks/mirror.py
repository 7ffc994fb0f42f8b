"""Measure the mirror of many memories as files (`make bench-mirror`).

The floor of a start is one stat of every file; that of a write is one small file written, synced and renamed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from benchmarks.harness import AUTHOR, fill, resident_mb, summarize
from recollect.config.settings import load
from recollect.mirror.mirror import Mirror
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.remember import MemoryInput
from recollect.service.service import Service
from recollect.wiring import open_service

_SESSIONS = 200
_TIMES = 50
_EDITS = 100


async def _open(home: Path, *, git: bool) -> tuple[Service, Mirror]:
    """Open a service with a mirror that is synced by request only."""
    settings = load({"home": home, "mirror": ".", "mirror_git": git, "worker": False}, environ={}).settings
    service = await open_service(settings)
    assert isinstance(service.mirror, Mirror)
    return service, service.mirror


def _stat_all(home: Path) -> float:
    started = perf_counter()
    for folder, _, names in os.walk(home / "entries"):
        for name in names:
            os.lstat(os.path.join(folder, name))
    return perf_counter() - started


def _write_floor(home: Path) -> float:
    """Return the median in ms of one small file, synced and renamed, and its folder synced."""
    samples = []
    handle = os.open(home, os.O_RDONLY)
    for number in range(_TIMES):
        started = perf_counter()
        with (home / "floor.tmp").open("wb") as file:
            file.write(b"x" * 300)
            file.flush()
            os.fsync(file.fileno())
        os.replace(home / "floor.tmp", home / f"floor-{number}")
        os.fsync(handle)
        samples.append(perf_counter() - started)
    os.close(handle)
    return summarize(samples).p50_us / 1000


async def _start(home: Path, *, git: bool) -> tuple[float, float]:
    """Open a service and sync all files; return the seconds, and the memory added in MiB."""
    service, mirror = await _open(home, git=git)
    # The embedding model is not part of the mirror, and is loaded with the first text.
    await service.embed_queries(["first"])
    before, started = resident_mb(), perf_counter()
    await mirror.sync()
    took_s, more = perf_counter() - started, resident_mb() - before
    await service.close()
    return took_s, more


async def _until(done: Callable[[], bool]) -> None:
    # There is no event for a new file.
    while not done():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def _writes(home: Path, *, git: bool) -> tuple[float, float]:
    """Return medians in ms: from a memory added to its file, and from a file edited to its memory."""
    service, mirror = await _open(home, git=git)
    mirror.start()
    scope, facts = Scope("default", "writes", "writes"), home / "entries/writes/facts"
    await service.add(scope, MemoryInput(content="first"), by=AUTHOR)
    await _until(lambda: facts.is_dir() and len(os.listdir(facts)) == 1)
    out, back = [], []
    for number in range(_TIMES):
        added = await service.add(scope, MemoryInput(content=f"number {number}"), by=AUTHOR)
        started = perf_counter()
        await _until(lambda id=added.id: any(id in name for name in os.listdir(facts)))
        out.append(perf_counter() - started)
    for number, path in enumerate(sorted(facts.glob("*.md"))[1 : _TIMES // 5]):
        path.write_text(path.read_text().replace("number", f"edited {number}"))
        started = perf_counter()
        words = f"edited {number} "
        # Nor for a changed memory.
        while not any(each.content.startswith(words) for each in await service.find(scope, Listing())):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        back.append(perf_counter() - started)
    await service.close()
    return summarize(out).p50_us / 1000, summarize(back).p50_us / 1000


async def _edited(home: Path, start_s: float, floor_ms: float, *, git: bool) -> None:
    """Print the seconds of a start with edited files, and what each of them adds."""
    edited = sorted((home / "entries").rglob("*.md"))[:_EDITS]
    for path in edited:
        path.write_text(path.read_text() + "\nand more")
    took_s, _ = await _start(home, git=git)
    each_ms = max(0.0, took_s - start_s) / len(edited) * 1000
    print(
        f"start, {len(edited)} files edited          {took_s:8.2f} s   {each_ms:.1f} ms more for each, "
        f"{each_ms / floor_ms:.1f} x one file synced"
    )


def _remove_ledger(home: Path) -> None:
    for path in home.glob("recollect.db*"):
        path.unlink()


async def measure(home: Path, count: int, *, git: bool) -> None:
    """Fill a ledger, mirror it, and measure."""
    service, mirror = await _open(home, git=git)
    await fill(service, "default", count, seed=1, sessions=_SESSIONS)
    before, started = resident_mb(), perf_counter()
    await mirror.sync()
    took_s = perf_counter() - started
    print(
        f"write out {count:,} memories     {took_s:8.1f} s   {count / took_s:7,.0f} files/s, "
        f"{resident_mb() - before:.0f} MiB more"
    )
    started = perf_counter()
    files, differences = await mirror.verify()
    print(f"verify {files:,} files            {perf_counter() - started:8.1f} s   {len(differences)} differences")
    if files < count or differences:
        raise RuntimeError(f"{files:,} of {count:,} files were written: {differences}")
    await service.close()
    _stat_all(home)
    floor_s = _stat_all(home)
    took_s, more = await _start(home, git=git)
    print(
        f"start, nothing changed           {took_s:8.2f} s   {took_s / floor_s:.1f} x a stat of each file "
        f"({floor_s:.2f} s), {more:.0f} MiB more"
    )
    floor_ms = _write_floor(home)
    await _edited(home, took_s, floor_ms, git=git)
    out_ms, back_ms = await _writes(home, git=git)
    print(
        f"a memory added becomes a file    {out_ms:8.1f} ms  {out_ms / floor_ms:.1f} x one file synced "
        f"({floor_ms:.1f} ms)"
    )
    print(f"a file edited becomes a memory   {back_ms:8.0f} ms")
    _remove_ledger(home)
    took_s, more = await _start(home, git=git)
    print(f"ledger lost, built from files    {took_s:8.1f} s   {count / took_s:7,.0f} files/s, {more:.0f} MiB more")


def main() -> None:
    """Measure in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--git", action="store_true", help="commit versions")
    parser.add_argument("--folder", help="parent folder; the system's temporary folder by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recollect-mirror-", dir=options.folder) as home:
        asyncio.run(measure(Path(home), options.files, git=options.git))


if __name__ == "__main__":
    main()
