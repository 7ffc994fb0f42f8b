"""A service that may be opened late: the server starts while its store is away, and opens it once that answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fastapi import Request

from recollect.errors import DiskFull, ModelUnavailable, StoreUnavailable, Unavailable
from recollect.exchange import Exchange
from recollect.learning_model import LearningModels
from recollect.service import Service
from recollect.settings import Settings
from recollect.wiring import open_service

_log = logging.getLogger("recollect")
# Who starts a server wants to know at once what is wrong, but not to wait for a store that hangs.
_START_S = 2.0
# A file hangs for nobody: on a slow machine it only takes longer to say what is wrong with it.
_FILE_S = 60.0
_FIRST_S = 0.2
_MOST_S = 2.0


class LateService:
    """The service of a server, or the reason why there is none yet.

    What waiting can help with is waited for: a database server or an embedder that does not answer, a full disk. A
    file that cannot be opened, or settings that are wrong, are errors of the start.
    """

    def __init__(
        self, settings: Settings, *, on_open: Callable[[Service], None], models: LearningModels | None = None
    ) -> None:
        self._settings, self._on_open, self._models = settings, on_open, models
        self._exchange: Exchange | None = None
        self._why: Unavailable = StoreUnavailable("the ledger is being opened; try again")
        self._opening: asyncio.Task[None] | None = None

    def get(self) -> Service:
        """The service, or the Unavailable that keeps it from being opened."""
        if self._exchange is None:
            # A new one each time, or it would gather the traces of all who saw it.
            raise type(self._why)(str(self._why))
        return self._exchange.service

    async def start(self) -> None:
        """Open it, or raise what no waiting helps with; if the store is away, go on trying behind."""
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._opening = asyncio.create_task(self._open(first))
        await asyncio.wait([first], timeout=_START_S if self._asks_elsewhere() else _FILE_S)
        if first.done():
            first.result()
        else:
            first.cancel()

    def _asks_elsewhere(self) -> bool:
        """Whether it takes more than files that are here: a server, or a model that may have to be fetched."""
        return "://" in self._settings.database or self._settings.embedder != "bundled"

    async def _open(self, first: asyncio.Future[None]) -> None:
        wait_s = _FIRST_S
        while self._exchange is None:
            try:
                self._exchange = Exchange(await self._reopen(), self._reopen, on_open=self._on_open)
            except Unavailable as error:
                if not self._can_wait(error):
                    self._give_up(error, first)
                    return
                if str(error) != str(self._why):
                    _log.warning("chats go on without memory for now: %s", error)
                self._why = error
            except Exception as error:
                self._give_up(error, first)
                return
            if not first.done():
                first.set_result(None)
            if self._exchange is None:
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, _MOST_S)
        self._on_open(self._exchange.service)
        self._exchange.watch()
        _log.info("the ledger is open")

    async def _reopen(self) -> Service:
        return await open_service(self._settings, models=self._models)

    def _give_up(self, error: Exception, first: asyncio.Future[None]) -> None:
        if not first.done():
            first.set_exception(error)
            return
        _log.error("the ledger cannot be opened, and trying again does not help: %s", error)
        self._why = error if isinstance(error, Unavailable) else StoreUnavailable(str(error))

    def _can_wait(self, error: Unavailable) -> bool:
        return isinstance(error, (DiskFull, ModelUnavailable)) or "://" in self._settings.database

    async def close(self) -> None:
        """Close what was opened, or stop trying."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._exchange is not None:
            await self._exchange.close()


def service_of(request: Request) -> Service:
    """The service behind a request; while it is not open, the request is answered with the reason."""
    late: LateService = request.app.state.late
    return late.get()
