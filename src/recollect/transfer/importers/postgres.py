"""Tables of other products in PostgreSQL, looked at and never written to.

A source is read by whatever thread is free, and the driver belongs to one event loop: that has a thread of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from recollect.errors import InvalidInput, MissingExtra, RecollectError, UpstreamUnavailable
from recollect.ledger.postgres_errors import ERRORS, mask_dsn
from recollect.transfer.importers.source import ImportSource

try:
    import asyncpg
    from asyncpg import exceptions as pg
except ImportError as error:
    raise MissingExtra("PostgreSQL", "postgres") from error

T = TypeVar("T")
_PAGE = 500
_VECTORS = ("vector", "halfvec", "sparsevec")
_CONNECT_TIMEOUT_S = 10.0
_CLOSE_TIMEOUT_S = 2.0
# To sort a large table takes a while.
_QUERY_TIMEOUT_S = 600.0
# Everything is read as it was at one moment. Rows that a policy would hide are not left out unsaid: it is an error.
_BEGIN = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL row_security = off; "
    "SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = 0"
)
# Only what is kept as it is: a view could have anything done.
_TABLES = """
SELECT c.relname AS name, json_object_agg(a.attname, format_type(a.atttypid, NULL)) AS columns
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
AND pg_catalog.pg_table_is_visible(c.oid) AND c.relnamespace <> 'pg_catalog'::regnamespace
GROUP BY c.relname ORDER BY c.relname
"""


class PostgresTables:
    """One view of a database: what tables there are, and their rows."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connection: Any, *, table_names: list[str], where: str
    ) -> None:
        self._loop, self._connection = loop, connection
        self._table_names, self.where = table_names, where
        self._columns_by_table: dict[str, dict[str, str]] | None = None

    def tables_with(self, columns: Mapping[str, str], *, excluding: tuple[str, ...] = ()) -> list[str]:
        """The tables with columns of these types whose names end otherwise; only those the address names, if any."""
        names = [name for name, available in self._load_columns().items() if columns.items() <= available.items()]
        return [
            name
            for name in names
            if not name.endswith(excluding) and (not self._table_names or name in self._table_names)
        ]

    def missing_error(self, tables: Sequence[str], *, product: str) -> InvalidInput | None:
        """What is wrong where these are the tables of a product."""
        for name in self._table_names:
            if name not in tables:
                existing = ", ".join(self._load_columns()) or "none"
                return InvalidInput(
                    f"{self.where} has no table {name!r} as {product} makes it; there are: {existing}"
                )
        if not tables:
            return InvalidInput(f"{self.where} has no table as {product} makes it: is it the right database?")
        return None

    def rows(self, table: str, *, order: str) -> Iterator[dict[str, Any]]:
        """The rows of a table by the names of their columns, some at a time; vectors are left where they are."""
        columns = [name for name, type in self._load_columns()[table].items() if type not in _VECTORS]
        # All names are of tables and columns that are there, and quoted.
        sql = f"SELECT {', '.join(map(_quote, columns))} FROM {_quote(table)} ORDER BY {order}"  # noqa: S608
        cursor = _run_on_loop(self._loop, self._cursor(sql), self.where)
        while page := _run_on_loop(self._loop, cursor.fetch(_PAGE, timeout=_QUERY_TIMEOUT_S), self.where):
            yield from map(dict, page)

    def _load_columns(self) -> dict[str, dict[str, str]]:
        if self._columns_by_table is None:
            rows = _run_on_loop(self._loop, self._connection.fetch(_TABLES, timeout=_QUERY_TIMEOUT_S), self.where)
            pairs = ((row["name"], json.loads(row["columns"])) for row in rows)
            # Of an extension's type the schema may be told as well.
            self._columns_by_table = {
                name: {each: type.rpartition(".")[2] for each, type in columns.items()} for name, columns in pairs
            }
        return self._columns_by_table

    async def _cursor(self, sql: str) -> Any:
        return await self._connection.cursor(sql, timeout=_QUERY_TIMEOUT_S)


@contextmanager
def open_tables(source: ImportSource) -> Iterator[PostgresTables]:
    """The tables behind an address; an InvalidInput or an UpstreamUnavailable says what is wrong with it."""
    dsn, table_names = split_address(source.location)
    where = mask_dsn(dsn)
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="recollect-import", daemon=True)
    thread.start()
    connection = None
    try:
        connection = _run_on_loop(loop, _connect(dsn), where)
        yield PostgresTables(loop, connection, table_names=table_names, where=where)
    finally:
        if connection is not None:
            _run_on_loop(loop, _close(connection), where)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def split_address(address: str) -> tuple[str, list[str]]:
    """An address as PostgreSQL knows it, and the tables that it names with `table=`."""
    try:
        parts = urlsplit(address)
        options = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise InvalidInput("it is not an address of PostgreSQL") from None
    table_names = [value for name, value in options if name == "table"]
    if not table_names:
        return address, []
    query = urlencode([each for each in options if each[0] != "table"], safe="/")
    return parts._replace(query=query).geturl(), table_names


async def _connect(dsn: str) -> Any:
    connection = await asyncpg.connect(
        dsn,
        timeout=_CONNECT_TIMEOUT_S,
        statement_cache_size=0,
        server_settings={"application_name": "recollect import"},
    )
    try:
        await connection.execute(_BEGIN, timeout=_QUERY_TIMEOUT_S)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _close(connection: Any) -> None:
    try:
        await connection.close(timeout=_CLOSE_TIMEOUT_S)
    except (*ERRORS, TimeoutError):
        connection.terminate()


def _run_on_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], where: str) -> T:
    try:
        return asyncio.run_coroutine_threadsafe(work, loop).result()
    except (*ERRORS, ValueError) as error:
        raise _translate_error(error, where) from None


def _translate_error(error: Exception, where: str) -> RecollectError:
    match error:
        case pg.InvalidAuthorizationSpecificationError():
            return InvalidInput(f"{where} refused the login: check the user, the password and pg_hba.conf")
        case pg.InvalidCatalogNameError():
            return InvalidInput(f"{where}: there is no such database; its name ends the address")
        case pg.InsufficientPrivilegeError():
            return InvalidInput(f"{where} does not let this user read all of it: {error}")
        case pg.ClientConfigurationError() | ValueError():
            # Its words may hold a piece of the password.
            return InvalidInput(f"{where} is not an address of PostgreSQL: postgresql://user:password@host/database")
        case OSError() | pg.PostgresConnectionError():
            return UpstreamUnavailable(f"{where} cannot be reached: check the address, and that it runs ({error})")
        case _:
            return UpstreamUnavailable(f"{where}: {str(error.args[0] if error.args else type(error).__name__)[:200]}")


def _quote(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
