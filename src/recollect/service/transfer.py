"""Export, import and backup of whole stores."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.aio.background import UseCount
from recollect.deps import Deps
from recollect.errors import InvalidInput, QuotaReached, RecollectError, StoreUnavailable
from recollect.ledger.ledger import read_pages
from recollect.model.change import Author
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.transfer import export
from recollect.transfer.import_ import ImportCounts, RecordWriter
from recollect.write.redact import Redactor
from recollect.write.write_quota import WriteQuota

if TYPE_CHECKING:
    from recollect.ledger.backup_file import Backup
    from recollect.model.change import Vector
    from recollect.transfer.importers.items import ImportOptions, ImportReport
    from recollect.transfer.importers.source import ImportSource

__all__ = ["Backup", "ImportCounts", "ImportReport", "TransferService"]

_log = logging.getLogger(__name__)
_PAGE_SIZE = 500
# The maintenance time by which the mirror recognises its ledger.
_LEDGER_ID = "mirrored"


class TransferService:
    """Export, import, back up and restore."""

    def __init__(self, deps: Deps, redactor: Redactor, write_quota: WriteQuota, use_count: UseCount) -> None:
        self._ledger, self._embedder = deps.ledger, deps.embedder
        self._redactor, self._write_quota, self._use_count = redactor, write_quota, use_count

    async def export(
        self, scope: Scope, *, sessions: bool = True, embeddings: bool = False
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the memories of the scope and the state of its sessions as plain values."""
        model = self._embedder.model if embeddings else None
        with self._use_count.track():
            async for line in export.export(scope, ledger=self._ledger, sessions=sessions, model=model):
                yield line

    async def records(self, user: str) -> AsyncIterator[Sequence[MemoryRecord]]:
        """Yield all memories of a user in pages, oldest first, whatever their status."""
        listing = Listing(statuses=tuple(Status), order="oldest", limit=_PAGE_SIZE)
        async for page in read_pages(self._ledger, Scope(user), listing):
            yield page.records

    async def ledger_id(self) -> str:
        """Return the time that identifies the ledger; it is set when first needed."""
        times = await self._ledger.maintenance_times()
        if _LEDGER_ID not in times:
            await self._ledger.record_maintenance_times({_LEDGER_ID: now()})
            times = await self._ledger.maintenance_times()
        return times[_LEDGER_ID].isoformat()

    def _writer(self, by: Author) -> RecordWriter:
        return RecordWriter(
            ledger=self._ledger, embedder=self._embedder, redactor=self._redactor, quota=self._write_quota, by=by
        )

    async def import_lines(
        self, lines: Iterable[Mapping[str, Any]], *, user: str | None, done: int, by: Author
    ) -> ImportCounts:
        """Add the missing records of an export, without secrets.

        An error names its line, counted from `done`. Vectors are used if they are of the current embedding model and
        of the text as stored.
        """
        parsed = await export.parse_lines(lines, model=self._embedder.model, user=user, done=done)
        try:
            counts = await self.import_records(parsed.records, by=by, vectors=parsed.vectors)
        except QuotaReached as error:
            raise QuotaReached(f"{error}; the {done:,} lines before are imported, those after are not") from None
        for session in parsed.sessions:
            await export.import_session(session, self._writer(by))
        for owner, tombstones in parsed.tombstones:
            await self._ledger.put_tombstones(owner, tombstones)
        return counts

    async def import_records(
        self, records: Sequence[MemoryRecord], *, by: Author, vectors: Mapping[str, Vector] | None = None
    ) -> ImportCounts:
        """Add missing records, without secrets; `vectors` are of the given texts."""
        writer, texts = self._writer(by), {record.id: record.content for record in records}
        sifted = await writer.drop_existing(records)
        unchanged = {record.id for record in sifted.new if record.content == texts[record.id]}
        usable = {id: vector for id, vector in (vectors or {}).items() if id in unchanged}
        counts = ImportCounts(present=sifted.present, redacted=sifted.redacted)
        return counts + await writer.add(sifted.new, vectors=usable)

    async def backup(self, path: Path, *, force: bool, progress: Callable[[int, int], None]) -> Backup:
        """Write a consistent backup; the file appears only when it is complete."""
        from recollect.ledger.backup_file import remove_database_files

        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            await asyncio.to_thread(_create_part_file, part, path, force=force)
            with self._use_count.track():
                backup = await self._ledger.backup(part, progress)
            await asyncio.to_thread(publish_file, part, path)
        except OSError as error:
            raise StoreUnavailable(f"the backup cannot be written to {path}: {error.strerror or error}") from error
        finally:
            await asyncio.to_thread(remove_database_files, part)
        made = replace(backup, path=path)
        try:
            file = await asyncio.to_thread(path.absolute)
            await self._ledger.note_backup({**made.to_dict(), "file": str(file)})
        except RecollectError as error:
            # It is made; a ledger on a full disk cannot list it.
            _log.warning("the backup %s is not listed: %s", path, error)
        return made

    async def backups(self) -> list[dict[str, Any]]:
        """Return the newest backups, newest first: what `backup` returned, and whether the file is still there."""
        listed = await self._ledger.backups()
        return await asyncio.to_thread(lambda: [{**each, "exists": Path(each["file"]).is_file()} for each in listed])

    async def import_from(
        self, source: ImportSource, options: ImportOptions, *, kind: str, by: Author, progress: Callable[[int], None]
    ) -> ImportReport:
        """Import the data of another product; a dry run only reports the counts."""
        from recollect.transfer.importers.run import run_import

        with self._use_count.track():
            return await run_import(source, options, self._writer(by), kind=kind, progress=progress)

    async def restore_into(self, path: Path, progress: Callable[[int, int], None]) -> None:
        """Restore a backup into an empty ledger."""
        await self._ledger.restore_backup(path, progress)


def _create_part_file(part: Path, path: Path, *, force: bool) -> None:
    if path.exists() and not (force and path.is_file()):
        raise InvalidInput(f"{path} exists; choose another name, or use force to replace it")
    # Readable by its owner only, from the first byte on.
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def publish_file(part: Path, path: Path) -> None:
    """Rename a finished file, durable after a power failure."""
    for each in (part, None):
        if each is None:
            os.replace(part, path)
        handle = os.open(each or path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
