"""How the ledger speaks to PostgreSQL: parameters, and words in a tsvector."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from recollect.ledger.ledger import Ledger
from recollect.ledger.postgres import PostgresEngine, open_postgres
from recollect.ledger.postgres_dialect import MAX_POSITIONS, positional, tsvector_of
from recollect.ledger.sql.tx import Tx
from recollect.model.change import Add
from recollect.model.scope import Scope
from tests.support.ledger_samples import ANN, BY, MODEL, memory
from tests.support.postgres_server import PLAIN_ROLE, SUPERUSER, running_server

ODD_WORDS = [
    "7x'",
    "7x''",
    "7x\\",
    "7x\\'",
    "7xa:1A",
    "7x3.14",
    "7x!&|()<->*",
    "7xé",
    "7x日本",
    "7x👩🏽‍🚀",
    "7x%_",
    "7x,1",
]
LEXEMES = "SELECT lexeme, cardinality(positions) FROM unnest($1::tsvector)"


@pytest.fixture
async def ledger(dsn: str) -> AsyncIterator[Ledger]:
    ledger = await open_postgres(dsn, MODEL)
    yield ledger
    await ledger.close()


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


@pytest.mark.parametrize(
    ("sql", "expected", "names"),
    [
        ("a = :a AND b = :b OR a < :a", "a = $1 AND b = $2 OR a < $1", ("a", "b")),
        ("x::text = :x::text", "x::text = $1::text", ("x",)),
        ("a = ':a' AND b = 'it''s :b' AND c = :c", "a = ':a' AND b = 'it''s :b' AND c = $1", ("c",)),
        ('":a" = :a', '":a" = $1', ("a",)),
        ("SELECT '{}'", "SELECT '{}'", ()),
        ("(:f1,:f10)", "($1,$2)", ("f1", "f10")),
    ],
)
def test_named_parameters_become_numbered_ones(sql: str, expected: str, names: tuple[str, ...]) -> None:
    assert positional(sql) == (expected, names)


async def test_odd_words_come_back_from_a_tsvector_as_they_went_in(connection: Any) -> None:
    words = [word for n, word in enumerate(ODD_WORDS, 1) for _ in range(n)]
    rows = await connection.fetch(LEXEMES, tsvector_of(" ".join(words)))
    assert dict(rows) == {word: n for n, word in enumerate(ODD_WORDS, 1)}


@pytest.mark.parametrize(
    "words",
    [
        "1xtea " * 20_000,
        "1x" + "é" * 5_000,
        " ".join(f"1x{'w' * 64}{n}" for n in range(20_000)),
        "",
        "1x" + "👩" * 900,
    ],
    ids=["said too often", "too long", "too many", "none", "long in bytes"],
)
async def test_words_beyond_the_limits_of_a_tsvector_are_left_out(connection: Any, words: str) -> None:
    rows = await connection.fetch(LEXEMES, tsvector_of(words))
    assert bool(rows) == bool(words)
    assert all(times <= MAX_POSITIONS for _, times in rows)


async def test_every_odd_word_can_be_looked_up(ledger: Ledger, dsn: str) -> None:
    engine = PostgresEngine(dsn)
    await engine.open()
    await ledger.apply(ANN, [Add(memory("one")), Add(memory("two"))], by=BY)

    async def look_up(tx: Tx) -> None:
        (number,), rows = (
            (await tx.rows("SELECT number FROM users", {}))[0],
            await tx.rows("SELECT row FROM memories", {}),
        )
        words = [word.replace("7x", f"{number}x", 1) for word in [*ODD_WORDS, "7x" + "é" * 5_000]]
        await engine.dialect.terms.clear(tx)
        await engine.dialect.terms.put(tx, {rows[0][0]: " ".join(words), rows[1][0]: " ".join(words * 3)})
        for result, times in await engine.dialect.terms.postings(tx, words):
            assert result.tolist() == sorted([rows[0][0], rows[1][0]])
            assert times.tolist() == ([1, 3] if rows[0][0] < rows[1][0] else [3, 1])

        unsaid, text = await engine.dialect.terms.postings(tx, [f"{number}xunsaid", words[0]])
        assert (len(unsaid[0]), len(unsaid[1]), len(text[0])) == (0, 0, 2)
        assert await engine.dialect.terms.postings(tx, []) == []

    await engine.write(look_up, tenant=ANN.user)
    await engine.close()


@pytest.mark.parametrize("role", [SUPERUSER, PLAIN_ROLE])
async def test_a_search_reads_only_the_index_entries_of_its_words(role: str) -> None:
    async with running_server().database(role=role) as dsn:
        ledger, connection = await open_postgres(dsn, MODEL), await asyncpg.connect(dsn)
        for scope in (Scope(f"user {n}") for n in range(40)):
            texts = (f"{scope.user} likes tea number {n}" for n in range(100))
            await ledger.apply(scope, [Add(memory(text, scope=scope)) for text in texts], by=BY)
        await connection.execute("ANALYZE; SET plan_cache_mode = force_generic_plan")
        body = await connection.fetchval("SELECT prosrc FROM pg_proc WHERE proname = 'recollect_said'")
        question = body.split("RETURN QUERY")[1].split(";")[0].replace("word::", "$1::")
        await connection.execute(f"PREPARE words (text) AS {question}")
        explained = await connection.fetch("""EXPLAIN EXECUTE words ('''1xtea''')""")
        plan = "\n".join(row[0] for row in explained)
        assert "Bitmap Index Scan on terms_by_word" in plan
        assert "Seq Scan on terms" not in plan
        await connection.close()
        await ledger.close()
