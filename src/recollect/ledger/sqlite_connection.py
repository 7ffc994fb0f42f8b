"""The SQLite dialect, full text by FTS5, connections and their errors."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import AsyncIterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import apsw
import numpy as np

from recollect.errors import Conflict, DiskFull, RecollectError, StoreBusy, StoreCorrupt, StoreUnavailable
from recollect.lazy_pattern import lazy_pattern
from recollect.ledger.sql.tx import OPERATORS, Postings, Row, Tenant, Tx
from recollect.ledger.sqlite_file import find_rescued
from recollect.model.query import Op, Where


class FtsTerms:
    """FTS5 without content: the words are stored nowhere else, and are overwritten when dropped."""

    async def put(self, tx: Tx, rows: Mapping[int, str]) -> None:
        await tx.many(
            "INSERT INTO terms (rowid, words) VALUES (:row, :words)",
            [{"row": row, "words": words} for row, words in rows.items()],
        )

    async def drop(self, tx: Tx, rows: Mapping[int, str]) -> None:
        await tx.many(
            "INSERT INTO terms (terms, rowid, words) VALUES ('delete', :row, :words)",
            [{"row": row, "words": words} for row, words in rows.items()],
        )

    async def drop_many(self, tx: Tx, pages: AsyncIterable[Mapping[int, str]]) -> None:
        # Overwriting the words of a row takes most of a millisecond, so many rows are only marked, and then the
        # index is rewritten without them.
        overwrite = "INSERT INTO terms (terms, rank) VALUES ('secure-delete', :on)"
        await tx.run(overwrite, {"on": 0})
        async for rows in pages:
            await self.drop(tx, rows)
        await tx.run("INSERT INTO terms (terms) VALUES ('optimize')", {})
        await tx.run(overwrite, {"on": 1})

    async def clear(self, tx: Tx) -> None:
        await tx.run("INSERT INTO terms (terms) VALUES ('delete-all')", {})

    async def postings(self, tx: Tx, words: Sequence[str]) -> list[Postings]:
        return [await self._postings(tx, word) for word in words]

    async def _postings(self, tx: Tx, word: str) -> Postings:
        # One text for the whole list is several times faster than a Python row for each entry.
        [(docs,)] = await tx.rows("SELECT group_concat(doc) FROM terms_said WHERE term = :word", {"word": word})
        if not docs:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        doc_ids = np.fromstring(docs, np.int64, sep=",")
        # A row is repeated as often as the word occurs in it.
        first = np.flatnonzero(np.concatenate(([True], doc_ids[1:] != doc_ids[:-1])))
        return doc_ids[first], np.concatenate((first[1:], [len(doc_ids)])) - first

    async def count(self, tx: Tx) -> int:
        return int((await tx.rows("SELECT count(*) FROM terms_docsize", {}))[0][0])


class SqliteDialect:
    """The SQL dialect of SQLite. Lists are passed as JSON, which json_each expands."""

    name = "sqlite"
    terms = FtsTerms()
    fragments: Mapping[str, str] = {
        "serial_key": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "binary": "COLLATE BINARY",
        "real": "REAL",
        "bytes": "BLOB",
        "clustered": "WITHOUT ROWID",
        "random_hex": "lower(hex(randomblob(32)))",
        # Look up rows by number; an index on the user would read all rows of the user.
        "by_row": "NOT INDEXED",
        # There is one writer at a time, so nothing needs to be locked or skipped.
        "pass_over": "",
        "hold_row": "",
        "stranger": "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'",
        "table_exists": "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = :name",
    }

    def among(self, column: str, param: str) -> str:
        return f"{column} IN (SELECT value FROM json_each(:{param}))"

    among_numbers = among

    def among_tuples(self, columns: Sequence[str], param: str) -> str:
        parts = ", ".join(f"value ->> {at}" for at in range(len(columns)))
        return f"({', '.join(columns)}) IN (SELECT {parts} FROM json_each(:{param}))"

    def contains(self, column: str, param: str) -> str:
        return f"instr({column}, :{param}) > 0"

    async def block_writers(self, tx: Tx) -> None:
        """Do nothing: there is one writer at a time."""

    def in_body(self, name: str) -> str:
        return f"json_extract(body, '$.{name}')"

    def has_member(self, name: str, param: str, *, any_of: bool) -> str:
        member_test = self.among("value", param) if any_of else f"value = :{param}"
        return f"EXISTS (SELECT 1 FROM json_each(body, '$.{name}') WHERE {member_test})"

    def metadata_test(self, comparison: Where, param: str, inside: str) -> str:
        """Compare inside metadata with respect to types: 1, true and "1" differ."""
        path = f"""'$.metadata."' || :{inside} || '"'"""
        stored, kind = f"json_extract(body, {path})", f"json_type(body, {path})"
        if comparison.op is Op.IN:
            # json_each reports the type of each member, so both sides are compared with their types.
            number = "('integer', 'real')"
            return (
                f"EXISTS (SELECT 1 FROM json_each(:{param}) WHERE value = {stored} AND "
                f"(type = {kind} OR (type IN {number} AND {kind} IN {number})))"
            )
        value = comparison.value
        kinds = "('text')" if isinstance(value, str) else "('integer', 'real')"
        if isinstance(value, bool):
            kinds = "('true')" if value else "('false')"
        if comparison.op is Op.CONTAINS:
            member = f"EXISTS (SELECT 1 FROM json_each(body, {path}) WHERE type IN {kinds} AND value = :{param})"
            within = f"WHEN 'text' THEN instr({stored}, :{param}) > 0 " if isinstance(value, str) else ""
            return f"CASE {kind} {within}WHEN 'array' THEN {member} END"
        return f"{kind} IN {kinds} AND {stored} {OPERATORS[comparison.op]} :{param}"


BUSY_S = 60.0
# SQLite's own VFS for databases in memory: connections of one process that give the same name share one database.
MEMORY_VFS = "memdb"
DIALECT = SqliteDialect()
PRAGMAS = """
PRAGMA synchronous = FULL;
PRAGMA secure_delete = ON;
PRAGMA foreign_keys = ON;
PRAGMA cache_size = -16384;
PRAGMA journal_size_limit = 67108864;
PRAGMA wal_autocheckpoint = 4000;
PRAGMA temp_store = MEMORY;
"""


def connect(path: Path, *, vfs: str | None = None) -> apsw.Connection:
    """Open a connection to a ledger; raise the `RecollectError` that explains why it cannot be opened."""
    try:
        connection = apsw.Connection(str(path), vfs=vfs)
        connection.set_busy_handler(_BusyHandler())
        if vfs == MEMORY_VFS:
            connection.pragma("journal_mode", "memory")
        else:
            _ensure_wal(connection)
        connection.execute(PRAGMAS)
    except apsw.Error as error:
        raise translate_error(error, path) from error
    return connection


def translate_error(error: apsw.Error, path: Path) -> RecollectError:
    """Return the `RecollectError` for a SQLite error, with a remedy."""
    match error:
        case apsw.ConstraintError():
            return Conflict("another active memory says the same or holds the same key; forget it first")
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(f"{path} was locked by other writers for {BUSY_S:.0f} s; retry later")
        case apsw.FullError():
            return DiskFull(f"no space left for {path}: free some; nothing that was acknowledged is lost")
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreCorrupt(
                f"{path} is damaged or not a Recollect ledger ({error}): move it away and restore a backup, "
                f"or name another folder with --home"
            )
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
            return StoreUnavailable(
                f"{path} cannot be opened for writing: check that the folder exists and is yours, "
                f"or name another with --home"
            )
        case _:
            return StoreUnavailable(f"{path}: {error}")


class SqliteTx:
    """A transaction on a connection; its coroutines never suspend."""

    dialect = DIALECT

    def __init__(self, connection: apsw.Connection) -> None:
        self._execute = connection.execute
        self._executemany = connection.executemany

    async def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        return self._execute(sql, _bound(params)).fetchall()

    async def run(self, sql: str, params: Mapping[str, Any]) -> None:
        self._execute(sql, _bound(params)).fetchall()

    async def many(self, sql: str, params: Sequence[Mapping[str, Any]]) -> None:
        start = 0
        for count in _ROWS_TOGETHER:
            if len(params) - start < count or (insert := _multi_row_insert(sql, count)) is None:
                continue
            text, names = insert
            while len(params) - start >= count:
                rows = params[start : start + count]
                self._execute(text, [row[name] for row in rows for name in names]).fetchall()
                start += count
        if start < len(params):
            self._executemany(sql, params[start:]).fetchall()

    async def restrict_to(self, tenant: Tenant) -> None:
        """Do nothing: SQLite has no row-level security."""


# Rows that one statement inserts. Each statement lets other threads run, and waits for its turn afterwards.
_ROWS_TOGETHER = (64, 16, 4)
_INSERT = lazy_pattern(r"INSERT (INTO .* VALUES )\((:\w+(?:, :\w+)*)\)")


@cache
def _multi_row_insert(sql: str, count: int) -> tuple[str, list[str]] | None:
    """Return the statement that inserts so many rows, and the names of the parameters of each; None for others."""
    if (match := _INSERT.fullmatch(sql)) is None:
        return None
    names = [name[1:] for name in match[2].split(", ")]
    row = f"({', '.join('?' * len(names))})"
    # A failed write is rolled back as a whole, so that the statement needs no journal of its own.
    return f"INSERT OR FAIL {match[1]}{', '.join([row] * count)}", names


def _bound(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert lists to JSON, for json_each."""
    for value in params.values():
        if type(value) is list:
            return {name: json.dumps(v) if type(v) is list else v for name, v in params.items()}
    return params


class _BusyHandler:
    """Wait a random moment, and give up after BUSY_S."""

    def __init__(self) -> None:
        self._since = 0.0

    def __call__(self, tries: int) -> bool:
        if tries == 0:
            self._since = time.monotonic()
        time.sleep(random.uniform(0.0002, 0.004))
        return time.monotonic() - self._since < BUSY_S


def _ensure_wal(connection: apsw.Connection) -> None:
    """Switch to the write-ahead log; while another process does the same, SQLite reports busy without waiting."""
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
        # Only if it is new: closing a file that is open elsewhere in the process would drop its locks.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass


def make_file(path: Path, *, vfs: str | None) -> None:
    """Create the folder and an empty file, readable by the owner only."""
    try:
        # Memories are private on a shared machine.
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if vfs is None and not path.exists():
            if rescued := find_rescued(path):
                raise StoreUnavailable(
                    f"{path} was deleted while in use; its content is in {rescued[-1]}: rename that to {path.name}, "
                    f"or delete it to begin with an empty ledger"
                )
            _make_private(path)
    except OSError as error:
        raise StoreUnavailable(
            f"cannot make {path}: {error.strerror}; check that the folder is yours, or name another with --home"
        ) from error
    if path.exists() and not os.access(path, os.W_OK):
        raise StoreUnavailable(f"{path} is read-only: give it write permission, or another folder with --home")


def make_single_file(path: Path) -> bool:
    """Fold the log into the file; return False if another connection has it open."""
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
