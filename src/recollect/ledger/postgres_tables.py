"""Rewrite tables of PostgreSQL: to overwrite what was deleted, as far as a client can, and to partition them.

A plain VACUUM only marks space as free, and a full-text index keeps every word it ever had. VACUUM FULL leaves
nothing but blocks everyone, so it is used for tables that are rewritten in seconds. It copies deleted rows that an
open transaction of another session may still see, so it is repeated until there are none.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from recollect.errors import Conflict, InvalidInput
from recollect.ledger.sql.tx import ALL_TENANTS, LOG, ScrubResult

if TYPE_CHECKING:
    from recollect.ledger.postgres import PostgresEngine


# Tables are rewritten up to this total size.
MAX_FULL_BYTES = 64 << 20
# How long to wait for a lock on a table, while everyone else waits for this.
LOCK_TIMEOUT_S = 5
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
    await connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT_S}s'; SET statement_timeout = 0")
    return [table for table in tables if table not in not_owned], sorted(not_owned)


async def scrub(connection: Any, tables: Sequence[str], *, errors: tuple[type[Exception], ...]) -> ScrubResult:
    """Rewrite the tables, or vacuum them if that would take too long; report what was not reached."""
    notes = []
    owned, not_owned = await _split_by_owner(connection, tables)
    if not_owned:
        notes.append(_MISSING + ", ".join(not_owned))
    small = await connection.fetchval(_SIZE, owned) <= MAX_FULL_BYTES
    give_up_at = time.monotonic() + LOCK_TIMEOUT_S
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


# In the order of their references.
TABLES = ("memories", "terms", "vectors", "history", "turns")
MAX_PARTS = 1024
PARTITION_MIN_VERSION = 17
_PARTITION_LOCK_S = 10
_IS_SPLIT = "SELECT 1 FROM pg_catalog.pg_class WHERE oid = to_regclass('memories') AND relkind = 'p'"
_HAS_HALVES = "SELECT 1 FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass('vectors') AND attname = 'half'"
# Keys are unique across partitions only together with the user; a lookup by row number alone uses an
# additional index.
_SPLIT = """
DO $$
DECLARE
    whole text := '{table}_whole';
    item record;
    later text[] := '{{}}';
    key text;
BEGIN
    SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) INTO key
        FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
        WHERE i.indrelid = '{table}'::regclass AND i.indisprimary AND a.attname <> 'user_id';
    FOR item IN SELECT pg_get_indexdef(i.indexrelid) AS made FROM pg_index i
        WHERE i.indrelid = '{table}'::regclass AND NOT i.indisprimary
        AND i.indexrelid::regclass::text !~ '^vectors_near_' LOOP
        later := later || item.made;
    END LOOP;
    FOR item IN SELECT polname, pg_get_expr(polqual, polrelid) AS seen, pg_get_expr(polwithcheck, polrelid) AS made
        FROM pg_policy WHERE polrelid = '{table}'::regclass LOOP
        later := later || format('CREATE POLICY %I ON {table} USING (%s)%s', item.polname, item.seen,
            CASE WHEN item.made IS NULL THEN '' ELSE ' WITH CHECK (' || item.made || ')' END);
    END LOOP;
    FOR item IN SELECT attname FROM pg_attribute
        WHERE attrelid = '{table}'::regclass AND attnum > 0 AND attstattarget = 0 LOOP
        later := later || format('ALTER TABLE {table} ALTER COLUMN %I SET STATISTICS 0', item.attname);
    END LOOP;
    FOR item IN SELECT DISTINCT c.relname, pg_get_viewdef(c.oid) AS made, c.reloptions
        FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class c ON c.oid = r.ev_class
        WHERE d.classid = 'pg_rewrite'::regclass AND d.refobjid = '{table}'::regclass AND c.relkind = 'v' LOOP
        later := later || format('CREATE VIEW %I WITH (%s) AS %s', item.relname,
            array_to_string(item.reloptions, ', '), item.made);
    END LOOP;
    EXECUTE format('ALTER TABLE {table} RENAME TO %I', whole);
    EXECUTE format('CREATE TABLE {table} (LIKE %I INCLUDING DEFAULTS INCLUDING IDENTITY INCLUDING STORAGE) '
        'PARTITION BY HASH (user_id)', whole);
    FOR part IN 0 .. {parts} - 1 LOOP
        EXECUTE format('CREATE TABLE {table}_part_%s PARTITION OF {table} FOR VALUES WITH (MODULUS {parts}, '
            'REMAINDER %s)', part, part);
        EXECUTE format('ALTER TABLE {table}_part_%s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', part);
    END LOOP;
    EXECUTE format('INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM %I', whole);
    EXECUTE format('ALTER TABLE %I DISABLE ROW LEVEL SECURITY', whole);
    FOR item IN SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attidentity <> '' LOOP
        EXECUTE format('SELECT setval(pg_get_serial_sequence(%L, %L), nextval(pg_get_serial_sequence(%L, %L)))',
            '{table}', item.attname, whole, item.attname);
    END LOOP;
    EXECUTE format('DROP TABLE %I CASCADE', whole);
    EXECUTE format('ALTER TABLE {table} ADD PRIMARY KEY (user_id, %s)', key);
    IF key IN ('row', '"row"', 'id') THEN
        EXECUTE format('CREATE INDEX {table}_by_number ON {table} (%s)', key);
    END IF;
    FOREACH key IN ARRAY later LOOP
        EXECUTE replace(replace(key, format(' ON %I.%I ', current_schema(), whole), ' ON {table} '),
            format(' ON %I.{table} ', current_schema()), ' ON {table} ');
    END LOOP;
    ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
END $$
"""
_REFER = "ALTER TABLE terms ADD FOREIGN KEY (user_id, row) REFERENCES memories (user_id, row) ON DELETE CASCADE"


async def partition(engine: PostgresEngine, parts: int) -> None:
    """Split the large tables into so many partitions; nothing else may use the database."""
    if not 2 <= parts <= MAX_PARTS:
        raise InvalidInput(f"tables can be split into 2 to {MAX_PARTS} parts")
    async with engine.dedicated_connection(ALL_TENANTS) as connection:
        if connection.get_server_version().major < PARTITION_MIN_VERSION:
            raise InvalidInput(f"splitting tables needs PostgreSQL {PARTITION_MIN_VERSION} or newer")
        if await connection.fetchval(_IS_SPLIT):
            raise Conflict("the tables are split already")
        async with connection.transaction():
            await connection.execute(
                f"SET LOCAL lock_timeout = '{_PARTITION_LOCK_S}s'; SET LOCAL statement_timeout = 0"
            )
            await connection.execute(f"LOCK TABLE users, {', '.join(TABLES)} IN ACCESS EXCLUSIVE MODE")
            # pgvector's data is rebuilt when it is next needed.
            await connection.execute("UPDATE users SET halved = '{}', near = '{}' WHERE halved <> '{}'")
            if await connection.fetchval(_HAS_HALVES):
                await connection.execute("UPDATE vectors SET half = NULL WHERE half IS NOT NULL")
            for table in TABLES:
                await connection.execute(_SPLIT.format(table=table, parts=parts))
            await connection.execute(_REFER)
