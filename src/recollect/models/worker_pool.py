"""Run long work in threads in small pieces, so that it can be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

from recollect.errors import ModelUnavailable

Piece = TypeVar("Piece")
Done = TypeVar("Done")


class WorkerPool:
    """A thread pool that keeps the event loop free and uses at most `workers` cores.

    With `most_waiting`, new work is refused while more pieces than that wait: in a line longer than anyone's
    patience everyone would wait, and none be served.
    """

    def __init__(self, name: str, *, workers: int = 1, max_waiting: int | None = None) -> None:
        self._name = name
        self._max_waiting = max_waiting
        self._waiting = 0
        self._closed = Event()
        self._workers = ThreadPoolExecutor(max_workers=workers, thread_name_prefix=f"recollect-{name}")

    async def map(self, work: Callable[[Piece], Done], pieces: Sequence[Piece]) -> list[Done]:
        """Apply `work` to every piece, in order; after a cancellation no further piece is started.

        ModelUnavailable once it is closed, also for those who wait, or while too much work waits.
        """
        if self._max_waiting is not None and self._waiting > self._max_waiting:
            raise ModelUnavailable(f"the {self._name} is busy with {self._waiting} texts")
        if self._closed.is_set():
            raise self._closing()
        loop = asyncio.get_running_loop()
        futures = [loop.run_in_executor(self._workers, self._do, work, piece) for piece in pieces]
        self._waiting += len(pieces)
        try:
            return list(await asyncio.gather(*futures))
        finally:
            self._waiting -= len(pieces)
            for future in futures:
                future.cancel()

    def close(self) -> None:
        """Accept no more work, and end after the current pieces."""
        self._closed.set()
        # What waits in line is not cancelled: its turn comes at once, and its caller is told why it was not done.
        self._workers.shutdown(wait=False)

    def _do(self, work: Callable[[Piece], Done], piece: Piece) -> Done:
        if self._closed.is_set():
            raise self._closing()
        return work(piece)

    def _closing(self) -> ModelUnavailable:
        return ModelUnavailable(f"the {self._name} is closed")
