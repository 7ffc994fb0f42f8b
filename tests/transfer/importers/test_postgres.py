"""Imports from PostgreSQL: tables of mem0 and LangGraph, snapshots, errors."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from threading import enumerate as threads
from typing import Any

import pytest

import tests.support.importer_samples as samples
from recollect import Memory
from recollect.errors import InvalidInput, UpstreamUnavailable
from recollect.transfer.importers import mem0, postgres
from recollect.transfer.importers.source import ImportSource
from tests.support.cli_runner import Cli
from tests.support.postgres_server import PLAIN_ROLE, running_server
from tests.transfer.importers.test_importers import everything, memory, texts, twice  # noqa: F401  (memory is a fixture)

_numbers = count(1)


class Database:
    """An empty database of another product, with a blocking connection."""

    def __init__(self) -> None:
        self.name = f"theirs_{os.getpid()}_{next(_numbers)}"
        self.dsn = asyncio.run(running_server().make(self.name))

    def run(self, sql: str) -> list[Any]:
        return asyncio.run(running_server().run(sql, database=self.name))

    def reload_settings(self) -> None:
        before = self.run("SELECT pg_conf_load_time()")
        self.run("SELECT pg_reload_conf()")
        # Each asks on a connection of its own, which is as the server was when it was made.
        while self.run("SELECT pg_conf_load_time()") == before:
            pass

    def drop(self) -> None:
        asyncio.run(running_server().run(f"DROP DATABASE {self.name} WITH (FORCE)"))


@pytest.fixture
def theirs() -> Iterator[Database]:
    database = Database()
    yield database
    database.drop()
    assert not [thread for thread in threads() if thread.name == "recollect-import"]


def test_mem0_in_postgres_keeps_users_runs_times_and_ids(memory: Memory, theirs: Database, tmp_path: Path) -> None:  # noqa: F811
    ids = samples.mem0_tables(tmp_path, theirs.dsn)
    moved = twice(memory, theirs.dsn, everyone=True)
    assert (moved.kind, moved.why) == ("mem0", "it has the table mem0")
    assert (moved.memories, moved.users, moved.left) == (2, ("alex", "bea"), {})
    lisbon = next(line for line in everything(memory) if line["memory"] == "I live in Lisbon")
    assert (lisbon["user_id"], lisbon["session_id"], lisbon["source"]) == ("alex", "monday", "import:mem0")
    assert lisbon["metadata"]["topic"] == "home"
    assert lisbon["metadata"]["imported"] == {"from": "mem0", "id": ids["lisbon"]}
    [[payload]] = theirs.run(f"SELECT payload FROM mem0 WHERE id = '{ids['lisbon']}'")
    report = datetime.fromisoformat(json.loads(payload)["created_at"])
    assert datetime.fromisoformat(lisbon["created_at"]) == report.astimezone(UTC)
    assert texts(memory, user_id="bea") == ["Likes green tea"]


def test_langgraph_in_postgres_keeps_namespaces_times_and_expiry(
    memory: Memory,  # noqa: F811
    theirs: Database,
) -> None:
    samples.langgraph_tables(theirs.dsn)
    moved = twice(memory, theirs.dsn, everyone=True)
    assert (moved.kind, moved.why) == ("langgraph", "it has the table store")
    assert (moved.users, moved.left) == (("alex", "bea"), {"its value is empty": 1})
    [tea] = [line for line in everything(memory) if line["user_id"] == "alex"]
    assert (tea["memory"], tea["source"]) == ("Likes green tea", "import:langgraph")
    assert tea["metadata"]["namespace"] == ["memories", "alex"]
    [[at]] = theirs.run("SELECT created_at FROM store WHERE key = 'm1'")
    made, lasts = (datetime.fromisoformat(tea[name]) for name in ("created_at", "expires_at"))
    assert abs(made - at) < timedelta(milliseconds=1)
    assert abs(lasts - made - timedelta(hours=1)) < timedelta(seconds=1)


def test_unselected_users_of_a_database_are_not_imported(memory: Memory, theirs: Database) -> None:  # noqa: F811
    samples.langgraph_tables(theirs.dsn)
    moved = memory.admin.import_from(theirs.dsn, of=["alex"])
    assert (moved.users, moved.refused) == (("alex",), 1)
    assert moved.left["it is of user 'bea', who was not selected"] == 1
    assert memory.admin.users() == ["alex"]


def test_a_table_is_read_in_pages_of_one_snapshot(
    memory: Memory,  # noqa: F811
    theirs: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres, "PAGE_ROWS", 7)
    theirs.run("CREATE EXTENSION vector")
    theirs.run("CREATE TABLE boats (id uuid PRIMARY KEY, vector vector(2), payload jsonb)")
    theirs.run(
        "INSERT INTO boats SELECT gen_random_uuid(), '[1,2]', jsonb_build_object('data', 'Boat ' || n,"
        " 'user_id', 'alex') FROM generate_series(1, 100) n"
    )
    theirs.run("INSERT INTO boats VALUES (gen_random_uuid(), NULL, NULL), (gen_random_uuid(), NULL, '[1]')")
    theirs.run("CREATE TABLE boats_entities (LIKE boats)")
    theirs.run("INSERT INTO boats_entities SELECT * FROM boats")
    items = iter(mem0.read(ImportSource(theirs.dsn)))
    next(items)
    # What comes while it is read is not of the moment that is read.
    theirs.run("""INSERT INTO boats VALUES (gen_random_uuid(), NULL, '{"data": "Late", "user_id": "alex"}')""")
    assert len(list(items)) == 101
    moved = memory.admin.import_from(theirs.dsn, everyone=True)
    assert (moved.added, moved.left) == (101, {"it has no text": 2})


def test_a_cancelled_import_closes_the_connection(memory: Memory, theirs: Database) -> None:  # noqa: F811
    samples.langgraph_tables(theirs.dsn)

    def broken(done: int) -> None:
        raise KeyError("the lights went out")

    with pytest.raises(KeyError) as error:
        memory.admin.import_from(theirs.dsn, everyone=True, progress=broken)
    # Whoever still holds the error holds no connection.
    assert error.value.args == ("the lights went out",)
    assert not [thread for thread in threads() if thread.name == "recollect-import"]
    assert memory.admin.import_from(theirs.dsn, everyone=True).present == 2


def test_the_address_can_select_a_table(
    memory: Memory,  # noqa: F811
    theirs: Database,
    tmp_path: Path,
) -> None:
    samples.mem0_tables(tmp_path, theirs.dsn, collection="work")
    theirs.run("CREATE TABLE home (LIKE work)")
    theirs.run("""INSERT INTO home VALUES (gen_random_uuid(), NULL, '{"data": "Has a cat", "user_id": "alex"}')""")
    moved = memory.admin.import_from(f"{theirs.dsn}&table=home", everyone=True)
    assert (moved.kind, texts(memory)) == ("mem0", ["Has a cat"])
    assert memory.admin.import_from(theirs.dsn, everyone=True).added == 2
    with pytest.raises(InvalidInput, match="no table 'garden' of mem0; there are: home, work"):
        memory.admin.import_from(f"{theirs.dsn}&table=garden", kind="mem0", everyone=True)


def test_database_errors_are_explained(theirs: Database, tmp_path: Path) -> None:
    cli = Cli(tmp_path / "home")

    def error(address: str, *more: str) -> str:
        return cli.error("import", address, "--everyone", *more, code=2)

    assert "no tables of mem0 or langgraph" in error(theirs.dsn)
    assert "no table of mem0" in error(theirs.dsn, "--from", "mem0")
    assert "no table of LangGraph" in error(theirs.dsn, "--from", "langgraph")
    assert "letta does not use PostgreSQL" in error(theirs.dsn, "--from", "letta")
    assert "there is no such database" in error(theirs.dsn.replace(theirs.name, "nowhere"))
    assert "refused the login" in error(theirs.dsn.replace("postgres@", "stranger:geheim@"))
    wrong = error("postgresql://alex:geheim@host:port/x")
    assert "is not a PostgreSQL address" in wrong
    assert "geheim" not in wrong
    samples.langgraph_tables(theirs.dsn)
    theirs.run("CREATE EXTENSION vector")
    theirs.run("CREATE TABLE mem0 (id uuid, vector vector(2), payload jsonb)")
    assert "has tables of mem0 and of langgraph: choose one" in error(theirs.dsn)
    with Memory(home=tmp_path / "home") as memory, pytest.raises(UpstreamUnavailable, match="cannot be reached"):  # noqa: F811
        memory.admin.import_from("postgresql://alex:geheim@127.0.0.1:1/x", everyone=True)


def test_rows_hidden_by_a_policy_are_an_error(memory: Memory, theirs: Database) -> None:  # noqa: F811
    samples.langgraph_tables(theirs.dsn)
    plain = theirs.dsn.replace("postgres@", f"{PLAIN_ROLE}@")
    asyncio.run(running_server().make(f"{theirs.name}_role", role=PLAIN_ROLE))
    asyncio.run(running_server().run(f"DROP DATABASE {theirs.name}_role"))
    with pytest.raises(InvalidInput, match="does not let this user read all rows"):
        memory.admin.import_from(plain, everyone=True)
    theirs.run(f"GRANT SELECT ON store TO {PLAIN_ROLE}")
    theirs.run("ALTER TABLE store ENABLE ROW LEVEL SECURITY")
    with pytest.raises(InvalidInput, match="row-level security"):
        memory.admin.import_from(plain, everyone=True)
    theirs.run("ALTER TABLE store DISABLE ROW LEVEL SECURITY")
    assert memory.admin.import_from(plain, everyone=True).added == 2


def test_a_wrong_password_is_not_repeated_in_the_error(memory: Memory, theirs: Database) -> None:  # noqa: F811
    theirs.run("DROP ROLE IF EXISTS picky")
    theirs.run("CREATE ROLE picky LOGIN PASSWORD 'richtig'")
    [[place]] = theirs.run("SHOW hba_file")
    before = Path(place).read_text()
    Path(place).write_text(f"local {theirs.name} picky scram-sha-256\n{before}")
    try:
        theirs.reload_settings()
        for login in ("picky:geheim@", "picky@"):
            with pytest.raises(InvalidInput, match="refused the login") as error:
                memory.admin.import_from(theirs.dsn.replace("postgres@", login), everyone=True)
            assert "geheim" not in str(error.value)
        with pytest.raises(InvalidInput, match="no tables of mem0"):
            memory.admin.import_from(theirs.dsn.replace("postgres@", "picky:richtig@"), everyone=True)
    finally:
        Path(place).write_text(before)
        theirs.reload_settings()
        theirs.run("DROP ROLE picky")
