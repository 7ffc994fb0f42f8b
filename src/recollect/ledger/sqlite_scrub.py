"""Overwriting what was deleted from a SQLite file: in its pages, in the space between them, and in its log.

Deleting overwrites a row where it stands (`secure_delete`). It does not overwrite copies that SQLite left behind when
it moved rows from page to page, so the file is written anew. Then the log goes into it and is cut to nothing.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import apsw

from recollect.errors import RecollectError
from recollect.ledger.sql.tx import Scrubbed
from recollect.ledger.sqlite_file import connect

# For how long we wait for readers to let go of the log, and for how long writers wait for us each time we try.
PATIENCE_S = 15.0
_TRY_S = 0.25
# Writing a file anew keeps writers waiting; at this size, for about as long as they are willing to.
MAX_BYTES = 4 << 30


def scrub(path: Path, *, vfs: str | None = None) -> Scrubbed:
    """Write the file anew and empty its log; says what could not be done."""
    notes = []
    try:
        connection = connect(path, vfs=vfs)
        try:
            notes += _rewrite(connection, path)
            notes += _empty_log(connection, path)
        finally:
            connection.close()
    except (apsw.Error, RecollectError, OSError) as error:
        notes.append(f"{path} could not be looked after: {error}")
    return Scrubbed(not notes, "; ".join(notes))


def _rewrite(connection: apsw.Connection, path: Path) -> list[str]:
    size = connection.pragma("page_count") * connection.pragma("page_size")
    if size > MAX_BYTES:
        return [f"{path} is too large to be written anew while it is used; run VACUUM on it when it is not"]
    try:
        connection.execute("VACUUM")
    except apsw.FullError:
        return [f"there is no space to write {path} anew: fragments may be left in it"]
    except apsw.Error as error:
        return [f"{path} could not be written anew, fragments may be left in it: {error}"]
    return []


def _empty_log(connection: apsw.Connection, path: Path) -> list[str]:
    """Cut the log to nothing, which takes a moment in which nobody reads from it."""
    give_up = time.monotonic() + PATIENCE_S
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
            return [f"someone kept reading {path}: its log still holds what was erased, until a purge empties it"]
        time.sleep(random.uniform(0.01, 0.1))
