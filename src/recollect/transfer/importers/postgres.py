"""Read-only access to tables of other products in PostgreSQL.

Sources are read on any thread, one call at a time, but the driver is bound to one event loop: a runner's own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from recollect.errors import InvalidInput, MissingExtra, RecollectError, UpstreamUnavailable
from recollect.ledger.postgres import ERRORS, mask_dsn
from recollect.transfer.importers.source import ImportSource

try:
    import asyncpg
    from asyncpg import exceptions as pg
except ImportError as error:
    raise MissingExtra("PostgreSQL", "postgres") from error

T = TypeVar("T")
PAGE_ROWS = 500
_VECTORS = ("vector", "halfvec", "sparsevec")
_CONNECT_TIMEOUT_S = 10.0
_CLOSE_TIMEOUT_S = 2.0
# Sorting a large table is slow.
_QUERY_TIMEOUT_S = 600.0
# All is read in one snapshot. With row_security off, rows hidden by a policy are an error instead of missing.
_BEGIN = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL row_security = off; "
    "SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = 0"
)
# Only tables: a view could run anything.
_TABLES = """
SELECT c.relname AS name, json_object_agg(a.attname, format_type(a.atttypid, NULL)) AS columns
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
AND pg_catalog.pg_table_is_visible(c.oid) AND c.relnamespace <> 'pg_catalog'::regnamespace
GROUP BY c.relname ORDER BY c.relname
"""


class PostgresTables:
    """A snapshot of a database; errors are raised as InvalidInput or UpstreamUnavailable."""

    def __init__(self, runner: asyncio.Runner, dsn: str, table_names: Sequence[str]) -> None:
        self._runner, self._table_names, self.where = runner, table_names, mask_dsn(dsn)
        self._connection = self._run(_connect(dsn))
        self._columns_by_table: dict[str, dict[str, str]] | None = None

    def close(self) -> None:
        self._run(_close(self._connection))

    def tables_with(self, columns: Mapping[str, str], *, excluding: tuple[str, ...] = ()) -> list[str]:
        """Return the tables with columns of these types; only those that the address names, if any."""
        return [
            name
            for name, available in self._load_columns().items()
            if columns.items() <= available.items()
            and not name.endswith(excluding)
            and (not self._table_names or name in self._table_names)
        ]

    def check_found(self, tables: Sequence[str], *, product: str) -> None:
        """Raise an InvalidInput if a table that the address names is missing, or if there are none."""
        for name in self._table_names:
            if name not in tables:
                existing = ", ".join(self._load_columns()) or "none"
                raise InvalidInput(f"{self.where} has no table {name!r} of {product}; there are: {existing}")
        if not tables:
            raise InvalidInput(f"{self.where} has no table of {product}: is it the right database?")

    def rows(self, table: str, *, order: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a table in pages, without vectors."""
        columns = [name for name, type in self._load_columns()[table].items() if type not in _VECTORS]
        sql = f"SELECT {', '.join(map(_quote, columns))} FROM {_quote(table)} ORDER BY {order}"  # noqa: S608 - quoted names
        cursor = self._run(_open_cursor(self._connection, sql))
        while page := self._run(cursor.fetch(PAGE_ROWS, timeout=_QUERY_TIMEOUT_S)):
            yield from map(dict, page)

    def _load_columns(self) -> dict[str, dict[str, str]]:
        if self._columns_by_table is None:
            rows = self._run(self._connection.fetch(_TABLES, timeout=_QUERY_TIMEOUT_S))
            # The type of an extension may be qualified by its schema.
            self._columns_by_table = {
                row["name"]: {each: type.rpartition(".")[2] for each, type in json.loads(row["columns"]).items()}
                for row in rows
            }
        return self._columns_by_table

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(work)
        except (*ERRORS, ValueError) as error:
            raise _translate_error(error, self.where) from None


@contextmanager
def open_tables(source: ImportSource) -> Iterator[PostgresTables]:
    """Connect to the database of an address."""
    with asyncio.Runner() as runner:
        tables = PostgresTables(runner, *split_address(source.location))
        try:
            yield tables
        finally:
            tables.close()


def read_tables(
    source: ImportSource, columns: Mapping[str, str], *, product: str, order: str, excluding: tuple[str, ...] = ()
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the rows of each table of a product."""
    with open_tables(source) as tables:
        names = tables.tables_with(columns, excluding=excluding)
        tables.check_found(names, product=product)
        for table in names:
            for row in tables.rows(table, order=order):
                yield table, row


def split_address(address: str) -> tuple[str, list[str]]:
    """Return the address without its `table=` parameters, and the tables they name."""
    try:
        parts = urlsplit(address)
        options = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise InvalidInput("it is not a PostgreSQL address") from None
    table_names = [value for name, value in options if name == "table"]
    if not table_names:
        return address, []
    query = urlencode([each for each in options if each[0] != "table"], safe="/")
    return parts._replace(query=query).geturl(), table_names


async def _connect(dsn: str) -> Any:
    settings = {"application_name": "recollect import"}
    connection = await asyncpg.connect(
        dsn, timeout=_CONNECT_TIMEOUT_S, statement_cache_size=0, server_settings=settings
    )
    try:
        await connection.execute(_BEGIN, timeout=_QUERY_TIMEOUT_S)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _open_cursor(connection: Any, sql: str) -> Any:
    return await connection.cursor(sql, timeout=_QUERY_TIMEOUT_S)


async def _close(connection: Any) -> None:
    try:
        await connection.close(timeout=_CLOSE_TIMEOUT_S)
    except (*ERRORS, TimeoutError):
        connection.terminate()


def _translate_error(error: Exception, where: str) -> RecollectError:
    match error:
        case pg.InvalidAuthorizationSpecificationError():
            return InvalidInput(f"{where} refused the login: check the user, the password and pg_hba.conf")
        case pg.InvalidCatalogNameError():
            return InvalidInput(f"{where}: there is no such database; its name is the end of the address")
        case pg.InsufficientPrivilegeError():
            return InvalidInput(f"{where} does not let this user read all rows: {error}")
        case pg.ClientConfigurationError() | ValueError():
            # The message may contain a part of the password.
            return InvalidInput(f"{where} is not a PostgreSQL address: postgresql://user:password@host/database")
        case OSError() | pg.PostgresConnectionError():
            return UpstreamUnavailable(f"{where} cannot be reached: check the address, and that it runs ({error})")
        case _:
            return UpstreamUnavailable(f"{where}: {str(error.args[0] if error.args else type(error).__name__)[:200]}")


def _quote(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
