"""Read files into the ledger: what a person added, edited, renamed or deleted becomes a write like any other.

It is validated, redacted, embedded and recorded in history. The folder determines the user.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from recollect.errors import Conflict, InvalidInput, NotFound, RecollectError, StaleVersion, Unavailable
from recollect.mirror.document import (
    FileAction,
    MemoryContext,
    MemoryDocument,
    ScannedFile,
    decide_action,
    document_of,
    is_erased,
    read_file,
    render_document,
)
from recollect.mirror.folder import MirrorFolder
from recollect.mirror.layout import SUMMARY, FolderOwners, conflict_path, is_gone, role_of
from recollect.mirror.state import ConflictFile, FileRow, MirrorState, SyncResult
from recollect.mirror.to_files import FileWriter
from recollect.model.change import Actor, Author
from recollect.model.erasure import Erasure
from recollect.model.ids import new_id
from recollect.model.memory import MemoryRecord, Status, Trust
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.service.service import Service
from recollect.transfer.import_ import parse_record

_log = logging.getLogger("recollect")
AUTHOR_NAME = "mirror"
_PAGE_SIZE = 500
_MAX_HISTORY = 1000
_MAX_TRIES = 5
# The number of concurrent edits, which the ledger commits together.
_MAX_CONCURRENT = 16
# Only the ledger sets these.
_READ_ONLY_FIELDS = ("status", "superseded_by", "prompt_digest", "level")
_EMPTY_VALUES: Mapping[str, Any] = {"tags": [], "evidence": [], "metadata": {}, "detail": {}, "source": ""}


@dataclass(slots=True)
class _Ingest:
    """One call: its result, its author, the paths to retry, and the erasures, which are loaded on first use."""

    result: SyncResult
    erasures: Sequence[Erasure] | None = None
    by: Author = field(default_factory=lambda: Author(AUTHOR_NAME, "file", batch=new_id(), actor=Actor.PERSON))
    retry_paths: set[str] = field(default_factory=set)


class FileIngester:
    """Reads files into the ledger."""

    def __init__(
        self,
        folder: MirrorFolder,
        state: MirrorState,
        writer: FileWriter,
        owners: FolderOwners,
        *,
        service: Service,
    ) -> None:
        self._folder, self._state, self._writer, self._owners = folder, state, writer, owners
        self._service = service

    async def ingest(self, paths: Sequence[str], result: SyncResult, *, missing: Sequence[FileRow] = ()) -> set[str]:
        """Ingest new and changed files, then forget the memories of missing ones; return the paths to retry."""
        work = _Ingest(result)
        for start in range(0, len(paths), _PAGE_SIZE):
            files = await asyncio.to_thread(self._read_all, paths[start : start + _PAGE_SIZE], work)
            for user in dict.fromkeys(file.user for file in files):
                result.users.add(user)
                await self._ingest_user(user, [file for file in files if file.user == user], work)
        for row in missing:
            result.users.add(row.user)
            await self._forget_missing(row, work)
        return work.retry_paths

    def _read_all(self, paths: Iterable[str], work: _Ingest) -> list[ScannedFile]:
        files = []
        for path in paths:
            # Before it is read, so that a change in the meantime is noticed.
            stamp = self._folder.stamp(path)
            try:
                row = self._state.files.get(path)
                file = read_file(path, self._folder, self._owners, written=row.stamp if row is not None else "")
            except FileNotFoundError:
                self._state.rejected.drop(path)
            except (InvalidInput, NotADirectoryError) as error:
                self._state.reject(path, str(error), stamp=stamp)
                work.result.bad += 1
            else:
                files.append(self._with_existing_id(file))
        return files

    def _with_existing_id(self, file: ScannedFile) -> ScannedFile:
        """Return the file with the id of the memory at its path if it lost its front matter."""
        row = self._state.files.get(file.path) if file.document.id is None else None
        if row is None or row.user != file.user or row.is_gone:
            return file
        return replace(file, document=MemoryDocument({**file.document.line, "id": row.id}))

    async def _ingest_user(self, user: str, files: Sequence[ScannedFile], work: _Ingest) -> None:
        ids = [file.document.id for file in files if file.document.id is not None]
        records = {record.id: record for record in await self._service.get_many(user, ids)}
        new: list[tuple[ScannedFile, bool]] = []
        edits: dict[str | None, tuple[ScannedFile, MemoryContext]] = {}
        added_ids: set[str | None] = set()
        for file in files:
            if file.document.id in edits:
                # The action for this file depends on the result of the other edit.
                await self._edit_all(user, list(edits.values()), work)
                edits = {}
            context = await self._load_context(file, records, work)
            action = decide_action(file, context)
            if action in (FileAction.ADD, FileAction.ADD_AS_NEW):
                new.append((file, action is FileAction.ADD_AS_NEW or file.document.id in added_ids))
                added_ids.add(file.document.id)
            elif file.location.is_tombstone:
                # Tombstones are only read to rebuild a ledger.
                continue
            elif action is FileAction.EDIT:
                edits[file.document.id] = (file, context)
            else:
                await self._apply_with_retry(file, context, action, work)
        await self._edit_all(user, list(edits.values()), work)
        await self._add_files(user, new, work)
        added = {file.path for file, _ in new}
        await self._clear_tombstones(
            user, [file for file in files if file.location.is_tombstone and file.path not in added], work
        )

    async def _load_context(
        self, file: ScannedFile, records: Mapping[str, MemoryRecord], work: _Ingest
    ) -> MemoryContext:
        id = file.document.id
        if id is None:
            return MemoryContext()
        row, record = await asyncio.to_thread(self._state.row, file.user, id), records.get(id)
        # A file that has a tombstone too is being restored, by a person or by the mirror.
        may_have_other = row is not None and row.path != file.path and not (row.is_gone or file.location.is_tombstone)
        content = None
        if row is None and record is not None and record.version > file.document.version:
            past = await self._past_contents(record)
            content = next((text for version, text in past if version <= file.document.version), None)
        if record is None and work.erasures is None:
            work.erasures = await self._service.erasure.list()
        return MemoryContext(
            record=record,
            row=row,
            has_other_file=may_have_other and row is not None and bool(self._folder.stamp(row.path)),
            is_erased=record is None and is_erased(file.document, file.user, work.erasures or ()),
            earlier_content=content,
        )

    async def _past_contents(self, record: MemoryRecord) -> list[tuple[int, str]]:
        """Return the contents of a memory and the version of each, newest first, as far as its history goes back."""
        contents, content = [], record.content
        for entry in await self._service.history(Scope(record.scope.user), memory_id=record.id, limit=_MAX_HISTORY):
            contents.append((entry.version, content))
            content = (entry.before or {}).get("content", content)
        return [*contents, (0, content)] if contents else []

    # Changed files

    async def _edit_all(self, user: str, edits: Sequence[tuple[ScannedFile, MemoryContext]], work: _Ingest) -> None:
        """Apply many edits concurrently: the ledger commits them together, and their files are written together."""
        outcomes: list[MemoryRecord | BaseException] = []
        for start in range(0, len(edits), _MAX_CONCURRENT):
            batch = edits[start : start + _MAX_CONCURRENT]
            updates = (self._update_memory(file, context.record, work) for file, context in batch)
            outcomes += await asyncio.gather(*updates, return_exceptions=True)
        pairs = list(zip(edits, outcomes, strict=True))
        if done := [(file, outcome) for (file, _), outcome in pairs if isinstance(outcome, MemoryRecord)]:
            await self._write_edited(user, done, work)
        for (file, context), outcome in pairs:
            if isinstance(outcome, StaleVersion):
                await self._apply_with_retry(file, context, FileAction.EDIT, work)
            elif isinstance(outcome, BaseException):
                await self._handle_error(file, outcome, work)

    async def _apply_with_retry(
        self, file: ScannedFile, context: MemoryContext, action: FileAction, work: _Ingest
    ) -> None:
        for _ in range(_MAX_TRIES):
            try:
                await self._apply(file, context, action, work)
                return
            except StaleVersion:
                records = await self._service.get_many(file.user, [file.document.id or ""])
                context = replace(context, record=next(iter(records), None))
                action = decide_action(file, context)
            except RecollectError as error:
                await self._handle_error(file, error, work)
                return
        work.retry_paths.add(file.path)

    async def _handle_error(self, file: ScannedFile, error: BaseException, work: _Ingest) -> None:
        """Retry a file later if the ledger is unavailable, and reject one that is invalid."""
        match error:
            case Unavailable():
                _log.warning("mirror: %s is ingested later: %s", file.path, error)
                work.retry_paths.add(file.path)
            case InvalidInput() | Conflict() | NotFound():
                await self._reject(file, str(error), work)
            case _:
                raise error

    async def _reject(self, file: ScannedFile, reason: str, work: _Ingest) -> None:
        await asyncio.to_thread(self._state.reject, file.path, reason, stamp=file.stamp)
        work.result.bad += 1

    async def _apply(self, file: ScannedFile, context: MemoryContext, action: FileAction, work: _Ingest) -> None:
        record, scope = context.record, Scope(file.user)
        if action is FileAction.ERASED or record is None:
            raise InvalidInput("what it says was erased: remove the file, or only its id to keep it as something new")
        match action:
            case FileAction.COPY:
                raise InvalidInput(f"it is a copy of the file of memory {record.id}: change its words, or remove it")
            case FileAction.UNCHANGED | FileAction.WRITE:
                is_same = not is_gone(record) and not file.document.changes(document_of(record))
                await self._record_rows([_file_row(file, record.id, record.version if is_same else 0)], work)
                await self._write(file.user, [record], work)
            case FileAction.EDIT:
                await self._edit(file, record, work)
            case FileAction.CONFLICT:
                await self._save_conflict(file, record, work)
                await self._edit(file, record, work)
            case FileAction.RESTORE:
                record = (await self._service.restore(scope, record.id, by=work.by)).record
                work.result.restored += 1
                await self._edit(file, record, work)
            case FileAction.MOVE:
                before = work.result.added
                await self._add_files(file.user, [(file, True)], work)
                if work.result.added > before:
                    await self._service.forget(scope, record.id, by=work.by, sources=False)

    async def _write(self, user: str, records: Sequence[MemoryRecord], work: _Ingest, *, force: bool = False) -> None:
        changed = await asyncio.to_thread(self._writer.write_records, user, records, work.result, force=force)
        work.retry_paths.update(changed)

    async def _record_rows(self, rows: Sequence[FileRow], work: _Ingest) -> None:
        """Record the state of ingested files, and note their old paths as changed too."""

        def record() -> None:
            for row in rows:
                old = self._state.row(row.user, row.id)
                work.result.ingested += [row.path, *([old.path] if old is not None and old.path != row.path else [])]
            self._state.put(rows)

        await asyncio.to_thread(record)

    async def _edit(self, file: ScannedFile, record: MemoryRecord, work: _Ingest) -> None:
        await self._write_edited(file.user, [(file, await self._update_memory(file, record, work))], work)

    async def _update_memory(self, file: ScannedFile, record: MemoryRecord | None, work: _Ingest) -> MemoryRecord:
        if record is None:
            raise NotFound(f"there is no memory {file.document.id}")
        fields = {
            name: _EMPTY_VALUES.get(name) if value is None else value
            for name, value in file.document.changes(document_of(record)).items()
            if name not in _READ_ONLY_FIELDS
        }
        if fields.get("trust") == Trust.HIGH:
            # A file cannot approve what it says.
            del fields["trust"]
        if fields:
            outcome = await self._service.update(
                Scope(file.user), record.id, fields, by=work.by, expected_version=record.version
            )
            record = outcome.record
            work.result.edited += 1
        if role_of(record) == SUMMARY and "content" in fields:
            await self._set_summary(record, work)
        return record

    async def _set_summary(self, record: MemoryRecord, work: _Ingest) -> None:
        """Make the conversation continue from the summary that a person wrote."""
        await self._service.sessions.set_summary(record.scope, record.content, by=work.by)

    async def _write_edited(
        self, user: str, edited: Sequence[tuple[ScannedFile, MemoryRecord]], work: _Ingest
    ) -> None:
        """Rewrite edited files without secrets and with their new versions."""
        # The row is pending but has the new version, so that the person's next edit is no conflict.
        rows = [_file_row(file, record.id, record.version, pending="") for file, record in edited]
        await self._record_rows(rows, work)
        await self._write(user, [record for _, record in edited], work)

    async def _save_conflict(self, file: ScannedFile, record: MemoryRecord, work: _Ingest) -> None:
        path, data = conflict_path(file.path, record.version), render_document(record).encode()

        def save() -> None:
            self._folder.write(path, data, expected=self._folder.stamp(path))
            self._folder.sync()
            self._state.conflicts.put(ConflictFile(path, file.user, record.id, now().isoformat()))

        await asyncio.to_thread(save)
        work.result.conflicts += 1
        work.result.ingested.append(path)
        _log.warning("mirror: %s and its memory were both changed; the memory's text is in %s", file.path, path)

    # New files

    async def _add_files(self, user: str, new: Sequence[tuple[ScannedFile, bool]], work: _Ingest) -> None:
        """Import the memories of files; with True, under a new id instead of the file's."""
        files: dict[str, ScannedFile] = {}
        records: list[MemoryRecord] = []
        for file, with_new_id in new:
            line: dict[str, Any] = dict(file.document.line)
            if with_new_id or "id" not in line:
                line |= {"id": new_id(), "version": 1}
            try:
                record = parse_record(line, user=user)
            except InvalidInput as error:
                await self._reject(file, str(error), work)
                continue
            files[record.id] = file
            records.append(record)
        if not records:
            return
        try:
            await self._import_records(user, sorted(records, key=_turn_order), files, work)
        except Unavailable as error:
            _log.warning("mirror: %d files are ingested later: %s", len(files), error)
            work.retry_paths.update(file.path for file in files.values())

    async def _import_records(
        self, user: str, records: Sequence[MemoryRecord], files: Mapping[str, ScannedFile], work: _Ingest
    ) -> None:
        try:
            await self._service.transfer.import_records(records, by=work.by)
        except Unavailable:
            raise
        except RecollectError as error:
            if len(records) == 1:
                await self._reject(files[records[0].id], str(error), work)
                return
            # One invalid record fails the whole import, so import each by itself.
            for record in records:
                await self._import_records(user, [record], files, work)
            return
        found = await self._service.get_many(user, [record.id for record in records])
        stored = {record.id: record for record in found}
        for record in records:
            if record.id not in stored:
                await self._reject(files[record.id], "another memory says the same there, or holds its key", work)
        await self._record_added([(files[id], record) for id, record in stored.items()], work)
        for scope in {record.scope for record in stored.values()}:
            await self._service.jobs.enforce_quotas(scope)

    async def _record_added(self, added: Sequence[tuple[ScannedFile, MemoryRecord]], work: _Ingest) -> None:
        rows = [
            replace(_file_row(file, record.id, record.version), is_gone=file.location.is_tombstone)
            for file, record in added
        ]
        await asyncio.to_thread(self._state.put, rows)
        work.result.added += len(added)
        work.result.ingested += [row.path for row in rows]
        for file, record in added:
            if role_of(record) == SUMMARY and not file.location.is_tombstone:
                await self._set_summary(record, work)
            if not file.matches(document_of(record)):
                await self._write(file.user, [record], work, force=True)

    # Removed files and tombstones

    async def _forget_missing(self, row: FileRow, work: _Ingest) -> None:
        current = await asyncio.to_thread(self._state.row, row.user, row.id)
        if current is None or current.path != row.path or not row.stamp or self._folder.stamp(row.path):
            # It was moved, exists again, or never existed.
            return
        if row.is_gone:
            await asyncio.to_thread(self._state.drop, [row])
            return
        try:
            records = await self._service.get_many(row.user, [row.id])
            if records and records[0].status is Status.ACTIVE:
                records = [(await self._service.forget(Scope(row.user), row.id, by=work.by)).record]
                work.result.forgotten += 1
        except Unavailable as error:
            _log.warning("mirror: the memory of %s is forgotten later: %s", row.path, error)
            work.retry_paths.add(row.path)
            return
        unwritten = FileRow(path=row.path, user=row.user, id=row.id)
        await asyncio.to_thread(self._state.put, [unwritten])
        work.result.removed.append(row.path)
        if records:
            await self._write(row.user, records, work)
        else:
            await asyncio.to_thread(self._state.drop, [unwritten])

    async def _clear_tombstones(self, user: str, files: Iterable[ScannedFile], work: _Ingest) -> None:
        """Remove tombstones of memories that have another file, if history knows their content.

        The mirror leaves one if it stops between writing it and removing a file that a person edits at that moment;
        a person leaves one by copying a tombstone back.
        """
        by_id = {file.document.id: file for file in files if file.document.id is not None}
        records = await self._service.get_many(user, list(by_id))
        for record in records:
            file = by_id[record.id]
            contents = [record.content, *(text for _, text in await self._past_contents(record))]
            if not is_gone(record) and file.document.line["memory"] in map(str.strip, contents):
                await asyncio.to_thread(self._remove_tombstone, file, work)

    def _remove_tombstone(self, file: ScannedFile, work: _Ingest) -> None:
        row = self._state.row(file.user, file.document.id or "")
        if row is None or row.path == file.path or not self._folder.stamp(row.path):
            return
        if self._folder.remove(file.path, expected=file.stamp):
            self._folder.remove_empty(file.path)
            self._folder.sync()
            work.result.removed.append(file.path)


def _turn_order(record: MemoryRecord) -> tuple[Any, ...]:
    """Sort turns in the order they were said; a question and its answer may have the same time."""
    is_answer = record.detail.get("role") == "assistant"
    return record.created_at, record.detail.get("position") or 0, is_answer, record.id


def _file_row(file: ScannedFile, id: str, version: int, *, pending: str | None = None) -> FileRow:
    return FileRow(
        path=file.path, user=file.user, id=id, version=version, digest=file.digest, stamp=file.stamp, pending=pending
    )
