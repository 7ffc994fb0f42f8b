"""How a memory is opened and closed: on first use, once, whoever asks first."""

from __future__ import annotations

import asyncio
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Self

from recollect.errors import InvalidSettings, StoreUnavailable

if TYPE_CHECKING:
    from recollect.exchange import ServiceHandle
    from recollect.models.embedding import Embedder
    from recollect.service import Service
    from recollect.settings import Settings

_HANDLE_POLL_S = 0.05


class _ServiceAccess:
    """Where a memory is kept, and the service behind it."""

    def __init__(
        self,
        database: str | None = None,
        *,
        home: str | PathLike[str] | None = None,
        embedder: str | Embedder | None = None,
        preset: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        embedder_name = embedder if isinstance(embedder, str) else None
        self._overrides = {"database": database, "home": home, "preset": preset, "embedder": embedder_name}
        self._embedder = None if isinstance(embedder, str) else embedder
        self._settings = settings
        if settings is not None and any(value is not None for value in self._overrides.values()):
            override = next(name for name, value in self._overrides.items() if value is not None)
            raise InvalidSettings(f"give either settings or {override}: settings hold a {override} of their own")
        self._handle: ServiceHandle | None = None
        self._open_lock: asyncio.Lock | None = None
        self._closed = False

    async def open(self) -> Self:
        """Open the ledger now rather than on first use, so that what is wrong with it shows here."""
        self._closed = False
        await self._open()
        return self

    async def close(self) -> None:
        """Finish what is under way and let go of the ledger."""
        self._closed = True
        async with self._lock():
            handle, self._handle = self._handle, None
            # A lock belongs to the loop it was waited for in, and the next opening may be in another.
            self._open_lock = None
        if handle is not None:
            await handle.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        if self._settings is None:
            from recollect.settings import load

            self._settings = load(self._overrides).settings
        return self._settings

    @property
    def _service(self) -> Service | None:
        """The service, if it is open."""
        return self._handle.service if self._handle else None

    def _lock(self) -> asyncio.Lock:
        self._open_lock = self._open_lock or asyncio.Lock()
        return self._open_lock

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("this memory is closed; open it again with open()")

    async def _open(self) -> Service:
        self._check_open()
        if self._handle is not None:
            return await self._handle.current()
        from recollect.exchange import ServiceHandle

        async with self._lock():
            self._check_open()
            if self._handle is None:
                self._handle = ServiceHandle(await self._reopen(), self._reopen)
        return self._handle.service

    async def _reopen(self) -> Service:
        from recollect.wiring import open_service

        return await open_service(self.settings, embedder=self._embedder)

    async def _watch_model(self) -> None:
        """Have the service exchanged by itself when the ledger goes over to another model, with no call coming in."""
        await self._open()
        if self._handle is not None:
            self._handle.watch()

    async def _current_service(self) -> Service:
        """The service, exchanged if it is of a model that the ledger no longer searches."""
        service = await self._open()
        change = service.operations.embedding_migration
        while self._handle is not None and change is not None and await change.has_moved():
            await self._handle.refresh()
            if self._handle.service is not service:
                return self._handle.service
            await asyncio.sleep(_HANDLE_POLL_S)
        return service
