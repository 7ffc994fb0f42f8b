"""The PostgreSQL dialect: parameters, transactions, full text, row-level security. Needs no driver."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recollect.errors import InvalidText
from recollect.lazy_pattern import lazy_pattern
from recollect.ledger.sql.tx import ALL_TENANTS, NO_TENANT, OPERATORS, Postings, Row, Tenant, Tx
from recollect.model.erasure import user_digest
from recollect.model.query import Op, Where
from recollect.model.text import is_storable

# The subquery is evaluated once per statement, not once per row.
ALL_ROWS = "(SELECT current_setting('recollect.whose', true)) = '*'"
OWN_ROWS = f"user_id = (SELECT substr(current_setting('recollect.whose', true), 2)) OR {ALL_ROWS}"
OWN_ROWS_BY_DIGEST = f"user_id = (SELECT current_setting('recollect.digest', true)) OR {ALL_ROWS}"

_SET_TENANT = "SELECT set_config('recollect.whose', $1, false), set_config('recollect.digest', $2, false)"
UNGUARDED = (
    "SELECT r.rolsuper OR r.rolbypassrls, c.relname FROM pg_catalog.pg_class c, pg_catalog.pg_roles r "
    "WHERE r.rolname = current_user AND c.relnamespace = current_schema()::regnamespace AND EXISTS "
    "(SELECT 1 FROM pg_catalog.pg_policy p WHERE p.polrelid = c.oid) AND NOT row_security_active(c.oid) "
    "ORDER BY c.relname"
)


def _tenant_settings(tenant: Tenant) -> tuple[str, str]:
    """Return the values of the two settings."""
    if tenant is ALL_TENANTS:
        return "*", "*"
    if tenant is NO_TENANT:
        return "", ""
    assert isinstance(tenant, str)
    if not is_storable(tenant):
        raise InvalidText("a user's name holds a character that PostgreSQL cannot keep (NUL, or half of one)")
    return f"={tenant}", user_digest(tenant)


def tenant_statements(tenant: Tenant) -> str:
    """Return statements that restrict the rest of a transaction to a tenant."""
    name, digest = _tenant_settings(tenant)
    # An escape string means the same whatever `standard_conforming_strings` is.
    name = name.replace("\\", "\\\\").replace("'", "''")
    return f"SET LOCAL recollect.whose = E'{name}'; SET LOCAL recollect.digest = '{digest}'"


class TenantConnection:
    """Remembers the tenant that single statements on a connection are restricted to."""

    _current_settings: tuple[str, str] | None = None

    async def set_tenant(self, tenant: Tenant, timeout_s: float | None) -> None:
        """Restrict statements outside of transactions to a tenant; costs nothing if they are already."""
        values = _tenant_settings(tenant)
        if self._current_settings == values:
            return
        # If this is cancelled the settings of the connection are unknown.
        self._current_settings = None
        connection: Any = self
        await connection.execute(_SET_TENANT, *values, timeout=timeout_s)
        self._current_settings = values


def security_warnings(unguarded: list[tuple[bool, str]], where: str) -> list[str]:
    """Return warnings for tables on which no policy is in force, and whether the role is the reason."""
    if not unguarded:
        return []
    if unguarded[0][0]:
        return [
            f"{where}: the role is a superuser or has BYPASSRLS, so that row-level security does not hold for it; "
            "use one that owns the tables and is neither (docs/serving.md)"
        ]
    tables = [table for _, table in unguarded]
    return [
        f"{where}: row-level security is off for {', '.join(tables)}; turn it on with ALTER TABLE ... "
        "ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
    ]


# Literals, quoted names and casts come first, so that a colon in them is not taken for a parameter.
_PARAMETER = lazy_pattern(r"""'(?:[^']|'')*'|"[^"]*"|::|:([a-z_][a-z0-9_]*)""", re.IGNORECASE)

# Limits of a tsvector: positions of a word, bytes of a word, bytes in all.
MAX_POSITIONS = 255
MAX_WORD_BYTES = 2000
MAX_VECTOR_BYTES = 1_000_000
_POSITIONS = tuple(",".join(map(str, range(1, n + 1))) for n in range(MAX_POSITIONS + 1))
# Faults of a database, each with a query that returns a row if it applies.
FAULTS = {
    "UTF8 is not the database's encoding: some texts cannot be stored; create one with ENCODING 'UTF8'": (
        "SELECT 1 WHERE current_setting('server_encoding') <> 'UTF8'"
    ),
    "fsync is off: what was acknowledged can be lost; turn it on": (
        "SELECT 1 WHERE current_setting('fsync') = 'off'"
    ),
    "an index is invalid; run: REINDEX SCHEMA": (
        "SELECT 1 FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
        "WHERE NOT i.indisvalid AND c.relnamespace = current_schema()::regnamespace "
        # HNSW indexes are built concurrently and invalid until they are done.
        "AND c.relname NOT LIKE 'vectors\\_near\\_%'"
    ),
    "pages on disk failed their checksums; restore a backup": (
        "SELECT 1 FROM pg_catalog.pg_stat_database WHERE datname = current_database() AND checksum_failures > 0"
    ),
}


@lru_cache(maxsize=1024)
def positional(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return the SQL with $1, $2 for its :names, and the names in that order."""
    numbers: dict[str, int] = {}

    def numbered(match: re.Match[str]) -> str:
        name = match[1]
        return f"${numbers.setdefault(name, len(numbers) + 1)}" if name else match[0]

    return _PARAMETER.sub(numbered, sql), tuple(numbers)


class TsvectorTerms:
    """A tsvector for each row, with as many positions for a word as it occurs times."""

    async def put(self, tx: Tx, rows: Mapping[int, str]) -> None:
        await tx.many(
            "INSERT INTO terms (row, user_id, words) SELECT row, user_id, :words FROM memories WHERE row = :row",
            [{"row": row, "words": tsvector_of(words)} for row, words in rows.items()],
        )

    async def drop(self, tx: Tx, rows: Mapping[int, str]) -> None:
        await tx.run(f"DELETE FROM terms WHERE {tx.dialect.among_numbers('row', 'rows')}", {"rows": list(rows)})

    async def drop_many(self, tx: Tx, pages: AsyncIterable[Mapping[int, str]]) -> None:
        async for rows in pages:
            await self.drop(tx, rows)

    async def clear(self, tx: Tx) -> None:
        # Or a new user's rows could be counted twice; readers see the old words until the commit.
        await tx.dialect.block_writers(tx)
        await tx.run("DELETE FROM terms", {})

    async def postings(self, tx: Tx, words: Sequence[str]) -> list[Postings]:
        params = {"words": [_quoted(_truncate(word)) for word in words]}
        # As texts of arrays, for the reason of `among_numbers`.
        arrays = await tx.rows("SELECT rows::text, times::text FROM recollect_said(:words::text[])", params)
        return [(_parse_numbers(rows), _parse_numbers(times)) for rows, times in arrays]

    async def count(self, tx: Tx) -> int:
        return int((await tx.rows("SELECT count(*) FROM terms", {}))[0][0])


def _parse_numbers(array: str | None) -> NDArray[np.int64]:
    return np.fromstring(array[1:-1] if array else "", np.float64, sep=",").astype(np.int64)


def tsvector_of(words: str) -> str:
    """Return words in the syntax of a tsvector; leave out what exceeds its limits."""
    parts: list[str] = []
    remaining_bytes = MAX_VECTOR_BYTES
    for word, times in Counter(map(_truncate, words.split())).items():
        times = min(times, MAX_POSITIONS)
        remaining_bytes -= len(word.encode()) + 2 * times + 4
        if remaining_bytes < 0:
            break
        parts.append(f"{_quoted(word)}:{_POSITIONS[times]}")
    return " ".join(parts)


def _quoted(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


def _truncate(word: str) -> str:
    return word if len(word) * 4 <= MAX_WORD_BYTES else word.encode()[:MAX_WORD_BYTES].decode(errors="ignore")


class PostgresDialect:
    """The SQL dialect of PostgreSQL. Lists are passed as arrays, metadata values as jsonb, which has types."""

    name = "postgres"
    terms = TsvectorTerms()
    fragments: Mapping[str, str] = {
        "serial_key": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "binary": 'COLLATE "C"',
        "real": "DOUBLE PRECISION",
        "bytes": "BYTEA",
        "clustered": "",
        # Needs no extension, and is as unpredictable.
        "random_hex": "replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '')",
        "by_row": "",
        "pass_over": "FOR UPDATE OF u SKIP LOCKED",
        "hold_row": "FOR NO KEY UPDATE",
        "mine": OWN_ROWS,
        "mine_by_digest": OWN_ROWS_BY_DIGEST,
        # A schema may be shared with other applications.
        "stranger": "SELECT 1 WHERE 1 = 0",
        "table_exists": "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = :name",
    }

    def among(self, column: str, param: str) -> str:
        return f"{column} = ANY (:{param})"

    def among_numbers(self, column: str, param: str) -> str:
        # Not an array of integers: asyncpg takes milliseconds to learn that type, on every connection.
        return f"{column} = ANY (ARRAY(SELECT jsonb_array_elements_text(:{param})::bigint))"

    def among_tuples(self, columns: Sequence[str], param: str) -> str:
        # A transaction is of one user: compared with one value, so that partitions of others are not looked at.
        user, *rest = columns
        members = f"FROM jsonb_array_elements(:{param}) member"
        tests = (f"{name} = ANY (ARRAY(SELECT member ->> {at} {members}))" for at, name in enumerate(rest, 1))
        return " AND ".join((f"{user} = (CAST(:{param} AS jsonb) -> 0 ->> 0)", *tests))

    def contains(self, column: str, param: str) -> str:
        return f"strpos({column}, :{param}) > 0"

    async def block_writers(self, tx: Tx) -> None:
        # Every write begins with the row of its user.
        await tx.run("LOCK TABLE users IN SHARE ROW EXCLUSIVE MODE", {})

    def in_body(self, name: str) -> str:
        return f"(body::jsonb ->> '{name}')"

    def has_member(self, name: str, param: str, *, any_of: bool) -> str:
        return f"(body::jsonb -> '{name}') {'?|' if any_of else '?'} :{param}"

    def metadata_test(self, comparison: Where, param: str, inside: str) -> str:
        """Compare inside metadata with respect to types: 1, true and "1" differ."""
        stored = f"(body::jsonb -> 'metadata' -> :{inside}::text)"
        kind, text = f"jsonb_typeof({stored})", f"({stored} #>> '{{}}')"
        is_text = isinstance(comparison.value, str)
        match comparison.op:
            case Op.EQ | Op.NE:
                return f"{stored} = :{param}::jsonb"
            case Op.IN:
                # jsonb also finds an array in another one, which is not what `in` means.
                return f"{kind} NOT IN ('array', 'object') AND {stored} <@ :{param}::jsonb"
            case Op.CONTAINS if is_text:
                member = f"{stored} ? :{param}"
                return f"CASE {kind} WHEN 'string' THEN strpos({text}, :{param}) > 0 WHEN 'array' THEN {member} END"
            case Op.CONTAINS:
                return f"{kind} = 'array' AND {stored} @> :{param}::jsonb"
        if is_text:
            # This collation orders by code points.
            return f"""{kind} = 'string' AND {text} COLLATE "C" {OPERATORS[comparison.op]} :{param}"""
        return f"{kind} = 'number' AND {stored} {OPERATORS[comparison.op]} :{param}::jsonb"


class PostgresTx:
    """A transaction on a connection."""

    dialect = PostgresDialect()

    def __init__(self, connection: Any, timeout_s: float | None) -> None:
        self._connection, self._timeout_s = connection, timeout_s

    async def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        text, names = positional(sql)
        rows: Sequence[Row] = await self._connection.fetch(
            text, *[params[name] for name in names], timeout=self._timeout_s
        )
        return rows

    async def run(self, sql: str, params: Mapping[str, Any]) -> None:
        text, names = positional(sql)
        await self._connection.execute(text, *[params[name] for name in names], timeout=self._timeout_s)

    async def many(self, sql: str, params: Sequence[Mapping[str, Any]]) -> None:
        text, names = positional(sql)
        if len(params) == 1:
            await self.run(sql, params[0])
        else:
            values = [[each[name] for name in names] for each in params]
            await self._connection.executemany(text, values, timeout=self._timeout_s)

    async def restrict_to(self, tenant: Tenant) -> None:
        await self._connection.execute(tenant_statements(tenant), timeout=self._timeout_s)


class NotSingleStatement(Exception):
    """Raised when a body executes a second statement."""


class SingleStatementTx(PostgresTx):
    """A single statement, which sees a consistent view without a transaction."""

    has_run = False

    async def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        if self.has_run:
            raise NotSingleStatement
        self.has_run = True
        return await super().rows(sql, params)

    async def restrict_to(self, tenant: Tenant) -> None:
        raise NotSingleStatement
