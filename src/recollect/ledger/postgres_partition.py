"""Partition the large tables by a hash of the user, for a very large database.

Each partition has its own indexes, is vacuumed separately, and can be on its own disk. It is done once, in one
transaction, while nothing else uses the database; later migrations work on the partitioned tables unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.errors import Conflict, InvalidInput
from recollect.ledger.sql.tx import ALL_TENANTS

if TYPE_CHECKING:
    from recollect.ledger.postgres import PostgresEngine


# In the order of their references.
TABLES = ("memories", "terms", "vectors", "history", "turns")
MAX_PARTS = 1024
MIN_VERSION = 17
_LOCK_S = 10
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
        if connection.get_server_version().major < MIN_VERSION:
            raise InvalidInput(f"splitting tables needs PostgreSQL {MIN_VERSION} or newer")
        if await connection.fetchval(_IS_SPLIT):
            raise Conflict("the tables are split already")
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_S}s'; SET LOCAL statement_timeout = 0")
            await connection.execute(f"LOCK TABLE users, {', '.join(TABLES)} IN ACCESS EXCLUSIVE MODE")
            # pgvector's data is rebuilt when it is next needed.
            await connection.execute("UPDATE users SET halved = '{}', near = '{}' WHERE halved <> '{}'")
            if await connection.fetchval(_HAS_HALVES):
                await connection.execute("UPDATE vectors SET half = NULL WHERE half IS NOT NULL")
            for table in TABLES:
                await connection.execute(_SPLIT.format(table=table, parts=parts))
            await connection.execute(_REFER)
