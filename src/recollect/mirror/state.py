"""The state of a mirrored folder: its lock, and the last known state of each file and user in a small database.

It has paths, ids, versions and digests, but no content. If it is lost, all files are read again. Writes are recorded
before they are done, so that after a crash they are not taken for a person's edits.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

import apsw

from recollect.errors import StoreUnavailable
from recollect.mirror.layout import CONFLICTS, STATE_FOLDER, parse_location
from recollect.model.times import now

_log = logging.getLogger("recollect")
R = TypeVar("R")
_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    path TEXT PRIMARY KEY, user TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, digest TEXT NOT NULL,
    stamp TEXT NOT NULL, is_gone INTEGER NOT NULL, pending TEXT
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS files_by_id ON files (user, id);
CREATE TABLE IF NOT EXISTS bad (
    path TEXT PRIMARY KEY, stamp TEXT NOT NULL, digest TEXT NOT NULL, reason TEXT NOT NULL, at TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS conflicts (
    path TEXT PRIMARY KEY, user TEXT NOT NULL, id TEXT NOT NULL, at TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS users (
    user TEXT PRIMARY KEY, position INTEGER NOT NULL, revision INTEGER NOT NULL, epoch INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class FileRow:
    """The last known state of a memory's file; `pending` is the digest of what is about to be written.

    A file that was not written yet has an empty stamp.
    """

    path: str
    user: str
    id: str
    version: int = 0
    digest: str = ""
    stamp: str = ""
    is_gone: bool = False
    pending: str | None = None


@dataclass(frozen=True, slots=True)
class RejectedFile:
    """A file that cannot be ingested or written, and why; the digest is not used any more."""

    path: str
    stamp: str
    digest: str
    reason: str
    at: str


@dataclass(frozen=True, slots=True)
class ConflictFile:
    """A file with the text that a person's edit replaced."""

    path: str
    user: str
    id: str
    at: str


@dataclass(frozen=True, slots=True)
class HistoryPosition:
    """The position in a user's history up to which it was written to files."""

    user: str
    position: int = 0
    revision: int = -1
    epoch: int = -1


def _execute(db: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    try:
        return db.execute(sql, values).fetchall()
    except apsw.Error as error:
        raise StoreUnavailable(f"the mirror's state cannot be read: {error}") from None


class StateTable(Generic[R]):
    """A table of rows of a dataclass, by their first field."""

    def __init__(self, db: apsw.Connection, name: str, kind: type[R]) -> None:
        self._db, self._name, self._kind = db, name, kind
        columns = [each.name for each in fields(kind)]  # type: ignore[arg-type]
        self._key, self._columns, self._marks = columns[0], ", ".join(columns), ", ".join("?" * len(columns))

    def get(self, key: str) -> R | None:
        return next(iter(self.all(f"WHERE {self._key} = ?", key)), None)

    def all(self, condition: str = "", *values: str) -> list[R]:
        """Return the rows in the order of their keys."""
        sql = f"SELECT {self._columns} FROM {self._name} {condition} ORDER BY 1"  # noqa: S608 - constants
        return [self._kind(*row) for row in _execute(self._db, sql, values)]

    def put(self, row: R) -> None:
        sql = f"INSERT OR REPLACE INTO {self._name} ({self._columns}) VALUES ({self._marks})"  # noqa: S608 - constants
        _execute(self._db, sql, astuple(row))  # type: ignore[call-overload]

    def drop(self, key: str) -> None:
        _execute(self._db, f"DELETE FROM {self._name} WHERE {self._key} = ?", (key,))  # noqa: S608 - constants

    def clear(self) -> None:
        _execute(self._db, f"DELETE FROM {self._name}")  # noqa: S608 - constants


class MirrorState:
    """The database of the last known state: the files, those rejected, conflicts, and positions in users' history."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        try:
            self._db = apsw.Connection(str(path), flags=flags)
            self._db.set_busy_timeout(10_000)
            if not read_only:
                self._open()
        except (apsw.CorruptError, apsw.NotADBError):
            raise StoreUnavailable(f"{path} is damaged; remove it, and all files are read again") from None
        except apsw.Error as error:
            raise StoreUnavailable(f"{path} cannot be opened: {error}") from None
        self.files = StateTable(self._db, "files", FileRow)
        self.rejected = StateTable(self._db, "bad", RejectedFile)
        self.conflicts = StateTable(self._db, "conflicts", ConflictFile)
        self.positions = StateTable(self._db, "users", HistoryPosition)

    def _open(self) -> None:
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
            self._db.execute(f"PRAGMA {pragma}").fetchall()
        _execute(self._db, _SCHEMA)
        if (stored_format := self.meta("format")) not in (None, str(_FORMAT)):
            raise StoreUnavailable(f"the mirror's state has format {stored_format}; this version supports {_FORMAT}")
        self.set_meta("format", str(_FORMAT))

    def transaction(self) -> AbstractContextManager[object]:
        """Return a context manager that makes several writes one transaction."""
        return self._db

    # Files

    def row(self, user: str, id: str) -> FileRow | None:
        """Return the file of a memory."""
        return next(iter(self.files.all("WHERE user = ? AND id = ?", user, id)), None)

    def rows_below(self, folder: str) -> list[FileRow]:
        return self.files.all("WHERE path >= ? AND path < ?", f"{folder}/", f"{folder}0")

    def rows_of_user(self, user: str, *, unwritten: bool = False) -> list[FileRow]:
        """Return the files of a user, or those that were not written yet."""
        return self.files.all("WHERE user = ? AND stamp = ''" if unwritten else "WHERE user = ?", user)

    def stamps(self) -> dict[str, str]:
        """Return the stamp of every file by its path, including rejected ones."""
        return dict(_execute(self._db, "SELECT path, stamp FROM files UNION ALL SELECT path, stamp FROM bad"))

    def put(self, rows: Iterable[FileRow]) -> None:
        """Store the state of files."""
        values = [astuple(row) for row in rows]
        with self._db:
            # A moved file has one row.
            self._db.executemany("DELETE FROM files WHERE user = ? AND id = ?", [(v[1], v[2]) for v in values])
            self._db.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
            self._db.executemany("DELETE FROM bad WHERE path = ?", [(v[0],) for v in values])

    def set_pending(self, pending: Iterable[tuple[str, str, str]]) -> None:
        """Record the user, id and digest of memories before their files are written."""
        self._db.executemany("UPDATE files SET pending = ?3 WHERE user = ?1 AND id = ?2", list(pending))

    def drop(self, rows: Iterable[FileRow]) -> None:
        """Delete the state of files."""
        self._db.executemany("DELETE FROM files WHERE path = ?", [(row.path,) for row in rows])

    def count(self, user: str | None = None) -> dict[str, int]:
        """Count the files and the tombstones of a user or of all."""
        rows = _execute(
            self._db, "SELECT count(*), coalesce(sum(is_gone), 0) FROM files WHERE ?1 IS NULL OR user = ?1", (user,)
        )
        total, tombstones = rows[0]
        return {"memories": total - tombstones, "tombstones": tombstones}

    def reject(self, path: str, reason: str, *, stamp: str) -> None:
        """Record and log why a file is rejected; once its stamp changes it is read again."""
        self.rejected.put(RejectedFile(path, stamp, "", reason, now().isoformat()))
        _log.warning("mirror: %s is rejected: %s", path, reason)

    def position(self, user: str) -> HistoryPosition:
        """Return how far a user's history was written to files."""
        return self.positions.get(user) or HistoryPosition(user)

    def meta(self, name: str) -> str | None:
        rows = _execute(self._db, "SELECT value FROM meta WHERE name = ?", (name,))
        return rows[0][0] if rows else None

    def set_meta(self, name: str, value: str) -> None:
        _execute(self._db, "INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))

    def scrub(self) -> None:
        """Remove deleted rows from the write-ahead log, too."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        self._db.close()


_KINDS = {"user": "turn", "assistant": "turn", "memory": "fact", "summary": "summary"}


@dataclass(slots=True)
class SyncResult:
    """The result of a synchronisation: memories changed by files, and files changed by memories.

    `ingested` are paths that a person changed, `written` and `removed` those that the mirror changed. `users` are
    those whose files changed. `is_whole` says that all files were compared.
    """

    added: int = 0
    edited: int = 0
    forgotten: int = 0
    restored: int = 0
    conflicts: int = 0
    bad: int = 0
    ingested: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    users: set[str] = field(default_factory=set)
    is_whole: bool = False

    @property
    def changed(self) -> list[str]:
        """Return the changed paths, whoever changed them."""
        return [*self.ingested, *self.written, *self.removed]

    @property
    def commit_message(self) -> str:
        """Return one line, such as "Write 2 turns and 1 fact; remove 1 fact (1 edited by hand)"."""
        by_hand = {"added": self.added, "edited": self.edited, "deleted": self.forgotten, "restored": self.restored}
        manual_changes = ", ".join(f"{count} {how}" for how, count in by_hand.items() if count)
        written, removed = _count_kinds(self.written), _count_kinds(self.removed)
        parts = [f"write {written}" if written else "", f"remove {removed}" if removed else ""]
        summary = "; ".join(filter(None, parts)) or "keep files"
        return summary[0].upper() + summary[1:] + (f" ({manual_changes} by hand)" if manual_changes else "")


def _count_kinds(paths: Iterable[str]) -> str:
    kinds = Counter(map(_kind, paths))
    plurals = {kind: "summaries" if kind == "summary" else f"{kind}s" for kind in kinds}
    counts = [f"{count} {kind if count == 1 else plurals[kind]}" for kind, count in sorted(kinds.items())]
    return " and ".join([", ".join(counts[:-1]), counts[-1]] if len(counts) > 1 else counts)


def _kind(path: str) -> str:
    location = parse_location(path)
    if location is None:
        return "conflict" if CONFLICTS in path else "file"
    return "tombstone" if location.is_tombstone else _KINDS[location.role]


_LOCK_FILE = "lock"
STATE_FILE = "mirror.db"


def make_state_folder(root: Path) -> Path:
    """Return the folder of the mirror's own state; create it if necessary."""
    folder = root / STATE_FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


class MirrorLock:
    """A file lock, so that one process at a time mirrors a folder; it ends with the process."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._handle: int | None = None

    def acquire(self) -> bool:
        """Acquire the lock, or return False if another process has it."""
        handle = os.open(
            make_state_folder(self._root) / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        os.truncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        self._handle = handle
        return True

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def locking_process(root: Path) -> int | None:
    """Return the id of the process that mirrors a folder; None if none does."""
    lock = MirrorLock(root)
    if not (root / STATE_FOLDER / _LOCK_FILE).exists():
        return None
    if lock.acquire():
        lock.release()
        return None
    text = (root / STATE_FOLDER / _LOCK_FILE).read_text().strip()
    return int(text) if text.isdigit() else 0


def read_mirror_status(root: Path) -> dict[str, Any]:
    """Return the process that mirrors a folder, counts, rejected files and conflicts, as plain values.

    `synced_at` is None if it was never synchronised.
    """
    path = root / STATE_FOLDER / STATE_FILE
    status: dict[str, Any] = {"folder": str(root), "mirrored_by": None, "synced_at": None}
    if not path.exists():
        counts = {"memories": 0, "tombstones": 0, "users": 0}
        return {**status, **counts, "versions": False, "aside": [], "conflicts": []}
    state = MirrorState(path, read_only=True)
    try:
        # A removed file is a resolved conflict.
        conflicts = [each for each in state.conflicts.all() if (root / each.path).exists()]
        return {
            **status,
            "mirrored_by": locking_process(root),
            "synced_at": state.meta("synced_at"),
            **state.count(),
            "users": len(state.positions.all()),
            "versions": (root / ".git").is_dir(),
            "aside": [{"path": each.path, "reason": each.reason, "since": each.at} for each in state.rejected.all()],
            "conflicts": [{"path": each.path, "id": each.id, "since": each.at} for each in conflicts],
        }
    finally:
        state.close()
