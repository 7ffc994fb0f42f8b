"""From the files to the ledger: what a person added, edited, renamed or deleted becomes a write like any other.

It is checked, redacted, embedded and told in history as a write through any door is. Whose it is, the folder says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from recollect.errors import Conflict, InvalidInput, NotFound, RecollectError, StaleVersion, Unavailable
from recollect.mirror.diff import ErasureLog, FileAction, MemoryContext, ScannedFile, decide_action
from recollect.mirror.document import MemoryDocument, document_of, parse_document, render_document
from recollect.mirror.layout import SUMMARY, FolderOwners, conflict_path, is_gone, role_of
from recollect.mirror.new_files import IngestContext, IngestReport, add_files, clear_tombstones
from recollect.mirror.state import ConflictFile, FileRow, reject_file
from recollect.mirror.to_files import digest_of, unwritten_row
from recollect.model.change import Actor, Author
from recollect.model.ids import new_id
from recollect.model.memory import MemoryRecord, Status
from recollect.model.scope import Scope
from recollect.model.times import now

_log = logging.getLogger("recollect")
AUTHOR_NAME = "mirror"
_PAGE_SIZE = 500
_MAX_TRIES = 5
# So many edits are handed to the ledger at once, which writes them together.
_MAX_CONCURRENT = 16
# What only the ledger says of a memory.
_READ_ONLY_FIELDS = ("status", "superseded_by", "prompt_digest", "level")
_EMPTY_VALUES: Mapping[str, Any] = {"tags": [], "evidence": [], "metadata": {}, "detail": {}, "source": ""}


class FileIngester:
    """Reads files into the ledger."""

    def __init__(self, context: IngestContext, owners: FolderOwners) -> None:
        self._context, self._owners = context, owners
        self._folder, self._state, self._ledger = context.folder, context.state, context.ledger

    async def ingest(self, paths: Sequence[str], *, missing: Sequence[FileRow] = ()) -> IngestReport:
        """Take in files that are new or not what they were, then let go of what is missing."""
        report = IngestReport()
        by = Author(AUTHOR_NAME, "file", batch=new_id(), actor=Actor.PERSON)
        erasures = ErasureLog(self._ledger)
        for start in range(0, len(paths), _PAGE_SIZE):
            files = await asyncio.to_thread(self._read_all, paths[start : start + _PAGE_SIZE], report)
            report.users |= {file.user for file in files}
            for user in dict.fromkeys(file.user for file in files):
                user_files = [file for file in files if file.user == user]
                await self._ingest_user(user, user_files, report, by=by, erasures=erasures)
        for row in missing:
            report.users.add(row.user)
            await self._forget_missing(row, report, by=by)
        return report

    def _read_all(self, paths: Iterable[str], report: IngestReport) -> list[ScannedFile]:
        files = []
        for path in paths:
            # Before it is read: what is written meanwhile is to be looked at again.
            stamp = self._folder.stamp(path)
            try:
                file = self._read(path)
            except FileNotFoundError:
                self._state.clear_rejected(path)
            except (InvalidInput, NotADirectoryError) as error:
                reject_file(path, str(error), stamp=stamp.text if stamp else "", state=self._state)
                report.bad += 1
            else:
                files += [file] if file is not None else []
        return files

    def _read(self, path: str) -> ScannedFile | None:
        location, user = self._owners.locate(path)
        if location is None:
            return None
        data, stamp, modified_s = self._folder.read(path)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise InvalidInput("it is not text in UTF-8") from None
        at = datetime.fromtimestamp(modified_s, UTC)
        document = parse_document(text, location, user=user, conversation=location.conversation, at=at)
        if (
            document.id is None
            and (row := self._state.row_at(path)) is not None
            and row.user == user
            and not row.is_gone
        ):
            # It lost its front matter, and is still the file of that memory.
            document = MemoryDocument({**document.line, "id": row.id})
        return ScannedFile(
            path=path, location=location, user=user, document=document, digest=digest_of(data), stamp=stamp.text
        )

    async def _ingest_user(
        self, user: str, files: Sequence[ScannedFile], report: IngestReport, *, by: Author, erasures: ErasureLog
    ) -> None:
        ids = [file.document.id for file in files if file.document.id is not None]
        records = {record.id: record for record in await self._ledger.get(Scope(user), ids)}
        new: list[tuple[ScannedFile, bool]] = []
        edits: dict[str | None, tuple[ScannedFile, MemoryContext]] = {}
        added_ids: set[str | None] = set()
        for file in files:
            if file.document.id in edits:
                # What this one is depends on what becomes of the other.
                await self._edit_all(user, list(edits.values()), report, by=by)
                edits = {}
            context = await self._load_context(file, records, erasures)
            action = decide_action(file, context)
            if action in (FileAction.ADD, FileAction.ADD_AS_NEW):
                new.append((file, action is FileAction.ADD_AS_NEW or file.document.id in added_ids))
                added_ids.add(file.document.id)
            elif action is FileAction.EDIT and not file.location.is_tombstone:
                edits[file.document.id] = (file, context)
            elif not file.location.is_tombstone:
                # What lies among the tombstones is looked at only to build a ledger anew.
                await self._apply_with_retry(file, context, action, report, by=by)
        await self._edit_all(user, list(edits.values()), report, by=by)
        if new:
            await add_files(user, new, report, context=self._context, by=by)
        added = {file.path for file, _ in new}
        tombstones = [file for file in files if file.location.is_tombstone and file.path not in added]
        await clear_tombstones(user, tombstones, report, context=self._context)

    async def _load_context(
        self, file: ScannedFile, records: Mapping[str, MemoryRecord], erasures: ErasureLog
    ) -> MemoryContext:
        id = file.document.id
        if id is None:
            return MemoryContext()
        row = await asyncio.to_thread(self._state.row, file.user, id)
        record = records.get(id)
        # One that lies among the tombstones as well is being put back, by a person or by us.
        has_other_file = (
            row is not None and row.path != file.path and not row.is_gone and not file.location.is_tombstone
        )
        has_other_file = has_other_file and row is not None and self._folder.stamp(row.path) is not None
        content = None
        if row is None and record is not None and record.version > file.document.version:
            content = await self._content_at(record, file.document.version)
        is_erased = record is None and await erasures.covers(file.user, file.document)
        return MemoryContext(
            record=record, row=row, has_other_file=has_other_file, is_erased=is_erased, earlier_content=content
        )

    async def _content_at(self, record: MemoryRecord, version: int) -> str | None:
        """What a memory said at an earlier version, as far as its history tells."""
        entries = await self._ledger.history(Scope(record.scope.user), memory_id=record.id, limit=1000)
        content = record.content
        for entry in entries:
            if entry.version <= version:
                return content
            content = (entry.before or {}).get("content", content)
        return content if entries else None

    async def _edit_all(
        self, user: str, edits: Sequence[tuple[ScannedFile, MemoryContext]], report: IngestReport, *, by: Author
    ) -> None:
        """Take in many edits as one: the ledger commits them together, and their files are written together."""
        done: list[tuple[ScannedFile, MemoryRecord]] = []
        failed: list[tuple[ScannedFile, MemoryContext, BaseException]] = []
        for start in range(0, len(edits), _MAX_CONCURRENT):
            batch = edits[start : start + _MAX_CONCURRENT]
            changing = [self._update_memory(file, context.record, report, by=by) for file, context in batch]
            results = await asyncio.gather(*changing, return_exceptions=True)
            for (file, context), result in zip(batch, results, strict=True):
                if isinstance(result, BaseException):
                    failed.append((file, context, result))
                else:
                    done.append((file, result))
        if done:
            await self._write_edited(user, done, report)
        for file, context, error in failed:
            if isinstance(error, StaleVersion):
                await self._apply_with_retry(file, context, FileAction.EDIT, report, by=by)
            else:
                await self._handle_error(file, error, report)

    async def _apply_with_retry(
        self, file: ScannedFile, context: MemoryContext, action: FileAction, report: IngestReport, *, by: Author
    ) -> None:
        for _ in range(_MAX_TRIES):
            try:
                await self._apply(file, context, action, report, by=by)
                return
            except StaleVersion:
                records = await self._ledger.get(Scope(file.user), [file.document.id or ""])
                context = replace(context, record=next(iter(records), None))
                action = decide_action(file, context)
            except RecollectError as error:
                await self._handle_error(file, error, report)
                return
        report.retry_paths.append(file.path)

    async def _handle_error(self, file: ScannedFile, error: BaseException, report: IngestReport) -> None:
        """What cannot be taken in now comes again; what cannot be taken in at all is left aside."""
        match error:
            case Unavailable():
                _log.warning("mirror: %s is taken in later: %s", file.path, error)
                report.retry_paths.append(file.path)
            case InvalidInput() | Conflict() | NotFound():
                await self._context.reject(file, str(error), report)
            case _:
                raise error

    async def _apply(
        self, file: ScannedFile, context: MemoryContext, action: FileAction, report: IngestReport, *, by: Author
    ) -> None:
        record = context.record
        if action is FileAction.ERASED or record is None:
            raise InvalidInput("what it says was erased: remove the file, or only its id to keep it as something new")
        match action:
            case FileAction.COPY:
                raise InvalidInput(f"it is a copy of the file of memory {record.id}: change its words, or remove it")
            case FileAction.UNCHANGED | FileAction.WRITE:
                is_same = not is_gone(record) and not file.document.changes(document_of(record))
                await self._record_rows([_file_row(file, record, version=record.version if is_same else 0)], report)
                await self._context.write(file.user, [record], report)
            case FileAction.EDIT:
                await self._edit(file, record, report, by=by)
            case FileAction.CONFLICT:
                await self._save_conflict(file, record, report)
                await self._edit(file, record, report, by=by)
            case FileAction.RESTORE:
                record = (await self._context.service.restore(Scope(file.user), record.id, by=by)).record
                report.restored += 1
                await self._edit(file, record, report, by=by)
            case FileAction.MOVE:
                before = report.added
                await add_files(file.user, [(file, True)], report, context=self._context, by=by)
                if report.added > before:
                    await self._context.service.forget(Scope(file.user), record.id, by=by, sources=False)

    async def _record_rows(self, rows: Sequence[FileRow], report: IngestReport) -> None:
        """Note how the files of memories stand."""

        def note() -> None:
            for row in rows:
                moved = self._state.row(row.user, row.id)
                report.paths += [row.path, *([moved.path] if moved is not None and moved.path != row.path else [])]
            self._state.put(rows)

        await asyncio.to_thread(note)

    async def _edit(self, file: ScannedFile, record: MemoryRecord, report: IngestReport, *, by: Author) -> None:
        record = await self._update_memory(file, record, report, by=by)
        await self._write_edited(file.user, [(file, record)], report)

    async def _update_memory(
        self, file: ScannedFile, record: MemoryRecord | None, report: IngestReport, *, by: Author
    ) -> MemoryRecord:
        """The memory with what a person wrote in its file."""
        if record is None:
            raise NotFound(f"there is no memory {file.document.id}")
        changes = file.document.changes(document_of(record))
        fields = {
            name: _EMPTY_VALUES.get(name) if value is None else value
            for name, value in changes.items()
            if name not in _READ_ONLY_FIELDS
        }
        if fields:
            service, expected = self._context.service, record.version
            outcome = await service.update(Scope(file.user), record.id, fields, by=by, expected_version=expected)
            record = outcome.record
            report.edited += 1
        if role_of(record) == SUMMARY and "content" in fields:
            await self._context.set_summary(record, by=by)
        return record

    async def _write_edited(
        self, user: str, edited: Sequence[tuple[ScannedFile, MemoryRecord]], report: IngestReport
    ) -> None:
        """Write files anew that a person edited: without secrets, and with their new versions."""
        # Still to be written, and yet known: what they write next comes after that, and is no conflict with it.
        rows = [_file_row(file, record, version=record.version, pending="") for file, record in edited]
        await self._record_rows(rows, report)
        await self._context.write(user, [record for _, record in edited], report)

    async def _save_conflict(self, file: ScannedFile, record: MemoryRecord, report: IngestReport) -> None:
        path, data = conflict_path(file.path, record.version), render_document(record).encode()

        def save() -> None:
            self._folder.write(path, data, expected=self._folder.stamp(path))
            self._folder.sync()
            self._state.add_conflict(ConflictFile(path, file.user, record.id, now().isoformat()))

        await asyncio.to_thread(save)
        report.conflicts += 1
        report.paths.append(path)
        _log.warning(
            "mirror: %s was edited while its memory changed: the edit stands, the other is in %s", file.path, path
        )

    async def _forget_missing(self, row: FileRow, report: IngestReport, *, by: Author) -> None:
        current = await asyncio.to_thread(self._state.row, row.user, row.id)
        if current is None or current.path != row.path or not row.stamp or self._folder.stamp(row.path) is not None:
            # It lies elsewhere by now, is there again, or never was.
            return
        if row.is_gone:
            await asyncio.to_thread(self._state.drop, [row])
            return
        try:
            records = await self._ledger.get(Scope(row.user), [row.id])
            if records and records[0].status is Status.ACTIVE:
                outcome = await self._context.service.forget(Scope(row.user), row.id, by=by)
                records = [outcome.record]
                report.forgotten += 1
        except Unavailable as error:
            _log.warning("mirror: the memory of %s is forgotten later: %s", row.path, error)
            report.retry_paths.append(row.path)
            return
        unwritten_file = unwritten_row(row.path, row.user, row.id)
        await asyncio.to_thread(self._state.put, [unwritten_file])
        report.writes.removed.append(row.path)
        if records:
            await self._context.write(row.user, records, report)
        else:
            await asyncio.to_thread(self._state.drop, [unwritten_file])


def _file_row(file: ScannedFile, record: MemoryRecord, *, version: int, pending: str | None = None) -> FileRow:
    return FileRow(
        path=file.path,
        user=file.user,
        id=record.id,
        version=version,
        digest=file.digest,
        stamp=file.stamp,
        pending=pending,
    )
