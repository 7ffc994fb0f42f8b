"""The service of a server, which starts although its store is unavailable and opens it once it answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fastapi import Request

from recollect.config.settings import Settings
from recollect.errors import DiskFull, ModelUnavailable, StoreUnavailable, Unavailable
from recollect.service.handle import ServiceHandle
from recollect.service.learning_models import LearningModels
from recollect.service.service import Service
from recollect.wiring import open_service

_log = logging.getLogger("recollect")
# How long a start waits for errors of the store, which may hang.
_START_S = 2.0
# A file does not hang; on a slow machine it takes longer to open.
_START_FILE_S = 60.0
_FIRST_DELAY_S = 0.2
_MAX_DELAY_S = 2.0


class ServiceProvider:
    """Opens the service, and holds the reason why it is unavailable until then.

    It retries while a database server or an embedder does not answer or the disk is full. A file that cannot be
    opened and invalid settings are errors of the start.
    """

    def __init__(
        self, settings: Settings, *, on_open: Callable[[Service], None], models: LearningModels | None = None
    ) -> None:
        self._settings, self._on_open, self._models = settings, on_open, models
        self._handle: ServiceHandle | None = None
        self._reason: Unavailable = StoreUnavailable("The ledger is being opened; retry")
        self._open_task: asyncio.Task[None] | None = None

    def get(self) -> Service:
        """Return the service, or raise the reason why it is unavailable."""
        if self._handle is None:
            # A new exception each time, because a raised one collects tracebacks.
            raise type(self._reason)(str(self._reason))
        return self._handle.service

    async def start(self) -> None:
        """Open the service, or raise an error that a retry does not solve; retry others in the background."""
        first_attempt: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open_task = asyncio.create_task(self._open(first_attempt))
        await asyncio.wait([first_attempt], timeout=_START_S if self._needs_network() else _START_FILE_S)
        if first_attempt.done():
            first_attempt.result()
        else:
            first_attempt.cancel()

    def _needs_network(self) -> bool:
        """Whether opening needs a database server, or a model that may have to be downloaded."""
        return "://" in self._settings.database or self._settings.embedder != "bundled"

    async def _open(self, first_attempt: asyncio.Future[None]) -> None:
        wait_s = _FIRST_DELAY_S
        while self._handle is None:
            try:
                self._handle = ServiceHandle(await self._open_service(), self._open_service, on_open=self._on_open)
            except Unavailable as error:
                if not self._is_retryable(error):
                    self._give_up(error, first_attempt)
                    return
                if str(error) != str(self._reason):
                    _log.warning("chats are served without memory for now: %s", error)
                self._reason = error
            except Exception as error:
                self._give_up(error, first_attempt)
                return
            if not first_attempt.done():
                first_attempt.set_result(None)
            if self._handle is None:
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, _MAX_DELAY_S)
        self._on_open(self._handle.service)
        self._handle.watch()
        _log.info("the ledger is open")

    async def _open_service(self) -> Service:
        return await open_service(self._settings, models=self._models)

    def _give_up(self, error: Exception, first_attempt: asyncio.Future[None]) -> None:
        if not first_attempt.done():
            first_attempt.set_exception(error)
            return
        _log.error("the ledger cannot be opened, and a retry does not help: %s", error)
        self._reason = error if isinstance(error, Unavailable) else StoreUnavailable(str(error))

    def _is_retryable(self, error: Unavailable) -> bool:
        return isinstance(error, (DiskFull, ModelUnavailable)) or "://" in self._settings.database

    async def close(self) -> None:
        """Close the service, or stop opening it."""
        if self._open_task is not None:
            self._open_task.cancel()
            await asyncio.wait([self._open_task])
        if self._handle is not None:
            await self._handle.close()


def get_service(request: Request) -> Service:
    """Return the service of a request's application; Unavailable while it is not open."""
    provider: ServiceProvider = request.app.state.service_provider
    return provider.get()
