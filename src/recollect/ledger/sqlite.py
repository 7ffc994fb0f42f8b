"""The ledger in one file: SQLite with a write-ahead log, every acknowledged write synced to disk.

One thread writes. It takes whatever waits, does it in one transaction with a savepoint each, and commits once,
so that many writers share one sync. Readers have a connection for each thread and never wait for the writer.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import apsw

from recollect.errors import (
    Conflict,
    DiskFull,
    RecollectError,
    StoreBusy,
    StoreCorrupt,
    StoreUnavailable,
)
from recollect.ledger.sql.ledger import SqlLedger
from recollect.ledger.sql.tx import Row, Tx, run_now
from recollect.ledger.sqlite_dialect import FtsTerms, SqliteDialect
from recollect.models.embedding import EmbeddingModel

T = TypeVar("T")
BUSY_S = 60.0
MAX_GROUP = 512
_DIALECT = SqliteDialect()
_PRAGMAS = """
PRAGMA synchronous = FULL;
PRAGMA secure_delete = ON;
PRAGMA foreign_keys = ON;
PRAGMA cache_size = -16384;
PRAGMA journal_size_limit = 67108864;
PRAGMA temp_store = MEMORY;
"""


def translated(error: apsw.Error, path: Path) -> RecollectError:
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

    dialect = _DIALECT

    def __init__(self, connection: apsw.Connection) -> None:
        self._execute = connection.execute
        self._executemany = connection.executemany

    async def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        return self._execute(sql, _bound(params)).fetchall()

    async def run(self, sql: str, params: Mapping[str, Any]) -> None:
        self._execute(sql, _bound(params)).fetchall()

    async def many(self, sql: str, params: Sequence[Mapping[str, Any]]) -> None:
        self._executemany(sql, params).fetchall()


def _bound(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Lists become JSON, for json_each."""
    for value in params.values():
        if type(value) is list:
            return {name: json.dumps(v) if type(v) is list else v for name, v in params.items()}
    return params


class SqliteEngine:
    """One file, one writing thread, a connection for each reading thread."""

    dialect = _DIALECT
    terms = FtsTerms()
    is_local = True

    def __init__(self, path: Path, *, vfs: str | None = None, readers: int = 4) -> None:
        self.path = path
        self._vfs = vfs
        self._local = threading.local()
        self._connections: list[apsw.Connection] = []
        self._closed = False
        _make_folder(path)
        self._writer = _Writer(self)
        self._pool = ThreadPoolExecutor(readers, thread_name_prefix="recollect-read")

    def connect(self) -> apsw.Connection:
        """A connection set up for durability, or the error that says why there is none."""
        try:
            connection = apsw.Connection(str(self.path), vfs=self._vfs)
            connection.set_busy_handler(_Patience())
            _ensure_wal(connection)
            connection.execute(_PRAGMAS)
        except apsw.Error as error:
            raise translated(error, self.path) from error
        self._connections.append(connection)
        return connection

    def disconnect(self, connection: apsw.Connection) -> None:
        """Let go of a connection that is not trusted any more."""
        self._connections.remove(connection)
        try:
            connection.close()
        except apsw.Error:
            pass  # It is gone all the same.

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
            connection = self._local.connection = self.connect()
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
        connection = self.connect()
        try:
            return connection.execute("PRAGMA quick_check(20)").fetchall()
        except apsw.Error as error:
            raise translated(error, self.path) from error
        finally:
            self.disconnect(connection)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._writer.stop)
        self._pool.shutdown(wait=True)
        for connection in self._connections:
            connection.close()


class _Writer:
    """The one thread that writes."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine
        self._connection: apsw.Connection | None = engine.connect()
        self._waiting: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="recollect-write", daemon=True)
        self._thread.start()

    async def submit(self, body: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        """Have the body written; returns when it is on disk."""
        loop = asyncio.get_running_loop()
        job = _Job(body, loop, loop.create_future())
        self._waiting.put(job)
        return await job.future  # type: ignore[no-any-return]

    def stop(self) -> None:
        """Write what waits, then end."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            group, last = [first], False
            while len(group) < MAX_GROUP and not self._waiting.empty():
                job = self._waiting.get()
                if job is None:
                    last = True
                    break
                group.append(job)
            self._commit(group)
            _answer(group)
            if last:
                return

    def _commit(self, group: list[_Job]) -> None:
        """Do every job in one transaction; a job that fails takes back only its own part."""
        try:
            connection = self._connection = self._connection or self._engine.connect()
            connection.execute("BEGIN IMMEDIATE")
            for job in group:
                self._do(connection, job)
            connection.execute("COMMIT")
        except BaseException as error:
            failure = translated(error, self._engine.path) if isinstance(error, apsw.Error) else error
            for job in group:
                job.error = job.error or failure
            self._start_over(error)

    def _do(self, connection: apsw.Connection, job: _Job) -> None:
        connection.execute("SAVEPOINT job")
        try:
            job.result = run_now(job.body(SqliteTx(connection)))
        except Exception as error:
            # A full disk or a failed write can end the whole transaction: then nobody's part stands.
            if not connection.in_transaction or isinstance(error, (apsw.FullError, apsw.IOError)):
                raise
            job.error = translated(error, self._engine.path) if isinstance(error, apsw.Error) else error
            connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")

    def _start_over(self, error: BaseException) -> None:
        """Leave no half transaction behind; after a failed write or sync the handle is not trusted again."""
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            pass
        if isinstance(error, apsw.IOError):
            # The next group begins with a new one, or fails with the reason why there is none.
            self._connection = None
            self._engine.disconnect(connection)


class _Job:
    """A body waiting to be written, and who waits for it."""

    __slots__ = ("body", "error", "future", "loop", "result")

    def __init__(self, body: Any, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
        self.body, self.loop, self.future = body, loop, future
        self.result: Any = None
        self.error: BaseException | None = None


def _answer(group: list[_Job]) -> None:
    """Wake everyone who waits, each loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in group:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, jobs)
        except RuntimeError:
            pass  # The loop is gone, and with it everyone who waited; what was written is written.


def _settle(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)


class _Patience:
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


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"cannot make the folder {path.parent}: {error.strerror}") from error
    if path.exists() and not os.access(path, os.W_OK):
        raise StoreUnavailable(f"{path} is read-only: give it write permission, or another folder with --home")


async def open_sqlite(path: Path, model: EmbeddingModel, *, vfs: str | None = None) -> SqlLedger:
    """Open the ledger in a file, which is made if it is not there."""
    engine = await asyncio.to_thread(SqliteEngine, path, vfs=vfs)
    return await SqlLedger.open(engine, model)
