"""The part of the Python door by which memories move in and out as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.api_open import _ServiceAccess
from recollect.model.asked import parse_author

if TYPE_CHECKING:
    from recollect.ledger.sealed import Backup
    from recollect.movein.terms import ImportReport


class _TransferMixin(_ServiceAccess):
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
        return await service.transfer.backup(Path(path), force=force, progress=progress)

    async def import_from(
        self,
        source: str | PathLike[str],
        *,
        user_id: str | None = None,
        kind: str = "auto",
        of: Iterable[str] = (),
        everyone: bool = False,
        project_id: str | None = None,
        learn: bool = False,
        dry_run: bool = False,
        token: str | None = None,
        by: str = "import",
        progress: Callable[[int], None] = lambda done: None,
    ) -> ImportReport:
        """Bring in what another product keeps: a file, a folder, a zip archive, an API or a database.

        All of it becomes `user_id`'s; without one it stays with the users whom the source names, of those in `of`, or
        of `everyone`. `dry_run` writes nothing and tells what would be. Doing it again changes nothing.
        """
        from recollect.movein.source import ImportSource
        from recollect.movein.terms import ImportOptions

        service, author = await self._open(), parse_author(by)
        options = ImportOptions(
            user=user_id, of=frozenset(of), everyone=everyone, project=project_id, learn=learn, dry_run=dry_run
        )
        import_source = ImportSource(str(source), {"of": sorted(options.of), "token": token})
        return await service.transfer.import_from(import_source, options, kind=kind, by=author, progress=progress)
