"""`Memory`, the blocking facade of `AsyncMemory`, without logic of its own.

It runs `AsyncMemory` in a thread with its own event loop, so it works in scripts, in notebooks and inside a running
loop.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from copy import copy
from os import PathLike
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from recollect.client import AsyncMemory
from recollect.errors import InvalidInput, StoreUnavailable
from recollect.model.arguments import RecordFields, parse_author
from recollect.model.change import Actor, Author, Outcome
from recollect.model.result import RememberResult
from recollect.namespaces import (
    DEFAULT_AUTHOR,
    AsyncAdmin,
    AsyncErasure,
    AsyncFiles,
    AsyncJobs,
    AsyncKeys,
    AsyncReviews,
    AsyncSessions,
)

if TYPE_CHECKING:
    from recollect.config.settings import Settings
    from recollect.models.embedding import Embedder


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_BATCH = 200
# How long running calls may take to end when the memory is closed.
_GRACE_S = 1.0
JOIN_TIMEOUT_S = 10.0
# Memories of a parent process, kept open in a forked child: closing them there would harm the parent's.
_parent_memories: list[AsyncMemory] = []


class BlockingFacade(Generic[T]):
    """The blocking counterpart of an asynchronous object of type `T`."""

    def _run(self, call: Callable[[T], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine with the asynchronous object in the loop thread, and return its result."""
        raise NotImplementedError


def _blocking(
    method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingFacade[T], P], R]:
    """Return a coroutine method as a blocking one with the same parameters."""

    @functools.wraps(method)
    def call(self: BlockingFacade[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(lambda target: method(target, *args, **kwargs))

    return call


async def _next_batch(values: AsyncIterator[R]) -> list[R]:
    """Return the next values: one thread switch per value would cost more than the value."""
    batch: list[R] = []
    async for value in values:
        batch.append(value)
        if len(batch) >= _BATCH:
            break
    return batch


def _iterating(
    method: Callable[Concatenate[AsyncMemory, P], AsyncIterator[R]],
) -> Callable[Concatenate[Memory, P], Iterator[R]]:
    """Return a method that yields asynchronously as an iterator."""

    @functools.wraps(method)
    def call(self: Memory, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        async def start(memory: AsyncMemory) -> AsyncIterator[R]:
            return aiter(method(memory, *args, **kwargs))

        values = self._run(start)
        while batch := self._run(lambda _: _next_batch(values)):
            yield from batch

    return call


class _LoopThread:
    """An `AsyncMemory` and the thread whose event loop runs it; a forked child starts with new ones."""

    def __init__(self, make: Callable[[], AsyncMemory]) -> None:
        self._make = make
        self._reset()

    def _reset(self) -> None:
        self._memory = self._make()
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._submit_lock = threading.Lock()
        self._open_lock = threading.RLock()

    @property
    def memory(self) -> AsyncMemory:
        """The memory of this process."""
        if os.getpid() != self._process:
            # Threads and connections do not survive a fork.
            _parent_memories.append(self._memory)
            self._reset()
        return self._memory

    def run(self, call: Callable[[AsyncMemory], Coroutine[Any, Any, R]], *, opens: bool = False) -> R:
        """Run a coroutine in the loop and return its result."""
        memory = self.memory
        self._check_thread()
        with self._submit_lock:
            # Checked here, because a closed memory has no loop.
            if not opens:
                memory._connection.check_open()
            future = asyncio.run_coroutine_threadsafe(call(memory), self._loop or self._start())
        try:
            return future.result()
        except CancelledError:
            raise StoreUnavailable("the memory was closed before the call finished") from None

    def open(self) -> None:
        """Open the memory; if that fails, stop the thread."""
        self._check_thread()
        memory = self.memory
        with self._open_lock:
            try:
                self.run(lambda _: memory.open(), opens=True)
            except BaseException:
                self._stop()
                raise

    def close(self) -> None:
        """Close the memory and stop the thread."""
        if sys.is_finalizing():
            # The thread does not run any more; acknowledged writes are on disk.
            return
        memory = self.memory
        self._check_thread()
        with self._open_lock:
            try:
                if self._loop is not None:
                    self.run(lambda _: memory.close(), opens=True)
            finally:
                self._stop()

    def _check_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise InvalidInput(
                "a Memory cannot wait for itself: code that it calls, such as an embedder, must use another Memory"
            )

    def _start(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run_loop, args=(self._loop,), name="recollect-loop", daemon=True)
        self._thread.start()
        return self._loop

    def _stop(self) -> None:
        # Nothing is submitted to the loop after this, and earlier calls precede its end.
        with self._submit_lock:
            self._memory._connection.is_closed = True
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            # With a timeout, because the thread waits for its other threads, one of which may be the caller.
            thread.join(JOIN_TIMEOUT_S)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped, then release its resources."""
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(_end_tasks())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _end_tasks() -> None:
    """Give running tasks a moment to end, then cancel them."""
    late = asyncio.all_tasks() - {asyncio.current_task()}
    if late:
        _, late = await asyncio.wait(late, timeout=_GRACE_S)
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=_GRACE_S)


class Namespace(BlockingFacade[T]):
    """A group of operations of one memory."""

    def __init__(self, memory: Memory, get: Callable[[AsyncMemory], T]) -> None:
        self._memory = memory
        self._get = get

    def _run(self, call: Callable[[T], Coroutine[Any, Any, R]]) -> R:
        return self._memory._run(lambda memory: call(self._get(memory)))


class Jobs(Namespace[AsyncJobs]):
    """Background work: list, replay, cancel, run."""

    get = _blocking(AsyncJobs.get)
    list = _blocking(AsyncJobs.list)
    replay = _blocking(AsyncJobs.replay)
    cancel = _blocking(AsyncJobs.cancel)
    run_pending = _blocking(AsyncJobs.run_pending)
    start_worker = _blocking(AsyncJobs.start_worker)


class Sessions(Namespace[AsyncSessions]):
    """Conversations: list, read their turns, end."""

    list = _blocking(AsyncSessions.list)
    turns = _blocking(AsyncSessions.turns)
    end = _blocking(AsyncSessions.end)
    end_run = _blocking(AsyncSessions.end_run)


class Reviews(Namespace[AsyncReviews]):
    """Memories that a person has to approve before they are used."""

    list = _blocking(AsyncReviews.list)
    propose = _blocking(AsyncReviews.propose)
    approve = _blocking(AsyncReviews.approve)
    reject = _blocking(AsyncReviews.reject)
    edit = _blocking(AsyncReviews.edit)


class Erasures(Namespace[AsyncErasure]):
    """Permanent removal, with receipts."""

    erase = _blocking(AsyncErasure.erase)
    list = _blocking(AsyncErasure.list)
    replay = _blocking(AsyncErasure.replay)


class Keys(Namespace[AsyncKeys]):
    """API keys of the server."""

    create = _blocking(AsyncKeys.create)
    list = _blocking(AsyncKeys.list)
    revoke = _blocking(AsyncKeys.revoke)


class Files(Namespace[AsyncFiles]):
    """Files under /memories, as written by models with a memory tool."""

    run = _blocking(AsyncFiles.run)
    clear = _blocking(AsyncFiles.clear)


class Admin(Namespace[AsyncAdmin]):
    """The store as a whole: users, statistics, cost, maintenance, backup, imports, embedding models."""

    users = _blocking(AsyncAdmin.users)
    stats = _blocking(AsyncAdmin.stats)
    usage = _blocking(AsyncAdmin.usage)
    spent_today = _blocking(AsyncAdmin.spent_today)
    maintain = _blocking(AsyncAdmin.maintain)
    backup = _blocking(AsyncAdmin.backup)
    backups = _blocking(AsyncAdmin.backups)
    import_from = _blocking(AsyncAdmin.import_from)
    embedding_models = _blocking(AsyncAdmin.embedding_models)
    reembed = _blocking(AsyncAdmin.reembed)


class Memory(BlockingFacade[AsyncMemory]):
    """Long-term memory for the users of an application.

    `Memory()` stores it in the default home, `Memory(home=path)` in another folder, `Memory("postgresql://...")` in
    PostgreSQL. It opens on first use; close it, or use `with`. Further operations are in the namespaces `admin`,
    `erasure`, `files`, `jobs`, `keys`, `reviews` and `sessions`.
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
        make = functools.partial(
            AsyncMemory, database, home=home, embedder=embedder, preset=preset, settings=settings
        )
        self._loop_thread = _LoopThread(make)
        self._bind(DEFAULT_AUTHOR)

    def _bind(self, author: Author) -> None:
        self._author = author
        self.admin = Admin(self, lambda memory: memory.admin)
        self.erasure = Erasures(self, lambda memory: memory.erasure)
        self.files = Files(self, lambda memory: memory.files)
        self.jobs = Jobs(self, lambda memory: memory.jobs)
        self.keys = Keys(self, lambda memory: memory.keys)
        self.reviews = Reviews(self, lambda memory: memory.reviews)
        self.sessions = Sessions(self, lambda memory: memory.sessions)

    def open(self) -> Self:
        """Open the store now instead of on first use, so that problems show here."""
        self._loop_thread.open()
        return self

    def close(self) -> None:
        """Finish running work and close the store."""
        self._loop_thread.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, call: Callable[[AsyncMemory], Coroutine[Any, Any, R]]) -> R:
        author = self._author
        if author is DEFAULT_AUTHOR:
            return self._loop_thread.run(call)
        return self._loop_thread.run(
            lambda memory: call(memory.acting_as(author.who, why=author.why, actor=author.actor))
        )

    def acting_as(self, name: str, *, why: str = "", actor: Actor | str = Actor.AGENT) -> Self:
        """Return this memory with an author: `name` and `why` appear in the history of its changes."""
        view = copy(self)
        view._bind(parse_author(name, why, actor=actor))
        return view

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._loop_thread.memory.settings

    if TYPE_CHECKING:
        # A ParamSpec cannot carry the overloads of `AsyncMemory.add`.
        @overload
        def add(
            self,
            content: str | None = None,
            *,
            user_id: str,
            project_id: str | None = None,
            session_id: str | None = None,
            correction: bool = False,
            embedding: Sequence[float] | None = None,
            idempotency_key: str | None = None,
            **fields: Unpack[RecordFields],
        ) -> Outcome: ...

        @overload
        def add(
            self,
            content: Mapping[str, Any] | Sequence[Mapping[str, Any]],
            *,
            user_id: str,
            project_id: str | None = None,
            session_id: str | None = None,
        ) -> RememberResult: ...

        def add(self, content: Any = None, **arguments: Any) -> Any: ...

    else:
        add = _blocking(AsyncMemory.add)

    remember = _blocking(AsyncMemory.remember)
    search = _blocking(AsyncMemory.search)
    recall = _blocking(AsyncMemory.recall)
    get = _blocking(AsyncMemory.get)
    get_all = _blocking(AsyncMemory.get_all)
    update = _blocking(AsyncMemory.update)
    delete = _blocking(AsyncMemory.delete)
    delete_all = _blocking(AsyncMemory.delete_all)
    restore = _blocking(AsyncMemory.restore)
    history = _blocking(AsyncMemory.history)
    undo = _blocking(AsyncMemory.undo)
    graph = _blocking(AsyncMemory.graph)
    export = _iterating(AsyncMemory.export)
    import_ = _blocking(AsyncMemory.import_)
