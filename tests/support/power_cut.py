"""A disk that can lose power, fail and fill up, for SQLite: what was written but never synced can vanish.

Files are real and are read and written as ever. Beside them `SimulatedDisk` keeps what a disk would be sure to
hold: the bytes as of each file's last sync, and the names as of the folder's. `cut` makes a folder as it could be
found after the power went at that moment: every sector since then written or not, in any order.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512
_numbers = count(1)


class SimulatedDisk:
    """Give its `vfs` to open_sqlite; whatever is opened through it lies on this disk.

    `fail_share` of writes and syncs fail from when it is set, while `is_gone` so does everything else, and
    `capacity_bytes` is where the disk is full. `on_call` is told "write", "sync", "truncate" or "delete" and the
    file's name before each of them happens.
    """

    def __init__(self, *, seed: int, on_call: Callable[[str, str], None] | None = None) -> None:
        self.fail_share = 0.0
        self.is_gone = False
        self.capacity_bytes: int | None = None
        self.on_call = on_call
        # Names of the files, in order of the events.
        self.failed_writes: list[str] = []
        self.failed_syncs: list[str] = []
        # Those whose handle was synced again after a sync of it had failed.
        self.synced_after_failure: list[str] = []
        self.vfs = f"simulated-disk-{next(_numbers)}"
        self._random = random.Random(seed)
        self._lock = threading.RLock()
        self._names: dict[Path, _Content] = {}
        # What each name may stand for after a cut: first what is certain, then what came since.
        self._bindings: dict[Path, list[_Content | None]] = {}
        self._vfs = _Vfs(self)

    def cut(self, folder: Path) -> None:
        """Write a possible state after a power cut into the folder; the disk itself continues."""
        folder.mkdir(parents=True, exist_ok=True)
        with self._lock:
            persisted_share = self._random.choice((0.0, 0.0, self._random.random(), 1.0))
            for path, bindings in self._bindings.items():
                content = self._random.choice(bindings) if persisted_share else bindings[0]
                if content is not None:
                    (folder / path.name).write_bytes(content.after_cut(self._random, persisted_share))

    def close(self) -> None:
        """Unregister the disk; every connection through it must be closed."""
        self._vfs.unregister()

    def begin(self, kind: str, path: Path) -> None:
        """Notify the listener before a call."""
        if self.on_call is not None:
            self.on_call(kind, path.name)

    def opened(self, path: Path) -> _Content:
        """Return the file of a name; a new file is not durable yet."""
        with self._lock:
            if path not in self._names:
                before = path.read_bytes() if path.exists() else None
                content = self._names[path] = _Content(before or b"")
                if before is None:
                    self._bindings.setdefault(path, [None]).append(content)
                else:
                    self._bindings[path] = [content]
            return self._names[path]

    def write(self, file: _File, data: bytes, offset: int) -> None:
        with self._lock:
            if self._fails():
                self.failed_writes.append(file.path.name)
                data = data[: self._random.randrange(len(data))]
                file.write_through(data, offset)
                raise apsw.exception_for(apsw.SQLITE_IOERR_WRITE)
            if self.capacity_bytes is not None and file.size() < offset + len(data) and self._is_full(len(data)):
                raise apsw.exception_for(apsw.SQLITE_FULL)
            file.write_through(data, offset)

    def truncate(self, file: _File, size: int) -> None:
        with self._lock:
            file.truncate_through(size)

    def sync(self, file: _File) -> None:
        with self._lock:
            if file.sync_failed:
                self.synced_after_failure.append(file.path.name)
            if self._fails():
                self.failed_syncs.append(file.path.name)
                # The worst a system may do: keep some of it, call the rest clean, and never write that.
                file.content.settle(self._random, self._random.random())
                file.sync_failed = True
                raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)
            file.content.settle(self._random, 1.0)
            # SQLite syncs the folder after the first sync of a journal or a log, not of the database.
            if file.is_journal:
                self._sync_names(file.path.parent)

    def deleted(self, path: Path, *, synced: bool) -> None:
        with self._lock:
            self._names.pop(path, None)
            self._bindings.setdefault(path, [None]).append(None)
            if synced:
                self._sync_names(path.parent)

    def _sync_names(self, folder: Path) -> None:
        for path, bindings in self._bindings.items():
            if path.parent == folder:
                del bindings[:-1]

    def _fails(self) -> bool:
        return self.is_gone or self._random.random() < self.fail_share

    def _is_full(self, more: int) -> bool:
        used = sum(path.stat().st_size for path in self._names if path.exists())
        return used + more > (self.capacity_bytes or 0)


class _Content:
    """The durable bytes of a file, and the pending writes."""

    def __init__(self, certain: bytes) -> None:
        self.certain = bytearray(certain)
        # A write is its offset and bytes; a truncation is the new size and None.
        self.pending: list[tuple[int, bytes | None]] = []

    def settle(self, chance: random.Random, share: float) -> None:
        """Make a share of the pending writes durable, and drop the rest."""
        for offset, data in self.pending:
            if share == 1.0 or chance.random() < share:
                _do(self.certain, offset, data)
        self.pending.clear()

    def after_cut(self, chance: random.Random, share: float) -> bytes:
        """Return a possible content after a cut: some of the pending sectors were written."""
        content = bytearray(self.certain)
        for offset, data in self.pending:
            for start, part in _sectors(offset, data):
                if chance.random() < share:
                    _do(content, start, part)
        return bytes(content)


def _do(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
    else:
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(data)] = data


def _sectors(offset: int, data: bytes | None) -> list[tuple[int, bytes | None]]:
    if data is None:
        return [(offset, None)]
    parts: list[tuple[int, bytes | None]] = []
    end = offset + len(data)
    start = offset
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        parts.append((start, data[start - offset : stop - offset]))
        start = stop
    return parts


class _Vfs(apsw.VFS):
    """SQLite's default VFS, observed by the disk."""

    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__(disk.vfs, "")
        self._disk = disk

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        if name is None:
            return apsw.VFSFile("", name, flags)
        if self._disk.is_gone:
            raise apsw.exception_for(apsw.SQLITE_CANTOPEN)
        path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name)
        content = self._disk.opened(path)
        return _File(self._disk, name, flags, path=path, content=content)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self._disk.begin("delete", Path(filename))
        super().xDelete(filename, syncdir)
        self._disk.deleted(Path(filename), synced=bool(syncdir))


class _File(apsw.VFSFile):
    """One handle of a file on the disk."""

    def __init__(self, disk: SimulatedDisk, name: Any, flags: list[int], *, path: Path, content: _Content) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self.path = path
        self.content = content
        self.sync_failed = False
        self.is_journal = not flags[0] & apsw.SQLITE_OPEN_MAIN_DB

    def xRead(self, amount: int, offset: int) -> bytes:
        if self._disk.is_gone:
            raise apsw.exception_for(apsw.SQLITE_IOERR_READ)
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:
        self._disk.begin("write", self.path)
        self._disk.write(self, bytes(data), offset)

    def xTruncate(self, newsize: int) -> None:
        self._disk.begin("truncate", self.path)
        self._disk.truncate(self, newsize)

    def xSync(self, flags: int) -> None:
        self._disk.begin("sync", self.path)
        self._disk.sync(self)

    def write_through(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self.content.pending.append((offset, data))

    def truncate_through(self, size: int) -> None:
        super().xTruncate(size)
        self.content.pending.append((size, None))

    def size(self) -> int:
        return super().xFileSize()
