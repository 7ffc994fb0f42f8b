"""Memory: the blocking face of AsyncMemory, without logic of its own.

It runs the async one on a thread with its own event loop, so it works in scripts, in notebooks and inside
someone else's running loop alike.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from recollect.client import AsyncMemory
from recollect.errors import InvalidInput, StoreUnavailable

if TYPE_CHECKING:
    from recollect.config.settings import Settings
    from recollect.models.embedding import Embedder


P = ParamSpec("P")
R = TypeVar("R")
_BATCH = 200
# How long what is under way may take to end when the memory is closed.
_GRACE_S = 1.0
_JOIN_S = 10.0
# What a process had open when it forked, in the child: closing it there would harm the parent's.
_parent_memories: list[AsyncMemory] = []


def _blocking(
    method: Callable[Concatenate[AsyncMemory, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Memory, P], R]:
    """The same method, which returns when it is done."""

    @functools.wraps(method)
    def call(self: Memory, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(lambda memory: method(memory, *args, **kwargs))

    return call


def _iterating(
    method: Callable[Concatenate[AsyncMemory, P], AsyncIterator[R]],
) -> Callable[Concatenate[Memory, P], Iterator[R]]:
    """The same method, as an iterator."""

    @functools.wraps(method)
    def call(self: Memory, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        self._check_process()
        values = aiter(method(self._memory, *args, **kwargs))
        while batch := self._run(lambda _: _next_batch(values)):
            yield from batch

    return call


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run until stopped, then let go of everything the loop holds."""
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(_end_tasks())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _end_tasks() -> None:
    """Give what is under way a moment to end; whoever still waits after that is told that it is over."""
    late = asyncio.all_tasks() - {asyncio.current_task()}
    if late:
        _, late = await asyncio.wait(late, timeout=_GRACE_S)
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=_GRACE_S)


async def _next_batch(values: AsyncIterator[R]) -> list[R]:
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
        self._make = functools.partial(
            AsyncMemory, database, home=home, embedder=embedder, preset=preset, settings=settings
        )
        self._reset()

    def _reset(self) -> None:
        self._memory = self._make()
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._submit_lock = threading.Lock()
        self._open_lock = threading.RLock()

    def _check_process(self) -> None:
        """Threads and connections stay behind in the parent when a process forks, so the child begins anew."""
        if os.getpid() != self._process:
            _parent_memories.append(self._memory)
            self._reset()

    def _run(self, call: Callable[[AsyncMemory], Coroutine[Any, Any, R]], *, opens: bool = False) -> R:
        self._check_process()
        self._check_thread()
        with self._submit_lock:
            # Not asked on the loop: it is gone once the memory is closed.
            if not opens:
                self._memory._check_open()
            work = asyncio.run_coroutine_threadsafe(call(self._memory), self._loop or self._start())
        try:
            return work.result()
        except CancelledError:
            raise StoreUnavailable("this memory was closed before that was done") from None

    def _check_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise InvalidInput(
                "a Memory cannot wait for itself: what it calls while it works, such as an embedder, "
                "may not call it; use another Memory there"
            )

    def _start(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run_loop, args=(self._loop,), name="recollect-loop", daemon=True)
        self._thread.start()
        return self._loop

    def open(self) -> Self:
        """Open the ledger now rather than on first use, so that what is wrong with it shows here."""
        self._check_process()
        self._check_thread()
        with self._open_lock:
            try:
                self._run(AsyncMemory.open, opens=True)
            except BaseException:
                # What could not be opened leaves no thread behind; opening it again is another try.
                self._stop()
                raise
        return self

    def close(self) -> None:
        """Finish what is under way and let go of the ledger."""
        if sys.is_finalizing():
            # The thread that would do it stands still by now; what was acknowledged is on disk.
            return
        self._check_process()
        self._check_thread()
        with self._open_lock:
            try:
                if self._loop is not None:
                    self._run(AsyncMemory.close, opens=True)
            finally:
                self._stop()

    def _stop(self) -> None:
        # After this nothing more is sent to the loop, and what was sent before comes before its end.
        with self._submit_lock:
            self._memory._closed = True
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            # Not for ever: it waits for its other threads, of which the caller may be one.
            thread.join(_JOIN_S)

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
    recall = _blocking(AsyncMemory.recall)
    get = _blocking(AsyncMemory.get)
    get_all = _blocking(AsyncMemory.get_all)
    history = _blocking(AsyncMemory.history)
    turns = _blocking(AsyncMemory.turns)
    users = _blocking(AsyncMemory.users)
    export = _iterating(AsyncMemory.export)
    import_ = _blocking(AsyncMemory.import_)
    backup = _blocking(AsyncMemory.backup)
    import_from = _blocking(AsyncMemory.import_from)
    embedding_models = _blocking(AsyncMemory.embedding_models)
    reembed = _blocking(AsyncMemory.reembed)
    stats = _blocking(AsyncMemory.stats)
    end_session = _blocking(AsyncMemory.end_session)
    end_run = _blocking(AsyncMemory.end_run)
    sessions = _blocking(AsyncMemory.sessions)
    job = _blocking(AsyncMemory.job)
    jobs = _blocking(AsyncMemory.jobs)
    replay_jobs = _blocking(AsyncMemory.replay_jobs)
    cancel_jobs = _blocking(AsyncMemory.cancel_jobs)
    work = _blocking(AsyncMemory.work)
    erase = _blocking(AsyncMemory.erase)
    erasures = _blocking(AsyncMemory.erasures)
    replay_erasures = _blocking(AsyncMemory.replay_erasures)
    usage = _blocking(AsyncMemory.usage)
    spent_today = _blocking(AsyncMemory.spent_today)
    add_key = _blocking(AsyncMemory.add_key)
    keys = _blocking(AsyncMemory.keys)
    revoke_key = _blocking(AsyncMemory.revoke_key)
    propose = _blocking(AsyncMemory.propose)
    reviews = _blocking(AsyncMemory.reviews)
    approve = _blocking(AsyncMemory.approve)
    reject = _blocking(AsyncMemory.reject)
    edit_review = _blocking(AsyncMemory.edit_review)
    upkeep = _blocking(AsyncMemory.upkeep)
