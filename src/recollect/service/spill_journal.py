"""The spill journal: turns on disk, in files of this process, while the ledger is unavailable.

Turns are synced when `append` returns; concurrent calls share a sync. `SpillReplay` stores them in the ledger later.
The file format, and how an erasure reaches the files, is in `recollect.write.spill_file`.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from recollect.aio.background import BackgroundTask
from recollect.errors import Backlog, DiskFull, RecollectError, StoreUnavailable, Unavailable
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.change import Author
from recollect.model.ids import new_id
from recollect.model.result import RememberResult
from recollect.model.scope import Scope
from recollect.model.turn import Turn
from recollect.remember import normalize_turns
from recollect.service.service import Service
from recollect.write.redact import Redactor
from recollect.write.spill_file import (
    REJECTED_SUFFIX,
    SPILL_SUFFIX,
    SpilledLine,
    SpilledTurn,
    group_by_arrival,
    group_by_learning,
    list_spill_files,
    read_spilled_lines,
)

_log = logging.getLogger("recollect")
T = TypeVar("T")
_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ZEROS = bytes(1 << 20)


@frozen_dataclass
class _PendingWrite:
    """Turns of concurrent calls, which are written together."""

    data: bytearray
    sessions: set[Scope]
    done: asyncio.Future[None]


class SpillJournal:
    """Files in one folder; one thread does all work on them, and holds a lock on each."""

    def __init__(
        self, folder: Path, *, max_bytes: int, redactor: Redactor | None = None, home: Path | None = None
    ) -> None:
        self._folder, self._max_bytes, self._redactor = folder, max_bytes, redactor or Redactor()
        # A home that is moved or unmounted later is not made anew: turns in the new one would not be found.
        self._home, self._home_id = home, _make_home(home)
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
        turns, _ = await normalize_turns(scope, messages, self._redactor)
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
            self._check_home()
            used_bytes = sum(map(_size, list_spill_files(self._folder, SPILL_SUFFIX, REJECTED_SUFFIX)))
            if used_bytes + len(data) > self._max_bytes:
                raise DiskFull(f"{self._folder} has {used_bytes:,} bytes; spill_mb allows {self._max_bytes:,}")
            if self._open is None:
                self._open = _create_file(self._folder)
            path, handle = self._open
            _append(handle, data)
            if not _is_in_place(path, handle):
                self._check_home()
                self._open = path, _put_back(path, handle)
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

    def _check_home(self) -> None:
        if self._home is not None and self._home_id is not None and _file_id(self._home) != self._home_id:
            raise StoreUnavailable(f"{self._home} was moved, deleted or unmounted while in use: put it back")

    def _claim_files(self) -> list[Path]:
        self._check_home()
        self._seal()
        for path, handle in self._sealed.items():
            if not _is_in_place(path, handle):
                self._sealed[path] = _put_back(path, handle)
        for path in list_spill_files(self._folder):
            if path not in self._sealed and (orphan := _claim_orphan(path)) is not None:
                self._sealed[path] = orphan
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


def _make_home(home: Path | None) -> tuple[int, int] | None:
    """Create the home if it does not exist, and return its identity, or None if it cannot be made."""
    if home is None:
        return None
    with suppress(OSError):
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
    return _file_id(home)


def _file_id(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_in_place(path: Path, handle: int) -> bool:
    """Return whether the path leads to an open file, which may have been deleted or moved."""
    opened = os.fstat(handle)
    return _file_id(path) == (opened.st_dev, opened.st_ino)


def _put_back(path: Path, handle: int) -> int:
    """Write a deleted file anew from its open handle, and return the new handle."""
    content = os.pread(handle, os.fstat(handle).st_size, 0)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    restored = None
    while restored is None:
        restored = _open_locked(path, os.O_CREAT)
    _append(restored, content)
    _sync_folder(path.parent)
    os.close(handle)
    return restored


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


def _sync(handle: int) -> None:
    # fdatasync is cheaper, but not every system has it.
    getattr(os, "fdatasync", os.fsync)(handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


CHAT_AUTHOR = Author("proxy", "chat")
# How often the ledger is tried while turns wait, and how often files of other processes are looked for.
POLL_S = 1.0
ORPHAN_SCAN_S = 10.0
_PING_S = 2.0
APPEND_TIMEOUT_S = 15.0
_MAX_CONCURRENT_SESSIONS = 8
_BATCH_TURNS, _BATCH_CHARS = 100, 1 << 18


def _batches(turns: Iterable[SpilledTurn]) -> Iterator[list[SpilledTurn]]:
    """Yield turns in batches that the ledger takes within the timeout."""
    batch: list[SpilledTurn] = []
    chars = 0
    for turn in turns:
        size = len(turn.message["content"])
        if batch and (len(batch) == _BATCH_TURNS or chars + size > _BATCH_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(turn)
        chars += size
    if batch:
        yield batch


class SpillReplay:
    """A background task that empties the journal into the ledger."""

    def __init__(self, journal: SpillJournal, service: Callable[[], Service]) -> None:
        self._journal, self._service = journal, service
        self._task = BackgroundTask(self._run)
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT_SESSIONS)

    def start(self) -> None:
        """Replay from now on, also turns of processes that ended."""
        self._task.start()

    async def close(self) -> None:
        """Stop; turns that are left stay on disk."""
        await self._task.stop()

    async def _run(self) -> None:
        while True:
            pause_s = POLL_S
            try:
                await self.replay_pending()
            except (Unavailable, TimeoutError) as error:
                _log.debug("the replay of spilled turns waits for the ledger: %s", error)
            except Exception:
                _log.exception("spilled turns could not be replayed")
                pause_s = ORPHAN_SCAN_S
            waited_s = 0.0
            # Other processes rarely leave files, and looking for them costs more than checking our own.
            while self._journal.is_empty and waited_s < ORPHAN_SCAN_S:
                await asyncio.sleep(POLL_S)
                waited_s += POLL_S
            await asyncio.sleep(pause_s)

    async def replay_pending(self) -> int:
        """Replay all turns that the ledger takes; returns their number, or raises why the ledger is unavailable."""
        service = self._service()
        async with asyncio.timeout(_PING_S):
            await service.ping()
        count, blocked = 0, set[Scope]()
        for path in await self._journal.claim_files():
            count += await self._replay_file(path, service, blocked)
        if count:
            _log.info("replayed %d spilled turns", count)
        return count

    async def _replay_file(self, path: Path, service: Service, blocked: set[Scope]) -> int:
        """Replay a file's sessions concurrently, except for those with turns left in an earlier file."""
        sessions: dict[Scope, list[SpilledLine]] = {}
        for line in await self._journal.read(path):
            sessions.setdefault(line.turn.scope, []).append(line)
        results = await asyncio.gather(
            *(
                self._replay_session(path, scope, sessions[scope], service)
                for scope in sessions
                if scope not in blocked
            ),
            return_exceptions=True,
        )
        finished = [scope for scope in sessions if not self._journal.has_pending_in(path, scope)]
        if len(finished) == len(sessions):
            await self._journal.remove(path)
        elif finished:
            await self._journal.blank_lines(path, (line for scope in finished for line in sessions[scope]))
        blocked.update(sessions.keys() - set(finished))
        for result in results:
            # One user's backlog or long turns do not hold up the turns of other users.
            if isinstance(result, BaseException) and not isinstance(result, Backlog | TimeoutError):
                raise result
        if any(isinstance(result, TimeoutError) for result in results):
            async with asyncio.timeout(_PING_S):
                await service.ping()
        return sum(result for result in results if isinstance(result, int))

    async def _replay_session(self, path: Path, scope: Scope, lines: Sequence[SpilledLine], service: Service) -> int:
        count = 0
        async with self._slots:
            for group in group_by_learning(line.turn for line in lines):
                for batch in _batches(group):
                    count += await self._replay_batch(batch, service) or await self._replay_each(path, batch, service)
        self._journal.mark_replayed(path, scope)
        return count

    async def _replay_batch(self, batch: Sequence[SpilledTurn], service: Service) -> int:
        """Store turns in one call; returns 0 unless all are stored, so that each has to be stored by itself.

        They count as received when the first of them was. No turn that an erasure reached is stored, but one that
        was received after the erasure may be left out.
        """
        try:
            stored = await self._remember(batch, service)
        except Unavailable:
            raise
        except RecollectError:
            return 0
        return len(stored) if len(stored) == len(batch) else 0

    async def _replay_each(self, path: Path, batch: Sequence[SpilledTurn], service: Service) -> int:
        count = 0
        for group in group_by_arrival(batch):
            try:
                count += len(await self._remember(group, service))
            except Unavailable:
                raise
            except RecollectError as error:
                _log.error(
                    "the ledger rejects %d spilled turns, which are moved to a .refused file: %s",
                    len(group),
                    error,
                )
                await self._journal.store_rejected(path, group)
        return count

    async def _remember(self, batch: Sequence[SpilledTurn], service: Service) -> RememberResult:
        """Store turns of one session that are learned from in the same way."""
        first = batch[0]
        async with asyncio.timeout(APPEND_TIMEOUT_S):
            return await service.remember(
                first.scope,
                [each.message for each in batch],
                by=CHAT_AUTHOR,
                received_at=min(each.received_at for each in batch),
                model=first.model,
                mode=first.mode,
            )
