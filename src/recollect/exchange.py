"""The service in use: when the ledger has gone over to another embedding model, a new one takes its place.

A service and all its parts are of one model, so vectors of two never meet. Who was given the old service goes on with
it: it takes no more jobs, and is closed a while later, when whoever takes long is done with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from time import monotonic

from recollect.errors import RecollectError
from recollect.model.background import BackgroundTask
from recollect.model.faults import traced_fault
from recollect.service import Service

_log = logging.getLogger("recollect")
# How often the ledger is asked which model it searches.
LOOK_EVERY_S = 1.0
# Longer than requests take that were begun on the old service; what may take longer says that it is in use.
LINGER_S = 300.0
_ASKED = "What did I say?"


class Exchange:
    """Holds a service, and exchanges it for one that `reopen` gives."""

    def __init__(
        self,
        service: Service,
        reopen: Callable[[], Awaitable[Service]],
        *,
        on_open: Callable[[Service], None] = lambda service: None,
        linger_s: float = LINGER_S,
    ) -> None:
        self.service = service
        self._reopen = reopen
        self._on_open = on_open
        self._linger_s = linger_s
        self._looked_at = monotonic()
        self._old: list[tuple[float, Service]] = []
        self._resting: set[asyncio.Task[None]] = set()
        self._looking = self._closed = False
        self._watching = BackgroundTask(self._watch)

    async def current(self) -> Service:
        """The service to use now; the ledger is asked at most every second whether it is still the right one."""
        if monotonic() - self._looked_at >= LOOK_EVERY_S and not self._watching.is_running:
            await self.look()
        return self.service

    def watch(self) -> None:
        """Look by itself from now on, until this is closed."""
        self._watching.start()

    async def look(self) -> None:
        """Exchange the service if the ledger searches another model by now; what is away is asked again later."""
        if self._looking:
            # Whoever does it is not waited for: the old service answers as well.
            return
        self._looking, self._looked_at = True, monotonic()
        try:
            await self._close_old()
            change = self.service.care.model_change
            if change is not None and await change.has_moved():
                await self._exchange()
        except RecollectError as error:
            _log.debug("which model is searched could not be looked up: %s", error)
        finally:
            self._looking = False

    async def _exchange(self) -> None:
        fresh, old = await self._reopen(), self.service
        try:
            # A model that is loaded by its first use is loaded before anyone waits for it.
            await fresh.care.vectors_of([_ASKED])
        except BaseException:
            await fresh.close()
            raise
        if self._closed:
            await fresh.close()
            return
        if old.care.worker.is_running:
            fresh.care.start()
        self.service = fresh
        self._on_open(fresh)
        self._old.append((monotonic() + self._linger_s, old))
        # Its jobs are left to the new one; this waits for those under way.
        resting = asyncio.create_task(old.care.close())
        self._resting.add(resting)
        resting.add_done_callback(self._resting.discard)
        _log.info("memories are searched by %s from now on", fresh.model)

    async def _close_old(self) -> None:
        due = [old for until, old in self._old if until <= monotonic() and not old.uses]
        self._old = [(until, old) for until, old in self._old if old not in due]
        for old in due:
            await old.close()

    async def _watch(self) -> None:
        while True:
            change = self.service.care.model_change
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await (change.moved.wait() if change else asyncio.sleep(LOOK_EVERY_S))
                if change is not None:
                    change.moved.clear()
            except TimeoutError:
                pass
            try:
                await self.look()
            except Exception as error:
                _log.error("the service could not be exchanged, and that is tried again. %s", traced_fault(error))
                await asyncio.sleep(LOOK_EVERY_S)

    async def close(self) -> None:
        """Close the service, and those before it."""
        self._closed = True
        await self._watching.stop()
        if resting := [task for task in self._resting if task.get_loop() is asyncio.get_running_loop()]:
            await asyncio.wait(resting)
        async with AsyncExitStack() as parts:
            for _, old in self._old:
                parts.push_async_callback(old.close)
            self._old = []
            parts.push_async_callback(self.service.close)
