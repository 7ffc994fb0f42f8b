"""The spill journal: turns on disk, in files of this process, while the ledger is unavailable.

Turns are synced when `append` returns; concurrent calls share a sync. `spill_replay` stores them in the ledger later.
The file format, and how an erasure reaches the files, is in `recollect.write.spill_file`.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from recollect.errors import DiskFull, StoreUnavailable
from recollect.model.ids import new_id
from recollect.model.scope import Scope
from recollect.model.turn import Turn
from recollect.remember import normalize_turns
from recollect.write.redact import Redactor
from recollect.write.spill_file import (
    REJECTED_SUFFIX,
    SPILL_SUFFIX,
    SpilledLine,
    SpilledTurn,
    list_spill_files,
    read_spilled_lines,
)

_log = logging.getLogger("recollect")
T = TypeVar("T")
_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ZEROS = bytes(1 << 20)
# fdatasync is cheaper, but not every system has it.
_sync = getattr(os, "fdatasync", os.fsync)


@dataclass(frozen=True, slots=True)
class _PendingWrite:
    """Turns of concurrent calls, which are written together."""

    data: bytearray
    sessions: set[Scope]
    done: asyncio.Future[None]


class SpillJournal:
    """Files in one folder; one thread does all work on them, and holds a lock on each."""

    def __init__(self, folder: Path, *, max_bytes: int, redactor: Redactor | None = None) -> None:
        self._folder, self._max_bytes, self._redactor = folder, max_bytes, redactor or Redactor()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recollect-spill")
        self._pending: _PendingWrite | None = None
        self._flushing: asyncio.Task[None] | None = None
        # Handles by path: of the file that is appended to, and of those that only wait to be replayed.
        self._open: tuple[Path, int] | None = None
        self._sealed: dict[Path, int] = {}
        self._sessions: dict[Path, set[Scope]] = {}

    def has_pending(self, scope: Scope) -> bool:
        """Return whether turns of this session are in the journal, so that later ones have to follow them."""
        return any(scope in sessions for sessions in self._sessions.values())

    def has_pending_in(self, path: Path, scope: Scope) -> bool:
        """Return whether turns of this session are in one file."""
        return scope in self._sessions.get(path, ())

    @property
    def pending_sessions(self) -> int:
        """The number of sessions with turns in the journal."""
        return len(set().union(*self._sessions.values()))

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits that this process knows of."""
        return not self._sessions and not self._sealed

    async def append_messages(
        self,
        scope: Scope,
        messages: Sequence[Mapping[str, Any]],
        received_at: datetime,
        *,
        model: str = "",
        mode: str | None = None,
    ) -> tuple[Turn, ...]:
        """Write the turns of messages to disk as the ledger would store them; raises as `append` does."""
        turns, _ = normalize_turns(scope, messages, self._redactor)
        if turns:
            await self.append([SpilledTurn.from_turn(turn, received_at, model=model, mode=mode) for turn in turns])
        return tuple(turns)

    async def append(self, spilled: Sequence[SpilledTurn]) -> None:
        """Write turns to disk; raises DiskFull or StoreUnavailable."""
        if self._pending is None:
            self._pending = _PendingWrite(bytearray(), set(), asyncio.get_running_loop().create_future())
        pending = self._pending
        pending.data.extend(b"".join(each.to_line() for each in spilled))
        pending.sessions.update(each.scope for each in spilled)
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        await asyncio.shield(pending.done)

    async def _flush(self) -> None:
        try:
            while (pending := self._pending) is not None:
                self._pending = None
                try:
                    path = await self._run_in_thread(partial(self._write, pending.data))
                except Exception as error:
                    pending.done.set_exception(error)
                    # Marks it as retrieved, since all callers may have been cancelled.
                    pending.done.exception()
                else:
                    self._sessions.setdefault(path, set()).update(pending.sessions)
                    pending.done.set_result(None)
        finally:
            self._flushing = None

    async def claim_files(self) -> list[Path]:
        """Return the files to replay, oldest first; later turns go to a new file."""
        return await self._run_in_thread(self._claim_files)

    async def read(self, path: Path) -> list[SpilledLine]:
        """Return the turns that wait in a claimed file."""
        lines = await self._run_in_thread(lambda: list(read_spilled_lines(path)))
        self._sessions[path] = {line.turn.scope for line in lines}
        return lines

    def mark_replayed(self, path: Path, scope: Scope) -> None:
        """Note that no turns of this session wait in a file any more."""
        self._sessions[path].discard(scope)

    async def blank_lines(self, path: Path, lines: Iterable[SpilledLine]) -> None:
        """Overwrite the replayed lines of a file in which others still wait."""
        await self._run_in_thread(lambda: _blank(self._sealed[path], lines))

    async def store_rejected(self, path: Path, rejected: Iterable[SpilledTurn]) -> None:
        """Move turns that the ledger rejects to a file of their own."""
        data = b"".join(each.to_line() for each in rejected)
        await self._run_in_thread(lambda: _append_file(path.with_suffix(REJECTED_SUFFIX), data))

    async def remove(self, path: Path) -> None:
        """Overwrite and remove a file that is completely replayed."""
        await self._run_in_thread(lambda: self._remove(path))
        self._sessions.pop(path, None)

    async def close(self) -> None:
        """Finish running writes and close all files; the next process replays what waits."""
        if self._flushing is not None:
            await asyncio.wait([self._flushing])
        await self._run_in_thread(self._close_files)
        self._thread.shutdown()

    async def _run_in_thread(self, step: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, step)

    # The methods below run in the thread.

    def _write(self, data: bytes | bytearray) -> Path:
        try:
            used_bytes = sum(map(_size, list_spill_files(self._folder, SPILL_SUFFIX, REJECTED_SUFFIX)))
            if used_bytes + len(data) > self._max_bytes:
                raise DiskFull(
                    f"{self._folder} has {used_bytes:,} bytes; the limit, spill_mb, is {self._max_bytes:,}"
                )
            if self._open is None:
                self._open = _create_file(self._folder)
            path, handle = self._open
            _append(handle, data)
        except OSError as error:
            # After a failed write the handle is not trusted with further ones.
            self._seal()
            if error.errno in _DISK_FULL_ERRNOS:
                raise DiskFull(f"no space left for {self._folder}: free some") from error
            raise StoreUnavailable(f"{self._folder} cannot be written: {error.strerror}") from error
        return path

    def _seal(self) -> None:
        if self._open is None:
            return
        (path, handle), self._open = self._open, None
        if os.fstat(handle).st_size:
            self._sealed[path] = handle
        else:
            # A full disk must not leave an empty file for each attempt.
            path.unlink(missing_ok=True)
            os.close(handle)

    def _claim_files(self) -> list[Path]:
        self._seal()
        for path in list_spill_files(self._folder):
            if path not in self._sealed and (handle := _claim_orphan(path)) is not None:
                self._sealed[path] = handle
        return sorted(self._sealed)

    def _remove(self, path: Path) -> None:
        handle = self._sealed.pop(path)
        try:
            size = os.fstat(handle).st_size
            for start in range(0, size, len(_ZEROS)):
                os.pwrite(handle, _ZEROS[: size - start], start)
            _sync(handle)
            path.unlink()
        except OSError as error:
            _log.warning("%s is replayed but cannot be removed: %s", path, error)
        finally:
            os.close(handle)

    def _close_files(self) -> None:
        self._seal()
        for handle in self._sealed.values():
            os.close(handle)
        self._sealed.clear()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _open_locked(path: Path, flags: int = 0) -> int | None:
    """Open a file and lock it; return None if another process has it or has removed it."""
    # Not O_APPEND: on Linux it makes pwrite append instead of overwriting.
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_nlink:
            return handle
    except BlockingIOError:
        pass
    os.close(handle)
    return None


def _create_file(folder: Path) -> tuple[Path, int]:
    """Create and lock a file. A process that claims orphans can lock it first; then another one is created."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = None
    while handle is None:
        path = folder / f"{new_id()}{SPILL_SUFFIX}"
        handle = _open_locked(path, os.O_CREAT | os.O_EXCL)
    _sync_folder(folder)
    return path, handle


def _claim_orphan(path: Path) -> int | None:
    try:
        return _open_locked(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        _log.warning("the spill file %s of an earlier process cannot be read: %s", path, error)
        return None


def _append(handle: int, data: bytes | bytearray) -> None:
    """Append and sync; a failed write is removed."""
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
