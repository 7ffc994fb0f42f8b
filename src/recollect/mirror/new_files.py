"""Files that no memory stands behind yet: they are imported, many at a time, and keep their ids where they can."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.errors import InvalidInput, RecollectError, Unavailable
from recollect.ledger.protocol import Ledger
from recollect.mirror.diff import ScannedFile
from recollect.mirror.document import document_of
from recollect.mirror.folder import FileStamp, MirrorFolder
from recollect.mirror.layout import SUMMARY, is_gone, role_of
from recollect.mirror.state import FileRow, MirrorState, reject_file
from recollect.mirror.to_files import FileWriter, WriteReport
from recollect.model.change import Author, ConversationUpdate
from recollect.model.ids import new_id
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope
from recollect.service.service import Service
from recollect.transfer.import_ import parse_record

_log = logging.getLogger("recollect")


@dataclass(slots=True)
class IngestReport:
    """What files came to: how many memories are otherwise now, what was written, and which paths to try again."""

    added: int = 0
    edited: int = 0
    forgotten: int = 0
    restored: int = 0
    conflicts: int = 0
    bad: int = 0
    writes: WriteReport = field(default_factory=WriteReport)
    # Files that were taken in, wherever a person put them.
    paths: list[str] = field(default_factory=list)
    retry_paths: list[str] = field(default_factory=list)
    users: set[str] = field(default_factory=set)

    def add(self, other: IngestReport) -> None:
        """Take in what more files came to."""
        for name in ("added", "edited", "forgotten", "restored", "conflicts", "bad"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.writes.add(other.writes)
        self.paths += other.paths
        self.retry_paths += other.retry_paths
        self.users |= other.users


@dataclass(frozen=True, slots=True)
class IngestContext:
    """What is used to take files in: the folder and what was seen of it, and where they go."""

    folder: MirrorFolder
    state: MirrorState
    writer: FileWriter
    service: Service
    ledger: Ledger

    async def reject(self, file: ScannedFile, reason: str, report: IngestReport) -> None:
        """Note that a file cannot be used."""
        await asyncio.to_thread(reject_file, file.path, reason, stamp=file.stamp, state=self.state)
        report.bad += 1

    async def write(
        self, user: str, records: Sequence[MemoryRecord], report: IngestReport, *, force: bool = False
    ) -> None:
        """Bring files to what the ledger says."""
        written = await asyncio.to_thread(self.writer.write_records, user, records, force=force)
        report.writes.add(written)
        report.retry_paths += written.changed_meanwhile

    async def set_summary(self, record: MemoryRecord, *, by: Author) -> None:
        """Have a conversation itself go on from the summary that a person wrote."""
        note = ConversationUpdate(record.scope, {"summary": record.content})
        await self.ledger.apply(record.scope, [], by=by, effects=[note])


async def add_files(
    user: str, new: Sequence[tuple[ScannedFile, bool]], report: IngestReport, *, context: IngestContext, by: Author
) -> None:
    """Add the memories that files stand for; with True, under another id than the one a file names."""
    files: dict[str, ScannedFile] = {}
    records: list[MemoryRecord] = []
    for file, with_new_id in new:
        line: dict[str, Any] = dict(file.document.line)
        if with_new_id or "id" not in line:
            line |= {"id": new_id(), "version": 1}
        try:
            record = parse_record(line, user=user)
        except InvalidInput as error:
            await context.reject(file, str(error), report)
            continue
        files[record.id] = file
        records.append(record)
    try:
        await _import_records(user, sorted(records, key=_turn_order), files, report, context=context, by=by)
    except Unavailable as error:
        _log.warning("mirror: %d files are taken in later: %s", len(files), error)
        report.retry_paths += [file.path for file in files.values()]


async def _import_records(
    user: str,
    records: Sequence[MemoryRecord],
    files: Mapping[str, ScannedFile],
    report: IngestReport,
    *,
    context: IngestContext,
    by: Author,
) -> None:
    try:
        await context.service.transfer.import_records(records, by=by)
    except Unavailable:
        raise
    except RecollectError as error:
        if len(records) == 1:
            await context.reject(files[records[0].id], str(error), report)
            return
        # One of them keeps the others out: each for itself.
        for record in records:
            await _import_records(user, [record], files, report, context=context, by=by)
        return
    stored = {
        record.id: record for record in await context.ledger.get(Scope(user), [record.id for record in records])
    }
    for record in records:
        if record.id not in stored:
            reason = "another memory says the same there, or holds its key"
            await context.reject(files[record.id], reason, report)
    await _record_added([(files[id], record) for id, record in stored.items()], report, context=context, by=by)
    for scope in {record.scope for record in stored.values()}:
        await context.service.jobs.enforce_quotas(scope)


async def _record_added(
    added: Sequence[tuple[ScannedFile, MemoryRecord]], report: IngestReport, *, context: IngestContext, by: Author
) -> None:
    rows = [
        FileRow(
            path=file.path,
            user=file.user,
            id=record.id,
            version=record.version,
            digest=file.digest,
            stamp=file.stamp,
            is_gone=file.location.is_tombstone,
        )
        for file, record in added
    ]
    await asyncio.to_thread(context.state.put, rows)
    report.added += len(added)
    report.paths += [row.path for row in rows]
    for file, record in added:
        if role_of(record) == SUMMARY and not file.location.is_tombstone:
            await context.set_summary(record, by=by)
        if not file.matches(document_of(record)):
            await context.write(file.user, [record], report, force=True)


def _turn_order(record: MemoryRecord) -> tuple[Any, ...]:
    """Turns in the order they were said, whatever else there is among them."""
    # A question and its answer may have been written down in the same moment.
    is_answer = record.detail.get("role") == "assistant"
    return record.created_at, record.detail.get("position") or 0, is_answer, record.id


_MAX_HISTORY = 1000


async def clear_tombstones(
    user: str, files: Iterable[ScannedFile], report: IngestReport, *, context: IngestContext
) -> None:
    """Remove the tombstones of memories that have a file elsewhere, if all they say is known to history.

    We leave one behind if we are stopped between writing it and removing the file that a person edits just then, and
    a person does who puts a copy back.
    """
    by_id = {file.document.id: file for file in files if file.document.id is not None}
    records = await context.ledger.get(Scope(user), list(by_id)) if by_id else []
    for record in records:
        file = by_id[record.id]
        if not is_gone(record) and await _is_in_history(record, file.document.line["memory"], context=context):
            await asyncio.to_thread(_remove_tombstone, file, report, context=context)


async def _is_in_history(record: MemoryRecord, content: str, *, context: IngestContext) -> bool:
    lines = await context.ledger.history(Scope(record.scope.user), memory_id=record.id, limit=_MAX_HISTORY)
    contents = [record.content, *((line.before or {}).get("content", "") for line in lines)]
    return any(content == each.strip() for each in contents)


def _remove_tombstone(file: ScannedFile, report: IngestReport, *, context: IngestContext) -> None:
    row = context.state.row(file.user, file.document.id or "")
    if row is None or row.path == file.path or context.folder.stamp(row.path) is None:
        return
    if context.folder.remove(file.path, expected=FileStamp(file.stamp)):
        context.folder.remove_empty(file.path)
        context.folder.sync()
        report.writes.removed.append(file.path)
