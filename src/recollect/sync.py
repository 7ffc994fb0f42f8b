"""Memory: the blocking face of AsyncMemory, without logic of its own.

It runs the async one on a thread with its own event loop, so it works in scripts, in notebooks and inside
someone else's running loop alike.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from recollect.api import AsyncMemory

if TYPE_CHECKING:
    from recollect.models.embedding import Embedder
    from recollect.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")
_BATCH = 200


def _blocking(
    method: Callable[Concatenate[AsyncMemory, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Memory, P], R]:
    """The same method, which returns when it is done."""

    @functools.wraps(method)
    def call(self: Memory, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(method(self._memory, *args, **kwargs))

    return call


def _iterating(
    method: Callable[Concatenate[AsyncMemory, P], AsyncIterator[R]],
) -> Callable[Concatenate[Memory, P], Iterator[R]]:
    """The same method, as an iterator."""

    @functools.wraps(method)
    def call(self: Memory, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        values = aiter(method(self._memory, *args, **kwargs))
        while batch := self._run(_next(values)):
            yield from batch

    return call


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run until stopped, then let go of everything the loop holds."""
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _next(values: AsyncIterator[R]) -> list[R]:
    """Some of the values: going from thread to thread for each one would cost more than the value."""
    batch: list[R] = []
    async for value in values:
        batch.append(value)
        if len(batch) >= _BATCH:
            break
    return batch


class Memory:
    """Long-term memory for the users of an application.

    `Memory()` keeps it in the default home, `Memory(home=path)` in a folder of yours,
    `Memory("postgresql://...")` in PostgreSQL. Close it when done, or use `with`.
    """

    def __init__(
        self,
        database: str | None = None,
        *,
        home: str | PathLike[str] | None = None,
        embedder: str | Embedder | None = None,
        preset: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._memory = AsyncMemory(database, home=home, embedder=embedder, preset=preset, settings=settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop or self._start()).result()

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="recollect-loop", daemon=True
                )
                self._thread.start()
        return self._loop

    def open(self) -> Self:
        """Open the ledger now rather than on first use, so that what is wrong with it shows here."""
        self._run(self._memory.open())
        return self

    def close(self) -> None:
        """Finish what is under way and let go of the ledger."""
        if self._loop is None:
            return
        try:
            self._run(self._memory.close())
        finally:
            loop, self._loop = self._loop, None
            loop.call_soon_threadsafe(loop.stop)
            if self._thread is not None:
                self._thread.join()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._memory.settings

    add = _blocking(AsyncMemory.add)
    remember = _blocking(AsyncMemory.remember)
    update = _blocking(AsyncMemory.update)
    delete = _blocking(AsyncMemory.delete)
    restore = _blocking(AsyncMemory.restore)
    delete_all = _blocking(AsyncMemory.delete_all)
    undo = _blocking(AsyncMemory.undo)
    search = _blocking(AsyncMemory.search)
    get = _blocking(AsyncMemory.get)
    get_all = _blocking(AsyncMemory.get_all)
    history = _blocking(AsyncMemory.history)
    turns = _blocking(AsyncMemory.turns)
    users = _blocking(AsyncMemory.users)
    export = _iterating(AsyncMemory.export)
    import_ = _blocking(AsyncMemory.import_)
    reembed = _blocking(AsyncMemory.reembed)
    stats = _blocking(AsyncMemory.stats)
