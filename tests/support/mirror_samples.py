"""Helpers for tests of the mirror: a real service with a real folder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from recollect.config.settings import load
from recollect.errors import StoreUnavailable
from recollect.mirror.mirror import Mirror
from recollect.mirror.state import MirrorState, SyncResult
from recollect.model.change import Author, Outcome
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.remember import MemoryInput
from recollect.service.service import Service
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.wiring import open_service

BY = Author("test")
HOME = Scope("default", "default", "default")
T = TypeVar("T")


class MirroredService:
    """A service with its mirror and folder."""

    def __init__(self, service: Service, root: Path) -> None:
        self.service, self.root = service, root

    @property
    def mirror(self) -> Mirror:
        assert isinstance(self.service.mirror, Mirror)
        return self.service.mirror

    async def sync(self) -> SyncResult:
        return await self.mirror.sync()

    async def add(self, content: str, scope: Scope = HOME, **fields: Any) -> Outcome:
        return await self.service.add(scope, MemoryInput(content=content, fields=fields), by=BY)

    async def record(self, id: str, user: str = "default") -> MemoryRecord:
        return await self.service.get(Scope(user), id)

    async def all(self, user: str = "default", *statuses: Status) -> list[MemoryRecord]:
        listing = Listing(statuses=statuses or (Status.ACTIVE,), order="oldest", limit=1000)
        return list(await self.service.find(Scope(user), listing))

    async def words(self, user: str = "default") -> set[str]:
        return {record.content for record in await self.all(user)}

    def files(self, pattern: str = "entries/**/*.md") -> list[Path]:
        """Return the files without tombstones."""
        return sorted(path for path in self.root.glob(pattern) if "deleted" not in path.parts)

    def tombstones(self) -> list[Path]:
        return sorted(self.root.glob("entries/deleted/**/*.md"))

    def file(self, word: str) -> Path:
        """Return the only file that contains a word."""
        plain = [path for path in self.files("**/*.md") if path.is_file() and not path.is_symlink()]
        [path] = [path for path in plain if word in path.read_text() and "conflicts" not in path.parts]
        return path

    def conflicts(self) -> list[Path]:
        return sorted(self.root.glob("conflicts/**/*.md"))

    def rejected(self) -> dict[str, str]:
        """Return the reasons of rejected files by file name."""
        state = MirrorState(self.root / ".recollect" / "mirror.db", read_only=True)
        try:
            return {Path(bad.path).name: bad.reason for bad in state.rejected.all()}
        finally:
            state.close()


@asynccontextmanager
async def mirrored_service(home: Path, **settings: Any) -> AsyncIterator[MirroredService]:
    """Open a service whose mirror synchronises when `sync` is called."""
    chosen = {"home": home, "mirror": ".", "worker": False, **settings}
    loaded = load(chosen, environ={}).settings
    service = await open_service(loaded, embedder=FakeEmbedder())
    try:
        yield MirroredService(service, home / loaded.mirror)
    finally:
        await service.close()


@asynccontextmanager
async def watched(home: Path, **settings: Any) -> AsyncIterator[MirroredService]:
    """Open a service that watches its folder."""
    async with mirrored_service(home, **settings) as opened:
        opened.mirror.start()
        await until(lambda: _is_up_to_date(opened))
        yield opened


def _is_up_to_date(opened: MirroredService) -> bool:
    path = opened.root / ".recollect" / "mirror.db"
    if not path.exists():
        return False
    state = MirrorState(path, read_only=True)
    try:
        return state.meta("synced_at") is not None
    except StoreUnavailable:
        # It is just being created.
        return False
    finally:
        state.close()


def lose_ledger(home: Path) -> None:
    for path in home.glob("recollect.db*"):
        path.unlink()


async def until(condition: Callable[[], T | Awaitable[T]], *, within_s: float = 30.0) -> T:
    """Wait until a condition is true, and return its value."""
    deadline = time.monotonic() + within_s
    while True:
        result = condition()
        value: Any = await result if isinstance(result, Awaitable) else result
        if value or time.monotonic() > deadline:
            assert value, f"the condition was not true within {within_s} s"
            return value
        await asyncio.sleep(0.01)


def front_matter(path: Path) -> dict[str, Any]:
    """Return the front matter of a file."""
    _, block, _ = path.read_text().split("---\n", 2)
    fields: dict[str, Any] = yaml.safe_load(block)
    return fields


def body(path: Path) -> str:
    return path.read_text().split("---\n", 2)[2].strip()
