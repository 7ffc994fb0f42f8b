"""Overwrite what was deleted from a SQLite file: in its pages, in free space, and in its log.

Deleting overwrites a row in place (`secure_delete`), but not the copies that SQLite left when it moved rows between
pages, so the file is rewritten. Then the log is checkpointed and truncated.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import apsw

from recollect.errors import RecollectError
from recollect.ledger.sql.tx import LOG, ScrubResult
from recollect.ledger.sqlite_connection import connect

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
