"""What is particular to SQLite: words of its SQL, tests inside JSON, and FTS5."""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping, Sequence

import numpy as np

from recollect.ledger.sql.tx import OPERATORS, Postings, Tx
from recollect.model.query import Op, Where


class SqliteDialect:
    """Lists go in as JSON, which json_each makes a table of."""

    name = "sqlite"
    fragments: Mapping[str, str] = {
        "serial_key": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "binary": "COLLATE BINARY",
        "real": "REAL",
        "bytes": "BLOB",
        "clustered": "WITHOUT ROWID",
        "random_hex": "lower(hex(randomblob(32)))",
        # Rows named by their number are looked up by it: an index on the user would read all that user has.
        "by_row": "NOT INDEXED",
        # There is one writer at a time, so nobody is in the way.
        "pass_over": "",
        "hold_row": "",
        "stranger": "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'",
        "table_exists": "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = :name",
    }

    def among(self, column: str, param: str) -> str:
        return f"{column} IN (SELECT value FROM json_each(:{param}))"

    def contains(self, column: str, param: str) -> str:
        return f"instr({column}, :{param}) > 0"

    def in_body(self, name: str) -> str:
        return f"json_extract(body, '$.{name}')"

    def has_member(self, name: str, param: str, *, any_of: bool) -> str:
        member_test = self.among("value", param) if any_of else f"value = :{param}"
        return f"EXISTS (SELECT 1 FROM json_each(body, '$.{name}') WHERE {member_test})"

    def metadata_test(self, comparison: Where, param: str, inside: str) -> str:
        """Inside metadata a value has its own type: 1, true and "1" are three things."""
        path = f"""'$.metadata."' || :{inside} || '"'"""
        stored, kind = f"json_extract(body, {path})", f"json_type(body, {path})"
        if comparison.op is Op.IN:
            # json_each reports the type of each member, so both sides can be compared whole.
            number = "('integer', 'real')"
            return (
                f"EXISTS (SELECT 1 FROM json_each(:{param}) WHERE value = {stored} AND "
                f"(type = {kind} OR (type IN {number} AND {kind} IN {number})))"
            )
        value = comparison.value
        kinds = "('text')" if isinstance(value, str) else "('integer', 'real')"
        if isinstance(value, bool):
            kinds = "('true')" if value else "('false')"
        if comparison.op is Op.CONTAINS:
            member = f"EXISTS (SELECT 1 FROM json_each(body, {path}) WHERE type IN {kinds} AND value = :{param})"
            within = f"WHEN 'text' THEN instr({stored}, :{param}) > 0 " if isinstance(value, str) else ""
            return f"CASE {kind} {within}WHEN 'array' THEN {member} END"
        return f"{kind} IN {kinds} AND {stored} {OPERATORS[comparison.op]} :{param}"


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

    async def drop_many(self, tx: Tx, pages: AsyncIterable[Mapping[int, str]]) -> None:
        # Overwriting a row's words where they stand takes most of a millisecond. Many rows are only marked, and then
        # all that is left is written anew without them.
        overwrite = "INSERT INTO terms (terms, rank) VALUES ('secure-delete', :on)"
        await tx.run(overwrite, {"on": 0})
        async for rows in pages:
            await self.drop(tx, rows)
        await tx.run("INSERT INTO terms (terms) VALUES ('optimize')", {})
        await tx.run(overwrite, {"on": 1})

    async def clear(self, tx: Tx) -> None:
        await tx.run("INSERT INTO terms (terms) VALUES ('delete-all')", {})

    async def postings(self, tx: Tx, words: Sequence[str]) -> list[Postings]:
        return [await self._postings(tx, word) for word in words]

    async def _postings(self, tx: Tx, word: str) -> Postings:
        # One text for the whole list: several times faster than a Python row for each entry.
        [(docs,)] = await tx.rows("SELECT group_concat(doc) FROM terms_said WHERE term = :word", {"word": word})
        if not docs:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        doc_ids = np.fromstring(docs, np.int64, sep=",")
        # A row stands as often as the word is said in it, one after the other.
        first = np.flatnonzero(np.concatenate(([True], doc_ids[1:] != doc_ids[:-1])))
        return doc_ids[first], np.concatenate((first[1:], [len(doc_ids)])) - first

    async def count(self, tx: Tx) -> int:
        return int((await tx.rows("SELECT count(*) FROM terms_docsize", {}))[0][0])
