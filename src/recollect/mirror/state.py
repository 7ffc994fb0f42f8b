"""What the mirror last saw of each file and of each user: the snapshot that lets it start in seconds.

It holds paths, ids, versions and digests, none of what a memory says. It can be lost: all files are read then.
What is about to be written is noted before it is, so that after a crash our own writing is not taken for a person's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from recollect.errors import StoreUnavailable
from recollect.mirror.folder import FileStamp
from recollect.model.times import now

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """What was last seen of the file of a memory; `pending` is the digest of what is about to be written there."""

    path: str
    user: str
    id: str
    version: int
    digest: str
    stamp: str
    is_gone: bool = False
    pending: str | None = None

    @property
    def last_stamp(self) -> FileStamp | None:
        """How the file stood; None for one that was never there."""
        return FileStamp(self.stamp) if self.stamp else None


@dataclass(frozen=True, slots=True)
class RejectedFile:
    """A file that cannot be used, and why."""

    path: str
    stamp: str
    digest: str
    reason: str
    at: str


@dataclass(frozen=True, slots=True)
class ConflictFile:
    """A text that a person's edit took the place of, and the memory it was of."""

    path: str
    user: str
    id: str
    at: str


@dataclass(frozen=True, slots=True)
class HistoryPosition:
    """How far a user's history was followed."""

    position: int = 0
    revision: int = -1
    epoch: int = -1


# When the system last saw a file change: the second of the numbers in a stamp.
_CHANGED_SQL = "CAST(substr(stamp, instr(stamp, ':') + 1) AS INTEGER)"
_ROW_COLUMNS = "path, user, id, version, digest, stamp, is_gone, pending"


class MirrorState:
    """The snapshot, in a small database beside the files."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        try:
            self._db = apsw.Connection(str(path), flags=flags)
            self._db.set_busy_timeout(10_000)
            if not read_only:
                self._open()
        except (apsw.CorruptError, apsw.NotADBError):
            raise StoreUnavailable(f"{path} is damaged: remove it, and all files are read anew") from None
        except apsw.Error as error:
            raise StoreUnavailable(f"{path} cannot be opened: {error}") from None

    def _open(self) -> None:
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
            self._db.execute(f"PRAGMA {pragma}").fetchall()
        self._fetch(_SCHEMA)
        if (stored_format := self.meta("format")) not in (None, str(_FORMAT)):
            raise StoreUnavailable(
                f"the state of the mirror is of format {stored_format}, and this Recollect knows {_FORMAT}"
            )
        self.set_meta("format", str(_FORMAT))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several writes as one."""
        with self._db:
            yield

    # Files

    def row(self, user: str, id: str) -> FileRow | None:
        """The file of a memory."""
        return next(self._rows("user = ? AND id = ?", (user, id)), None)

    def row_at(self, path: str) -> FileRow | None:
        """The memory whose file lies at a path."""
        return next(self._rows("path = ?", (path,)), None)

    def rows_below(self, folder: str) -> list[FileRow]:
        """The files below a folder; below an empty one, all."""
        if not folder:
            return list(self._rows("1 = 1", ()))
        return list(self._rows("path >= ? AND path < ?", (f"{folder}/", f"{folder}0")))

    def rows_of_user(self, user: str, *, unwritten: bool = False) -> list[FileRow]:
        """All files of a user, or those that are still to be written."""
        return list(self._rows("user = ? AND stamp = ''" if unwritten else "user = ?", (user,)))

    def visible_files(self, user: str, *, since_ns: int) -> dict[str, bool]:
        """The paths of a user's files that are there and no tombstones, and whether each was changed since."""
        sql = f"SELECT path, {_CHANGED_SQL} > ? FROM files WHERE user = ? AND stamp <> '' AND NOT is_gone"  # noqa: S608
        return dict(self._fetch(sql, (since_ns, user)))

    def has_changed_since(self, user: str, since_ns: int) -> bool:
        """Whether a file of a user, or a tombstone, was written or named since."""
        sql = f"SELECT 1 FROM files WHERE user = ? AND stamp <> '' AND {_CHANGED_SQL} > ? LIMIT 1"  # noqa: S608
        return bool(self._fetch(sql, (user, since_ns)))

    def stamps(self) -> dict[str, str]:
        """The stamp of every file by its path, of those that cannot be used as well."""
        return dict(self._fetch("SELECT path, stamp FROM files UNION ALL SELECT path, stamp FROM bad"))

    def put(self, rows: Iterable[FileRow]) -> None:
        """Keep what was seen."""
        values = [(r.path, r.user, r.id, r.version, r.digest, r.stamp, int(r.is_gone), r.pending) for r in rows]
        with self._db:
            # One that was moved leaves its old place.
            self._db.executemany("DELETE FROM files WHERE user = ? AND id = ?", [(v[1], v[2]) for v in values])
            self._db.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
            self._db.executemany("DELETE FROM bad WHERE path = ?", [(v[0],) for v in values])

    def set_pending(self, pending: Iterable[tuple[str, str, str]]) -> None:
        """Note, before it is done, what will be written for a user's memory: user, id and digest."""
        self._db.executemany(
            "UPDATE files SET pending = ?3 WHERE user = ?1 AND id = ?2",
            list(pending),
        )

    def drop(self, rows: Iterable[FileRow]) -> None:
        """Forget files that there are no more."""
        self._db.executemany("DELETE FROM files WHERE path = ?", [(row.path,) for row in rows])

    def count(self, user: str | None = None) -> dict[str, int]:
        """How many files there are of a user or of all, and how many of them are tombstones."""
        rows = self._fetch(
            "SELECT count(*), coalesce(sum(is_gone), 0) FROM files WHERE ?1 IS NULL OR user = ?1", (user,)
        )
        total, tombstones = rows[0]
        return {"memories": total - tombstones, "tombstones": tombstones}

    def _fetch(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(sql, values).fetchall()
        except apsw.Error as error:
            raise StoreUnavailable(f"the mirror's state cannot be read: {error}") from None

    def _rows(self, test: str, values: Sequence[str]) -> Iterator[FileRow]:
        for path, user, id, version, digest, stamp, is_gone, pending in self._fetch(
            f"SELECT {_ROW_COLUMNS} FROM files WHERE {test}",  # noqa: S608
            values,
        ):
            yield FileRow(
                path=path,
                user=user,
                id=id,
                version=version,
                digest=digest,
                stamp=stamp,
                is_gone=bool(is_gone),
                pending=pending,
            )

    # What cannot be used, and what a person's edit took the place of

    def set_rejected(self, rejected: RejectedFile) -> None:
        """Note that a file cannot be used."""
        self._fetch(
            "INSERT OR REPLACE INTO bad (path, stamp, digest, reason, at) VALUES (?, ?, ?, ?, ?)",
            (rejected.path, rejected.stamp, rejected.digest, rejected.reason, rejected.at),
        )

    def clear_rejected(self, path: str) -> None:
        """It can be used, or is gone."""
        self._db.execute("DELETE FROM bad WHERE path = ?", (path,))

    def rejected_files(self) -> list[RejectedFile]:
        """The files that cannot be used."""
        return [RejectedFile(*row) for row in self._db.execute("SELECT path, stamp, digest, reason, at FROM bad")]

    def rejected_file(self, path: str) -> RejectedFile | None:
        """Why the file at a path cannot be used; None if it can."""
        rows = self._fetch("SELECT path, stamp, digest, reason, at FROM bad WHERE path = ?", (path,))
        return RejectedFile(*rows[0]) if rows else None

    def add_conflict(self, conflict: ConflictFile) -> None:
        """Note a text that was kept beside a person's."""
        self._fetch(
            "INSERT OR REPLACE INTO conflicts (path, user, id, at) VALUES (?, ?, ?, ?)",
            (conflict.path, conflict.user, conflict.id, conflict.at),
        )

    def remove_conflict(self, path: str) -> None:
        """Someone has seen to it."""
        self._db.execute("DELETE FROM conflicts WHERE path = ?", (path,))

    def conflicts(self) -> list[ConflictFile]:
        """The texts that were kept beside a person's."""
        return [ConflictFile(*row) for row in self._db.execute("SELECT path, user, id, at FROM conflicts")]

    # Users

    def position(self, user: str) -> HistoryPosition:
        """How far a user's history was followed."""
        rows = self._fetch("SELECT position, revision, epoch FROM users WHERE user = ?", (user,))
        return HistoryPosition(*rows[0]) if rows else HistoryPosition()

    def set_position(self, user: str, position: HistoryPosition) -> None:
        """It was followed so far."""
        self._fetch(
            "INSERT OR REPLACE INTO users (user, position, revision, epoch) VALUES (?, ?, ?, ?)",
            (user, position.position, position.revision, position.epoch),
        )

    def clear_position(self, user: str) -> None:
        """Nothing is left of the user."""
        self._db.execute("DELETE FROM users WHERE user = ?", (user,))

    def users(self) -> list[str]:
        """Everyone who has a folder, or had one."""
        return [user for (user,) in self._db.execute("SELECT user FROM users ORDER BY user")]

    def clear_positions(self) -> None:
        """Follow everyone from the beginning."""
        self._fetch("DELETE FROM users")

    # Whole

    def meta(self, name: str) -> str | None:
        """Something to remember by its name."""
        rows = self._fetch("SELECT value FROM meta WHERE name = ?", (name,))
        return rows[0][0] if rows else None

    def set_meta(self, name: str, value: str) -> None:
        """Remember something by its name."""
        self._db.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))

    def scrub(self) -> None:
        """Leave no byte of what was dropped: neither in the file nor in its log."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Let go of it."""
        self._db.close()


_log = logging.getLogger("recollect")


def reject_file(path: str, reason: str, *, stamp: str, state: MirrorState) -> None:
    """Note that a file cannot be used as it stood by its stamp, and why; once it changes it is looked at again."""
    state.set_rejected(RejectedFile(path, stamp, "", reason, now().isoformat()))
    _log.warning("mirror: %s is left aside: %s", path, reason)
