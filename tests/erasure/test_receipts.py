"""A backup does not bring back what was erased: the receipts are kept beside it, and replayed once it is restored."""

from __future__ import annotations

import gc
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from recollect import AsyncMemory, Memory
from recollect.aio import erasable_cache
from recollect.config.settings import Settings
from recollect.errors import InvalidInput
from recollect.ledger import sqlite_connection
from recollect.model.erasure import Target, parse_erasure, user_digest
from recollect.testing.fake_embedder import FakeEmbedder
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT
from tests.support.postgres_server import running_server

CANARY = "qvzkanaribu"
CANARY_MESSAGE = f"My name is {CANARY.title()} and I live in Lisbon"
COMMAND = [sys.executable, "-m", "recollect.cli.main"]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


def backed_up(cli: Cli, to: Path) -> None:
    shutil.copy(cli.home / "recollect.db", to)


def restored(cli: Cli, copy: Path) -> None:
    for file in cli.home.glob("recollect.db*"):
        file.unlink()
    shutil.copy(copy, cli.home / "recollect.db")


def holds_canary(cli: Cli) -> bool:
    stored = b"".join(file.read_bytes() for file in cli.home.glob("recollect.db*"))
    return CANARY.encode() in stored.lower()


def erased_after_a_backup(cli: Cli, tmp_path: Path) -> tuple[Path, Path]:
    """A copy that holds what was erased since, in three ways, and the receipts."""
    memory = cli.add(f"Knows {CANARY}", "--user", "alex")
    cli("remember", CANARY_MESSAGE, "--user", "alex", "--session", "monday")
    cli("remember", CANARY_MESSAGE, "--user", CANARY, "--session", "tuesday")
    cli.add("Likes tea", "--user", "alex")
    copy, receipts = tmp_path / "backup.db", tmp_path / "erased.jsonl"
    backed_up(cli, copy)
    cli("erase", "--memory", memory, "--user", "alex", "--yes")
    cli("erase", "--session", "monday", "--user", "alex", "--yes")
    cli("erase", "--everything", "--user", CANARY, "--yes")
    assert not holds_canary(cli)
    assert "Wrote 3 receipts" in cli("erase", "--receipts", "--to", str(receipts)).stdout
    return copy, receipts


def test_replaying_erasures_removes_their_bytes_from_a_restored_backup(cli: Cli, tmp_path: Path) -> None:
    copy, receipts = erased_after_a_backup(cli, tmp_path)
    assert CANARY not in receipts.read_text().lower()
    restored(cli, copy)
    assert holds_canary(cli)
    assert cli.json("users")["results"] == ["alex", CANARY]
    output = cli("erase", "--replay", str(receipts), "--yes").stdout
    assert "Replayed 3 erasures; 0 were known here" in output
    assert not holds_canary(cli)
    assert cli.json("users")["results"] == ["alex"]
    assert [each["memory"] for each in cli.json("list", "--user", "alex")["results"]] == ["Likes tea"]


def test_replaying_twice_is_replaying_once(cli: Cli, tmp_path: Path) -> None:
    copy, receipts = erased_after_a_backup(cli, tmp_path)
    restored(cli, copy)
    first = cli.json("erase", "--replay", str(receipts), "--yes")
    assert (first["given"], len(first["results"])) == (3, 3)
    assert all(receipt["reached"] for receipt in first["results"])
    cli("remember", "I live in Oslo", "--user", "alex", "--session", "monday")
    repeated = cli("erase", "--replay", "-", "--yes", input=receipts.read_bytes()).stdout
    assert "Replayed 0 erasures; 3 were known here" in repeated
    # The session was begun anew after what was in it went.
    assert len(cli.json("list", "--user", "alex")["results"]) == 2


def test_erasures_are_listed_without_texts_and_names(cli: Cli, tmp_path: Path) -> None:
    assert "Nothing was erased so far." in cli("erase", "--receipts").stdout
    erased_after_a_backup(cli, tmp_path)
    output = cli("erase", "--receipts").stdout
    assert CANARY not in output.lower()
    assert user_digest(CANARY) in output
    listed = cli.json("erase", "--receipts")["results"]
    assert [each["target"] for each in listed] == ["memory", "session", "user"]
    mine = cli.json("erase", "--receipts", "--user", "alex")["results"]
    assert [each["target"] for each in mine] == ["memory", "session"]
    lines = cli("erase", "--receipts", "--to", "-").stdout.splitlines()
    assert [json.loads(line) for line in lines] == listed


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("no json", "line 2"),
        ("[]", "not an erasure"),
        ('{"id": "1", "at": "2026-01-01", "user": "x", "target": "everyone"}', "everyone"),
        ('{"id": "1", "at": "2026-01-01", "user": "x", "target": "session"}', "which session"),
        ('{"id": "1", "at": "2026-01-01", "user": "x", "target": "user", "session": "s"}', "which user"),
        ('{"id": "1", "at": "2026-01-01", "user": "x", "target": "memory", "ids": []}', "which memory"),
    ],
)
def test_an_invalid_file_of_erasures_erases_nothing(cli: Cli, tmp_path: Path, line: str, why: str) -> None:
    copy, receipts = erased_after_a_backup(cli, tmp_path)
    restored(cli, copy)
    first, *_ = receipts.read_text().splitlines()
    receipts.write_text(f"{first}\n{line}\n")
    report = cli.error("erase", "--replay", str(receipts), "--yes", code=2)
    assert (why in report, "line 2" in report, "nothing was erased" in report) == (True, True, True)
    assert holds_canary(cli)


def test_a_replay_asks_for_confirmation(cli: Cli, tmp_path: Path) -> None:
    copy, receipts = erased_after_a_backup(cli, tmp_path)
    restored(cli, copy)
    assert "--yes" in cli.error("erase", "--replay", str(receipts), code=2)
    terminal, inside = pty.openpty()
    variables = {**os.environ, "RECOLLECT_HOME": str(cli.home), "NO_COLOR": "1"}
    words = [*COMMAND, "erase", "--replay", str(receipts)]
    with subprocess.Popen(words, stdin=inside, stdout=inside, stderr=inside, env=variables) as command:
        visible = b""
        while b"[y/N]" not in visible:
            visible += os.read(terminal, 10_000)
        os.write(terminal, b"n\n")
        assert command.wait(60) == 0
    os.close(inside)
    os.close(terminal)
    assert b"memory 1, session 1, user 1" in visible
    assert holds_canary(cli)


def test_options_that_name_an_erasure_exclude_each_other(cli: Cli, tmp_path: Path) -> None:
    file = str(tmp_path / "x.jsonl")
    for words in (
        ("--receipts", "--replay", file),
        ("--receipts", "--everything"),
        ("--to", file),
        ("--replay", file, "--session", "s"),
        ("--replay", file, "--user", "alex"),
    ):
        cli.error("erase", *words, code=2)
    assert "x.jsonl" in cli.error("erase", "--replay", file, code=2)


def test_a_receipt_names_each_part_and_what_is_out_of_reach(cli: Cli) -> None:
    cli("remember", CANARY_MESSAGE, "--user", "alex", "--session", "monday")
    report = cli.json("erase", "--session", "monday", "--user", "alex", "--yes")
    stores = {store["store"]: store for store in report["stores"]}
    assert list(stores) == ["ledger", "word lists", "index", "embedding cache", "text caches"]
    parts = (
        "memories and turns",
        "full text",
        "vectors",
        "history",
        "jobs",
        "replies, keys and usage",
        "database log",
    )
    assert stores["ledger"]["parts"] == dict.fromkeys(parts, True)
    beyond = {each["store"]: each["note"] for each in report["out_of_reach"]}
    assert list(beyond) == ["backups", "exports", "logs", "other processes", "unsent exchanges", "providers"]
    assert all(beyond.values())
    cli("remember", CANARY_MESSAGE, "--user", "alex", "--session", "monday")
    output = cli("erase", "--session", "monday", "--user", "alex", "--yes").stdout
    assert "out of reach from here: backups, exports, logs, other processes, unsent exchanges, providers" in output


def test_a_log_in_use_is_reported_as_not_reached(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.ledger.sqlite.MAX_WAIT_S", 0.1)
    cli("remember", CANARY_MESSAGE, "--user", "alex", "--session", "monday")
    reader = sqlite_connection.connect(cli.home / "recollect.db")
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM memories").fetchall()
    output = cli("erase", "--session", "monday", "--user", "alex", "--yes").stdout
    reader.close()
    assert "    not reached: database log" in output


async def test_erasures_are_replayed_on_a_restored_postgres_database_by_the_python_client(dsn: str) -> None:
    settings = Settings(database=dsn, learn="rules")
    async with AsyncMemory(settings=settings, embedder=FakeEmbedder(32)) as memory:
        await memory.remember(CANARY_MESSAGE, user_id="alex", session_id="monday", wait=True)
        await memory.add("Likes tea", user_id="alex")
    name = dsn.rpartition("?")[0].rpartition("/")[2]
    async with running_server().database(name) as old:
        async with AsyncMemory(settings=settings, embedder=FakeEmbedder(32)) as memory:
            await memory.erasure.erase(user_id="alex", session_id="monday")
            stored = [each.to_dict() for each in await memory.erasure.list()]
        async with AsyncMemory(settings=Settings(database=old, learn="rules"), embedder=FakeEmbedder(32)) as memory:
            assert len(await memory.sessions.turns(user_id="alex", session_id="monday")) == 1
            [receipt] = await memory.erasure.replay(stored)
            assert (receipt.what.target, receipt.scope.session, receipt.reached) == (Target.SESSION, "monday", True)
            parts = receipt.stores[0].parts
            assert (parts["full text"], parts["vectors"], parts["database log"]) == (True, True, False)
            assert [each.content for each in await memory.get_all(user_id="alex")] == ["Likes tea"]
            assert await memory.erasure.replay(stored) == []
        await checked_gone(old)


async def checked_gone(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    data = Path(await connection.fetchval("SHOW data_directory"))
    number = await connection.fetchval("SELECT oid FROM pg_database WHERE datname = current_database()")
    await connection.execute("CHECKPOINT")
    stored = [file.read_bytes().lower() for file in (data / "base" / str(number)).iterdir() if file.is_file()]
    assert stored
    assert not any(CANARY.encode() in each for each in stored)
    await connection.close()


def test_erased_words_are_in_no_cache_of_this_process(tmp_path: Path) -> None:
    # Nothing else in this process has heard of it.
    other = "zkvnightjar"
    with Memory(settings=Settings(home=tmp_path)) as memory:
        for number in range(3):
            memory.remember(
                f"My name is {other.title()}, number {number}", user_id="alex", session_id="monday", wait=True
            )
        memory.recall(f"Where does {other} live?", user_id="alex", session_id="later")
        receipt = memory.erasure.erase(user_id="alex", everything=True)
        [words] = [store for store in receipt.stores if store.store == "text caches"]
        assert words.counts["entries"] > 0
        assert erasable_cache.clear_all() == 0
        # Whatever else keeps things by a word, as some stemmers do, would have it here.
        saved = [each for each in gc.get_objects() if isinstance(each, dict)]
        assert [each for each in saved if any(isinstance(key, str) and other in key.lower() for key in each)] == []


def test_only_functions_without_user_text_use_a_cache_that_erasure_cannot_clear() -> None:
    source = ROOT / "src" / "recollect"
    own = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if "lru_cache(" in path.read_text() and "testing" not in path.parts
    }
    # The first is what makes them, the second is handed SQL, the third addresses of machines.
    assert own == {"aio/erasable_cache.py", "ledger/postgres_dialect.py", "http/auth/address.py"}


def test_an_erasure_in_a_file_must_name_its_target_exactly() -> None:
    report = {"id": "1", "at": "2026-01-01T00:00:00+00:00", "user": "x", "target": "project", "project": "p"}
    assert parse_erasure(report).project == "p"
    for wrong in ({"session": "s"}, {"ids": ["a"]}, {"project": ""}, {"user": ""}):
        with pytest.raises(InvalidInput):
            parse_erasure({**report, **wrong})
