"""How fast this machine tells of a changed file just now: what the mirror's own pace is held against."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from watchfiles import watch

from recollect.model.scope import Scope
from tests.support.mirror_samples import MirroredService

WITHIN_S = 2.0
# What a bare reaction takes, at most, on a machine that does nothing else.
_USUAL_S = 0.25
_OTHER = Scope("someone else")


class Pace:
    """A watcher with no mirror behind it: it is told of a file, and writes one memory."""

    def __init__(self, folder: Path, mirror: MirroredService) -> None:
        self._folder, self._mirror = folder, mirror
        self._loop, self._seen = asyncio.get_running_loop(), asyncio.Event()
        self._stop, self._count = threading.Event(), 0
        self._thread = threading.Thread(target=self._watch)

    async def begin(self) -> None:
        self._thread.start()
        while not self._seen.is_set():
            # It does not say since when it watches.
            await asyncio.to_thread(self._touch)
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    def _watch(self) -> None:
        for _ in watch(self._folder, debounce=100, step=10, rust_timeout=100, stop_event=self._stop):
            self._loop.call_soon_threadsafe(self._seen.set)

    def _touch(self) -> None:
        self._count += 1
        (self._folder / "touched").write_text(str(self._count))

    async def limit_s(self) -> float:
        """How long an edit may take to become a write on this machine as it is now."""
        started = time.monotonic()
        self._seen.clear()
        await asyncio.to_thread(self._touch)
        await self._seen.wait()
        await self._mirror.add(f"touched {self._count}", _OTHER)
        return WITHIN_S * max(1.0, (time.monotonic() - started) / _USUAL_S)


@asynccontextmanager
async def paced(folder: Path, mirror: MirroredService) -> AsyncIterator[Pace]:
    """The pace of the machine, told from a folder that is nobody's."""
    await asyncio.to_thread(folder.mkdir)
    pace = Pace(folder, mirror)
    await pace.begin()
    try:
        yield pace
    finally:
        await pace.end()
