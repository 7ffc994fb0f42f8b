"""What is deleted from SQLite is gone from the file, not only from what can be found."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from recollect.ledger import sqlite_file
from recollect.ledger.sql.tx import NO_TENANT, Tx
from recollect.ledger.sqlite import SqliteEngine, open_sqlite
from recollect.testing.suite_samples import MODEL

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
    await engine.write(lambda tx: engine.terms.put(tx, ROWS), tenant=NO_TENANT)
    await engine.write(lambda tx: engine.terms.put(tx, {1000: f"{DELETED_WORD} 7xtea"}), tenant=NO_TENANT)
    assert is_on_disk(engine.path)
    await engine.write(lambda tx: engine.terms.drop(tx, {1000: f"{DELETED_WORD} 7xtea"}), tenant=NO_TENANT)
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
    connection = sqlite_file.connect(path)
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
    pragmas = sqlite_file._PRAGMAS.replace("secure_delete = ON", "secure_delete = OFF")
    monkeypatch.setattr(sqlite_file, "_PRAGMAS", pragmas)
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
