"""The ledger in one file: SQLite with a write-ahead log, every acknowledged write synced to disk.

One thread writes (see sqlite_writer.py). Readers have a connection for each thread and never wait for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import apsw

from recollect.errors import StoreUnavailable
from recollect.ledger.sql.ledger import SqlLedger
from recollect.ledger.sql.tx import Row, Tx, run_now
from recollect.ledger.sqlite_dialect import FtsTerms
from recollect.ledger.sqlite_file import DIALECT, SqliteTx, connect, make_folder, translated
from recollect.ledger.sqlite_writer import Writer
from recollect.models.embedding import EmbeddingModel

T = TypeVar("T")


class SqliteEngine:
    """One file, one writing thread, a connection for each reading thread."""

    dialect = DIALECT
    terms = FtsTerms()
    is_local = True

    def __init__(self, path: Path, *, vfs: str | None = None, readers: int = 4) -> None:
        self.path = path
        self._vfs = vfs
        self._local = threading.local()
        self._readers: list[apsw.Connection] = []
        self._closed = False
        make_folder(path)
        self._writer = Writer(path, vfs=vfs)
        self._pool = ThreadPoolExecutor(readers, thread_name_prefix="recollect-read")

    async def read(self, body: Callable[[Tx], Coroutine[Any, Any, T]], *, quick: bool = False) -> T:
        self._check_open()
        # A handful of rows takes microseconds: less than handing the question to another thread.
        if quick:
            return self._read(body)
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, body)

    def _read(self, body: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            self._check_open()
            connection = self._local.connection = connect(self.path, vfs=self._vfs)
            self._readers.append(connection)
        try:
            connection.execute("BEGIN")
            try:
                return run_now(body(SqliteTx(connection)))
            finally:
                connection.execute("ROLLBACK")
        except apsw.ConnectionClosedError:
            self._check_open()
            raise
        except apsw.Error as error:
            raise translated(error, self.path) from error

    async def write(self, body: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        self._check_open()
        return await self._writer.submit(body)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self.path} is closed")

    async def size(self) -> int:
        files = (Path(f"{self.path}{tail}") for tail in ("", "-wal", "-shm"))
        return sum(file.stat().st_size for file in files if file.exists())

    async def check(self) -> list[str]:
        self._check_open()
        found = await asyncio.get_running_loop().run_in_executor(self._pool, self._quick_check)
        return [f"{self.path}: {row[0]}" for row in found if row[0] != "ok"]

    def _quick_check(self) -> Sequence[Row]:
        # FTS5 compares with what the connection saw last, so one that others have written past finds damage
        # where there is none.
        connection = connect(self.path, vfs=self._vfs)
        try:
            return connection.execute("PRAGMA quick_check(20)").fetchall()
        except apsw.Error as error:
            raise translated(error, self.path) from error
        finally:
            connection.close()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._writer.stop)
        self._pool.shutdown(wait=True)
        for connection in self._readers:
            connection.close()


async def open_sqlite(path: Path, model: EmbeddingModel, *, vfs: str | None = None) -> SqlLedger:
    """Open the ledger in a file, which is made if it is not there."""
    engine = await asyncio.to_thread(SqliteEngine, path, vfs=vfs)
    return await SqlLedger.open(engine, model)
