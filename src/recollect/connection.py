"""The connection of a Python client to its service, which is opened once, on first use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recollect.errors import InvalidSettings, StoreUnavailable

if TYPE_CHECKING:
    from recollect.config.settings import Settings
    from recollect.models.embedding import Embedder
    from recollect.service.handle import ServiceHandle
    from recollect.service.service import Service

_MODEL_POLL_S = 0.05


class Connection:
    """The settings of a memory and its service, which is opened once, on first use."""

    def __init__(self, overrides: Mapping[str, Any], *, embedder: Embedder | None, settings: Settings | None) -> None:
        conflict = next((name for name, value in overrides.items() if value is not None), None)
        if settings is not None and conflict is not None:
            raise InvalidSettings(f"give either settings or {conflict}: settings include a {conflict}")
        self._overrides = overrides
        self._embedder = embedder
        self._settings = settings
        self._handle: ServiceHandle | None = None
        self._lock: asyncio.Lock | None = None
        self.is_closed = False

    @property
    def settings(self) -> Settings:
        if self._settings is None:
            from recollect.config.settings import load

            self._settings = load(self._overrides).settings
        return self._settings

    def check_open(self) -> None:
        """Raise `StoreUnavailable` if the memory was closed."""
        if self.is_closed:
            raise StoreUnavailable("this memory is closed; open it again with open()")

    async def service(self) -> Service:
        """Return the service of the embedding model that the ledger uses; open it if it is not open yet."""
        self.check_open()
        if self._handle is not None:
            return await self._handle.current()
        from recollect.service.handle import ServiceHandle

        async with self._opening():
            self.check_open()
            if self._handle is None:
                handle = ServiceHandle(self._open_service)
                await handle.open()
                self._handle = handle
        return self._handle.get()

    async def watch_model(self) -> None:
        """Replace the service in the background when the ledger changes to another embedding model."""
        await self.service()
        if self._handle is not None:
            self._handle.watch()

    async def wait_for_model(self) -> None:
        """Wait until the service uses the embedding model of the ledger."""
        service = await self.service()
        migration = service.embedding_migration
        while self._handle is not None and migration is not None and await migration.has_moved():
            await self._handle.refresh()
            if self._handle.get() is not service:
                return
            await asyncio.sleep(_MODEL_POLL_S)

    async def close(self) -> None:
        """Close the service, if it is open."""
        self.is_closed = True
        async with self._opening():
            handle, self._handle = self._handle, None
            # A lock is bound to the loop that first waited for it, and the next opening may be in another.
            self._lock = None
        if handle is not None:
            await handle.close()

    def _opening(self) -> asyncio.Lock:
        self._lock = self._lock or asyncio.Lock()
        return self._lock

    async def _open_service(self) -> Service:
        from recollect.wiring import open_service

        return await open_service(self.settings, embedder=self._embedder)
