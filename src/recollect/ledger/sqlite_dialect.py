"""What is particular to SQLite: words of its SQL, tests inside JSON, and FTS5."""

from __future__ import annotations

import math
from collections.abc import Mapping

from recollect.ledger.sql.terms import K1, B
from recollect.ledger.sql.tx import Tx, one
from recollect.model.query import Kind, Op, Where

_SIGNS = {Op.EQ: "=", Op.NE: "=", Op.GT: ">", Op.GTE: ">=", Op.LT: "<", Op.LTE: "<="}


class SqliteDialect:
    """Lists go in as JSON, which json_each makes a table of."""

    name = "sqlite"
    words: Mapping[str, str] = {
        "serial_key": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "binary": "COLLATE BINARY",
        "real": "REAL",
        "bytes": "BLOB",
        "clustered": "WITHOUT ROWID",
        "table_exists": "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = :name",
    }

    def among(self, column: str, param: str) -> str:
        return f"{column} IN (SELECT value FROM json_each(:{param}))"

    def contains(self, column: str, param: str) -> str:
        return f"instr({column}, :{param}) > 0"

    def json_test(self, comparison: Where, param: str) -> str:
        path = "$." + comparison.field
        if comparison.inside:
            path = f'$.metadata."{comparison.inside}"'
        if comparison.kind is Kind.TEXTS:
            wanted = f"value = :{param}" if comparison.op is Op.CONTAINS else self.among("value", param)
            return f"EXISTS (SELECT 1 FROM json_each(body, '{path}') WHERE {wanted})"
        held = f"json_extract(body, '{path}')"
        if comparison.field == "trust":
            held = f"coalesce({held}, 'high')"
        elif comparison.field == "source":
            held = f"coalesce({held}, '')"
        if comparison.kind is Kind.TEXT:
            if comparison.op is Op.IN:
                return self.among(held, param)
            return self.contains(held, param) if comparison.op is Op.CONTAINS else f"{held} = :{param}"
        return self._metadata_test(comparison, param, path, held)

    def _metadata_test(self, comparison: Where, param: str, path: str, held: str) -> str:
        """Inside metadata a value has its own type: 1, true and "1" are three things."""
        kind = f"json_type(body, '{path}')"
        if comparison.op is Op.IN:
            # json_each reports the type of each member, so both sides can be compared whole.
            number = "('integer', 'real')"
            return (
                f"EXISTS (SELECT 1 FROM json_each(:{param}) WHERE value = {held} AND "
                f"(type = {kind} OR (type IN {number} AND {kind} IN {number})))"
            )
        value = comparison.value
        kinds = "('text')" if isinstance(value, str) else "('integer', 'real')"
        if isinstance(value, bool):
            kinds = "('true')" if value else "('false')"
        if comparison.op is Op.CONTAINS:
            inside = f"EXISTS (SELECT 1 FROM json_each(body, '{path}') WHERE type IN {kinds} AND value = :{param})"
            within = f"WHEN 'text' THEN instr({held}, :{param}) > 0 " if isinstance(value, str) else ""
            return f"CASE {kind} {within}WHEN 'array' THEN {inside} END"
        return f"{kind} IN {kinds} AND {held} {_SIGNS[comparison.op]} :{param}"


class FtsTerms:
    """FTS5, contentless: the words themselves are kept nowhere else, and are overwritten when dropped."""

    async def put(self, tx: Tx, rows: Mapping[int, str]) -> None:
        await tx.many(
            "INSERT INTO terms (rowid, words) VALUES (:row, :words)",
            [{"row": row, "words": words} for row, words in rows.items()],
        )

    async def drop(self, tx: Tx, rows: Mapping[int, str]) -> None:
        await tx.many(
            "INSERT INTO terms (terms, rowid, words) VALUES ('delete', :row, :words)",
            [{"row": row, "words": words} for row, words in rows.items()],
        )

    async def clear(self, tx: Tx) -> None:
        await tx.run("INSERT INTO terms (terms) VALUES ('delete-all')", {})

    async def weights(self, tx: Tx, word: str) -> tuple[list[int], list[float]]:
        found = await tx.rows(
            "SELECT rowid, bm25(terms), (SELECT sz FROM terms_docsize WHERE id = terms.rowid) "
            "FROM terms WHERE terms MATCH :word",
            {"word": f'"{word}"'},
        )
        if not found:
            return [], []
        # FTS5 weighs by rarity and length among the rows of all users: from its score comes how often the word
        # is said, and from that the weight among the user's own.
        rows, total = await _rows_and_words(tx)
        rarity = max(math.log((rows - len(found) + 0.5) / (len(found) + 0.5)), 1e-6)
        number = int(word.partition("x")[0])
        own = await one(tx, "SELECT term_rows, term_total FROM users WHERE number = :number", {"number": number})
        of_all, of_own = K1 * B * rows / total, K1 * B * own[0] / own[1] if own else 0.0
        short, top = K1 * (1 - B), K1 + 1
        weights = []
        for _, score, size in found:
            length, weight = _varints(size)[0], -score / rarity
            times = max(1, round(weight * (short + of_all * length) / (top - weight)))
            weights.append(times * top / (times + short + of_own * length))
        return [row for row, _, _ in found], weights


async def _rows_and_words(tx: Tx) -> tuple[int, int]:
    """How many rows, and words in all, FTS5 believes it has: its record of averages."""
    record = await one(tx, "SELECT block FROM terms_data WHERE id = 1", {})
    rows, words = _varints(record[0])[:2] if record else (0, 0)
    return rows, words


def _varints(blob: bytes) -> list[int]:
    """Whole numbers as SQLite writes them, seven bits a byte, where none needs nine bytes."""
    found, number = [], 0
    for byte in blob:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            found.append(number)
            number = 0
    return found
