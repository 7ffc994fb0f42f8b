"""A backup as a file: a SQLite ledger of its own, with a seal that tells whether a single byte of it has changed.

What the backup is (when it was made, of which database, how many rows of what) stands in its table `meta`, and so
does the seal: a digest of the whole file in which the place of the digest itself is counted as zeros.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw

from recollect.errors import InvalidInput, StoreCorrupt, StoreTooNew
from recollect.ledger.sql.migrate import migrations
from recollect.ledger.sqlite_file import translate_error

FORMAT = 1
_FACTS, _SEAL = "backup", "backup_seal"
_BLANK = "0" * 64
_CHUNK = 1 << 20
# Made anew from the memories where it is not there.
_FULL_TEXT = "terms"


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup is: when it was made, of what kind of database, how much is in it, and its digest."""

    path: Path
    made_at: datetime
    engine: str
    size: int
    rows: Mapping[str, int]
    digest: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "file": str(self.path),
            "made_at": self.made_at.isoformat(),
            "engine": self.engine,
            "bytes": self.size,
            "rows": dict(self.rows),
            "digest": self.digest,
        }


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its columns, those of its key, and the one the database numbers by itself, if any."""

    columns: tuple[str, ...]
    key: tuple[str, ...]
    numbered: str | None = None


def read_tables(connection: apsw.Connection) -> dict[str, Table]:
    """The tables of a ledger but for its full text, which is made from the rest."""
    names: list[Any] = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY name"
    ).fetchall()
    specs = {}
    for (name,) in names:
        if name.startswith(_FULL_TEXT):
            continue
        columns: list[Any] = connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (name,)).fetchall()
        key = sorted((position, column, kind) for column, kind, position in columns if position)
        # Of all our keys only a number that is given by itself is an INTEGER.
        numbered = key[0][1] if len(key) == 1 and key[0][2] == "INTEGER" else None
        specs[name] = Table(tuple(each[0] for each in columns), tuple(each[1] for each in key), numbered)
    return specs


def seal_backup(path: Path, *, made_at: datetime, engine: str) -> Backup:
    """Write into a ledger that nobody else has open what it is a backup of, and seal it."""
    nonce = os.urandom(16).hex()
    try:
        connection = apsw.Connection(str(path))
        try:
            # One file, without a log beside it.
            connection.pragma("journal_mode", "delete")
            rows = {name: count_rows(connection, name) for name in read_tables(connection) if name != "meta"}
            facts = {"format": FORMAT, "made_at": made_at.isoformat(), "engine": engine, "rows": rows}
            with connection:
                put = "INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)"
                connection.execute(put, (_FACTS, json.dumps(facts)))
                connection.execute(put, (_SEAL, f"{nonce}:{_BLANK}"))
        finally:
            connection.close()
    except apsw.Error as error:
        raise translate_error(error, path) from error
    digest = _digest(path, f"{nonce}:{_BLANK}", write=True)
    return Backup(path, made_at, engine, path.stat().st_size, rows, digest)


def verify_backup(path: Path) -> Backup:
    """What the backup is, or a StoreCorrupt that says what is wrong with it."""
    if not path.is_file():
        raise InvalidInput(f"{path} is not there, or is no file")
    try:
        # Only looked at: nothing is written beside it either.
        connection = apsw.Connection(f"{path.resolve().as_uri()}?immutable=1", flags=_READ_ONLY)
        try:
            facts, mark = _read_seal(connection, path)
            digest = _digest(path, mark)
            if digest != mark.partition(":")[2]:
                raise StoreCorrupt(f"{path} is not as it was when the backup was made: bytes of it have changed")
            faults = [row[0] for row in connection.execute("PRAGMA integrity_check(5)") if row[0] != "ok"]
            rows = {name: count_rows(connection, name) for name in facts["rows"]}
        finally:
            connection.close()
    except apsw.Error as error:
        raise StoreCorrupt(f"{path} is damaged, or no backup of Recollect ({error})") from None
    if faults:
        raise StoreCorrupt(f"{path} is damaged: {faults[0]}")
    if rows != facts["rows"]:
        raise StoreCorrupt(f"{path} does not hold as many rows as it says")
    made_at = datetime.fromisoformat(facts["made_at"])
    return Backup(path, made_at, facts["engine"], path.stat().st_size, rows, digest)


def unseal_backup(path: Path) -> None:
    """Make a ledger of a copy of a backup."""
    try:
        connection = apsw.Connection(str(path))
        try:
            connection.execute("DELETE FROM meta WHERE name IN (?, ?)", (_FACTS, _SEAL))
        finally:
            connection.close()
    except apsw.Error as error:
        raise translate_error(error, path) from error


_READ_ONLY = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


def _read_seal(connection: apsw.Connection, path: Path) -> tuple[dict[str, Any], str]:
    query = "SELECT name, value FROM meta WHERE name IN (?, ?, 'schema')"
    rows: list[Any] = connection.execute(query, (_FACTS, _SEAL)).fetchall()
    values: dict[str, str] = dict(rows)
    if _FACTS not in values or _SEAL not in values:
        raise StoreCorrupt(f"{path} is a ledger, but no backup: make one with `recollect backup make`")
    facts = json.loads(values[_FACTS])
    if facts["format"] > FORMAT or int(values["schema"]) > max(migrations("sqlite")):
        raise StoreTooNew(f"{path} was made by a newer Recollect: upgrade with pip install -U recollect")
    return facts, values[_SEAL]


def count_rows(connection: apsw.Connection, table: str) -> int:
    """How many rows a table has."""
    [[number]] = connection.execute(f'SELECT count(*) FROM "{table}"').fetchall()
    return int(number)  # type: ignore[arg-type]


def remove_database_files(path: Path) -> None:
    """Remove a SQLite file with what is beside it, if it is there."""
    for tail in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{tail}").unlink(missing_ok=True)


def _digest(path: Path, mark: str, *, write: bool = False) -> str:
    """The digest of a file without the one in its mark, which is written there if so asked."""
    nonce = mark.partition(":")[0].encode() + b":"
    with path.open("r+b" if write else "rb") as file, mmap.mmap(file.fileno(), 0, access=_ACCESS[write]) as data:
        at = data.find(nonce)
        if at < 0 or data.find(nonce, at + 1) >= 0:
            raise StoreCorrupt(f"{path} has no seal, or more than one")
        start, end = at + len(nonce), at + len(nonce) + len(_BLANK)
        digest = hashlib.sha256()
        for begin, stop in ((0, start), (end, len(data))):
            if begin:
                digest.update(_BLANK.encode())
            for piece in range(begin, stop, _CHUNK):
                digest.update(data[piece : min(piece + _CHUNK, stop)])
        if write:
            data[start:end] = digest.hexdigest().encode()
            data.flush()
        return digest.hexdigest()


_ACCESS = {False: mmap.ACCESS_READ, True: mmap.ACCESS_WRITE}
