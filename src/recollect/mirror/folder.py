"""Read and write files below one folder atomically, without leaving it.

Every path is opened from the folder down, and no symbolic link is followed. A file is written under a temporary name,
synced, and exchanged with the old file in one step; the old file is then checked, so that an edit made at that very
moment is noticed and not lost.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from recollect.errors import Conflict, DiskFull, InvalidInput, StoreUnavailable
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.ids import new_id

MAX_DOCUMENT_BYTES = 2 << 20
_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OPEN_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_MODE, _FOLDER_MODE = 0o600, 0o700
_TEMPORARY_PREFIX = ".recollect-"
_RENAME_EXCHANGE = 2
_CANNOT_LINK = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
_CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
# Never removed: without them an emptied folder would look like a lost one.
_PERMANENT_FOLDERS = ("entries", "users", "conflicts")


class FileChanged(Conflict):
    """A file differs from its last known state: somebody has just written or removed it."""


def stamp_of(stat: os.stat_result) -> str:
    """Return the times, size and inode of a file as one text, which changes when the file does."""
    return f"{stat.st_mtime_ns}:{stat.st_ctime_ns}:{stat.st_size}:{stat.st_ino}"


def mtime_ns(stamp: str) -> int:
    """Return the time of the last write in a stamp."""
    return int(stamp.split(":", 1)[0])


def _without_ctime(stamp: str) -> tuple[str, str, str]:
    """Return the parts of a stamp that a rename does not change."""
    mtime, _, size, inode = stamp.split(":")
    return mtime, size, inode


@frozen_dataclass
class StagedFile:
    """A file that was written under a temporary name."""

    path: str
    temporary: str
    stamp: str


class MirrorFolder:
    """Files below one folder, by their relative paths. The stamp of a file that does not exist is empty."""

    def __init__(self, root: Path) -> None:
        self.root = root
        with _translate_errors(str(root)):
            root.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        self._to_sync: set[str] = set()

    def stamp(self, path: str) -> str:
        """Return the stamp of a file; empty if there is no regular file."""
        try:
            with self._open_parent(path) as (folder, name):
                stat = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError, InvalidInput):
            return ""
        return stamp_of(stat) if S_ISREG(stat.st_mode) else ""

    def read(self, path: str, *, written: str | None = None) -> tuple[bytes, str]:
        """Return the content and stamp of a file; raise InvalidInput or FileNotFoundError.

        With `written`, the stamp under which the mirror wrote it or an empty text, another file with hard links is
        refused: it may be one outside of the folder. Links to files of the mirror, such as backups, do no harm.
        """
        with self._open_parent(path) as (folder, name):
            try:
                handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.EMLINK):
                    raise InvalidInput("it is a symbolic link, and those are not followed") from None
                if isinstance(error, FileNotFoundError):
                    raise
                raise InvalidInput(f"it cannot be read: {error.strerror}") from None
            with os.fdopen(handle, "rb") as file:
                stat = os.fstat(handle)
                if not S_ISREG(stat.st_mode):
                    raise InvalidInput("it is no plain file")
                is_foreign = written is not None and not written.endswith(f":{stat.st_ino}")
                if is_foreign and stat.st_nlink > 1:
                    raise InvalidInput("it has hard links, and may be a file outside of the folder: copy it instead")
                if stat.st_size > MAX_DOCUMENT_BYTES:
                    raise InvalidInput(f"it is {stat.st_size:,} bytes long; the limit is {MAX_DOCUMENT_BYTES:,}")
                data = file.read(MAX_DOCUMENT_BYTES + 1)
        return data, stamp_of(stat)

    def write(self, path: str, data: bytes, *, expected: str) -> str:
        """Write a file, or raise FileChanged if the current file does not have the `expected` stamp.

        Its folders are on disk after the next `sync`.
        """
        return self.place(self.stage(path, data), expected=expected)

    def stage(self, path: str, data: bytes, *, sync: bool = True) -> StagedFile:
        """Write a file under a temporary name; without `sync` it is on disk after `sync_staged`."""
        with _translate_errors(path), self._open_parent(path, make=True) as (folder, _):
            temporary = f"{_TEMPORARY_PREFIX}{new_id()}"
            handle = os.open(temporary, _NEW_FILE_FLAGS, _FILE_MODE, dir_fd=folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    if sync:
                        os.fsync(handle)
                    stamp = stamp_of(os.fstat(handle))
            except BaseException:
                os.unlink(temporary, dir_fd=folder)
                raise
        return StagedFile(path, temporary, stamp)

    def place(self, staged: StagedFile, *, expected: str) -> str:
        """Move a staged file to its path, and return its stamp."""
        path, temporary = staged.path, staged.temporary
        with _translate_errors(path), self._open_parent(path, make=True) as (folder, name):
            try:
                _rename_into_place(temporary, name, folder, expected)
                self._to_sync.add(os.path.dirname(path))
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
            # Only now: removing the temporary name changes the ctime.
            placed = stamp_of(os.stat(name, dir_fd=folder, follow_symlinks=False))
        # If somebody has written to it already, return the old stamp, so that the change is noticed.
        return placed if _without_ctime(placed) == _without_ctime(staged.stamp) else staged.stamp

    def discard(self, staged: StagedFile) -> None:
        """Remove a staged file that was not placed."""
        with suppress(FileNotFoundError, NotADirectoryError), self._open_parent(staged.path) as (folder, _):
            os.unlink(staged.temporary, dir_fd=folder)

    def sync_staged(self) -> None:
        """Sync all staged files to disk at once."""
        with _translate_errors(str(self.root)), self._open_folder("") as handle:
            if _syncfs is None or _syncfs(handle) != 0:
                os.sync()

    def remove(self, path: str, *, expected: str = "") -> bool:
        """Remove a file and return whether there was one; raise FileChanged if it has not the `expected` stamp."""
        try:
            with _translate_errors(path), self._open_parent(path) as (folder, name):
                stat = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if expected and stamp_of(stat) != expected:
                    raise FileChanged(f"{path} was just changed")
                os.unlink(name, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):
            return False
        self._to_sync.add(os.path.dirname(path))
        return True

    def remove_empty(self, path: str) -> None:
        """Remove the empty folders of a path, up to a permanent one."""
        parent = os.path.dirname(path)
        while parent and os.path.basename(parent) not in _PERMANENT_FOLDERS:
            try:
                with self._open_parent(parent) as (folder, name):
                    os.rmdir(name, dir_fd=folder)
            except OSError:
                return
            self._to_sync.discard(parent)
            parent = os.path.dirname(parent)
            self._to_sync.add(parent)

    def sync(self) -> None:
        """Sync the changed folders to disk."""
        paths, self._to_sync = self._to_sync, set()
        # A new folder is an entry of its parent.
        for each in {ancestor for path in paths for ancestor in _ancestors(path)}:
            with suppress(FileNotFoundError, NotADirectoryError), self._open_folder(each) as folder:
                os.fsync(folder)

    def scan(self, start: str = "", *, sweep: bool = False) -> Iterator[tuple[str, str]]:
        """Yield every file below a path with its stamp, empty for irregular files; skip names with a leading dot.

        With `sweep`, remove leftover temporary files.
        """
        pending = [start]
        while pending:
            path = pending.pop()
            try:
                with os.scandir(self.root / path) as directory:
                    entries = [(each, each.stat(follow_symlinks=False)) for each in directory]
            except (FileNotFoundError, NotADirectoryError):
                continue
            for each, stat in entries:
                inner = f"{path}/{each.name}" if path else each.name
                if each.name.startswith("."):
                    if sweep and each.name.startswith(_TEMPORARY_PREFIX):
                        self.remove(inner)
                elif S_ISDIR(stat.st_mode):
                    pending.append(inner)
                else:
                    yield inner, stamp_of(stat) if S_ISREG(stat.st_mode) else ""

    def sweep(self) -> None:
        """Remove leftover temporary files in the root."""
        for name in os.listdir(self.root):
            if name.startswith(_TEMPORARY_PREFIX):
                self.remove(name)

    @contextmanager
    def _open_parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        folder, _, name = path.rpartition("/")
        if name in ("", ".", "..") or path.startswith("/"):
            raise InvalidInput(f"{path!r} names no file")
        with self._open_folder(folder, make=make) as handle:
            yield handle, name

    @contextmanager
    def _open_folder(self, path: str, *, make: bool = False) -> Iterator[int]:
        handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in path.split("/") if path else ():
                inner = _open_child(handle, part, make=make)
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)


def _open_child(handle: int, part: str, *, make: bool) -> int:
    if part in ("", ".", ".."):
        raise InvalidInput("a path in the mirror leads out of it")
    try:
        if make:
            with suppress(FileExistsError):
                os.mkdir(part, _FOLDER_MODE, dir_fd=handle)
        return os.open(part, _OPEN_FOLDER_FLAGS, dir_fd=handle)
    except OSError as error:
        if error.errno == errno.ELOOP or (isinstance(error, NotADirectoryError) and _is_link(part, handle)):
            raise InvalidInput(f"{part} is a symbolic link, and those are not followed") from None
        raise


def _is_link(part: str, handle: int) -> bool:
    try:
        os.readlink(part, dir_fd=handle)
    except OSError:
        return False
    return True


def _ancestors(path: str) -> Iterator[str]:
    yield path
    while path:
        path = os.path.dirname(path)
        yield path


def _rename_into_place(temporary: str, name: str, folder: int, expected: str) -> None:
    """Rename a file; the replaced one must have the expected stamp at that very moment."""
    if not expected:
        try:
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise FileChanged(f"{name} exists already") from None
        except OSError as error:
            if error.errno not in _CANNOT_LINK or _exists(name, folder):
                raise
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return
    try:
        current = stamp_of(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        raise FileChanged(f"{name} was just removed") from None
    if current != expected:
        raise FileChanged(f"{name} was just changed")
    if not _exchange(folder, temporary, name):
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return
    replaced = stamp_of(os.stat(temporary, dir_fd=folder, follow_symlinks=False))
    if _without_ctime(replaced) != _without_ctime(expected):
        _exchange(folder, temporary, name)
        raise FileChanged(f"{name} was just changed")


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _exchange(folder: int, first: str, second: str) -> bool:
    """Swap two files atomically; return False where the system cannot."""
    if _renameat2 is None:
        return False
    if _renameat2(folder, first.encode(), folder, second.encode(), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT_EXCHANGE:
        return False
    if number == errno.ENOENT:
        raise FileChanged(f"{second} was just removed")
    raise OSError(number, os.strerror(number))


def _libc_function(name: str) -> ctypes._NamedFuncPointer | None:
    """Return a libc function that Python does not provide; None if the system lacks it."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), name, None)


_renameat2, _syncfs = _libc_function("renameat2"), _libc_function("syncfs")


def digest_of(data: bytes) -> str:
    """Return a digest of a file's content."""
    return blake2b(data, digest_size=16).hexdigest()


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FULL_ERRNOS:
            raise DiskFull(f"no space is left for the mirror ({error.strerror})") from None
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise
        raise StoreUnavailable(f"{path} in the mirror cannot be written: {error.strerror}") from None
