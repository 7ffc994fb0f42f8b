"""What is erased is gone from the bytes: of every file in the folder, and of a PostgreSQL server's data."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import pytest

from recollect.deps import Deps
from recollect.index.exact import ExactIndex
from recollect.ledger import sqlite, sqlite_connection
from recollect.ledger.codec import pack_vector
from recollect.ledger.ledger import Ledger
from recollect.ledger.postgres import open_postgres
from recollect.ledger.sql.tx import NO_TENANT, Tx
from recollect.ledger.sqlite import SqliteEngine, open_in_memory, open_sqlite
from recollect.ledger.tokenizer import terms_of
from recollect.model.change import Add, ConversationUpdate, IdempotencyToken, Supersede, Update
from recollect.model.erasure import ErasureRequest, Receipt, Target
from recollect.model.job import ExtractPayload, JobKind, NewJob
from recollect.model.memory import Status
from recollect.model.query import EVERYTHING
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.models.embedder_wrappers import CachedEmbedder
from recollect.remember import LearningConfig
from recollect.service.erasure import ErasureService
from recollect.testing.fake_embedder import FakeEmbedder
from tests.support.ledger_samples import BY, MODEL, listed, memory, turn

# Nothing like it stands anywhere else, and no two terms made of it begin alike with others.
CANARY = "qvzkanaribu"
PLAIN = "tea coffee water milk Paris Rome Berlin Tokyo trip budget house garden".split()
WHO = Scope("qvz-wholly-unlike", "qvz-project", "qvz-session")
OTHER_SCOPES = (Scope("ann", "p", "s"), Scope("zoe", "", "t"))
VECTOR = np.array([0.11, -0.37, 0.53, 0.19, -0.41, 0.29, 0.47, -0.23], np.float32)


def needles(words: str = CANARY) -> dict[str, bytes]:
    """All the ways in which it could be on disk."""
    texts = {words, words.upper(), *terms_of(words)}
    results = {
        f"{text} in {code}": text.encode(code) for text in texts for code in ("utf-8", "utf-16-le", "utf-16-be")
    }
    # The beginning of a word may be shared with the one before it in the full text.
    results |= {f"the end of {text}": text.encode()[3:] for text in texts}
    return results | {"vector": pack_vector(VECTOR, MODEL), "float vector": VECTOR.tobytes()}


def needles_in(folder: Path, expected: dict[str, bytes]) -> set[str]:
    stored = [file.read_bytes() for file in folder.iterdir() if file.is_file()]
    return {name for name, needle in expected.items() if any(needle in data for data in stored)}


async def fill(ledger: Ledger, scope: Scope, word: str, *, rows: int = 40) -> list[str]:
    """Something in every table that holds words, written in many small steps; gives the ids of the turns."""
    random.seed(rows)
    vector = VECTOR if word == CANARY else VECTOR[::-1].copy()
    ids = []
    for n in range(rows):
        logged_turn = turn(f"{word} {' '.join(random.choices(PLAIN, k=random.randint(1, 60)))} {n}")
        jobs = [NewJob(kind=JobKind.EXTRACT, key=f"{word} {n}", payload=ExtractPayload(mode=f"{word} {n}"))]
        (placed,) = (await ledger.append(scope, [logged_turn], vectors=[vector], by=BY, jobs=jobs)).turns
        ids.append(placed.id)
        fact = memory(
            f"{word} fact {n}",
            scope=scope,
            level=Level.USER,
            key=f"{word} key {n}",
            value=f"{word.title()} value",
            evidence=(placed.id,),
            tags=(word,),
            metadata={"of": word},
            source=word,
        )
        await ledger.apply(scope, [Add(fact, vector)], by=BY, once=IdempotencyToken(f"{word} {n}", "digest"))
        if n % 3 == 0:
            await ledger.apply(scope, [Update(fact.id, {"content": f"{word} grown {word * 9}"})], by=BY)
        if n % 5 == 0:
            await ledger.apply(scope, [Supersede(fact.id, memory(f"{word} new {n}", scope=scope))], by=BY)
    note = {"summary": f"{word} said", "invocations": [{"of": word}], "metadata": {"of": word}}
    await ledger.apply(scope, [], by=BY, effects=[ConversationUpdate(scope, note)])
    for job in await ledger.lease(worker="w", limit=10, lease_s=60):
        if job.scope.user == scope.user:
            await ledger.finish(job, result={"said": word})
        else:
            await ledger.fail(job, error="someone else's", retry_at=now())
    return ids


async def filled(ledger: Ledger) -> list[str]:
    """Users whose rows lie among each other's."""
    ids = []
    for n, scope in enumerate((OTHER_SCOPES[0], WHO, OTHER_SCOPES[1])):
        ids = await fill(ledger, scope, CANARY, rows=30) if scope is WHO else ids
        if scope is not WHO:
            await fill(ledger, scope, f"plain{n}", rows=12)
    await fill(ledger, OTHER_SCOPES[0], "plainer", rows=10)
    return ids


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


async def opened(home: Path) -> Ledger:
    return await open_sqlite(home / "recollect.db", MODEL)


async def words_left(ledger: Ledger) -> list[int]:
    return [len(await listed(ledger, Scope(scope.user))) for scope in OTHER_SCOPES]


@pytest.mark.parametrize("target", [Target.USER, Target.PROJECT, Target.SESSION])
async def test_what_is_erased_is_in_no_file_of_the_folder(home: Path, target: Target) -> None:
    ledger = await opened(home)
    await filled(ledger)
    before = await words_left(ledger)
    expected = needles()
    if target is Target.USER:
        expected |= {part: part.encode() for part in (WHO.user, WHO.project, WHO.session)}
    # Names of users, and words of vectors that nothing was asked of, are written in no other form.
    output = {"qvzkanaribu in utf-8", "vector", *(name for name in expected if name.startswith("qvz-"))}
    assert output <= needles_in(home, expected)
    scope = {Target.USER: Scope(WHO.user), Target.PROJECT: Scope(WHO.user, WHO.project), Target.SESSION: WHO}[target]
    receipt = await ledger.erase(scope, ErasureRequest(target), by=BY)
    assert (receipt.reached, receipt.stores[0].note) == (True, "")
    assert needles_in(home, expected) == set()
    assert await words_left(ledger) == before
    assert await ledger.check() == []
    await ledger.close()
    assert needles_in(home, expected) == set()
    reader = sqlite_connection.connect(home / "recollect.db")
    assert reader.execute("SELECT v FROM terms_config WHERE k = 'secure-delete'").fetchall() == [(1,)]
    reader.close()


async def test_an_erased_memory_and_turn_are_in_no_file_while_their_neighbours_are(home: Path) -> None:
    ledger = await opened(home)
    await fill(ledger, WHO, "plain", rows=30)
    logged_turn = turn(f"I am {CANARY} indeed")
    await ledger.append(WHO, [logged_turn], vectors=[VECTOR], by=BY)
    fact = memory(f"{CANARY} indeed", scope=WHO, evidence=(logged_turn.id,), metadata={CANARY: CANARY}, key=CANARY)
    await ledger.apply(WHO, [Add(fact, VECTOR)], by=BY, once=IdempotencyToken(CANARY, CANARY))
    other = memory(f"{CANARY} by itself", scope=WHO)
    await ledger.apply(WHO, [Add(other)], by=BY)
    await fill(ledger, WHO, "plainer", rows=30)
    await ledger.erase(WHO, ErasureRequest(Target.TURN, logged_turn.id), by=BY)
    assert CANARY in str(await listed(ledger, WHO))
    await ledger.erase(WHO, ErasureRequest(Target.MEMORY, other.id), by=BY)
    assert needles_in(home, needles()) == set()
    assert b"plainer" in (home / "recollect.db").read_bytes()
    await ledger.close()


async def test_what_was_purged_is_in_no_file(home: Path) -> None:
    ledger = await opened(home)
    fact = memory(f"{CANARY} fact", scope=WHO, status=Status.FORGOTTEN)
    await ledger.apply(WHO, [Add(fact, VECTOR)], by=BY)
    assert (await ledger.purge(now() + timedelta(seconds=1))).reached
    assert needles_in(home, needles()) == set()
    await ledger.close()


async def scatter_and_erase(folder: Path, seed: int) -> set[str]:
    """Keys in no order, so that pages of an index are split and rows move; gives what is left of them in the end."""
    ledger = await opened(folder)
    draw = random.Random(seed)
    for n in range(10):
        for user in draw.sample(["amy", WHO.user, "zoe"], 3):
            word = CANARY if user == WHO.user else "k"
            keys = [f"{word} {draw.random()}" for _ in range(10)]
            facts = [memory(f"{word} {n} {key}", scope=Scope(user), key=key) for key in keys]
            await ledger.apply(Scope(user), [Add(fact) for fact in facts], by=BY)
    await ledger.erase(Scope(WHO.user), ErasureRequest(Target.USER), by=BY)
    left = needles_in(folder, needles() | {"user": WHO.user.encode()})
    await ledger.close()
    return left


@pytest.mark.parametrize("anew", [True, False])
async def test_rewriting_the_file_removes_copies_left_by_moved_rows(
    home: Path, monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    if not anew:
        # Such a file is too large to be rewritten.
        monkeypatch.setattr(sqlite, "MAX_BYTES", 1)
    left = [await scatter_and_erase(home / str(seed), seed) for seed in range(6)]
    assert any(left) is not anew


async def test_a_blocking_reader_is_reported_and_a_retry_completes_the_erasure(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "MAX_WAIT_S", 0.2)
    ledger = await opened(home)
    await fill(ledger, WHO, CANARY, rows=3)
    reader = sqlite_connection.connect(home / "recollect.db")
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM memories").fetchall()
    receipt = await ledger.erase(Scope(WHO.user), ErasureRequest(Target.USER), by=BY)
    assert not receipt.reached
    assert "a reader kept" in receipt.stores[0].note
    assert CANARY not in str(await listed(ledger, Scope(WHO.user)))
    assert needles_in(home, needles())
    reader.execute("COMMIT")
    reader.close()
    assert (await ledger.finish_erasures()).reached
    assert needles_in(home, needles() | {"user": WHO.user.encode()}) == set()
    await ledger.close()


async def test_what_is_erased_is_in_no_file_of_the_server(dsn: str) -> None:
    ledger = await open_postgres(dsn, MODEL)
    await filled(ledger)
    connection = await asyncpg.connect(dsn)
    data = Path(await connection.fetchval("SHOW data_directory"))
    number = await connection.fetchval("SELECT oid FROM pg_database WHERE datname = current_database()")
    folder = data / "base" / str(number)
    await connection.execute("CHECKPOINT")
    assert {"qvzkanaribu in utf-8", "vector"} <= needles_in(folder, needles())
    before = await words_left(ledger)
    receipt = await ledger.erase(Scope(WHO.user), ErasureRequest(Target.USER), by=BY)
    await connection.execute("CHECKPOINT")
    expected = needles() | {"project": WHO.project.encode(), "session": WHO.session.encode()}
    assert needles_in(folder, expected) == set()
    assert (receipt.reached, "backups" in receipt.stores[0].note) == (True, True)
    assert await words_left(ledger) == before
    await connection.close()
    await ledger.close()


@pytest.mark.parametrize("statement", ["SELECT 1 FROM history LIMIT 1", "SELECT 1"])
async def test_a_transaction_of_another_session_leaves_the_erasure_incomplete_until_it_ends(
    dsn: str, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setattr("recollect.ledger.postgres_tables.LOCK_TIMEOUT_S", 0.2)
    ledger = await open_postgres(dsn, MODEL)
    await fill(ledger, WHO, CANARY, rows=2)
    other = await asyncpg.connect(dsn)
    async with other.transaction(isolation="repeatable_read"):
        # The first locks a table; the second only keeps deleted rows visible to its snapshot.
        await other.execute(statement)
        receipt = await ledger.erase(Scope(WHO.user), ErasureRequest(Target.USER), by=BY)
    assert not receipt.reached
    assert "history" in receipt.stores[0].note
    assert (await ledger.finish_erasures()).reached
    folder = Path(await other.fetchval("SHOW data_directory")) / "base"
    number = await other.fetchval("SELECT oid FROM pg_database WHERE datname = current_database()")
    await other.execute("CHECKPOINT")
    assert needles_in(folder / str(number), needles()) == set()
    await other.close()
    await ledger.close()


async def test_an_erasure_clears_the_index_and_the_embedding_cache() -> None:
    ledger = await open_in_memory(MODEL)
    index = ExactIndex(ledger, MODEL, budget_bytes=1 << 20)
    cache = CachedEmbedder(FakeEmbedder(8))
    await cache.embed([CANARY])
    (logged_turn,) = (await ledger.append(WHO, [turn(CANARY)], vectors=[VECTOR], by=BY)).turns
    await ledger.append(WHO, [turn("tea")], vectors=[VECTOR], by=BY)
    assert (await index.view(WHO, EVERYTHING)).count == 2

    async def unchanged(receipt: Receipt) -> Receipt:
        return receipt

    erasure = ErasureService(
        Deps(ledger, index, cache), LearningConfig(), spill=None, result_cache=None, models=None, on_erased=unchanged
    )
    receipt = await erasure.erase(Scope(WHO.user), ErasureRequest(Target.TURN, logged_turn.id), by=BY)
    stores = {store.store: dict(store.counts) for store in receipt.stores}
    assert list(stores) == ["ledger", "word lists", "index", "embedding cache", "text caches"]
    assert (stores["index"], stores["embedding cache"]) == ({"rows": 2}, {"vectors": 1})
    assert (len(cache), index.nbytes) == (0, 0)
    assert (await index.view(WHO, EVERYTHING)).count == 1
    assert CANARY not in str(receipt.to_dict())
    await ledger.close()


async def test_cached_words_are_erased(home: Path) -> None:
    ledger = await opened(home)
    await ledger.append(WHO, [turn(f"{CANARY} and tea")], vectors=[VECTOR], by=BY)
    await ledger.lexical(WHO, CANARY)
    receipt = await ledger.erase(Scope(WHO.user), ErasureRequest(Target.USER), by=BY)
    assert [(store.store, store.counts.get("words")) for store in receipt.stores] == [
        ("ledger", None), ("word lists", len(terms_of(CANARY))),
    ]  # fmt: skip
    await ledger.close()


async def test_an_index_of_another_process_drops_erased_rows_at_its_next_search(home: Path) -> None:
    ledger, other = await opened(home), await opened(home)
    index = ExactIndex(other, MODEL, budget_bytes=1 << 20)
    (logged_turn,) = (await ledger.append(WHO, [turn(CANARY)], vectors=[VECTOR], by=BY)).turns
    assert (await index.view(WHO, EVERYTHING)).count == 1
    for what in (ErasureRequest(Target.TURN, logged_turn.id), ErasureRequest(Target.USER)):
        await ledger.erase(Scope(WHO.user), what, by=BY)
        assert (await index.view(WHO, EVERYTHING)).count == 0
        assert len((await other.lexical(WHO, CANARY)).rows) == 0
    await ledger.append(WHO, [turn("tea")], vectors=[-VECTOR], by=BY)
    view = await index.view(WHO, EVERYTHING)
    assert (view.count, (await view.nearest(VECTOR, limit=5)).scores.tolist()) == (1, [0.0])
    await other.close()
    await ledger.close()


DELETED_WORD = "7xcanaryword"
# Enough around it that it shares its pages with words that stay.
ROWS = {row: f"7xword{row} 7xtea 7xother{row}" for row in range(1, 200)}


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    await (await open_sqlite(path, MODEL)).close()
    return path


@pytest.fixture
async def engine(path: Path) -> AsyncIterator[SqliteEngine]:
    engine = SqliteEngine(path)
    yield engine
    await engine.close()


async def stays_in_full_text(engine: SqliteEngine) -> bool:
    """Whether a word is still in the file when it was indexed and then dropped."""
    await engine.write(lambda tx: engine.dialect.terms.put(tx, ROWS), tenant=NO_TENANT)
    await engine.write(lambda tx: engine.dialect.terms.put(tx, {1000: f"{DELETED_WORD} 7xtea"}), tenant=NO_TENANT)
    assert is_on_disk(engine.path)
    await engine.write(lambda tx: engine.dialect.terms.drop(tx, {1000: f"{DELETED_WORD} 7xtea"}), tenant=NO_TENANT)
    return is_on_disk(engine.path)


async def stays_in_table(engine: SqliteEngine) -> bool:
    """Whether a value is still in the file when its row was written and then deleted."""
    stored = "INSERT INTO meta (name, value) VALUES ('c', :word)"
    await engine.write(lambda tx: tx.run(stored, {"word": DELETED_WORD}), tenant=NO_TENANT)
    assert is_on_disk(engine.path)
    await engine.write(lambda tx: tx.run("DELETE FROM meta WHERE name = 'c'", {}), tenant=NO_TENANT)
    return is_on_disk(engine.path)


def is_on_disk(path: Path) -> bool:
    """Whether the word, without what it may share with the one before it, is in the file."""
    connection = sqlite_connection.connect(path)
    [(busy, _, _)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    assert not busy
    files = [path, Path(f"{path}-wal")]
    return any(DELETED_WORD.encode()[3:] in file.read_bytes() for file in files if file.exists())


async def test_a_dropped_word_and_a_deleted_row_are_nowhere_in_the_file(engine: SqliteEngine) -> None:
    assert not await stays_in_full_text(engine)
    assert not await stays_in_table(engine)


async def test_a_dropped_word_would_stay_if_the_full_text_did_not_overwrite(engine: SqliteEngine) -> None:
    off = "INSERT INTO terms (terms, rank) VALUES ('secure-delete', 0)"
    await engine.write(lambda tx: tx.run(off, {}), tenant=NO_TENANT)
    assert await stays_in_full_text(engine)


async def test_a_deleted_row_would_stay_if_the_file_were_not_overwritten(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pragmas = sqlite_connection.PRAGMAS.replace("secure_delete = ON", "secure_delete = OFF")
    monkeypatch.setattr(sqlite_connection, "PRAGMAS", pragmas)
    engine = SqliteEngine(path)
    assert await stays_in_table(engine)
    await engine.close()


async def test_every_connection_overwrites_what_it_deletes(engine: SqliteEngine) -> None:
    async def setting(tx: Tx) -> Any:
        return (await tx.rows("PRAGMA secure_delete", {}))[0][0]

    assert await engine.write(setting, tenant=NO_TENANT) == 1
    assert [await engine.read(setting, tenant=NO_TENANT, quick=quick) for quick in (False, True)] == [1, 1]
    overwrites = "SELECT v FROM terms_config WHERE k = 'secure-delete'"
    results = await engine.read(lambda tx: tx.rows(overwrites, {}), tenant=NO_TENANT)
    assert [row[0] for row in results] == [1]
