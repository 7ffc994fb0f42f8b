"""The part of the Python door by which memories move in and out as a whole."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.api_open import Opening

if TYPE_CHECKING:
    from recollect.ledger.sealed import Backup


class Moves(Opening):
    """Backups, and what is brought in from other products."""

    async def backup(
        self,
        path: str | PathLike[str],
        *,
        force: bool = False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Backup:
        """Write all there is at this moment to a file, while it is used; `force` replaces one that is there.

        Whatever was acknowledged before this was called is in it. Everyone's memories are, with their history, and
        what stands for the keys of the server: keep it as safe as the ledger.
        """
        service = await self._open()
        return await service.moving.backup(Path(path), force=force, told=progress)

    async def fill(
        self, path: str | PathLike[str], *, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        """Take in all that a backup holds; only an empty PostgreSQL database takes it (see `recollect.restoring`)."""
        service = await self._open()
        await service.moving.fill(Path(path), progress)
