"""SQLite files of other products, looked at and never written to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from recollect.errors import InvalidInput
from recollect.movein.source import ImportSource

_SQLITE_MAGIC = b"SQLite format 3\0"


def has_tables(source: ImportSource, name: str, *tables: str) -> bool:
    """Whether a file is a SQLite database with these tables."""
    if not source.head(name).startswith(_SQLITE_MAGIC):
        return False
    try:
        with open_sqlite(source, name) as connection:
            existing = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    except InvalidInput:
        return False
    return set(tables) <= existing


@contextmanager
def open_sqlite(source: ImportSource, name: str) -> Iterator[sqlite3.Connection]:
    """A connection to the file, which is only looked at; what is wrong with it is an InvalidInput."""
    with source.on_disk(name) as (path, is_copy):
        # Nobody else's file is written to, nor anything beside it.
        query_string = "" if is_copy else "?immutable=1"
        # Read bit by bit, each bit on whatever thread is free.
        connection = sqlite3.connect(f"{path.resolve().as_uri()}{query_string}", uri=True, check_same_thread=False)
        try:
            # A file that was made to harm could say that its tables are views with functions in them.
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA query_only = ON")
            yield connection
        except sqlite3.Error as error:
            raise InvalidInput(f"{name} is a damaged database: {error}") from None
        finally:
            connection.close()


def iter_rows(connection: sqlite3.Connection, sql: str, params: Sequence[Any] = ()) -> Iterator[dict[str, Any]]:
    """The rows of an answer by the names of their columns."""
    cursor = connection.execute(sql, params)
    names = [each[0] for each in cursor.description]
    for row in cursor:
        yield dict(zip(names, row, strict=True))
