"""Overwriting what was deleted from a SQLite file: in its pages, in the space between them, and in its log.

Deleting overwrites a row where it stands (`secure_delete`). It does not overwrite copies that SQLite left behind when
it moved rows from page to page, so the file is written anew. Then the log goes into it and is cut to nothing.
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

# For how long we wait for readers to let go of the log, and for how long writers wait for us each time we try.
MAX_WAIT_S = 15.0
_TRY_S = 0.25
# The same for what nobody waits to have done.
SWEEP_MAX_WAIT_S = 2.0
# Writing a file anew keeps writers waiting; at this size, for about as long as they are willing to.
MAX_BYTES = 4 << 30


def scrub(path: Path, tables: Sequence[str] = (), *, vfs: str | None = None) -> ScrubResult:
    """Write the file with these tables anew and empty its log; says what could not be done."""
    notes: list[str] = []
    remaining: list[str] = []
    too_large = ""
    try:
        connection = connect(path, vfs=vfs)
        try:
            if connection.pragma("page_count") * connection.pragma("page_size") > MAX_BYTES:
                too_large = (
                    f"{path} is too large to be written anew while it is used; run VACUUM on it when it is not"
                )
            else:
                notes += _rewrite(connection, path)
            remaining += tables if notes or too_large else ()
            full = _empty_log(connection, path, MAX_WAIT_S)
            remaining += [LOG] if full else []
            notes += full
        finally:
            connection.close()
    except (apsw.Error, RecollectError, OSError) as error:
        notes.append(f"{path} could not be looked after: {error}")
        remaining = [*tables, LOG]
    return ScrubResult(
        not notes and not too_large,
        "; ".join(filter(None, [too_large, *notes])),
        bool(too_large) and not notes,
        remaining=tuple(remaining),
    )


def sweep(path: Path, *, vfs: str | None = None) -> ScrubResult:
    """Empty the log of a file in which deleted rows were overwritten where they stood; says if that failed."""
    try:
        connection = connect(path, vfs=vfs)
        try:
            # Most of it goes without a lock; what is left then takes a moment.
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            notes = _empty_log(connection, path, SWEEP_MAX_WAIT_S)
        finally:
            connection.close()
    except (apsw.Error, RecollectError, OSError) as error:
        notes = [f"{path} could not be looked after: {error}"]
    return ScrubResult(not notes, "; ".join(notes))


def _rewrite(connection: apsw.Connection, path: Path) -> list[str]:
    try:
        connection.execute("VACUUM")
    except apsw.FullError:
        return [f"there is no space to write {path} anew: fragments may be left in it"]
    except apsw.Error as error:
        return [f"{path} could not be written anew, fragments may be left in it: {error}"]
    return []


def _empty_log(connection: apsw.Connection, path: Path, max_wait_s: float) -> list[str]:
    """Cut the log to nothing, which takes a moment in which nobody reads from it."""
    give_up = time.monotonic() + max_wait_s
    while True:
        # While we wait for readers, writers wait for us: many short tries instead of one long.
        connection.set_busy_timeout(int(_TRY_S * 1000))
        try:
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
        except (apsw.BusyError, apsw.LockedError):
            busy = 1
        if not busy:
            return []
        if time.monotonic() > give_up:
            return [f"someone kept reading {path}: its log still holds what was erased, until it is tried again"]
        time.sleep(random.uniform(0.01, 0.1))
