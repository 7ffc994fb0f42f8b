"""The stores that are measured at scale: what they need to run, and what they take."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from recollect.service import Service


class Store(Protocol):
    """One kind of store."""

    name: str

    def running(self, home: Path) -> Any:
        """What runs it, as a context that gives the settings for it."""
        ...

    async def settle(self, service: Service) -> None:
        """Wait until what was brought in is where it is searched."""
        ...

    async def disk_bytes(self, home: Path, service: Service) -> int:
        """How much disk it takes."""
        ...

    def memory(self) -> str:
        """What runs beside this process, and how much memory it takes."""
        ...


def _folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


class Sqlite:
    """One file, and the vectors of those who ask in memory."""

    name = "SQLite, exact search in memory"

    @asynccontextmanager
    async def running(self, home: Path) -> AsyncIterator[Mapping[str, Any]]:
        yield {}

    async def settle(self, service: Service) -> None:
        return None

    async def disk_bytes(self, home: Path, service: Service) -> int:
        return _folder_bytes(home)

    def memory(self) -> str:
        return ""


STORES: dict[str, Store] = {"sqlite": Sqlite()}
