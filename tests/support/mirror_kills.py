"""Kill a process that mirrors while files are edited, and check that files and ledger converge."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from recollect.mirror.layout import STATE_FOLDER
from recollect.model.scope import Scope
from tests.support.mirror_samples import MirroredService, mirrored_service

_CHILD = Path(__file__).with_name("mirror_process.py")
CONVERGES_S = 5.0
# The start of a process on an idle machine.
_STARTS_S = 1.0


class Victims:
    """Processes that mirror, to be killed; `start_s` is the time that Python and its imports take to start."""

    def __init__(self) -> None:
        started = time.monotonic()
        self._source = subprocess.Popen(
            [sys.executable, str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
        )
        assert self._read_line() == "there"
        self.start_s = time.monotonic() - started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._source.stdin is not None
        assert self._source.stdout is not None
        self._source.stdin.close()
        self._source.wait()
        self._source.stdout.close()

    def kill_one(self, home: Path, chance: random.Random, edits: dict[str, str]) -> None:
        """Run a process for a moment, edit some files, and kill it; `edits` gets the last text of each memory."""
        seed = chance.randrange(1 << 30)
        assert self._source.stdin is not None
        self._source.stdin.write(f"{home} {seed}\n")
        self._source.stdin.flush()
        ready, _, child = self._read_line().partition(" ")
        assert ready == "ready"
        until = time.monotonic() + chance.random() * 0.6
        while time.monotonic() < until:
            time.sleep(0.02)
            if files := list(home.glob("entries/default/facts/*.md")):
                _edit(chance.choice(files), f"edit {seed} {len(edits)} {chance.randrange(1 << 30)}", edits, chance)
        os.kill(int(child), signal.SIGKILL)
        assert self._read_line() == "ended"

    def _read_line(self) -> str:
        assert self._source.stdout is not None
        return self._source.stdout.readline().strip()


def _edit(path: Path, words: str, edits: dict[str, str], chance: random.Random) -> None:
    """Save a file as an editor does: in place, or by a rename."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return
    head, fence, _ = text.rpartition("---\n")
    if not fence:
        return
    id = text.partition("id: ")[2].partition("\n")[0]
    if chance.random() < 0.5:
        new = path.with_name(f".{chance.randrange(1 << 30)}.tmp")
        new.write_text(f"{head}{fence}{words}\n")
        if not path.exists():
            new.unlink()
            return
        os.replace(new, path)
    else:
        try:
            handle = os.open(path, os.O_WRONLY | os.O_TRUNC)
        except FileNotFoundError:
            return
        with os.fdopen(handle, "w") as file:
            file.write(f"{head}{fence}{words}\n")
    edits[id] = words


@dataclass(frozen=True, slots=True)
class Restart:
    """The time from the start of a process until files and ledger have converged.

    `start_s`, the start of Python with its imports, is measured by itself, and shows how busy the machine is.
    """

    start_s: float
    open_s: float
    sync_s: float

    @property
    def took_s(self) -> float:
        return self.start_s + self.open_s + self.sync_s

    @property
    def limit_s(self) -> float:
        """Return the limit, longer on a busy machine."""
        return CONVERGES_S * max(1.0, self.start_s / _STARTS_S)

    def __str__(self) -> str:
        parts = f"start {self.start_s:.2f}, open {self.open_s:.2f}, compare {self.sync_s:.2f}"
        return f"{self.took_s:.2f} s of {self.limit_s:.1f} s ({parts})"


async def check(home: Path, edits: Mapping[str, str], *, start_s: float) -> Restart:
    """Check that files and ledger agree and no edit is lost; return the times of the restart."""
    started = time.monotonic()
    async with mirrored_service(home) as opened:
        opened_at = time.monotonic()
        await opened.sync()
        took = Restart(start_s, opened_at - started, time.monotonic() - opened_at)
        count, differences = await opened.mirror.verify()
        assert not differences, differences[:5]
        assert count
        assert not opened.rejected()
        for id, words in edits.items():
            assert await _is_preserved(opened, id, words), (id, words)
        assert not _partial_files(home)
    return took


def _partial_files(home: Path) -> list[Path]:
    return [path for path in home.rglob(".recollect-*") if STATE_FOLDER not in path.parts]


async def _is_preserved(opened: MirroredService, id: str, words: str) -> bool:
    """Return whether a text is in the memory, its history or a file."""
    record = await opened.record(id)
    lines = await opened.service.history(Scope("default"), memory_id=id)
    messages = [record.content, *((line.before or {}).get("content") for line in lines)]
    if words in messages:
        return True
    return await asyncio.to_thread(lambda: any(words in path.read_text() for path in opened.root.rglob("*.md")))
