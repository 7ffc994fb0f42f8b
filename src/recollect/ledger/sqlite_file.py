"""Connections to a SQLite file: set up for durability, patient with other writers, errors in our words."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw

from recollect.errors import (
    Conflict,
    DiskFull,
    RecollectError,
    StoreBusy,
    StoreCorrupt,
    StoreUnavailable,
)
from recollect.ledger.sql.tx import Row, Tenant
from recollect.ledger.sqlite_dialect import SqliteDialect

BUSY_S = 60.0
DIALECT = SqliteDialect()
_PRAGMAS = """
PRAGMA synchronous = FULL;
PRAGMA secure_delete = ON;
PRAGMA foreign_keys = ON;
PRAGMA cache_size = -16384;
PRAGMA journal_size_limit = 67108864;
PRAGMA temp_store = MEMORY;
"""


def connect(path: Path, *, vfs: str | None = None) -> apsw.Connection:
    """A connection, or the error that says why there is none."""
    try:
        connection = apsw.Connection(str(path), vfs=vfs)
        connection.set_busy_handler(_BusyHandler())
        _ensure_wal(connection)
        connection.execute(_PRAGMAS)
    except apsw.Error as error:
        raise translate_error(error, path) from error
    return connection


def translate_error(error: apsw.Error, path: Path) -> RecollectError:
    """What a SQLite error means to a caller, and what to do about it."""
    match error:
        case apsw.ConstraintError():
            return Conflict("another active memory says the same or holds the same key; forget it first")
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(f"other writers held {path} for {BUSY_S:.0f} s; try again")
        case apsw.FullError():
            return DiskFull(f"no space left for {path}: free some; nothing that was acknowledged is lost")
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreCorrupt(
                f"{path} is damaged or not a Recollect ledger ({error}): move it away and restore a backup, "
                f"or give another folder with --home"
            )
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
            return StoreUnavailable(
                f"{path} cannot be opened for writing: check that the folder exists and is yours, "
                f"or give another with --home"
            )
        case _:
            return StoreUnavailable(f"{path}: {error}")


class SqliteTx:
    """A transaction on a connection; answers at once."""

    dialect = DIALECT

    def __init__(self, connection: apsw.Connection) -> None:
        self._execute = connection.execute
        self._executemany = connection.executemany

    async def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        return self._execute(sql, _bound(params)).fetchall()

    async def run(self, sql: str, params: Mapping[str, Any]) -> None:
        self._execute(sql, _bound(params)).fetchall()

    async def many(self, sql: str, params: Sequence[Mapping[str, Any]]) -> None:
        self._executemany(sql, params).fetchall()

    async def restrict_to(self, tenant: Tenant) -> None:
        """Nothing to do: SQLite knows no users."""


def _bound(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Lists become JSON, for json_each."""
    for value in params.values():
        if type(value) is list:
            return {name: json.dumps(v) if type(v) is list else v for name, v in params.items()}
    return params


class _BusyHandler:
    """A busy handler: wait a little, not in step with the others, and give up after BUSY_S."""

    def __init__(self) -> None:
        self._since = 0.0

    def __call__(self, tries: int) -> bool:
        if tries == 0:
            self._since = time.monotonic()
        time.sleep(random.uniform(0.0002, 0.004))
        return time.monotonic() - self._since < BUSY_S


def _ensure_wal(connection: apsw.Connection) -> None:
    """Switch to the write-ahead log; while another process does the same, SQLite says busy without waiting."""
    for _ in range(200):
        try:
            if connection.pragma("journal_mode", "wal") == "wal":
                return
        except apsw.BusyError:
            pass
        time.sleep(random.uniform(0.002, 0.02))
    raise apsw.BusyError("the journal mode could not be set")


def _make_private(path: Path) -> None:
    try:
        # Only if it is new: closing a file that others have open would drop their locks.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass


def make_file(path: Path, *, vfs: str | None) -> None:
    """Make the folder and an empty file, for its owner alone."""
    try:
        # What people tell an assistant is nobody else's business on a shared machine.
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if vfs is None and not path.exists():
            _make_private(path)
    except OSError as error:
        raise StoreUnavailable(
            f"cannot make {path}: {error.strerror}; check that the folder is yours, or give another with --home"
        ) from error
    if path.exists() and not os.access(path, os.W_OK):
        raise StoreUnavailable(f"{path} is read-only: give it write permission, or another folder with --home")


def make_single_file(path: Path) -> bool:
    """Leave a ledger as one file, without a log beside it; False if anyone else has it open."""
    connection = connect(path)
    try:
        connection.set_busy_timeout(1000)
        return bool(connection.pragma("journal_mode", "delete") == "delete")
    except apsw.BusyError:
        return False
    except apsw.Error as error:
        raise translate_error(error, path) from error
    finally:
        connection.close()
