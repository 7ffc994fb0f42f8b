"""A backup is a SQLite ledger file with a seal that shows whether any byte of it has changed.

Its description (when it was made, from which database, how many rows of what) is in the table `meta`, and so is the
seal: a digest of the whole file in which the digest itself is counted as zeros.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw

from recollect.errors import Conflict, InvalidInput, StoreCorrupt, StoreTooNew
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.sql.migrate import migrate, migrations
from recollect.ledger.sql.tx import ALL_TENANTS, Row, SqlEngine, Tx, fetch_one
from recollect.ledger.sqlite import SqliteEngine
from recollect.ledger.sqlite_connection import connect, translate_error

FORMAT = 1
_FACTS, _SEAL = "backup", "backup_seal"
_BLANK = "0" * 64
_CHUNK = 1 << 20
# Rebuilt from the memories where it is missing.
_FULL_TEXT = "terms"


@frozen_dataclass
class Backup:
    """A description of a backup."""

    path: Path
    made_at: datetime
    engine: str
    size: int
    rows: Mapping[str, int]
    digest: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "file": str(self.path),
            "made_at": self.made_at.isoformat(),
            "engine": self.engine,
            "bytes": self.size,
            "rows": dict(self.rows),
            "digest": self.digest,
        }


@frozen_dataclass
class Table:
    """The columns of a table, its key, and the column that the database numbers, if any."""

    columns: tuple[str, ...]
    key: tuple[str, ...]
    numbered: str | None = None


def read_tables(connection: apsw.Connection) -> dict[str, Table]:
    """Return the tables of a ledger, except for its full text."""
    names: list[Any] = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY name"
    ).fetchall()
    specs = {}
    for (name,) in names:
        if name.startswith(_FULL_TEXT):
            continue
        columns: list[Any] = connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (name,)).fetchall()
        key = sorted((position, column, kind) for column, kind, position in columns if position)
        # Only a key that the database numbers is an INTEGER.
        numbered = key[0][1] if len(key) == 1 and key[0][2] == "INTEGER" else None
        specs[name] = Table(tuple(each[0] for each in columns), tuple(each[1] for each in key), numbered)
    return specs


def seal_backup(path: Path, *, made_at: datetime, engine: str) -> Backup:
    """Write its description into a ledger that nobody else has open, and seal it."""
    nonce = os.urandom(16).hex()
    try:
        connection = apsw.Connection(str(path))
        try:
            # One file, without a separate log.
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
    """Return the description of a backup; raise StoreCorrupt if anything is wrong with it."""
    if not path.is_file():
        remedy = "`recollect backup list` shows the backups of a ledger"
        raise InvalidInput(f"{path.absolute()} does not exist, or is not a file; {remedy}")
    try:
        # Immutable, so that no log file is created next to it.
        connection = apsw.Connection(f"{path.resolve().as_uri()}?immutable=1", flags=_READ_ONLY)
        try:
            facts, mark = _read_seal(connection, path)
            digest = _digest(path, mark)
            if digest != mark.partition(":")[2]:
                raise StoreCorrupt(f"{path} was changed since the backup was made: its digest differs")
            faults = [row[0] for row in connection.execute("PRAGMA integrity_check(5)") if row[0] != "ok"]
            rows = {name: count_rows(connection, name) for name in facts["rows"]}
        finally:
            connection.close()
    except apsw.Error as error:
        raise StoreCorrupt(f"{path} is damaged, or not a backup of Recollect ({error})") from None
    if faults:
        raise StoreCorrupt(f"{path} is damaged: {faults[0]}")
    if rows != facts["rows"]:
        raise StoreCorrupt(f"{path} has not as many rows as its description says")
    made_at = datetime.fromisoformat(facts["made_at"])
    return Backup(path, made_at, facts["engine"], path.stat().st_size, rows, digest)


def unseal_backup(path: Path) -> None:
    """Turn a copy of a backup into a ledger."""
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
        raise StoreCorrupt(f"{path} is a ledger, not a backup: make one with `recollect backup make`")
    facts = json.loads(values[_FACTS])
    if facts["format"] > FORMAT or int(values["schema"]) > max(migrations("sqlite")):
        raise StoreTooNew(f"{path} was made by a newer Recollect: upgrade with pip install -U recollect")
    return facts, values[_SEAL]


def count_rows(connection: apsw.Connection, table: str) -> int:
    """Return how many rows a table has."""
    [[number]] = connection.execute(f'SELECT count(*) FROM "{table}"').fetchall()
    return int(number)  # type: ignore[arg-type]


def remove_database_files(path: Path) -> None:
    """Remove a SQLite file and its log files, if they exist."""
    for tail in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{tail}").unlink(missing_ok=True)


def _digest(path: Path, mark: str, *, write: bool = False) -> str:
    """Return the digest of a file except for the seal's own, which is written if requested."""
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


# Called with the amount done and the total.
BackupProgress = Callable[[int, int], None]
_PAGES = 2048
_ROWS = 2000
# Values about the database and not about its content.
_DATABASE_META_PREFIXES = ("schema", "terms", "backup")
# Tables that opening an empty ledger fills: the model it is searched by.
_TABLES_FILLED_ON_OPEN = ("current_model", "model_states", "models")


def copy_sqlite_file(source: Path, to: Path, on_progress: BackupProgress) -> None:
    """Copy a consistent view of the SQLite ledger `source` to the new file `to`."""
    try:
        reader, target = connect(source), apsw.Connection(str(to))
        try:
            # An open transaction keeps its view; without it every write would restart the copy.
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM meta").fetchall()
            with target.backup("main", reader, "main") as copy:
                while not copy.done:
                    copy.step(_PAGES)
                    on_progress(copy.page_count - copy.remaining, copy.page_count)
        finally:
            reader.close()
            target.close()
    except apsw.Error as error:
        raise translate_error(error, to) from error


async def copy_to_sqlite(engine: SqlEngine, to: Path, on_progress: BackupProgress) -> None:
    """Copy a consistent view of a database into a new SQLite ledger."""
    target = SqliteEngine(to)
    try:
        await migrate(target)
        kinds = _tables_of(to)

        async def body(tx: Tx) -> None:
            counts = {name: await _count_in_tx(tx, name) for name in kinds}
            done, total = 0, max(1, sum(counts.values()))
            for name, table in kinds.items():
                async for rows in _page_table(tx, name, table):
                    await target.write(_make_insert(name, table, rows), tenant=ALL_TENANTS)
                    done += len(rows)
                    on_progress(min(done, total), total)

        await engine.read(body, tenant=ALL_TENANTS)
    finally:
        await target.close()


async def copy_from_sqlite(engine: SqlEngine, source: Path, on_progress: BackupProgress) -> None:
    """Copy a SQLite ledger into an empty database, all of it or nothing."""
    kinds = _tables_of(source)

    async def body(tx: Tx) -> None:
        if any(
            [await _count_in_tx(tx, name) for name in ("users", "memories", "erasures", "api_keys", "tombstones")]
        ):
            raise Conflict("the database is not empty: restore into a new one")
        for name in _TABLES_FILLED_ON_OPEN:
            await tx.run(f"DELETE FROM {name}", {})
        reader = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            total = max(1, sum(count_rows(reader, name) for name in kinds))
            done = 0
            for name, table in kinds.items():
                for rows in _read_batches(reader, name, table):
                    await _make_insert(name, table, rows)(tx)
                    done += len(rows)
                    on_progress(done, total)
        finally:
            reader.close()
        for name, table in kinds.items():
            if table.numbered:
                await tx.rows(
                    f"SELECT setval(pg_get_serial_sequence('{name}', '{table.numbered}'), "
                    f"(SELECT COALESCE(max({table.numbered}), 0) + 1 FROM {name}), false)",
                    {},
                )

    await engine.write(body, tenant=ALL_TENANTS)


def _tables_of(path: Path) -> dict[str, Table]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return read_tables(connection)
    finally:
        connection.close()


async def _count_in_tx(tx: Tx, name: str) -> int:
    row = await fetch_one(tx, f'SELECT count(*) FROM "{name}"', {})
    return int(row[0]) if row else 0


async def _page_table(tx: Tx, name: str, table: Table) -> AsyncIterator[Sequence[Row]]:
    """Yield the rows of a table in order of its key, a page at a time."""
    selected, order = _quote_columns(table.columns), _quote_columns(table.key)
    key_positions = [table.columns.index(each) for each in table.key]
    after: Mapping[str, Any] = {}
    while True:
        beyond = f"WHERE ({order}) > ({', '.join(f':k{n}' for n in range(len(key_positions)))}) " if after else ""
        rows = await tx.rows(
            f'SELECT {selected} FROM "{name}" {beyond}ORDER BY {order} LIMIT :limit', {**after, "limit": _ROWS}
        )
        if rows:
            yield rows
        if len(rows) < _ROWS:
            return
        after = {f"k{n}": rows[-1][position] for n, position in enumerate(key_positions)}


def _read_batches(connection: apsw.Connection, name: str, table: Table) -> Iterator[list[Row]]:
    cursor = connection.execute(f'SELECT {_quote_columns(table.columns)} FROM "{name}"')
    while rows := [row for _, row in zip(range(_ROWS), cursor, strict=False)]:
        yield rows


def _make_insert(name: str, table: Table, rows: Sequence[Row]) -> Callable[[Tx], Coroutine[Any, Any, None]]:
    params = [{f"c{n}": value for n, value in enumerate(row)} for row in rows]
    if name == "meta":
        params = [each for each in params if not str(each["c0"]).startswith(_DATABASE_META_PREFIXES)]

    async def add(tx: Tx) -> None:
        # Row numbers are kept, because rows refer to each other by them.
        overriding = "OVERRIDING SYSTEM VALUE " if table.numbered and tx.dialect.name == "postgres" else ""
        values = ", ".join(f":c{n}" for n in range(len(table.columns)))
        # A new ledger has its own secret; the tombstones need the one they were made with.
        replaced = " ON CONFLICT (name) DO UPDATE SET value = excluded.value" if name == "meta" else ""
        if params:
            columns = _quote_columns(table.columns)
            await tx.many(f'INSERT INTO "{name}" ({columns}) {overriding}VALUES ({values}){replaced}', params)

    return add


def _quote_columns(columns: Sequence[str]) -> str:
    return ", ".join(f'"{each}"' for each in columns)
