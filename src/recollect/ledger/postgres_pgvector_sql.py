"""What is said to pgvector. Vectors stay where they are, packed; those of users with many of them stand beside as
`halfvec`, kept up by a trigger, so that whoever writes, of whatever version, need not know.
"""

from __future__ import annotations

from collections.abc import Sequence

# Scans that go on until enough of what they find may be shown came with this version.
MIN_VERSION = (0, 8)
# What HNSW can hold of half precision.
MAX_DIMENSIONS = 4000
M, EF_CONSTRUCTION, EF_SEARCH = 16, 64, 200
# Beyond so many rows looked at, what is asked for is a small part of the user's: comparing with all of it is faster.
MAX_SCANNED = 20_000

# Any numbers will do, as long as every Recollect takes the same ones.
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
# Each needs a lock on the table, for a moment.
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
# The table, or the parts it is split into.
PARTS = (
    "SELECT relid::regclass::text FROM pg_catalog.pg_partition_tree('vectors') WHERE isleaf AND level > 0 ORDER BY 1"
)
# Indexes of ours, and whether they can be used.
INDEXES = (
    "SELECT c.relname, i.indisvalid FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
    "WHERE c.relnamespace = current_schema()::regnamespace AND c.relname LIKE 'vectors\\_near\\_%'"
)
# Those of a model that are to be made anew, and those of models that are gone.
OLD_INDEXES = (
    f"SELECT relname FROM ({INDEXES}) ours WHERE split_part(relname, '_', 3) = $1::bigint::text "
    "OR split_part(relname, '_', 3) NOT IN (SELECT number::text FROM models)"
)


def index_names(model: int, parts: Sequence[str]) -> dict[str, str]:
    """What the index over the vectors of a model is called, or one for each part of the table; and of what it is."""
    name = f"vectors_near_{model:d}"
    return {f"{name}_{number}": part for number, part in enumerate(parts)} or {name: "vectors"}


def create_index(name: str, table: str, model: int, dimensions: int) -> str:
    """Makes the index over the vectors of a model, with nobody waiting for it."""
    return (
        f"CREATE INDEX CONCURRENTLY {name} ON {table} "
        f"USING hnsw ((half::halfvec({dimensions:d})) halfvec_cosine_ops) "
        f"WITH (m = {M}, ef_construction = {EF_CONSTRUCTION}) WHERE model = {model:d} AND half IS NOT NULL"
    )


# Asked in the transaction of a search: whether the user's vectors are there, and how to go about finding them. With
# a plan for any user PostgreSQL would not see that the index has what is asked for, and it takes all but this way
# for cheaper than it is.
READY = (
    "SELECT :model = ANY (near), set_config('plan_cache_mode', 'force_custom_plan', true), "
    "set_config('enable_sort', 'off', true), set_config('enable_hashjoin', 'off', true), "
    "set_config('enable_mergejoin', 'off', true), set_config('enable_bitmapscan', 'off', true), "
    "set_config('enable_seqscan', 'off', true), "
    "set_config('jit', 'off', true), set_config('hnsw.iterative_scan', 'relaxed_order', true), "
    f"set_config('hnsw.ef_search', '{EF_SEARCH}', true), set_config('hnsw.max_scan_tuples', '{MAX_SCANNED}', true) "
    "FROM users WHERE user_id = :user"
)
# And for comparing with everything, when few of the user's rows may be found.
EXACT_SCAN = "SELECT set_config('enable_indexscan', 'on', true), " + ", ".join(
    f"set_config('{way}', 'on', true)"
    for way in ("enable_sort", "enable_hashjoin", "enable_bitmapscan", "enable_seqscan")
)


def nearest(model: int, dimensions: int) -> str:
    """The nearest that may be shown, by the index."""
    kind = f"halfvec({dimensions:d})"
    distance = f"(v.half::{kind}) <=> :vector::real[]::{kind}"
    return (
        f"SELECT v.row, 1 - ({distance}) FROM vectors v JOIN memories m ON m.row = v.row "
        f"WHERE v.user_id = :user AND v.model = {model:d} AND v.half IS NOT NULL AND m.user_id = :user "
        f"AND m.status = 'active' AND m.place = ANY (:places) ORDER BY {distance} LIMIT :limit"
    )


def nearest_exact(model: int) -> str:
    """The same by comparing with each of them."""
    distance = "v.half <=> :vector::real[]::halfvec"
    return (
        f"SELECT v.row, 1 - ({distance}) FROM memories m JOIN vectors v ON v.user_id = m.user_id AND v.row = m.row "
        f"WHERE m.user_id = :user AND m.status = 'active' AND m.place = ANY (:places) AND v.model = {model:d} "
        f"AND v.half IS NOT NULL ORDER BY ({distance}) + 0 LIMIT :limit"
    )
