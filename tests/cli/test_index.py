"""recollect index: status, verify, rebuild."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from recollect.config.settings import load
from recollect.index.vector_store import StoredVector, hash_place, hash_user
from recollect.models.static_embedder import StaticEmbedder
from recollect.wiring import open_vector_store
from tests.support.cli_runner import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture
def milvus(cli: Cli) -> Cli:
    (cli.home / "config.toml").write_text('index = "milvus"\n')
    return cli


def break_engine(home: Path) -> None:
    """Remove a row of a user, and add a row of an unknown user."""

    async def do() -> None:
        embedder = StaticEmbedder()
        engine = open_vector_store(load({"home": home, "index": "milvus"}, environ={}).settings, embedder.model)
        rows = await engine.rows(hash_user("ann"))
        await engine.drop(rows[:1])
        [vector] = await embedder.embed(["nobody"])
        await engine.put([StoredVector(10**6, hash_user("nobody"), hash_place(""), vector)])
        await engine.close()
        await embedder.close()

    asyncio.run(do())


def test_the_exact_index_has_nothing_to_verify_or_rebuild(cli: Cli) -> None:
    cli.add("I live in Paris", "--user", "ann")
    assert cli.json("index", "status") == {"index": "exact", "engine": None, "users_behind": 0}
    assert "searched exactly" in cli("index", "status").stdout
    assert "nothing to verify" in cli("index", "verify").stdout
    assert "nothing to rebuild" in cli("index", "rebuild").stdout
    assert cli.json("index", "verify") == {"right": True, "users": []}


def test_a_damaged_vector_database_is_detected_and_rebuilt(milvus: Cli) -> None:
    for text in ("I live in Paris", "I play the cello", "I am allergic to nuts"):
        milvus.add(text, "--user", "ann")
    assert "0 rows of 1 user, 3 waiting" in milvus("index", "verify").stdout
    assert milvus.json("index", "status")["users_behind"] == 1
    assert milvus("index", "rebuild").stdout == "Rebuilt 3 rows.\n"
    assert "In sync: 3 rows of 1 user, 0 waiting." in milvus("index", "verify").stdout
    break_engine(milvus.home)
    output = milvus("index", "verify", code=6).stdout
    assert "Wrong for 2 users; run: recollect index rebuild" in output
    assert "ann" in output
    assert hash_user("nobody") in output
    assert milvus.json("index", "rebuild") == {"rows": 3}
    right = {"rows": 3, "kept": 3, "missing": 0, "extra": 0, "waiting": 0}
    assert milvus.json("index", "verify") == {"right": True, "users": [{"user": "ann", **right}]}


def test_memories_are_found_the_same_by_an_engine(milvus: Cli) -> None:
    milvus.add("I play the cello", "--user", "ann")
    milvus("index", "rebuild")
    (milvus.home / "config.toml").write_text('index = "milvus"\nindex_exact_rows = 0\n')
    milvus.add("My sister lives in Lisbon", "--user", "ann")
    for question, answer in (("Which instrument do I play?", "cello"), ("Where does my sister live?", "Lisbon")):
        assert answer in str(milvus.json("search", question, "--user", "ann")["results"][0])


def test_pgvector_is_refused_where_the_ledger_is_a_file(cli: Cli) -> None:
    (cli.home / "config.toml").write_text('index = "pgvector"\n')
    assert "pgvector" in cli.error("index", "status", code=2)
