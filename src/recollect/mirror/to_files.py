"""From the ledger to the files: each change of a memory is one small file written, moved or removed.

The files are made from the ledger here, and how far its history was followed is kept for each user, so that a crash
costs nothing but the last step done again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from recollect.errors import InvalidInput
from recollect.ledger.protocol import Ledger
from recollect.mirror.document import render_document
from recollect.mirror.folder import FileChanged, FileStamp, MirrorFolder, StagedFile
from recollect.mirror.layout import (
    FILE_SUFFIX,
    USER_FILE,
    alternate_path,
    default_path,
    has_file,
    has_own_path,
    is_gone,
    normalize_key,
    parse_location,
    safe_name,
    tombstone_path,
    user_folder,
)
from recollect.mirror.state import FileRow, HistoryPosition, MirrorState, RejectedFile
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.model.times import now

_log = logging.getLogger("recollect")
_PAGE_SIZE = 500
_MIN_STAGED_FILES = 20


@dataclass(slots=True)
class WriteReport:
    """What became of files: which were written or removed, and which someone else had just changed."""

    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed_meanwhile: list[str] = field(default_factory=list)

    @property
    def changed(self) -> list[str]:
        """The paths at which something is otherwise now."""
        return [*self.written, *self.removed]

    def add(self, other: WriteReport) -> None:
        """Take in what became of more."""
        self.written += other.written
        self.removed += other.removed
        self.changed_meanwhile += other.changed_meanwhile


@dataclass(frozen=True, slots=True)
class _PlannedWrite:
    """A file to write, and what it takes the place of."""

    record: MemoryRecord
    path: str
    data: bytes
    row: FileRow | None

    @property
    def is_move(self) -> bool:
        return self.row is not None and self.row.path != self.path and bool(self.row.stamp)


def digest_of(data: bytes) -> str:
    """What tells two texts apart."""
    return blake2b(data, digest_size=16).hexdigest()


class FileWriter:
    """Writes memories to their files."""

    def __init__(self, folder: MirrorFolder, state: MirrorState, *, root_user: str) -> None:
        self._folder, self._state, self._root_user = folder, state, root_user

    def write_records(self, user: str, records: Iterable[MemoryRecord], *, force: bool = False) -> WriteReport:
        """Bring the files of a user's memories to what the ledger says; with `again`, also where nothing changed."""
        records = list(records)
        done = WriteReport()
        # What goes makes room first: a new file may have the path of one that was deleted.
        for group in ([each for each in records if is_gone(each)], [each for each in records if not is_gone(each)]):
            done.add(self._write_group(user, group, force=force) if group else WriteReport())
        return done

    def _write_group(self, user: str, records: Iterable[MemoryRecord], *, force: bool) -> WriteReport:
        done = WriteReport()
        steps = [
            step for record in records if (step := self._plan_write(user, record, done, force=force)) is not None
        ]
        self._note_pending(user, steps)
        staged = self._stage(steps)
        rows = []
        for step in steps:
            try:
                rows.append(self._write_file(user, step, staged.get(step.path)))
            except FileChanged:
                path = step.row.path if step.row is not None and step.row.stamp else step.path
                # What a person wrote there and nobody can use stays until they mend it.
                done.changed_meanwhile += [] if self._is_rejected(path) else [path]
                continue
            except InvalidInput as error:
                # It is tried again when the mirror next starts.
                _log.warning("mirror: %s is not written: %s", step.path, error)
                self._state.set_rejected(
                    RejectedFile(step.path, "", "", f"it cannot be written: {error}", now().isoformat())
                )
                continue
            done.written.append(step.path)
            if step.is_move and step.row is not None:
                done.removed.append(step.row.path)
        for unplaced in staged.values():
            self._folder.discard(unplaced)
        self._folder.sync()
        self._state.put(rows)
        return done

    def remove(self, rows: Iterable[FileRow]) -> WriteReport:
        """Remove the files of memories that are not to be shown; what was last seen of them is not forgotten yet."""
        done = WriteReport()
        for row in rows:
            if self._folder.remove(row.path):
                done.removed.append(row.path)
            self._folder.remove_empty(row.path)
        self._folder.sync()
        return done

    def _plan_write(self, user: str, record: MemoryRecord, done: WriteReport, *, force: bool) -> _PlannedWrite | None:
        row = self._state.row(user, record.id)
        if not has_file(record):
            if row is not None:
                done.add(self.remove([row]))
                self._state.drop([row])
            return None
        gone = is_gone(record)
        if (
            row is not None
            and row.pending is None
            and not force
            and (row.version, row.is_gone) == (record.version, gone)
        ):
            return None
        path = self._target_path(user, record, row)
        return _PlannedWrite(record, path, render_document(record).encode(), row)

    def _target_path(self, user: str, record: MemoryRecord, row: FileRow | None) -> str:
        base, gone = user_folder(user, self._root_user), is_gone(record)
        if row is not None and row.is_gone == gone and not _is_renamed(record, row):
            return row.path
        is_file = record.category is Category.FILE
        path = tombstone_path(row.path) if row is not None and gone and not is_file else default_path(record, base)
        holder = self._state.row_at(path)
        if holder is None or (holder.user, holder.id) == (user, record.id):
            return path
        if has_own_path(record):
            return alternate_path(path, digest_of(record.id.encode()))
        return f"{path.removesuffix(FILE_SUFFIX)}~{digest_of(record.id.encode())[:16]}{FILE_SUFFIX}"

    def _note_pending(self, user: str, steps: Sequence[_PlannedWrite]) -> None:
        new = [
            replace(unwritten_row(step.path, user, step.record.id), pending=digest_of(step.data))
            for step in steps
            if step.row is None
        ]
        with self._state.transaction():
            self._state.put(new)
            pending = ((user, step.record.id, digest_of(step.data)) for step in steps if step.row is not None)
            self._state.set_pending(pending)

    def _stage(self, steps: Sequence[_PlannedWrite]) -> dict[str, StagedFile]:
        """Write many files beside their places, and have all of them on disk by one sync."""
        if len(steps) < _MIN_STAGED_FILES:
            return {}
        staged = {}
        for step in steps:
            # What cannot be staged is told of when it is written by itself.
            with suppress(InvalidInput):
                staged[step.path] = self._folder.stage(step.path, step.data, sync=False)
        self._folder.sync_staged()
        return staged

    def _write_file(self, user: str, step: _PlannedWrite, staged: StagedFile | None) -> FileRow:
        self._write_user_file(user)
        row, digest, gone = step.row, digest_of(step.data), is_gone(step.record)
        if step.is_move and row is not None and self._folder.stamp(row.path) not in (row.last_stamp, None):
            raise FileChanged(f"{row.path} was just changed")
        expected = row.last_stamp if row is not None and row.path == step.path else None
        if gone and expected is None:
            # A tombstone is ours alone.
            expected = self._folder.stamp(step.path)
        if expected is None and (identical := self._identical_stamp(step.path, step.data)) is not None:
            stamp = identical
        else:
            staged = staged or self._folder.stage(step.path, step.data)
            stamp = self._folder.place(staged, expected=expected).text
        if step.is_move and row is not None:
            self._remove_old(row, step.path, FileStamp(stamp))
        return FileRow(
            path=step.path,
            user=user,
            id=step.record.id,
            version=step.record.version,
            digest=digest,
            stamp=stamp,
            is_gone=gone,
        )

    def _remove_old(self, row: FileRow, path: str, stamp: FileStamp) -> None:
        """Remove a file that lies at another path now, or what was put there if someone has just changed the old."""
        try:
            self._folder.remove(row.path, expected=row.last_stamp)
        except FileChanged:
            self._folder.remove(path, expected=stamp)
            raise
        self._folder.remove_empty(row.path)

    def _is_rejected(self, path: str) -> bool:
        rejected, stamp = self._state.rejected_file(path), self._folder.stamp(path)
        return rejected is not None and rejected.stamp == (stamp.text if stamp else "")

    def _identical_stamp(self, path: str, data: bytes) -> str | None:
        """The stamp of a file that says just that already: it was written before a crash."""
        try:
            current, stamp, _ = self._folder.read(path)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            return None
        return stamp.text if current == data else None

    def _write_user_file(self, user: str) -> None:
        base = user_folder(user, self._root_user)
        if base and safe_name(user) != user and self._folder.stamp(base + USER_FILE) is None:
            self._folder.write(base + USER_FILE, user.encode(), expected=None)


async def write_changes(user: str, *, ledger: Ledger, writer: FileWriter, state: MirrorState) -> WriteReport:
    """Write out what changed of a user since the last time."""
    done = WriteReport()
    revision = await ledger.revision(user)
    position_so_far = await asyncio.to_thread(state.position, user)
    while (position_so_far.revision, position_so_far.epoch) != (revision.number, revision.epoch):
        lines = await ledger.history(Scope(user), after=position_so_far.position, limit=_PAGE_SIZE)
        ids = list(dict.fromkeys(line.memory_id for line in lines))
        records = await ledger.get(Scope(user), ids) if ids else []
        done.add(await asyncio.to_thread(writer.write_records, user, records))
        position = lines[-1].id if lines else position_so_far.position
        at = (
            (revision.number, revision.epoch)
            if len(lines) < _PAGE_SIZE
            else (position_so_far.revision, position_so_far.epoch)
        )
        position_so_far = HistoryPosition(position, *at)
        if not done.changed_meanwhile:
            # What was disturbed is looked at first, and comes again.
            await asyncio.to_thread(state.set_position, user, position_so_far)
    return done


async def write_everything(
    user: str, *, ledger: Ledger, writer: FileWriter, state: MirrorState, progress: Callable[[int], None]
) -> WriteReport:
    """Write out all of a user's memories that have no file as they are."""
    done, count, cursor = WriteReport(), 0, None
    revision = await ledger.revision(user)
    newest = await ledger.history(Scope(user), limit=1)
    while True:
        listing = Listing(statuses=tuple(Status), order="oldest", limit=_PAGE_SIZE, cursor=cursor)
        page = await ledger.find(Scope(user), listing)
        done.add(await asyncio.to_thread(writer.write_records, user, page.records))
        count += len(page.records)
        progress(count)
        cursor = page.cursor
        if cursor is None:
            break
    if not done.changed_meanwhile:
        position = newest[0].id if newest else 0
        await asyncio.to_thread(state.set_position, user, HistoryPosition(position, revision.number, revision.epoch))
    return done


def _is_renamed(record: MemoryRecord, row: FileRow) -> bool:
    """Whether a model gave its file another path than the one it lies at."""
    location = parse_location(row.path)
    if location is None or not location.key:
        return False
    return not has_own_path(record) or normalize_key(location.key) != record.key


def unwritten_row(path: str, user: str, id: str) -> FileRow:
    """The place of a file that is not there."""
    return FileRow(path=path, user=user, id=id, version=0, digest="", stamp="")
