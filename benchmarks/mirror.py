"""`make bench-mirror`: what it takes to mirror many memories as files, beside the floor of looking at as many files.

The floor of a start is one stat of every file; that of a write is one small file written, synced and renamed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from time import perf_counter

from benchmarks.corpus import sentences
from benchmarks.timing import resident_mb, summary
from recollect.config.settings import load
from recollect.mirror.mirror import Mirror
from recollect.model.change import Add, Author
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.remember import MemoryInput
from recollect.service.service import Service
from recollect.wiring import open_service
from recollect.write.draft import draft

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


BY = Author("bench")
_BATCH = 1000
_CONVERSATIONS = 200
_TIMES = 50
_EDITS = 100


async def _open(home: Path, *, git: bool) -> tuple[Service, Mirror]:
    settings = load({"home": home, "mirror": ".", "mirror_git": git, "worker": False}, environ={}).settings
    service = await open_service(settings)
    assert isinstance(service.mirror, Mirror)
    return service, service.mirror


async def _fill(service: Service, count: int) -> None:
    texts = sentences(1)
    for start in range(0, count, _BATCH):
        conversation = f"conversation-{start // _BATCH % _CONVERSATIONS}"
        scope = Scope("default", conversation, conversation)
        batch = list(islice(texts, min(_BATCH, count - start)))
        vectors = await service._embedder.embed(batch)
        changes = [Add(draft(scope, text, {}), vector) for text, vector in zip(batch, vectors, strict=True)]
        await service._ledger.apply(scope, changes, by=BY)


def _stat_all(home: Path) -> float:
    started = perf_counter()
    for folder, _, names in os.walk(home / "entries"):
        for name in names:
            os.lstat(os.path.join(folder, name))
    return perf_counter() - started


def _write_floor(home: Path) -> float:
    """The median of one small file, synced and renamed, and its folder synced."""
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
    return summary(samples).p50_us / 1000


async def _started(home: Path, *, git: bool) -> tuple[float, float]:
    """How long a start takes, service and all files, and the memory of it."""
    service, mirror = await _open(home, git=git)
    # The model for embeddings is not the mirror's, and is loaded with the first text.
    await service._embedder.embed(["first"])
    before, started = resident_mb(), perf_counter()
    await mirror.sync()
    took_s, more = perf_counter() - started, resident_mb() - before
    await service.close()
    return took_s, more


async def _until(done: Callable[[], bool]) -> None:
    # Nothing tells when a file is there.
    while not done():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def _writes(home: Path, *, git: bool) -> tuple[float, float]:
    """Medians in ms: from a memory added to its file, and from a file edited to its memory."""
    service, mirror = await _open(home, git=git)
    mirror.start()
    scope, facts = Scope("default", "writes", "writes"), home / "entries/writes/facts"
    await service.add(scope, MemoryInput(content="first"), by=BY)
    await _until(lambda: facts.is_dir() and len(os.listdir(facts)) == 1)
    out, back = [], []
    for number in range(_TIMES):
        added = await service.add(scope, MemoryInput(content=f"number {number}"), by=BY)
        started = perf_counter()
        await _until(lambda id=added.id: any(id in name for name in os.listdir(facts)))
        out.append(perf_counter() - started)
    for number, path in enumerate(sorted(facts.glob("*.md"))[1 : _TIMES // 5]):
        path.write_text(path.read_text().replace("number", f"edited {number}"))
        started = perf_counter()
        words = f"edited {number} "
        # Nor when it is read.
        while not any(each.content.startswith(words) for each in await service.find(scope, Listing())):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        back.append(perf_counter() - started)
    await service.close()
    return summary(out).p50_us / 1000, summary(back).p50_us / 1000


async def _edited(home: Path, start_s: float, floor_ms: float, *, git: bool) -> None:
    """Print what a start takes that finds files edited, and what each of them adds to one that finds nothing."""
    for path in list((home / "entries/conversation-0/facts").iterdir())[:_EDITS]:
        path.write_text(path.read_text() + "\nand more")
    took_s, _ = await _started(home, git=git)
    each_ms = max(0.0, took_s - start_s) / _EDITS * 1000
    print(
        f"start, {_EDITS} files edited          {took_s:8.2f} s   {each_ms:.1f} ms more for each, the index of all "
        f"written anew with it: {each_ms / floor_ms:.1f} x one file synced"
    )


def _lose_ledger(home: Path) -> None:
    for path in home.glob("recollect.db*"):
        path.unlink()


async def measure(home: Path, count: int, *, git: bool) -> None:
    """Fill a ledger, mirror it, and measure."""
    service, mirror = await _open(home, git=git)
    await _fill(service, count)
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
    await service.close()
    _stat_all(home)
    floor_s = _stat_all(home)
    took_s, more = await _started(home, git=git)
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
    _lose_ledger(home)
    took_s, more = await _started(home, git=git)
    print(f"ledger lost, built from files    {took_s:8.1f} s   {count / took_s:7,.0f} files/s, {more:.0f} MiB more")


def main() -> None:
    """Measure in a folder of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--git", action="store_true", help="with versions")
    parser.add_argument("--folder", help="where; a temporary folder if left out")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="recollect-mirror-", dir=options.folder))
    try:
        asyncio.run(measure(home, options.files, git=options.git))
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
