"""Write memories to their files, and all of a folder to `memory_index.json`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from recollect.errors import InvalidInput
from recollect.mirror.document import render_document
from recollect.mirror.folder import FileChanged, MirrorFolder, StagedFile, digest_of
from recollect.mirror.layout import (
    FILE_SUFFIX,
    USER_FILE,
    FolderOwners,
    alternate_path,
    default_path,
    has_file,
    has_own_path,
    is_gone,
    normalize_key,
    parse_location,
    tombstone_path,
)
from recollect.mirror.state import FileRow, MirrorState, SyncResult
from recollect.model.memory import Category, MemoryRecord

_log = logging.getLogger("recollect")
_MIN_STAGED_FILES = 20


@dataclass(frozen=True, slots=True)
class _PlannedWrite:
    """A file to write; `row` is the last known state of the memory's file."""

    record: MemoryRecord
    path: str
    data: bytes
    row: FileRow | None

    @property
    def moved_from(self) -> FileRow | None:
        return self.row if self.row is not None and self.row.path != self.path and self.row.stamp else None


class FileWriter:
    """Writes memories to their files, and records the files' state before and after."""

    def __init__(self, folder: MirrorFolder, state: MirrorState, owners: FolderOwners) -> None:
        self._folder, self._state, self._owners = folder, state, owners

    def write_records(
        self, user: str, records: Iterable[MemoryRecord], result: SyncResult, *, force: bool = False
    ) -> list[str]:
        """Write the files of a user's memories, and return the paths that somebody else has just changed.

        With `force`, write also files whose memory did not change.
        """
        records = list(records)
        # Deleted ones first: a new file may have the path of a deleted one.
        gone = self._write_group(user, [each for each in records if is_gone(each)], result, force=force)
        return gone + self._write_group(user, [each for each in records if not is_gone(each)], result, force=force)

    def _write_group(
        self, user: str, records: Sequence[MemoryRecord], result: SyncResult, *, force: bool
    ) -> list[str]:
        if not records:
            return []
        planned = (self._plan_write(user, record, result, force=force) for record in records)
        steps = [step for step in planned if step is not None]
        self._note_pending(user, steps)
        staged = self._stage(steps)
        rows, changed = [], []
        for step in steps:
            try:
                rows.append(self._write_file(user, step, staged.get(step.path)))
            except FileChanged:
                path = step.row.path if step.row is not None and step.row.stamp else step.path
                # A rejected file stays until the person fixes it.
                changed += [] if self._is_rejected(path) else [path]
                continue
            except InvalidInput as error:
                # It is retried when the mirror starts the next time.
                self._state.reject(step.path, f"it cannot be written: {error}", stamp="")
                continue
            result.written.append(step.path)
            result.removed += [step.moved_from.path] if step.moved_from is not None else []
        for unplaced in staged.values():
            self._folder.discard(unplaced)
        self._folder.sync()
        self._state.put(rows)
        return changed

    def remove(self, rows: Iterable[FileRow]) -> list[str]:
        """Remove the files of memories, and return the paths that existed; their state is not dropped yet."""
        removed = []
        for row in rows:
            removed += [row.path] if self._folder.remove(row.path) else []
            self._folder.remove_empty(row.path)
        self._folder.sync()
        return removed

    def _plan_write(
        self, user: str, record: MemoryRecord, result: SyncResult, *, force: bool
    ) -> _PlannedWrite | None:
        row = self._state.row(user, record.id)
        if not has_file(record):
            if row is not None:
                result.removed += self.remove([row])
                self._state.drop([row])
            return None
        is_current = row is not None and row.pending is None and row.version == record.version
        if is_current and row is not None and row.is_gone == is_gone(record) and not force:
            return None
        return _PlannedWrite(record, self._target_path(user, record, row), render_document(record).encode(), row)

    def _target_path(self, user: str, record: MemoryRecord, row: FileRow | None) -> str:
        base, gone = self._owners.folder_of(user), is_gone(record)
        if row is not None and row.is_gone == gone and not _is_renamed(record, row):
            return row.path
        is_file = record.category is Category.FILE
        path = tombstone_path(row.path) if row is not None and gone and not is_file else default_path(record, base)
        holder = self._state.files.get(path)
        if holder is None or (holder.user, holder.id) == (user, record.id):
            return path
        digest = digest_of(record.id.encode())
        if has_own_path(record):
            return alternate_path(path, digest)
        return f"{path.removesuffix(FILE_SUFFIX)}~{digest[:16]}{FILE_SUFFIX}"

    def _note_pending(self, user: str, steps: Sequence[_PlannedWrite]) -> None:
        """Record what is about to be written, so that after a crash it is not taken for a person's edit."""
        with self._state.transaction():
            self._state.put(
                replace(FileRow(path=step.path, user=user, id=step.record.id), pending=digest_of(step.data))
                for step in steps
                if step.row is None
            )
            self._state.set_pending(
                (user, step.record.id, digest_of(step.data)) for step in steps if step.row is not None
            )

    def _stage(self, steps: Sequence[_PlannedWrite]) -> dict[str, StagedFile]:
        """Write many files under temporary names, and sync all of them to disk at once."""
        if len(steps) < _MIN_STAGED_FILES:
            return {}
        staged = {}
        for step in steps:
            # The error is reported when the file is written by itself.
            with suppress(InvalidInput):
                staged[step.path] = self._folder.stage(step.path, step.data, sync=False)
        self._folder.sync_staged()
        return staged

    def _write_file(self, user: str, step: _PlannedWrite, staged: StagedFile | None) -> FileRow:
        base = self._owners.folder_of(user)
        if base and not base.endswith(f"/{user}/") and not self._folder.stamp(base + USER_FILE):
            self._folder.write(base + USER_FILE, user.encode(), expected="")
        row, moved_from, gone = step.row, step.moved_from, is_gone(step.record)
        if moved_from is not None and self._folder.stamp(moved_from.path) not in (moved_from.stamp, ""):
            raise FileChanged(f"{moved_from.path} was just changed")
        expected = row.stamp if row is not None and row.path == step.path else ""
        if gone and not expected:
            # Only the mirror writes tombstones.
            expected = self._folder.stamp(step.path)
        stamp = "" if expected else self._identical_stamp(step)
        if not stamp:
            staged = staged or self._folder.stage(step.path, step.data)
            stamp = self._folder.place(staged, expected=expected)
        if moved_from is not None:
            try:
                self._folder.remove(moved_from.path, expected=moved_from.stamp)
            except FileChanged:
                self._folder.remove(step.path, expected=stamp)
                raise
            self._folder.remove_empty(moved_from.path)
        return FileRow(
            path=step.path,
            user=user,
            id=step.record.id,
            version=step.record.version,
            digest=digest_of(step.data),
            stamp=stamp,
            is_gone=gone,
        )

    def _is_rejected(self, path: str) -> bool:
        rejected = self._state.rejected.get(path)
        return rejected is not None and rejected.stamp == self._folder.stamp(path)

    def _identical_stamp(self, step: _PlannedWrite) -> str:
        """Return the stamp of a file that has the content already: it was written before a crash."""
        with suppress(FileNotFoundError, NotADirectoryError):
            current, stamp = self._folder.read(step.path)
            return stamp if current == step.data else ""
        return ""


def _is_renamed(record: MemoryRecord, row: FileRow) -> bool:
    """Return whether a model gave its file another path than the one it is at."""
    location = parse_location(row.path)
    if location is None or not location.key:
        return False
    return not has_own_path(record) or normalize_key(location.key) != record.key
