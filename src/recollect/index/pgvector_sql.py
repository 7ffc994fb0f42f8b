"""SQL for pgvector. Large users' packed vectors are also stored as `halfvec`, which a trigger maintains."""

from __future__ import annotations

from collections.abc import Sequence

# The first version with iterative scans, which continue until enough visible rows are found.
MIN_VERSION = (0, 8)
# The limit of HNSW for halfvec.
MAX_DIMENSIONS = 4000
M, EF_CONSTRUCTION, EF_SEARCH = 16, 64, 200
# If more rows than this must be scanned, the places hold a small part of the user's rows: an exact scan is faster.
MAX_SCANNED = 20_000

# Any numbers, as long as every Recollect uses the same ones.
PREPARING, BUILDING = 7233194109, 7233194110

INSTALLED = "SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'vector'"
OFFERED = "SELECT 1 FROM pg_catalog.pg_available_extensions WHERE name = 'vector'"
VISIBLE = "SELECT to_regtype('halfvec') IS NOT NULL"
INSTALL = "CREATE EXTENSION IF NOT EXISTS vector"

_HALF = """
CREATE OR REPLACE FUNCTION recollect_half(packed bytea) RETURNS halfvec LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    numbers real[];
    low int;
    high int;
BEGIN
    FOR at IN 0 .. length(packed) / 2 - 1 LOOP
        low := get_byte(packed, 2 * at);
        high := get_byte(packed, 2 * at + 1);
        numbers[at + 1] := CASE WHEN high > 127 THEN -1 ELSE 1 END * CASE
            WHEN high & 124 = 0 THEN ((high & 3) * 256 + low) * 2::float8 ^ -24
            ELSE (1024 + (high & 3) * 256 + low) * 2::float8 ^ (((high & 124) >> 2) - 25) END;
    END LOOP;
    RETURN numbers::halfvec;
END $$
"""
_KEEP_HALF = """
CREATE OR REPLACE FUNCTION recollect_keep_half() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM users WHERE user_id = NEW.user_id AND NEW.model = ANY (halved)) THEN
        NEW.half := recollect_half(NEW.vector);
    ELSE
        NEW.half := NULL;
    END IF;
    RETURN NEW;
END $$
"""
PREPARED = (
    "SELECT 1 FROM pg_catalog.pg_trigger WHERE tgrelid = to_regclass('vectors') AND tgname = 'keep_half' "
    "AND tgenabled <> 'D'"
)
# Each needs a lock on the table for a moment.
PREPARE = (
    "ALTER TABLE vectors ADD COLUMN IF NOT EXISTS half halfvec",
    "ALTER TABLE vectors ALTER COLUMN half SET STATISTICS 0",
    _HALF,
    _KEEP_HALF,
    "CREATE OR REPLACE TRIGGER keep_half BEFORE INSERT OR UPDATE OF vector ON vectors "
    "FOR EACH ROW EXECUTE FUNCTION recollect_keep_half()",
)

ENROL = "UPDATE users SET halved = array_append(halved, $2) WHERE user_id = $1 AND NOT $2 = ANY (halved)"
FILL = (
    "UPDATE vectors v SET half = recollect_half(v.vector) FROM (SELECT row FROM vectors WHERE user_id = $1 "
    "AND model = $2 AND row > $3 AND half IS NULL ORDER BY row LIMIT $4) few "
    "WHERE v.user_id = $1 AND v.model = $2 AND v.row = few.row RETURNING v.row"
)
FILLED = (
    "UPDATE users SET near = array_append(near, $2) WHERE user_id = $1 AND NOT $2 = ANY (near) AND NOT EXISTS "
    "(SELECT 1 FROM vectors WHERE user_id = $1 AND model = $2 AND half IS NULL)"
)
LARGE = "SELECT user_id, count(*) FROM vectors WHERE model = $1 GROUP BY user_id HAVING count(*) >= $2 ORDER BY 2"
FORGET = "UPDATE users SET halved = array_remove(halved, $1), near = array_remove(near, $1) WHERE $1 = ANY (halved)"
EMPTY = "UPDATE vectors SET half = NULL WHERE model = $1 AND half IS NOT NULL"
MISMATCHES = (
    "SELECT v.user_id, count(*), count(*) FILTER (WHERE v.half IS DISTINCT FROM recollect_half(v.vector)) "
    "FROM vectors v JOIN users u ON u.user_id = v.user_id WHERE v.model = $1 AND $1 = ANY (u.near) "
    "GROUP BY v.user_id ORDER BY v.user_id"
)
TOTAL = "SELECT count(*) FROM vectors WHERE model = $1 AND half IS NOT NULL"
PROGRESS = "SELECT tuples_done FROM pg_catalog.pg_stat_progress_create_index WHERE pid = $1"
# The partitions of the table, if any.
PARTS = (
    "SELECT relid::regclass::text FROM pg_catalog.pg_partition_tree('vectors') WHERE isleaf AND level > 0 ORDER BY 1"
)
# Our indexes, and whether they are valid.
INDEXES = (
    "SELECT c.relname, i.indisvalid FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
    "WHERE c.relnamespace = current_schema()::regnamespace AND c.relname LIKE 'vectors\\_near\\_%'"
)
# Indexes of a model to be rebuilt, and of models that are gone.
OLD_INDEXES = (
    f"SELECT relname FROM ({INDEXES}) ours WHERE split_part(relname, '_', 3) = $1::bigint::text "
    "OR split_part(relname, '_', 3) NOT IN (SELECT number::text FROM models)"
)


def index_names(model: int, parts: Sequence[str]) -> dict[str, str]:
    """Return the name of the index of a model, or one for each partition, with its table."""
    name = f"vectors_near_{model:d}"
    return {f"{name}_{number}": part for number, part in enumerate(parts)} or {name: "vectors"}


def create_index(name: str, table: str, model: int, dimensions: int) -> str:
    """Return SQL that creates the index of a model concurrently."""
    return (
        f"CREATE INDEX CONCURRENTLY {name} ON {table} "
        f"USING hnsw ((half::halfvec({dimensions:d})) halfvec_cosine_ops) "
        f"WITH (m = {M}, ef_construction = {EF_CONSTRUCTION}) WHERE model = {model:d} AND half IS NOT NULL"
    )


# Read in the transaction of a search: whether the user is ready, and planner settings. A generic plan would not
# match the partial index, and PostgreSQL underestimates the cost of every plan but the index scan.
READY = (
    "SELECT :model = ANY (near), set_config('plan_cache_mode', 'force_custom_plan', true), "
    "set_config('enable_sort', 'off', true), set_config('enable_hashjoin', 'off', true), "
    "set_config('enable_mergejoin', 'off', true), set_config('enable_bitmapscan', 'off', true), "
    "set_config('enable_seqscan', 'off', true), "
    "set_config('jit', 'off', true), set_config('hnsw.iterative_scan', 'relaxed_order', true), "
    f"set_config('hnsw.ef_search', '{EF_SEARCH}', true), set_config('hnsw.max_scan_tuples', '{MAX_SCANNED}', true) "
    "FROM users WHERE user_id = :user"
)
# Planner settings for an exact scan.
EXACT_SCAN = "SELECT set_config('enable_indexscan', 'on', true), " + ", ".join(
    f"set_config('{way}', 'on', true)"
    for way in ("enable_sort", "enable_hashjoin", "enable_bitmapscan", "enable_seqscan")
)


def nearest(model: int, dimensions: int) -> str:
    """Return SQL for the nearest visible rows by the index."""
    kind = f"halfvec({dimensions:d})"
    distance = f"(v.half::{kind}) <=> :vector::text::{kind}"
    return (
        f"SELECT v.row, 1 - ({distance}) FROM vectors v JOIN memories m ON m.row = v.row "
        f"WHERE v.user_id = :user AND v.model = {model:d} AND v.half IS NOT NULL AND m.user_id = :user "
        f"AND m.status = 'active' AND m.place = ANY (:places) ORDER BY {distance} LIMIT :limit"
    )


def nearest_exact(model: int) -> str:
    """Return SQL for the nearest visible rows by an exact scan."""
    distance = "v.half <=> :vector::text::halfvec"
    return (
        f"SELECT v.row, 1 - ({distance}) FROM memories m JOIN vectors v ON v.user_id = m.user_id AND v.row = m.row "
        f"WHERE m.user_id = :user AND m.status = 'active' AND m.place = ANY (:places) AND v.model = {model:d} "
        f"AND v.half IS NOT NULL ORDER BY ({distance}) + 0 LIMIT :limit"
    )
