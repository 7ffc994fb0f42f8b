"""Overwrite what was deleted from PostgreSQL, as far as a client can, by rewriting tables and indexes.

A plain VACUUM only marks space as free, and a full-text index keeps every word it ever had. VACUUM FULL leaves
nothing but blocks everyone, so it is used for tables that are rewritten in seconds. It copies deleted rows that an
open transaction of another session may still see, so it is repeated until there are none.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Any

from recollect.ledger.sql.tx import LOG, ScrubResult

# Tables are rewritten up to this total size.
MAX_FULL_BYTES = 64 << 20
# How long to wait for a lock on a table, while everyone else waits for this.
_LOCK_S = 5
_VACUUM_S = 300.0
_PAUSE_S = 0.1
_UNREACHABLE = "its log, replicas and backups keep what was erased for as long as they are kept"
_MISSING = "these are not ours to vacuum, so that bytes of what was erased stay in them: "
# Including the partitions of a table.
_SIZE = (
    "SELECT coalesce(sum(pg_total_relation_size(to_regclass(name)) + (SELECT coalesce(sum(pg_total_relation_size("
    "part.relid)), 0) FROM pg_partition_tree(to_regclass(name)) part)), 0)::bigint FROM unnest($1::text[]) AS name"
)
_NOT_OWNED = (
    "SELECT relname FROM pg_catalog.pg_class JOIN unnest($1::text[]) AS name ON oid = to_regclass(name) "
    "WHERE NOT pg_has_role(relowner, 'USAGE')"
)


async def sweep(connection: Any, tables: Sequence[str], *, errors: tuple[type[Exception], ...]) -> ScrubResult:
    """Vacuum the tables, which blocks nobody; report which could not be."""
    owned, not_owned = await _split_by_owner(connection, tables)
    remaining = [*not_owned, *[table for table in owned if not await _vacuum(connection, table, "ANALYZE", errors)]]
    return ScrubResult(not remaining, f"these could not be vacuumed: {', '.join(remaining)}" if remaining else "")


async def _split_by_owner(connection: Any, tables: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the tables that the role may vacuum, and those that it may not."""
    not_owned = {row[0] for row in await connection.fetch(_NOT_OWNED, list(tables))}
    await connection.execute(f"SET lock_timeout = '{_LOCK_S}s'; SET statement_timeout = 0")
    return [table for table in tables if table not in not_owned], sorted(not_owned)


async def scrub(connection: Any, tables: Sequence[str], *, errors: tuple[type[Exception], ...]) -> ScrubResult:
    """Rewrite the tables, or vacuum them if that would take too long; report what was not reached."""
    notes = []
    owned, not_owned = await _split_by_owner(connection, tables)
    if not_owned:
        notes.append(_MISSING + ", ".join(not_owned))
    small = await connection.fetchval(_SIZE, owned) <= MAX_FULL_BYTES
    give_up_at = time.monotonic() + _LOCK_S
    remaining = [
        table for table in owned if not small or not await _rewrite(connection, table, errors, give_up_at=give_up_at)
    ]
    for table in remaining:
        await _vacuum(connection, table, "ANALYZE", errors)
    if remaining:
        reason = "other sessions kept using them" if small else "they are large"
        notes.append(
            f"bytes of what was erased stay in free space and in indexes of {', '.join(remaining)}, "
            f"because {reason}: "
            "run VACUUM FULL on them when nobody else needs them"
        )
    # Locks are released in the end; ownership and size do not change by retrying.
    is_final = bool(notes) and not (remaining and small)
    return ScrubResult(
        not notes, "; ".join([*notes, _UNREACHABLE]), is_final, remaining=(*not_owned, *remaining, LOG)
    )


async def _rewrite(connection: Any, table: str, errors: tuple[type[Exception], ...], *, give_up_at: float) -> bool:
    """Rewrite a table; return whether no deleted row is left in it."""
    details: list[str] = []

    def listen(_: Any, message: Any) -> None:
        details.append(message.detail or "")

    connection.add_log_listener(listen)
    try:
        while await _vacuum(connection, table, "FULL, VERBOSE, ANALYZE", errors):
            # The detail of a message about rows begins with how many could not be removed, in any language.
            if not any(re.match("[1-9]", detail) for detail in details):
                return True
            details.clear()
            if time.monotonic() > give_up_at:
                return False
            await asyncio.sleep(_PAUSE_S)
        return False
    finally:
        connection.remove_log_listener(listen)


async def _vacuum(connection: Any, table: str, mode: str, errors: tuple[type[Exception], ...]) -> bool:
    """Vacuum a table; return whether that succeeded."""
    try:
        await connection.execute(f"VACUUM ({mode}) {table}", timeout=_VACUUM_S)
    except errors:
        return False
    return True
