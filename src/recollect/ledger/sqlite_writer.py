"""The one thread that writes to a SQLite file.

It takes all pending writes, runs them in one transaction and commits once, so that many writers share one sync to
disk. Requests in a row for the same body share its statements too. If one fails, the transaction is rolled back and
each is run alone, with a savepoint. Without failures there are none: each would copy the pages that follow it, and
make the full text write a segment.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import apsw

from recollect.errors import StoreUnavailable
from recollect.ledger.sql.tx import Tx, run_now
from recollect.ledger.sqlite_connection import SqliteTx, connect, translate_error
from recollect.ledger.sqlite_file import LedgerFile

T = TypeVar("T")
R = TypeVar("R")
MAX_GROUP = 512


class SqliteWriter:
    """Runs submitted writes in order, many in one transaction."""

    def __init__(self, path: Path, *, vfs: str | None, file: LedgerFile | None = None) -> None:
        self._path, self._vfs, self._file = path, vfs, file
        self._connection: apsw.Connection | None = self._connect()
        self._waiting: queue.SimpleQueue[WriteJob | None] = queue.SimpleQueue()
        self._submitted: deque[WriteJob] = deque()
        self._thread = threading.Thread(target=self._run, name="recollect-write", daemon=True)
        self._thread.start()

    @property
    def connections(self) -> list[apsw.Connection]:
        """The open connection, or none after a failure."""
        return [] if self._connection is None else [self._connection]

    async def submit(self, body: Callable[[Tx, Sequence[R]], Coroutine[Any, Any, Sequence[T]]], request: R) -> T:
        """Run the body on the request; return its result when it is on disk."""
        loop = asyncio.get_running_loop()
        written: asyncio.Future[T] = loop.create_future()
        self._submitted.append(WriteJob(body, request, loop, written))
        # After this turn of the loop: what is submitted in it is written together, and does not compete with it.
        loop.call_soon(self._hand_over)
        return await written

    def _hand_over(self) -> None:
        while self._submitted:
            self._waiting.put(self._submitted.popleft())

    def check_file(self) -> None:
        """Make the thread check the file, and preserve it if it is not in its place."""
        self._waiting.put(WriteJob(None, None, None, None))

    def stop(self) -> None:
        """Finish pending writes, then end the thread."""
        self._hand_over()
        self.check_file()
        self._waiting.put(None)
        self._thread.join()
        self._close()

    def _connect(self) -> apsw.Connection:
        connection = connect(self._path, vfs=self._vfs)
        if self._file is not None:
            self._file.note_connected()
        return connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                connection.close()
        except apsw.Error:
            pass  # It is unusable in any case.

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

    def _commit(self, group: list[WriteJob]) -> None:
        """Run all jobs in one transaction; a job that fails is rolled back alone."""
        try:
            self._check_in_place()
            if not (group := [job for job in group if job.body is not None]):
                return
            connection = self._connection = self._connection or self._connect()
            connection.execute("BEGIN IMMEDIATE")
            if not self._run_together(connection, group):
                connection.execute("BEGIN IMMEDIATE")
                for job in group:
                    self._run_alone(connection, job)
            connection.execute("COMMIT")
            self._check_in_place(connection)
        except BaseException as error:
            failure = translate_error(error, self._path) if isinstance(error, apsw.Error) else error
            for job in group:
                job.error = job.error or failure
            self.recover(error)

    def _check_in_place(self, committed: apsw.Connection | None = None) -> None:
        """Raise StoreUnavailable if the file was removed or replaced, also since the commit, and preserve it."""
        if self._file is None:
            return
        try:
            if committed is None:
                self._file.check()
            else:
                self._file.check_written(committed)
        except StoreUnavailable:
            connection, self._connection = self._connection, None
            if connection is not None:
                self._file.preserve(connection)
            raise

    def _run_together(self, connection: apsw.Connection, group: list[WriteJob]) -> bool:
        """Run the jobs, or roll all of them back and return False."""
        try:
            for body, jobs in groupby(group, key=lambda job: job.body):
                run = list(jobs)
                results = run_now(body(SqliteTx(connection), [job.request for job in run]))
                for job, result in zip(run, results, strict=True):
                    job.result = result
        except Exception as error:
            if _ends_transaction(connection, error):
                raise
            connection.execute("ROLLBACK")
            return False
        return True

    def _run_alone(self, connection: apsw.Connection, job: WriteJob) -> None:
        """Run a job; roll it back alone if it fails."""
        connection.execute("SAVEPOINT job")
        try:
            [job.result] = run_now(job.body(SqliteTx(connection), [job.request]))
        except Exception as error:
            if _ends_transaction(connection, error):
                raise
            job.error = translate_error(error, self._path) if isinstance(error, apsw.Error) else error
            connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")

    def recover(self, error: BaseException) -> None:
        """Roll back what is open; after a failed write or sync the connection is not used again."""
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            pass
        if isinstance(error, apsw.IOError):
            # The next group opens a new one, or fails with the reason.
            self._close()


class WriteJob:
    """A request to be written by a body, and the future that waits for it; without them only the file is checked."""

    __slots__ = ("body", "error", "future", "loop", "request", "result")

    def __init__(
        self,
        body: Any,
        request: Any,
        loop: asyncio.AbstractEventLoop | None,
        future: asyncio.Future[Any] | None,
    ) -> None:
        self.body, self.request, self.loop, self.future = body, request, loop, future
        self.result: Any = None
        self.error: BaseException | None = None


def _ends_transaction(connection: apsw.Connection, error: Exception) -> bool:
    """Return whether none of it can be committed: a full disk or a failed write can end the whole transaction."""
    return not connection.in_transaction or isinstance(error, (apsw.FullError, apsw.IOError))


def _answer(group: list[WriteJob]) -> None:
    """Wake all waiting callers, each loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[WriteJob]] = {}
    for job in group:
        if job.loop is not None:
            by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, jobs)
        except RuntimeError:
            pass  # The loop is closed, and nobody waits; the write is committed all the same.


def _settle(jobs: list[WriteJob]) -> None:
    for job in jobs:
        if job.future is None or job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
