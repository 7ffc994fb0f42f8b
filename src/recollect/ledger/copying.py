"""Copying a ledger whole while it is used: into a SQLite file, from SQLite or PostgreSQL, and from such a file back.

What was committed when the copy began is in it, nothing else is, and nobody who writes meanwhile waits for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw

from recollect.errors import Conflict
from recollect.ledger.sealed import Table, count, tables
from recollect.ledger.sql.migrate import migrate
from recollect.ledger.sql.tx import EVERYONE, Engine, Row, Tx, one
from recollect.ledger.sqlite import SqliteEngine
from recollect.ledger.sqlite_file import connect, translated

# So much is done, of so much in all.
Told = Callable[[int, int], None]
_PAGES = 2048
_ROWS = 2000
# What a database says of itself, not of what it holds.
_ITS_OWN = ("schema", "terms", "backup")
# What a ledger that holds nothing says already, since it was opened: by which model it is searched.
_PUT_DOWN_AT_ONCE = ("current_model", "model_states", "models")


def copy_file(source: Path, to: Path, told: Told) -> None:
    """Copy the SQLite ledger `source` as it is at this moment to the new file `to`."""
    try:
        reading, writing = connect(source), apsw.Connection(str(to))
        try:
            # A transaction that stays open keeps its view: without it every write would make the copy start over.
            reading.execute("BEGIN")
            reading.execute("SELECT count(*) FROM meta").fetchall()
            with writing.backup("main", reading, "main") as copy:
                while not copy.done:
                    copy.step(_PAGES)
                    told(copy.page_count - copy.remaining, copy.page_count)
        finally:
            reading.close()
            writing.close()
    except apsw.Error as error:
        raise translated(error, to) from error


async def copy_out(engine: Engine, to: Path, told: Told) -> None:
    """Copy what a database holds into a new SQLite ledger, in one view of it."""
    target = SqliteEngine(to)
    try:
        await migrate(target)
        kinds = _tables_of(to)

        async def body(tx: Tx) -> None:
            counts = {name: await _count(tx, name) for name in kinds}
            done, total = 0, max(1, sum(counts.values()))
            for name, table in kinds.items():
                async for rows in _pages(tx, name, table):
                    await target.write(_adding(name, table, rows), of=EVERYONE)
                    done += len(rows)
                    told(min(done, total), total)

        await engine.read(body, of=EVERYONE)
    finally:
        await target.close()


async def copy_in(engine: Engine, source: Path, told: Told) -> None:
    """Bring what a SQLite ledger holds into a database that holds nothing yet; all of it or nothing."""
    kinds = _tables_of(source)

    async def body(tx: Tx) -> None:
        if any([await _count(tx, name) for name in ("users", "memories", "erasures", "api_keys", "tombstones")]):
            raise Conflict("the database is not empty: restore into a new one")
        for name in _PUT_DOWN_AT_ONCE:
            await tx.run(f"DELETE FROM {name}", {})
        reading = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            total = max(1, sum(count(reading, name) for name in kinds))
            done = 0
            for name, table in kinds.items():
                for rows in _read(reading, name, table):
                    await _adding(name, table, rows)(tx)
                    done += len(rows)
                    told(done, total)
        finally:
            reading.close()
        for name, table in kinds.items():
            if table.numbered:
                await tx.rows(
                    f"SELECT setval(pg_get_serial_sequence('{name}', '{table.numbered}'), "
                    f"(SELECT COALESCE(max({table.numbered}), 0) + 1 FROM {name}), false)",
                    {},
                )

    await engine.write(body, of=EVERYONE)


def _tables_of(path: Path) -> dict[str, Table]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return tables(connection)
    finally:
        connection.close()


async def _count(tx: Tx, name: str) -> int:
    row = await one(tx, f'SELECT count(*) FROM "{name}"', {})
    return int(row[0]) if row else 0


async def _pages(tx: Tx, name: str, table: Table) -> AsyncIterator[Sequence[Row]]:
    """The rows of a table by its key, some at a time."""
    selected, order = _listed(table.columns), _listed(table.key)
    places = [table.columns.index(each) for each in table.key]
    after: Mapping[str, Any] = {}
    while True:
        beyond = f"WHERE ({order}) > ({', '.join(f':k{n}' for n in range(len(places)))}) " if after else ""
        rows = await tx.rows(
            f'SELECT {selected} FROM "{name}" {beyond}ORDER BY {order} LIMIT :limit', {**after, "limit": _ROWS}
        )
        if rows:
            yield rows
        if len(rows) < _ROWS:
            return
        after = {f"k{n}": rows[-1][place] for n, place in enumerate(places)}


def _read(connection: apsw.Connection, name: str, table: Table) -> Iterator[list[Row]]:
    found = connection.execute(f'SELECT {_listed(table.columns)} FROM "{name}"')
    while rows := [row for _, row in zip(range(_ROWS), found, strict=False)]:
        yield rows


def _adding(name: str, table: Table, rows: Sequence[Row]) -> Callable[[Tx], Coroutine[Any, Any, None]]:
    params = [{f"c{n}": value for n, value in enumerate(row)} for row in rows]
    if name == "meta":
        params = [each for each in params if not str(each["c0"]).startswith(_ITS_OWN)]

    async def add(tx: Tx) -> None:
        # Numbers that the database would give itself are kept: rows name each other by them.
        kept = "OVERRIDING SYSTEM VALUE " if table.numbered and tx.dialect.name == "postgres" else ""
        values = ", ".join(f":c{n}" for n in range(len(table.columns)))
        # A new ledger has a secret of its own; the tombstones are of the one they were copied with.
        replaced = " ON CONFLICT (name) DO UPDATE SET value = excluded.value" if name == "meta" else ""
        if params:
            columns = _listed(table.columns)
            await tx.many(f'INSERT INTO "{name}" ({columns}) {kept}VALUES ({values}){replaced}', params)

    return add


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(f'"{each}"' for each in columns)
