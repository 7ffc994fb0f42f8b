"""`ServiceHandle`: the current service of a client or a server.

A server starts although its store does not answer, and the handle opens the service once it does. A service uses one
embedding model, so that vectors of two models are never compared: when the ledger changes to another model, the
handle opens another service. Callers finish on the old one, which runs no more jobs and is closed later, when its
long-running callers are done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from time import monotonic

from recollect.aio.background import BackgroundTask
from recollect.errors import DiskFull, ModelUnavailable, RecollectError, StoreUnavailable, Unavailable
from recollect.observability.tracing import format_traceback
from recollect.service.service import Service

_log = logging.getLogger("recollect")
# How often the ledger is checked for another embedding model.
CHECK_INTERVAL_S = 1.0
# Longer than requests on the old service take; those that may take longer count as a use of it.
CLOSE_DELAY_S = 300.0
_WARM_UP_QUERY = "What did I say?"
# How long a start waits for a store or a model on the network, which may hang, and for files, which do not hang but
# take longer to open on a slow machine.
NETWORK_START_S = 2.0
_START_S = 60.0
_FIRST_RETRY_S = 0.2
_MAX_RETRY_S = 2.0


class ServiceHandle:
    """Open a service by `open_service`, and replace it; `on_open` is called with each service in use."""

    def __init__(
        self,
        open_service: Callable[[], Awaitable[Service]],
        *,
        on_open: Callable[[Service], None] = lambda service: None,
    ) -> None:
        self._open_service = open_service
        self._on_open = on_open
        self._service: Service | None = None
        self._unavailable: Unavailable = StoreUnavailable("The ledger is being opened; retry")
        self._checked_at = monotonic()
        self._old: list[tuple[float, Service]] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._is_refreshing = self._closed = False
        self._watch_task = BackgroundTask(self._watch)
        self._open_task: asyncio.Task[None] | None = None

    def get(self) -> Service:
        """Return the current service, or raise the reason why it is unavailable."""
        if self._service is None:
            # A new exception each time, because a raised one collects tracebacks.
            raise type(self._unavailable)(str(self._unavailable))
        return self._service

    async def open(self) -> None:
        self._service = await self._open_service()
        self._checked_at = monotonic()
        self._on_open(self._service)

    async def start(self, *, remote_store: bool, remote_model: bool) -> None:
        """Open the service and watch its embedding model; retry in the background what a retry may solve.

        That is a database server or an embedder that does not answer, or a full disk. Raise any other error.
        """
        first_attempt: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open_task = asyncio.create_task(self._open_with_retries(first_attempt, remote_store=remote_store))
        wait_s = NETWORK_START_S if remote_store or remote_model else _START_S
        await asyncio.wait([first_attempt], timeout=wait_s)
        if first_attempt.done():
            first_attempt.result()
        else:
            first_attempt.cancel()

    async def _open_with_retries(self, first_attempt: asyncio.Future[None], *, remote_store: bool) -> None:
        retry_s = _FIRST_RETRY_S
        while self._service is None:
            try:
                await self.open()
            except Exception as error:
                may_pass = isinstance(error, Unavailable if remote_store else DiskFull | ModelUnavailable)
                if may_pass and str(error) != str(self._unavailable):
                    _log.warning("chats are served without memory for now: %s", error)
                self._unavailable = error if isinstance(error, Unavailable) else StoreUnavailable(str(error))
                if not may_pass:
                    if not first_attempt.done():
                        first_attempt.set_exception(error)
                    else:
                        _log.error("the ledger cannot be opened, and a retry does not help: %s", error)
                    return
            if not first_attempt.done():
                first_attempt.set_result(None)
            if self._service is None:
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, _MAX_RETRY_S)
        self.watch()
        _log.info("the ledger is open")

    async def current(self) -> Service:
        """Return the current service; the embedding model is checked at most once a second."""
        if monotonic() - self._checked_at >= CHECK_INTERVAL_S and not self._watch_task.is_running:
            await self.refresh()
        return self.get()

    def watch(self) -> None:
        """Check in the background from now on, until this is closed."""
        self._watch_task.start()

    async def refresh(self) -> None:
        """Replace the service if the ledger uses another model; errors are retried at the next check."""
        if self._is_refreshing:
            # Another caller does it; the old service answers meanwhile.
            return
        self._is_refreshing, self._checked_at = True, monotonic()
        try:
            await self._close_old()
            service = self.get()
            change = service.embedding_migration
            if change is not None and await change.has_moved():
                await self._replace(service)
        except RecollectError as error:
            _log.debug("the embedding model of the ledger could not be checked: %s", error)
        finally:
            self._is_refreshing = False

    async def _replace(self, old: Service) -> None:
        fresh = await self._open_service()
        try:
            # Load a lazily loaded model before a request waits for it.
            await fresh.embed_queries([_WARM_UP_QUERY])
        except BaseException:
            await fresh.close()
            raise
        if self._closed:
            await fresh.close()
            return
        if old.jobs.worker.is_running:
            fresh.jobs.start()
        self._service = fresh
        self._on_open(fresh)
        self._old.append((monotonic() + CLOSE_DELAY_S, old))
        # The new one takes its jobs over; this waits for running ones.
        closing = asyncio.create_task(old.stop_work())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        _log.info("memories are searched with the embedding model %s from now on", fresh.model)

    async def _close_old(self) -> None:
        due = [old for until, old in self._old if until <= monotonic() and not old.use_count]
        self._old = [(until, old) for until, old in self._old if old not in due]
        for old in due:
            await old.close()

    async def _watch(self) -> None:
        while True:
            change = self.get().embedding_migration
            try:
                async with asyncio.timeout(CHECK_INTERVAL_S):
                    await (change.moved.wait() if change else asyncio.sleep(CHECK_INTERVAL_S))
                if change is not None:
                    change.moved.clear()
            except TimeoutError:
                pass
            try:
                await self.refresh()
            except Exception as error:
                _log.error("the service could not be replaced, and that is retried. %s", format_traceback(error))
                await asyncio.sleep(CHECK_INTERVAL_S)

    async def close(self) -> None:
        """Close the service and earlier ones, or stop opening it."""
        self._closed = True
        if self._open_task is not None:
            self._open_task.cancel()
            await asyncio.wait([self._open_task])
        await self._watch_task.stop()
        if closing := [task for task in self._closing if task.get_loop() is asyncio.get_running_loop()]:
            await asyncio.wait(closing)
        async with AsyncExitStack() as parts:
            for _, old in self._old:
                parts.push_async_callback(old.close)
            self._old = []
            if self._service is not None:
                parts.push_async_callback(self._service.close)
