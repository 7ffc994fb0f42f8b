"""`ServiceHandle`: the current service, replaced when the ledger changes to another embedding model.

A service uses one embedding model, so that vectors of two models are never compared. Callers finish on the old
service, which runs no more jobs and is closed later, when its long-running callers are done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from time import monotonic

from recollect.aio.background import BackgroundTask
from recollect.errors import RecollectError
from recollect.observability.logs import format_traceback
from recollect.service.service import Service

_log = logging.getLogger("recollect")
# How often the ledger is checked for another embedding model.
CHECK_INTERVAL_S = 1.0
# Longer than requests on the old service take; those that may take longer count as a use of it.
CLOSE_DELAY_S = 300.0
_WARM_UP_QUERY = "What did I say?"


class ServiceHandle:
    """Hold a service, and replace it with the result of `reopen`."""

    def __init__(
        self,
        service: Service,
        reopen: Callable[[], Awaitable[Service]],
        *,
        on_open: Callable[[Service], None] = lambda service: None,
        close_delay_s: float = CLOSE_DELAY_S,
    ) -> None:
        self.service = service
        self._reopen = reopen
        self._on_open = on_open
        self._close_delay_s = close_delay_s
        self._checked_at = monotonic()
        self._old: list[tuple[float, Service]] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._is_refreshing = self._closed = False
        self._watch_task = BackgroundTask(self._watch)

    async def current(self) -> Service:
        """Return the current service; the embedding model is checked at most once a second."""
        if monotonic() - self._checked_at >= CHECK_INTERVAL_S and not self._watch_task.is_running:
            await self.refresh()
        return self.service

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
            change = self.service.embedding_migration
            if change is not None and await change.has_moved():
                await self._replace()
        except RecollectError as error:
            _log.debug("the embedding model of the ledger could not be checked: %s", error)
        finally:
            self._is_refreshing = False

    async def _replace(self) -> None:
        fresh, old = await self._reopen(), self.service
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
        self.service = fresh
        self._on_open(fresh)
        self._old.append((monotonic() + self._close_delay_s, old))
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
            change = self.service.embedding_migration
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
        """Close the service and earlier ones."""
        self._closed = True
        await self._watch_task.stop()
        if closing := [task for task in self._closing if task.get_loop() is asyncio.get_running_loop()]:
            await asyncio.wait(closing)
        async with AsyncExitStack() as parts:
            for _, old in self._old:
                parts.push_async_callback(old.close)
            self._old = []
            parts.push_async_callback(self.service.close)
