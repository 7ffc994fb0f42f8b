"""The caches of full text agree with the database, whatever happens to it, and stay within their budget."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect.ledger.ledger import Ledger
from recollect.ledger.sql.full_text import DocLengthCache, DocLengths
from recollect.ledger.sql.tx import ALL_TENANTS, Postings, Tx, run_now
from recollect.ledger.sql.vectors import revision
from recollect.ledger.sqlite import SqliteEngine, open_sqlite
from recollect.ledger.types import Revision
from recollect.model.change import Add, Change, Forget, Restore, Update
from tests.support.ledger_samples import ANN, BY, MODEL, memory

TEXTS = ("tea", "green tea", "green tea milk")


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    """A ledger of three memories, one, two and three terms long."""
    ledger = await open_sqlite(tmp_path / "ledger.db", MODEL)
    await ledger.apply(ANN, [Add(memory(text, id=text)) for text in TEXTS], by=BY)
    await ledger.close()
    engine = SqliteEngine(tmp_path / "ledger.db")
    yield engine
    await engine.close()


async def lengths(engine: SqliteEngine, cache: DocLengthCache, user: str = "ann") -> DocLengths:
    async def asked(tx: Tx) -> DocLengths:
        return await cache.get(tx, user, await revision(tx, user))

    return await engine.read(asked, tenant=user)


async def run(engine: SqliteEngine, *statements: str) -> None:
    for sql in statements:
        await engine.write(lambda tx, sql=sql: tx.run(sql, {}), tenant=ALL_TENANTS)


async def test_rows_that_were_erased_are_not_counted_any_more(engine: SqliteEngine) -> None:
    cache = DocLengthCache()
    assert (await lengths(engine, cache)).counts.tolist() == [1, 2, 3]
    await run(
        engine,
        "DELETE FROM memories WHERE id = 'green tea'",
        "UPDATE users SET epoch = epoch + 1, revision = revision + 1",
    )
    existing = await lengths(engine, cache)
    assert (existing.counts.tolist(), existing.average) == ([1, 3], 2.0)


async def test_lengths_are_read_again_after_the_full_text_is_rebuilt(engine: SqliteEngine) -> None:
    cache = DocLengthCache()
    await lengths(engine, cache)
    await run(engine, "UPDATE memories SET term_count = 7", "UPDATE users SET epoch = epoch + 1")
    existing = await lengths(engine, cache)
    assert (existing.counts.tolist(), existing.average) == ([7, 7, 7], 7.0)


async def test_only_what_changed_is_read_and_the_average_follows(engine: SqliteEngine) -> None:
    cache = DocLengthCache()
    before = await lengths(engine, cache)
    ledger = await open_sqlite(engine.path, MODEL)
    changes = [Update("tea", {"content": "tea tea tea tea"}), Add(memory("one two three four five six"))]
    await ledger.apply(ANN, changes, by=BY)
    await ledger.close()
    # What is at hand is not read again: a length changed behind its back would show.
    await run(engine, "UPDATE memories SET term_count = 99 WHERE id = 'green tea'")
    existing = await lengths(engine, cache)
    assert existing.counts.tolist() == [4, 2, 3, 6]
    assert existing.average == 15 / 4
    assert before.counts.tolist() == [1, 2, 3]


class Rows:
    """A transaction in which every user has as many rows, each five terms long."""

    dialect: Any = None

    def __init__(self, count: int) -> None:
        self.matched = [(row, 5) for row in range(1, count + 1)]
        self.query_count = 0

    async def rows(self, sql: str, params: Any) -> list[tuple[int, int]]:
        self.query_count += 1
        return self.matched

    async def run(self, sql: str, params: Any) -> None: ...

    async def many(self, sql: str, params: Any) -> None: ...


def test_the_least_recently_searched_users_are_evicted() -> None:
    tx = Rows(1000)
    cache = DocLengthCache(3 * DocLengths().updated(Revision(1), np.arange(1000), np.ones(1000, np.int32)).size)
    for user in ("ann", "bob", "cat", "ann", "dan"):
        run_now(cache.get(tx, user, Revision(1)))
    assert [cache.term_count(user) for user in ("ann", "bob", "cat", "dan")] == [5000, None, 5000, 5000]
    assert tx.query_count == 4


def test_a_user_larger_than_the_budget_is_cached_alone() -> None:
    cache = DocLengthCache(10)
    for user in ("ann", "bob"):
        run_now(cache.get(Rows(1000), user, Revision(1)))
    assert (cache.term_count("ann"), cache.term_count("bob")) == (None, 5000)


def test_users_without_memories_count_towards_the_budget() -> None:
    cache = DocLengthCache(100_000)
    for number in range(1000):
        run_now(cache.get(Rows(0), str(number), Revision(1)))
    assert sum(cache.term_count(str(number)) is not None for number in range(1000)) < 100


def test_threads_share_the_cache() -> None:
    cache = DocLengthCache(20_000)

    def ask(number: int) -> float:
        existing = run_now(cache.get(Rows(100), str(number % 17), Revision(1 + number % 5)))
        return existing.average if len(existing.rows) == 100 else 0.0

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(4000))) == {5.0}
    assert (
        sum(cache.term_count(str(number)) is not None for number in range(17))
        == 20_000 // run_now(cache.get(Rows(100), "another", Revision(1))).size
    )


WORDS = ("tea", "rome", "train", "violin", "budget", "garden")


async def lexical_result(ledger: Ledger, text: str) -> tuple[list[int], list[float], float]:
    results = await ledger.lexical(ANN, text)
    return results.rows.tolist(), [*results.scores.tolist(), *results.coverage.tolist()], results.missing_share


async def test_cached_postings_equal_the_full_text_after_every_kind_of_change(tmp_path: Path) -> None:
    chance = random.Random(7)
    ledger = await open_sqlite(tmp_path / "a.db", MODEL)
    ids: list[str] = []
    for step in range(90):
        text = " ".join(chance.choices(WORDS, k=3)) + f" {step}"
        change: Change = Add(memory(text))
        if ids and step % 3 == 0:
            id = chance.choice(ids)
            change = chance.choice([Update(id, {"content": text}), Forget(id), Restore(id)])
        outcome = (await ledger.apply(ANN, [change], by=BY)).outcomes[0]
        ids.append(outcome.id)
        question = " ".join(chance.sample(WORDS, 2))
        cached = await lexical_result(ledger, question)
        uncached = await open_sqlite(tmp_path / "a.db", MODEL)
        assert cached == await lexical_result(uncached, question)
        await uncached.close()
    await ledger.close()


async def test_postings_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = await open_sqlite(tmp_path / "a.db", MODEL)
    requests: list[str] = []
    terms = ledger.engine.dialect.terms
    read = terms.postings

    async def counted(tx: Tx, words: list[str]) -> list[Postings]:
        requests.extend(words)
        return await read(tx, words)

    monkeypatch.setattr(terms, "postings", counted)
    for text in ("tea in rome", "a train to rome", "rome again"):
        await ledger.apply(ANN, [Add(memory(text))], by=BY)
        results = await ledger.lexical(ANN, "rome")
    assert (len(results.rows), len(requests)) == (3, 1)
    await ledger.close()
