"""The spill journal: turns on disk, in files of this process, while the ledger is away.

What `keep` returned from is synced; those who come at once share a sync. The format, and how an erasure reaches it,
is in `recollect.upkeep.spilled`.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from recollect.errors import DiskFull, StoreUnavailable
from recollect.model.ids import new_id
from recollect.model.scope import Scope
from recollect.write.spill_file import (
    REJECTED_SUFFIX,
    SPILL_SUFFIX,
    SpilledLine,
    SpilledTurn,
    list_spill_files,
    read_spilled_lines,
)

""


_log = logging.getLogger("recollect")
T = TypeVar("T")
_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ZEROS = bytes(1 << 20)
# Not every system has the cheaper one.
_sync = getattr(os, "fdatasync", os.fsync)


@dataclass(frozen=True, slots=True)
class SpillFile:
    """A file of the journal, and the handle that holds its lock."""

    path: Path
    handle: int

    def try_lock(self) -> bool:
        """Take the lock, unless someone else has it or removed the file before."""
        try:
            fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return os.fstat(self.handle).st_nlink > 0


@dataclass(frozen=True, slots=True)
class _PendingWrite:
    data: bytes
    sessions: set[Scope]
    done: asyncio.Future[None]


class Journal:
    """Files in one folder; all work on them is done by one thread."""

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recollect-spill")
        self._queue: list[_PendingWrite] = []
        self._flushing: asyncio.Task[None] | None = None
        # The file that is added to, and those that only wait to be brought to the ledger.
        self._open: SpillFile | None = None
        self._sealed: dict[Path, SpillFile] = {}
        self._sessions: dict[Path, set[Scope]] = {}

    def has_pending(self, scope: Scope) -> bool:
        """Whether something of this session is in the journal, so that what comes next must come after it."""
        return any(scope in sessions for sessions in self._sessions.values())

    def has_pending_in(self, path: Path, scope: Scope) -> bool:
        """Whether something of this session waits in one file."""
        return scope in self._sessions.get(path, ())

    @property
    def pending_sessions(self) -> int:
        """How many sessions have something in it."""
        return len(set().union(*self._sessions.values()))

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits that this process knows of."""
        return not self._sessions and not self._sealed

    async def append(self, spilled: Sequence[SpilledTurn]) -> None:
        """Have turns on disk when this returns; DiskFull or StoreUnavailable if they are not."""
        done = asyncio.get_running_loop().create_future()
        data = b"".join(each.to_line() for each in spilled)
        self._queue.append(_PendingWrite(data, {each.scope for each in spilled}, done))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        await done

    async def _flush(self) -> None:
        try:
            while self._queue:
                group, self._queue = self._queue, []
                await self._append_group(group)
        finally:
            self._flushing = None

    async def _append_group(self, group: Sequence[_PendingWrite]) -> None:
        failure: Exception | None = None
        try:
            path = await self._run_in_thread(lambda: self._write(b"".join(each.data for each in group)))
            self._sessions.setdefault(path, set()).update(*(each.sessions for each in group))
        except Exception as error:
            failure = error
        for each in group:
            if each.done.done():
                continue
            if failure is None:
                each.done.set_result(None)
            else:
                each.done.set_exception(failure)

    async def claim_files(self) -> list[Path]:
        """The files that are to be brought to the ledger, oldest first; what comes from now on goes to another."""
        return await self._run_in_thread(self._claim_files)

    async def read(self, path: Path) -> list[SpilledLine]:
        """What waits in one of those files, as it is now."""
        lines = await self._run_in_thread(lambda: list(read_spilled_lines(path)))
        self._sessions[path] = {line.turn.scope for line in lines}
        return lines

    def mark_replayed(self, path: Path, scope: Scope) -> None:
        """Note that nothing of this session waits in a file any more."""
        self._sessions[path].discard(scope)

    async def blank_lines(self, path: Path, lines: Iterable[SpilledLine]) -> None:
        """Overwrite what is in the ledger of a file of which other things still wait."""
        await self._run_in_thread(lambda: _blank(self._sealed[path].handle, lines))

    async def store_rejected(self, path: Path, rejected: Iterable[SpilledTurn]) -> None:
        """Put aside what the ledger will never take."""
        data = b"".join(each.to_line() for each in rejected)
        await self._run_in_thread(lambda: _append_file(path.with_suffix(REJECTED_SUFFIX), data))

    async def remove(self, path: Path) -> None:
        """Let go of a file of which everything is in the ledger; its bytes are overwritten first."""
        await self._run_in_thread(lambda: self._remove(path))
        self._sessions.pop(path, None)

    async def close(self) -> None:
        """Finish what is under way and let go of all files; what waits is for whoever opens the folder next."""
        if self._flushing is not None:
            await asyncio.wait([self._flushing])
        await self._run_in_thread(self._close_files)
        self._thread.shutdown()

    async def _run_in_thread(self, step: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, step)

    # From here on: the thread's.

    def _write(self, data: bytes) -> Path:
        try:
            used_bytes = sum(map(_size, list_spill_files(self._folder, SPILL_SUFFIX, REJECTED_SUFFIX)))
            if used_bytes + len(data) > self._max_bytes:
                raise DiskFull(f"{self._folder} holds {used_bytes:,} bytes, and may hold {self._max_bytes:,}")
            if self._open is None:
                self._open = _create_file(self._folder)
            _append(self._open.handle, data)
        except OSError as error:
            # What did not reach the disk is not tried again through the same handle.
            self._seal()
            if error.errno in _DISK_FULL_ERRNOS:
                raise DiskFull(f"no space left for {self._folder}: free some") from error
            raise StoreUnavailable(f"{self._folder} cannot be written: {error.strerror}") from error
        return self._open.path

    def _seal(self) -> None:
        file, self._open = self._open, None
        if file is None:
            return
        if os.fstat(file.handle).st_size:
            self._sealed[file.path] = file
        else:
            # A full disk must not leave a file behind for each who tried.
            file.path.unlink(missing_ok=True)
            os.close(file.handle)

    def _claim_files(self) -> list[Path]:
        self._seal()
        for path in list_spill_files(self._folder):
            if path not in self._sealed and (orphan := _claim_orphan(path)) is not None:
                self._sealed[path] = orphan
        return sorted(self._sealed)

    def _remove(self, path: Path) -> None:
        file = self._sealed.pop(path)
        try:
            size = os.fstat(file.handle).st_size
            for start in range(0, size, len(_ZEROS)):
                os.pwrite(file.handle, _ZEROS[: size - start], start)
            _sync(file.handle)
            path.unlink()
        except OSError as error:
            _log.warning("%s is in the ledger but cannot be removed: %s", path, error)
        finally:
            os.close(file.handle)

    def _close_files(self) -> None:
        self._seal()
        for file in self._sealed.values():
            os.close(file.handle)
        self._sealed.clear()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _create_file(folder: Path) -> SpillFile:
    """A new file that is ours. Whoever looks for files that were left behind can be quicker; then another is made."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    while True:
        path = folder / f"{new_id()}{SPILL_SUFFIX}"
        # Not O_APPEND: on Linux it would make an overwriting at a place add to the end.
        file = SpillFile(path, os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        if file.try_lock():
            _sync_folder(folder)
            return file
        os.close(file.handle)


def _claim_orphan(path: Path) -> SpillFile | None:
    try:
        file = SpillFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            _log.warning("%s was left behind and cannot be read: %s", path, error)
        return None
    if file.try_lock():
        return file
    os.close(file.handle)
    return None


def _append(handle: int, data: bytes) -> None:
    """Add to the end and sync; of what fails nothing stays."""
    end = os.lseek(handle, 0, os.SEEK_END)
    try:
        offset = 0
        while offset < len(data):
            offset += os.write(handle, data[offset:])
        _sync(handle)
    except OSError:
        os.ftruncate(handle, end)
        raise


def _blank(handle: int, lines: Iterable[SpilledLine]) -> None:
    for line in lines:
        os.pwrite(handle, b" " * (line.length - 1), line.start)
    _sync(handle)


def _append_file(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        _append(handle, data)
    finally:
        os.close(handle)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
