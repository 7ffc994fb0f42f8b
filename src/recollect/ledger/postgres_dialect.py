"""What is particular to PostgreSQL: words of its SQL, its parameters, tests inside JSON, and tsvector.

Nothing here needs its driver.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from recollect.ledger.postgres_rls import OWN_ROWS, OWN_ROWS_BY_DIGEST, tenant_statements
from recollect.ledger.sql.tx import OPERATORS, Postings, Row, Tenant, Tx
from recollect.model.query import Op, Where

# Texts, quoted names and casts come first, so that a colon in them is never taken for a parameter.
_PARAMETER = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|::|:([a-z_][a-z0-9_]*)""", re.IGNORECASE)

# What a tsvector can hold: positions of a word, bytes of a word, bytes of all words with their positions.
MAX_POSITIONS = 255
MAX_WORD_BYTES = 2000
MAX_VECTOR_BYTES = 1_000_000
_POSITIONS = tuple(",".join(map(str, range(1, n + 1))) for n in range(MAX_POSITIONS + 1))
# What can be wrong with a database, and the question that has an answer if it is.
FAULTS = {
    "UTF8 is not the database's encoding: some texts cannot be kept; make one with ENCODING 'UTF8'": (
        "SELECT 1 WHERE current_setting('server_encoding') <> 'UTF8'"
    ),
    "fsync is off: what was acknowledged can be lost; turn it on": (
        "SELECT 1 WHERE current_setting('fsync') = 'off'"
    ),
    "an index is invalid; run: REINDEX SCHEMA": (
        "SELECT 1 FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
        "WHERE NOT i.indisvalid AND c.relnamespace = current_schema()::regnamespace "
        # Of those it is not yet known: they are made while everything goes on.
        "AND c.relname NOT LIKE 'vectors\\_near\\_%'"
    ),
    "pages on disk failed their checksums; restore a backup": (
        "SELECT 1 FROM pg_catalog.pg_stat_database WHERE datname = current_database() AND checksum_failures > 0"
    ),
}


@lru_cache(maxsize=1024)
def positional(sql: str) -> tuple[str, tuple[str, ...]]:
    """The same SQL with $1, $2 for its :names, and the names in that order."""
    numbers: dict[str, int] = {}

    def numbered(match: re.Match[str]) -> str:
        name = match[1]
        return f"${numbers.setdefault(name, len(numbers) + 1)}" if name else match[0]

    return _PARAMETER.sub(numbered, sql), tuple(numbers)


class PostgresDialect:
    """Lists go in as arrays, values inside metadata as jsonb, which keeps their types apart."""

    name = "postgres"
    fragments: Mapping[str, str] = {
        "serial_key": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "binary": 'COLLATE "C"',
        "real": "DOUBLE PRECISION",
        "bytes": "BYTEA",
        "clustered": "",
        # Available without an extension, and as unpredictable.
        "random_hex": "replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '')",
        "by_row": "",
        "pass_over": "FOR UPDATE OF u SKIP LOCKED",
        "hold_row": "FOR NO KEY UPDATE",
        "mine": OWN_ROWS,
        "mine_by_digest": OWN_ROWS_BY_DIGEST,
        # A schema may be shared with others.
        "stranger": "SELECT 1 WHERE 1 = 0",
        "table_exists": "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = :name",
    }

    def among(self, column: str, param: str) -> str:
        return f"{column} = ANY (:{param})"

    def contains(self, column: str, param: str) -> str:
        return f"strpos({column}, :{param}) > 0"

    def in_body(self, name: str) -> str:
        return f"(body::jsonb ->> '{name}')"

    def has_member(self, name: str, param: str, *, any_of: bool) -> str:
        return f"(body::jsonb -> '{name}') {'?|' if any_of else '?'} :{param}"

    def metadata_test(self, comparison: Where, param: str, inside: str) -> str:
        """Inside metadata a value has its own type: 1, true and "1" are three things."""
        stored = f"(body::jsonb -> 'metadata' -> :{inside}::text)"
        kind, text = f"jsonb_typeof({stored})", f"({stored} #>> '{{}}')"
        is_text = isinstance(comparison.value, str)
        match comparison.op:
            case Op.EQ | Op.NE:
                return f"{stored} = :{param}::jsonb"
            case Op.IN:
                # An array is inside another if its members are, which is not what was asked.
                return f"{kind} NOT IN ('array', 'object') AND {stored} <@ :{param}::jsonb"
            case Op.CONTAINS if is_text:
                member = f"{stored} ? :{param}"
                return f"CASE {kind} WHEN 'string' THEN strpos({text}, :{param}) > 0 WHEN 'array' THEN {member} END"
            case Op.CONTAINS:
                return f"{kind} = 'array' AND {stored} @> :{param}::jsonb"
        if is_text:
            # In this collation texts are in order of their characters' numbers.
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
    """A body that was to ask one thing asked another."""


class SingleStatementTx(PostgresTx):
    """One statement on its own, which is a consistent view without a transaction around it."""

    has_run = False

    async def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        if self.has_run:
            raise NotSingleStatement
        self.has_run = True
        return await super().rows(sql, params)

    async def restrict_to(self, tenant: Tenant) -> None:
        raise NotSingleStatement


class TsvectorTerms:
    """A tsvector for each row. How often a word is said is how many positions it has; where does not matter."""

    async def put(self, tx: Tx, rows: Mapping[int, str]) -> None:
        await tx.many(
            "INSERT INTO terms (row, user_id, words) SELECT row, user_id, :words FROM memories WHERE row = :row",
            [{"row": row, "words": tsvector_of(words)} for row, words in rows.items()],
        )

    async def drop(self, tx: Tx, rows: Mapping[int, str]) -> None:
        await tx.run("DELETE FROM terms WHERE row = ANY (:rows)", {"rows": list(rows)})

    async def drop_many(self, tx: Tx, pages: AsyncIterable[Mapping[int, str]]) -> None:
        async for rows in pages:
            await self.drop(tx, rows)

    async def clear(self, tx: Tx) -> None:
        # Writers wait, or a new user's rows could be counted twice; readers see the old words until the commit.
        await tx.run("LOCK TABLE users IN SHARE ROW EXCLUSIVE MODE", {})
        await tx.run("DELETE FROM terms", {})

    async def postings(self, tx: Tx, words: Sequence[str]) -> list[Postings]:
        params = {"words": [_quoted(_truncate(word)) for word in words]}
        arrays = await tx.rows("SELECT rows, times FROM recollect_said(:words::text[])", params)
        return [(np.array(rows or (), np.int64), np.array(times or (), np.int64)) for rows, times in arrays]

    async def count(self, tx: Tx) -> int:
        return int((await tx.rows("SELECT count(*) FROM terms", {}))[0][0])


def tsvector_of(words: str) -> str:
    """Words as a tsvector is written; what it has no room for is left out."""
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
