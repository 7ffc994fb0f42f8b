"""The file of an open SQLite ledger: whether it is still in its place, and how its content is preserved if not.

SQLite keeps writing to a file that was deleted, moved or replaced. Such writes would be acknowledged and lost with
the process, so the path is compared with the opened file before and after every write, and before every read. A copy
over the file leaves its identity unchanged: whenever the file itself was modified, which only checkpoints do, its own
pages are read for the ledger's secret and the number of its last change.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias, cast
from urllib.parse import quote

import apsw

from recollect.errors import StoreUnavailable
from recollect.model.ids import new_id

_log = logging.getLogger("recollect")
RESCUED = ".rescued-"
_LOG, _SHARED_MEMORY = "-wal", "-shm"
_CHECKPOINT_S = 5.0
# Identifies a file without opening it: closing any other handle would drop SQLite's locks on the file.
_O_PATH = getattr(os, "O_PATH", None)

FileId: TypeAlias = tuple[int, int]


class LedgerFile:
    """Compares the path of a ledger with the file that was opened. Its writer calls everything but `check`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        opened = os.stat(path)
        self._id: FileId = (opened.st_dev, opened.st_ino)
        self._log_id: FileId | None = None
        # Its inode number is not used again while this is open.
        self._handle = None if _O_PATH is None else os.open(path, _O_PATH | os.O_CLOEXEC)
        self._modified = (opened.st_mtime_ns, opened.st_size)
        self._content = _read_content(path)
        self._rescued: Path | None = None
        # Set once only a restart helps.
        self._damage = ""
        self._is_overwritten = False
        # Connections of an earlier one may use a log that is gone.
        self.generation = 0

    def check(self) -> os.stat_result:
        """Raise StoreUnavailable unless the path leads to the opened file."""
        if self._damage:
            raise StoreUnavailable(self._damage)
        try:
            found = os.stat(self._path)
        except OSError as error:
            raise StoreUnavailable(self._describe_missing(error)) from None
        if (found.st_dev, found.st_ino) != self._id:
            raise StoreUnavailable(self._describe_replaced())
        return found

    def check_written(self, connection: apsw.Connection) -> None:
        """Raise StoreUnavailable unless a commit went to the file and the log in their places."""
        found = self.check()
        if self._content is None:
            # A new ledger, which is only in the log yet.
            self._content = _select_content(connection)
        log_id = _file_id(f"{self._path}{_LOG}")
        if self._log_id is None:
            self._log_id = log_id
        elif log_id != self._log_id:
            self._damage = (
                f"{self._path}{_LOG} was removed while in use, and nothing is stored: restart; what was acknowledged "
                f"is in {self._path}, and new turns of chats are taken in after the restart"
            )
        elif (modified := (found.st_mtime_ns, found.st_size)) != self._modified:
            self._check_content(modified)
        if self._damage:
            raise StoreUnavailable(self._damage)

    def note_connected(self) -> None:
        """Remember the log that the writer's new connection uses."""
        self._log_id = _file_id(f"{self._path}{_LOG}")

    def preserve(self, connection: apsw.Connection) -> None:
        """Complete a file that is not in its place from its log, copy one that was deleted, and close it."""
        self.generation += 1
        try:
            log_id = _file_id(f"{self._path}{_LOG}")
            if self._is_overwritten or log_id not in (None, self._log_id):
                # A checkpoint would mix two ledgers.
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            else:
                _empty_log(connection)
                if not self._damage and self._is_deleted:
                    self._rescue(connection)
        except (apsw.Error, OSError) as error:
            _log.error("the content of %s, which is not in its place, could not be preserved: %s", self._path, error)
        finally:
            with suppress(apsw.Error):
                connection.close()

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @property
    def _is_deleted(self) -> bool:
        """Whether the file has no name any more; unknown counts as deleted."""
        return self._handle is None or os.fstat(self._handle).st_nlink == 0

    @property
    def _copy_name(self) -> str:
        # The writer may still be copying.
        return str(self._rescued or f"{self._path}{RESCUED}*")

    def _describe_missing(self, error: OSError) -> str:
        if self._is_deleted:
            return (
                f"{self._path} was deleted while in use, and nothing is stored: stop, rename {self._copy_name}, "
                f"which has all that was acknowledged, to {self._path.name}, and start; to begin anew, delete it"
            )
        return (
            f"{self._path} was moved or unmounted while in use ({error.strerror}), and nothing is stored: put it "
            f"back, and this continues"
        )

    def _describe_replaced(self) -> str:
        former = f"is in {self._copy_name}" if self._is_deleted else "was moved away"
        return (
            f"{self._path} was replaced by another file while in use, and nothing is stored: restart to use the new "
            f"one; the former {former}. `recollect restore` replaces a ledger safely"
        )

    def _check_content(self, modified: tuple[int, int]) -> None:
        """Compare the secret and the last change in the file itself with those seen before."""
        content = _read_content(self._path)
        if content is None:
            # A checkpoint is under way; the next write looks again.
            return
        before = self._content
        if before is not None and (content[0] != before[0] or content[1] < before[1]):
            self._is_overwritten = True
            self._damage = (
                f"{self._path} was overwritten while in use, and nothing is stored: stop, restore the backup again "
                f"with `recollect restore --force`, and start"
            )
            return
        self._content, self._modified = content, modified

    def _rescue(self, connection: apsw.Connection) -> None:
        """Copy a deleted file to another name in its folder, and remove the log that it left."""
        if not self._path.parent.is_dir():
            return
        content = _select_content(connection)
        # Another process may have done it.
        self._rescued = next((each for each in find_rescued(self._path) if _read_content(each) == content), None)
        if self._rescued is None:
            rescued = self._path.with_name(f"{self._path.name}{RESCUED}{new_id()}")
            os.close(os.open(rescued, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            target = apsw.Connection(str(rescued))
            try:
                with target.backup("main", connection, "main") as copy:
                    copy.step()
            finally:
                target.close()
            self._rescued = rescued
            _log.error("%s was deleted while in use; its content is in %s", self._path, rescued)
        if _file_id(f"{self._path}{_LOG}") == self._log_id:
            # SQLite would apply them to a file that is put in place.
            for tail in (_LOG, _SHARED_MEMORY):
                Path(f"{self._path}{tail}").unlink(missing_ok=True)


def find_rescued(path: Path) -> list[Path]:
    """Return the copies of deleted ledgers of this name."""
    return sorted(path.parent.glob(f"{path.name}{RESCUED}*"))


def _file_id(path: str) -> FileId | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _empty_log(connection: apsw.Connection) -> None:
    """Move the log's content into the file; readers may delay it."""
    give_up = time.monotonic() + _CHECKPOINT_S
    connection.set_busy_timeout(250)
    while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]:
        if time.monotonic() > give_up:
            raise apsw.BusyError("a reader kept the log busy")


def _read_content(path: Path) -> tuple[str, int] | None:
    """Return the secret and the number of the last change in the file without its log, or None if unreadable."""
    try:
        connection = apsw.Connection(
            f"file:{quote(str(path))}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
        try:
            return _select_content(connection)
        finally:
            connection.close()
    except apsw.Error:
        return None


def _select_content(connection: apsw.Connection) -> tuple[str, int] | None:
    """Return the secret of the ledger and the number of its last change, or None if it has no schema yet."""
    try:
        rows = connection.execute(
            "SELECT value, (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'history') "
            "FROM meta WHERE name = 'tombstone_secret'"
        ).fetchall()
    except apsw.SQLError:
        return None
    return (str(rows[0][0]), cast(int, rows[0][1])) if rows else None
