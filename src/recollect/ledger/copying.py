"""Copying a ledger whole while it is used: into a SQLite file, from SQLite or PostgreSQL, and from such a file back.

What was committed when the copy began is in it, nothing else is, and nobody who writes meanwhile waits for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw

from recollect.errors import Conflict
from recollect.ledger.sealed import Table, count_rows, read_tables
from recollect.ledger.sql.migrate import migrate
from recollect.ledger.sql.tx import ALL_TENANTS, Row, SqlEngine, Tx, fetch_one
from recollect.ledger.sqlite import SqliteEngine
from recollect.ledger.sqlite_file import connect, translate_error

# So much is done, of so much in all.
BackupProgress = Callable[[int, int], None]
_PAGES = 2048
_ROWS = 2000
# What a database says of itself, not of what it holds.
_DATABASE_META_PREFIXES = ("schema", "terms", "backup")
# What a ledger that holds nothing says already, since it was opened: by which model it is searched.
_TABLES_FILLED_ON_OPEN = ("current_model", "model_states", "models")


def copy_sqlite_file(source: Path, to: Path, on_progress: BackupProgress) -> None:
    """Copy the SQLite ledger `source` as it is at this moment to the new file `to`."""
    try:
        reader, target = connect(source), apsw.Connection(str(to))
        try:
            # A transaction that stays open keeps its view: without it every write would make the copy start over.
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
    """Copy what a database holds into a new SQLite ledger, in one view of it."""
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
    """Bring what a SQLite ledger holds into a database that holds nothing yet; all of it or nothing."""
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
    """The rows of a table by its key, some at a time."""
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
        # Numbers that the database would give itself are kept: rows name each other by them.
        overriding = "OVERRIDING SYSTEM VALUE " if table.numbered and tx.dialect.name == "postgres" else ""
        values = ", ".join(f":c{n}" for n in range(len(table.columns)))
        # A new ledger has a secret of its own; the tombstones are of the one they were copied with.
        replaced = " ON CONFLICT (name) DO UPDATE SET value = excluded.value" if name == "meta" else ""
        if params:
            columns = _quote_columns(table.columns)
            await tx.many(f'INSERT INTO "{name}" ({columns}) {overriding}VALUES ({values}){replaced}', params)

    return add


def _quote_columns(columns: Sequence[str]) -> str:
    return ", ".join(f'"{each}"' for each in columns)
