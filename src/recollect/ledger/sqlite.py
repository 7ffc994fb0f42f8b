"""The ledger in one SQLite file with a write-ahead log; every acknowledged write is synced to disk.

One thread writes (see sqlite_writer.py). Readers have a connection per thread and never wait for it.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

import apsw

from recollect.errors import RecollectError, StoreUnavailable, Unsupported
from recollect.ledger.ledger import Ledger
from recollect.ledger.redacted_writes import WriteRedactor
from recollect.ledger.sql.tx import ALL_TENANTS, LOG, Row, ScrubResult, Tenant, Tx, run_now
from recollect.ledger.sqlite_connection import (
    DIALECT,
    MEMORY_VFS,
    SqliteTx,
    connect,
    make_file,
    translate_error,
)
from recollect.ledger.sqlite_file import LedgerFile
from recollect.ledger.sqlite_writer import SqliteWriter
from recollect.model.ids import new_id
from recollect.models.embedding import EmbeddingModel

# A user for whom a read in the event loop took longer is read for in another thread.
_SLOW_READ_S = 0.005
_MAX_SLOW_TENANTS = 10_000
# How long to wait for readers to release the log, and how long writers wait in each attempt.
MAX_WAIT_S = 15.0
_TRY_S = 0.25
# The same for background purges.
SWEEP_MAX_WAIT_S = 2.0
# Rewriting blocks writers; at this size, for about as long as they are willing to wait.
MAX_BYTES = 4 << 30


def scrub(path: Path, tables: Sequence[str] = (), *, vfs: str | None = None) -> ScrubResult:
    """Rewrite the file and truncate its log; report what could not be done."""
    notes: list[str] = []
    remaining: list[str] = []
    too_large = ""
    try:
        connection = connect(path, vfs=vfs)
        try:
            if connection.pragma("page_count") * connection.pragma("page_size") > MAX_BYTES:
                too_large = f"{path} is too large to be rewritten while in use; run VACUUM on it when it is not"
            else:
                notes += _rewrite(connection, path)
            remaining += tables if notes or too_large else ()
            full = _empty_log(connection, path, MAX_WAIT_S)
            remaining += [LOG] if full else []
            notes += full
        finally:
            connection.close()
    except (apsw.Error, RecollectError, OSError) as error:
        notes.append(f"{path} could not be scrubbed: {error}")
        remaining = [*tables, LOG]
    return ScrubResult(
        not notes and not too_large,
        "; ".join(filter(None, [too_large, *notes])),
        bool(too_large) and not notes,
        remaining=tuple(remaining),
    )


def sweep(path: Path, *, vfs: str | None = None) -> ScrubResult:
    """Truncate the log of a file in which deleted rows were overwritten in place; report if that failed."""
    try:
        connection = connect(path, vfs=vfs)
        try:
            # Most of it needs no lock; the rest then takes a moment.
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            notes = _empty_log(connection, path, SWEEP_MAX_WAIT_S)
        finally:
            connection.close()
    except (apsw.Error, RecollectError, OSError) as error:
        notes = [f"{path} could not be scrubbed: {error}"]
    return ScrubResult(not notes, "; ".join(notes))


def _rewrite(connection: apsw.Connection, path: Path) -> list[str]:
    try:
        connection.execute("VACUUM")
    except apsw.FullError:
        return [f"no space left to rewrite {path}: fragments of deleted rows may be left in it"]
    except apsw.Error as error:
        return [f"{path} could not be rewritten, fragments of deleted rows may be left in it: {error}"]
    return []


def _empty_log(connection: apsw.Connection, path: Path, max_wait_s: float) -> list[str]:
    """Truncate the log, which needs a moment without readers."""
    give_up = time.monotonic() + max_wait_s
    while True:
        # While this waits for readers, writers wait for it: many short attempts instead of a long one.
        connection.set_busy_timeout(int(_TRY_S * 1000))
        try:
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
        except (apsw.BusyError, apsw.LockedError):
            busy = 1
        if not busy:
            return []
        if time.monotonic() > give_up:
            return [f"a reader kept {path} busy: its log still holds erased rows, until a retry truncates it"]
        time.sleep(random.uniform(0.01, 0.1))


T = TypeVar("T")
R = TypeVar("R")
_engines: WeakSet[SqliteEngine] = WeakSet()


class SqliteEngine:
    """One file, one writing thread, a connection for each reading thread."""

    dialect = DIALECT
    is_local = True

    def __init__(self, path: Path, *, vfs: str | None = None, readers: int = 4) -> None:
        self.path = path
        self._vfs = vfs
        self._local = threading.local()
        # A connection lives as long as its thread, or until the engine is closed.
        self._readers: WeakSet[apsw.Connection] = WeakSet()
        self._connecting = threading.Lock()
        self._scrubbing = threading.Lock()
        self._last_scrub = (0.0, ScrubResult(False))
        # Hashes of users whose reads are not done in the event loop any more.
        self._slow_tenants: set[int] = set()
        self._closed = False
        self._process = os.getpid()
        for engine in list(_engines):
            engine.leave_to_parent(path)
        make_file(path, vfs=vfs)
        # Other file systems, such as the one in memory, keep no file under this path.
        self._file = LedgerFile(path) if vfs is None else None
        self._writer = SqliteWriter(path, vfs=vfs, file=self._file)
        self._pool = ThreadPoolExecutor(readers, thread_name_prefix="recollect-read")
        _engines.add(self)

    async def read(self, body: Callable[[Tx], Coroutine[Any, Any, T]], *, tenant: Tenant, quick: bool = False) -> T:
        self._check_open()
        # A handful of rows takes microseconds, less than handing it to another thread, unless they are long.
        if quick and hash(tenant) not in self._slow_tenants:
            started = time.thread_time()
            result = self._read(body)
            if time.thread_time() - started > _SLOW_READ_S:
                if len(self._slow_tenants) >= _MAX_SLOW_TENANTS:
                    self._slow_tenants.clear()
                self._slow_tenants.add(hash(tenant))
            return result
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, body)

    def _read(self, body: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        generation = 0 if self._file is None else self._file.generation
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None or self._local.generation != generation:
            self._check_open()
            connection = self._local.connection = connect(self.path, vfs=self._vfs)
            self._local.generation = generation
            with self._connecting:
                self._readers.add(connection)
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
            raise translate_error(error, self.path) from error

    async def write(self, body: Callable[[Tx], Coroutine[Any, Any, T]], *, tenant: Tenant) -> T:
        self._check_open()

        async def run(tx: Tx, requests: Sequence[None]) -> list[T]:
            return [await body(tx)]

        return await self._writer.submit(run, None)

    async def write_each(
        self, body: Callable[[Tx, Sequence[R]], Coroutine[Any, Any, Sequence[T]]], request: R, *, tenant: Tenant
    ) -> T:
        self._check_open()
        return await self._writer.submit(body, request)

    def _check_open(self) -> None:
        """Raise StoreUnavailable if this is closed, or if its file is not in its place."""
        if self._closed:
            raise StoreUnavailable(f"{self.path} is closed")
        if self._file is not None:
            try:
                self._file.check()
            except StoreUnavailable:
                self._writer.check_file()
                raise

    def leave_to_parent(self, path: Path) -> None:
        """In a forked child, close what the parent has open, before `path` is opened.

        SQLite counts a process's locks on a file once for all its connections. It would take the parent's locks for
        the child's own, and the parent would remove a log that the child still writes to.
        """
        if self._process == os.getpid() or self._closed or self._vfs == MEMORY_VFS:
            return
        try:
            for connection in [*self._writer.connections, *self._readers]:
                # A rollback would change the memory of the parent's transaction.
                if connection.txn_state() == apsw.SQLITE_TXN_WRITE:
                    raise apsw.BusyError("a write was under way")
                connection.close()
            self._closed = True
            if self._file is not None:
                self._file.close()
        except apsw.Error as error:
            if self.path.absolute() == path.absolute():
                raise StoreUnavailable(
                    f"{path} was in use when this process was forked: open it after the fork, not before ({error})"
                ) from error

    async def size(self) -> int:
        if self._vfs == MEMORY_VFS:
            return await self.read(_database_bytes, tenant=ALL_TENANTS, quick=True)
        files = (Path(f"{self.path}{tail}") for tail in ("", "-wal", "-shm"))
        return sum(file.stat().st_size for file in files if file.exists())

    async def scrub(self, tables: Sequence[str]) -> ScrubResult:
        self._check_open()
        requested_at = time.monotonic()
        return await asyncio.to_thread(self._scrub, requested_at, tables)

    async def sweep(self, tables: Sequence[str]) -> ScrubResult:
        self._check_open()
        return await asyncio.to_thread(sweep, self.path, vfs=self._vfs)

    def _scrub(self, requested_at: float, tables: Sequence[str]) -> ScrubResult:
        with self._scrubbing:
            # A scrub that started after this request covers it as well.
            started_at, done = self._last_scrub
            if started_at <= requested_at:
                started_at = time.monotonic()
                done = scrub(self.path, tables, vfs=self._vfs)
                self._last_scrub = started_at, done
            return done

    async def check(self) -> list[str]:
        self._check_open()
        rows = await asyncio.get_running_loop().run_in_executor(self._pool, self._quick_check)
        return [f"{self.path}: {row[0]}" for row in rows if row[0] != "ok"]

    async def security_warnings(self) -> list[str]:
        self._check_open()
        return []

    def _quick_check(self) -> Sequence[Row]:
        # FTS5 compares with what the connection last saw, so an older connection reports damage
        # where there is none.
        connection = connect(self.path, vfs=self._vfs)
        try:
            return connection.execute("PRAGMA quick_check(20)").fetchall()
        except apsw.Error as error:
            raise translate_error(error, self.path) from error
        finally:
            connection.close()

    async def copy_to(self, path: Path, on_progress: Callable[[int, int], None]) -> None:
        from recollect.ledger.backup_file import copy_sqlite_file

        self._check_open()
        if self._vfs == MEMORY_VFS:
            raise Unsupported("a ledger in memory has no backup; use `recollect export`")
        await asyncio.to_thread(copy_sqlite_file, self.path, path, on_progress)

    async def copy_from(self, path: Path, on_progress: Callable[[int, int], None]) -> None:
        raise Unsupported("a SQLite ledger is put in place as a file")

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self.stop)

    def stop(self) -> None:
        """Finish pending writes, then close the file."""
        self._closed = True
        self._writer.stop()
        self._pool.shutdown(wait=True)
        with self._connecting:
            for connection in list(self._readers):
                connection.close()
        if self._file is not None:
            self._file.close()


async def open_sqlite(
    path: Path, model: EmbeddingModel, redactor: WriteRedactor | None = None, *, vfs: str | None = None
) -> Ledger:
    """Open the ledger in a file, which is created if it does not exist."""
    return await Ledger.open(await _engine(path, vfs), model, redactor)


async def open_in_memory(model: EmbeddingModel, redactor: WriteRedactor | None = None) -> Ledger:
    """Open an empty ledger in this process's memory; it is gone once it is closed."""
    return await open_sqlite(Path(f"/recollect-{new_id()}"), model, redactor, vfs=MEMORY_VFS)


async def _database_bytes(tx: Tx) -> int:
    [(pages, page_size)] = await tx.rows("SELECT page_count, page_size FROM pragma_page_count, pragma_page_size", {})
    return int(pages * page_size)


async def _engine(path: Path, vfs: str | None) -> SqliteEngine:
    """Open the engine of a file; if the caller is cancelled meanwhile, close it once it is open."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="recollect-open")
    opening = pool.submit(SqliteEngine, path, vfs=vfs)
    pool.shutdown(wait=False)
    try:
        return await asyncio.wrap_future(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_stop)
        raise


def _stop(opening: Future[SqliteEngine]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().stop()
