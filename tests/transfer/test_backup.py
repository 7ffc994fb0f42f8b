"""Backups: consistent under load, verified, restored with later erasures replayed."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from recollect import AsyncMemory, Memory, Status
from recollect.config.settings import Settings
from recollect.errors import Conflict, InvalidInput, StoreBusy, StoreCorrupt, StoreTooNew
from recollect.ledger.backup_file import verify_backup
from recollect.ledger.postgres import open_postgres
from recollect.ledger.sqlite import open_sqlite
from recollect.ledger.types import AccessRow, ModelOrigin
from recollect.model.key import new_key
from recollect.service.restore import restore
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.wiring import open_service
from tests.support.cli_runner import Cli
from tests.support.ledger_samples import MODEL
from tests.support.postgres_server import PLAIN_ROLE, running_server

EMBEDDER = FakeEmbedder(16)
open_with_fake = partial(open_service, embedder=EMBEDDER)


def settings(home: Path, **more: str) -> Settings:
    return Settings(home=home, worker=False, **more)


def opened(home: Path, **more: str) -> AsyncMemory:
    return AsyncMemory(settings=settings(home, **more), embedder=EMBEDDER)


async def lived(memory: AsyncMemory) -> str:
    """Store data of every kind; return the id of a forgotten memory."""
    await memory.remember("I moved to Lisbon", user_id="ann", session_id="s")
    stored = await memory.add("Likes tea", user_id="ann", tags=["drink"])
    await memory.update(stored.id, "Likes green tea", user_id="ann")
    await memory.add(user_id="ann", key="city", value="Oslo")
    await memory.add(user_id="ann", key="city", value="Lisbon")
    gone = await memory.add("Likes rain", user_id="bob")
    await memory.delete(gone.id, user_id="bob")
    await memory.keys.create(user_id="ann", name="phone")
    return gone.id


async def snapshot(memory: AsyncMemory) -> tuple[list[object], list[object], object]:
    lines = [line async for line in memory.export()]
    history = [entry.to_dict() for user in ("ann", "bob") for entry in await memory.history(user_id=user)]
    return list(lines), list(history), [key.id for key in await memory.keys.list()]


async def test_a_restored_backup_has_all_data_history_and_keys(tmp_path: Path) -> None:
    async with opened(tmp_path / "one") as memory:
        gone = await lived(memory)
        before = await snapshot(memory)
        made = await memory.admin.backup(tmp_path / "b.backup")
        jobs = len(await memory.jobs.list())
        [listed] = await memory.admin.backups()
    assert listed == {**made.to_dict(), "exists": True}
    assert made.rows["memories"] == 5
    assert verify_backup(made.path) == made
    assert made.path.stat().st_mode & 0o077 == 0
    assert sorted(os.listdir(tmp_path)) == ["b.backup", "one"]
    await restore(made.path, settings(tmp_path / "two"), open_with_fake)
    async with opened(tmp_path / "two") as memory:
        assert await snapshot(memory) == before
        assert len(await memory.jobs.list()) == jobs == 1
        assert (await memory.get(gone, user_id="bob")).status is Status.FORGOTTEN
        assert [hit.memory for hit in await memory.search("green tea", user_id="ann", limit=1)] == ["Likes green tea"]


def test_a_backup_under_load_has_all_acknowledged_writes_and_replays_later_erasures(tmp_path: Path) -> None:
    home, at_least = tmp_path / "home", 200
    acked: list[str] = []
    stop, busy, failures = threading.Event(), threading.Event(), list[BaseException]()
    with Memory(settings=settings(home), embedder=EMBEDDER) as memory:
        secret = memory.add("the canary is qvzkanari", user_id="ann").id
        key = memory.keys.create(user_id="ann", name="phone")

        def write(who: int) -> None:
            try:
                for n in range(100_000):
                    acked.append(memory.add(f"note {n} of {who}", user_id=f"u{who}").id)
                    if len(acked) >= at_least:
                        busy.set()
                    if stop.is_set():
                        return
            except BaseException as error:
                failures.append(error)
                busy.set()

        writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for writer in writers:
            writer.start()
        assert busy.wait(60)
        before = list(acked)
        steps = list[int]()

        def while_copied(done: int, total: int) -> None:
            # The copy waits here until others have written: it is their commits that must not get into it.
            goal = len(acked) + 20
            while len(acked) < goal and not failures:
                stop.wait(0.001)
            steps.append(done)

        made = memory.admin.backup(tmp_path / "hot.backup", progress=while_copied)
        stop.set()
        for writer in writers:
            writer.join()
        assert not failures
        assert steps
        memory.erasure.erase(user_id="ann", memory_id=secret)
        memory.keys.revoke(key.key.id)
    assert verify_backup(made.path) == made
    with sqlite3.connect(made.path) as copy:
        ids = {row[0] for row in copy.execute("SELECT id FROM memories")}
    copy.close()
    assert {*before, secret} <= ids
    assert len(ids) < len(acked) + 1
    assert b"qvzkanari" in made.path.read_bytes()
    done = asyncio.run(restore(made.path, settings(home), open_with_fake, force=True))
    assert (done.erased, done.revoked) == (1, 1)
    assert done.replaced is not None
    assert done.replaced.exists()
    assert b"qvzkanari" not in (home / "recollect.db").read_bytes()
    with Memory(settings=settings(home), embedder=EMBEDDER) as memory:
        assert {line["id"] for line in memory.export()} == ids - {secret}
        assert all(each.revoked_at is not None for each in list(memory.keys.list()))


async def test_any_changed_byte_is_detected(tmp_path: Path) -> None:
    async with opened(tmp_path / "one") as memory:
        await lived(memory)
        made = await memory.admin.backup(tmp_path / "b.backup")
    whole = made.path.read_bytes()
    words = whole.index(b"Likes green tea")
    for place in (words, 20, len(whole) // 2, len(whole) - 1):
        changed = bytearray(whole)
        changed[place] ^= 1
        made.path.write_bytes(changed)
        with pytest.raises(StoreCorrupt):
            verify_backup(made.path)
    made.path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreCorrupt):
        await restore(made.path, settings(tmp_path / "two"), open_with_fake)
    assert not (tmp_path / "two").exists()
    made.path.write_bytes(whole)
    assert verify_backup(made.path).digest == made.digest


async def test_another_file_is_not_restored(tmp_path: Path) -> None:
    async with opened(tmp_path / "one") as memory:
        await memory.add("Likes tea", user_id="ann")
    (tmp_path / "text").write_text("hello")
    for path in (tmp_path / "one" / "recollect.db", tmp_path / "text"):
        with pytest.raises(StoreCorrupt):
            await restore(path, settings(tmp_path / "two"), open_with_fake)
    with pytest.raises(InvalidInput):
        verify_backup(tmp_path / "nowhere")


async def test_a_backup_of_a_newer_version_is_rejected(tmp_path: Path) -> None:
    async with opened(tmp_path / "one") as memory:
        made = await memory.admin.backup(tmp_path / "b.backup")
    with sqlite3.connect(made.path) as copy:
        copy.execute("UPDATE meta SET value = '9999' WHERE name = 'schema'")
    copy.close()
    with pytest.raises(StoreTooNew):
        verify_backup(made.path)


async def test_an_existing_ledger_is_replaced_only_with_force_and_if_unused(tmp_path: Path) -> None:
    home = tmp_path / "one"
    async with opened(home) as memory:
        await memory.add("Likes tea", user_id="ann")
        made = await memory.admin.backup(tmp_path / "b.backup")
        with pytest.raises(InvalidInput, match="exists; choose"):
            await memory.admin.backup(tmp_path / "b.backup")
        with pytest.raises(Conflict, match="--force"):
            await restore(made.path, settings(home), open_with_fake)
        with pytest.raises(StoreBusy, match="stop the servers"):
            await restore(made.path, settings(home), open_with_fake, force=True)
        assert not [name for name in os.listdir(home) if ".part" in name]
        assert len(await memory.get_all(user_id="ann")) == 1


async def test_a_damaged_ledger_is_replaced_only_with_a_list_of_erasures(tmp_path: Path) -> None:
    home = tmp_path / "one"
    async with opened(home) as memory:
        canary = await memory.add("the canary is qvzkanari", user_id="ann")
        made = await memory.admin.backup(tmp_path / "b.backup")
        await memory.erasure.erase(user_id="ann", memory_id=canary.id)
        erased = await memory.erasure.list()
    (home / "recollect.db").write_bytes(b"rubbish" * 1000)
    with pytest.raises(Conflict, match="--erasures"):
        await restore(made.path, settings(home), open_with_fake, force=True)
    done = await restore(made.path, settings(home), open_with_fake, force=True, erasures=erased)
    assert done.erased == 1
    assert b"qvzkanari" not in (home / "recollect.db").read_bytes()


async def test_a_backup_of_postgres_is_consistent_and_restores_into_both_databases(tmp_path: Path) -> None:
    # A role that row-level security holds for still backs up everyone's.
    server = running_server()
    async with server.database(role=PLAIN_ROLE) as dsn, server.database(role=PLAIN_ROLE) as other:
        async with opened(tmp_path, database=dsn) as memory:
            await lived(memory)
            before = await snapshot(memory)
            made = await memory.admin.backup(tmp_path / "b.backup")
            await memory.add("said later", user_id="ann")
        assert made.engine == "postgres"
        for place in ({"database": other}, {"database": str(tmp_path / "lite.db")}):
            await restore(made.path, settings(tmp_path, **place), open_with_fake)
            async with opened(tmp_path, **place) as memory:
                assert await snapshot(memory) == before
                assert [hit.memory for hit in await memory.search("rain Lisbon moved", user_id="ann", limit=1)]
                await memory.add("goes on from there", user_id="ann")
                assert (await memory.history(user_id="ann"))[0].id > before[1][0]["id"]  # type: ignore[index]
        with pytest.raises(Conflict, match="not empty"):
            await restore(made.path, settings(tmp_path, database=other), open_with_fake)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_backup_has_every_row_of_every_table(tmp_path: Path, engine: str) -> None:
    # Not before all tests are known: it imports suites whose asserts are still to be made to tell more.
    from tests.support.rls_samples import ANN, BOB, fill

    async with AsyncExitStack() as opened_here:
        if engine == "sqlite":
            ledger = await open_sqlite(tmp_path / "one.db", MODEL)
        else:
            dsn = await opened_here.enter_async_context(running_server().database(role=PLAIN_ROLE))
            ledger = await open_postgres(dsn, MODEL)
        opened_here.push_async_callback(ledger.close)
        for scope in (ANN, BOB):
            await fill(ledger, scope)
        await ledger.add_key(new_key(user="ann").key)
        await ledger.record_access(AccessRow(1, "key:owner", "digest", "GET /recollect/v1/memories"))
        await ledger.make_current(MODEL, ModelOrigin("bundled"), replacing=None)
        made = await ledger.backup(tmp_path / "one.backup", lambda done, total: None)
        assert {name for name, count in made.rows.items() if not count} <= {"moments", "chores"}
        other = await opened_here.enter_async_context(running_server().database(role=PLAIN_ROLE))
        into = await open_postgres(other, MODEL)
        opened_here.push_async_callback(into.close)
        await into.restore_backup(made.path, lambda done, total: None)
        repeated = await into.backup(tmp_path / "two.backup", lambda done, total: None)
    assert rows_of(repeated.path) == rows_of(made.path)


def rows_of(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of a backup by table, without derived tables and counters."""
    with sqlite3.connect(path) as stored:
        names = [row[0] for row in stored.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
        names = [name for name in names if not name.startswith(("terms", "sqlite_", "meta"))]
        results = {name: sorted(stored.execute(f"SELECT * FROM {name}"), key=repr) for name in names}
    stored.close()
    # A full text that was made anew is told by the epoch.
    results["users"] = [(*row[:3], *row[4:]) for row in results["users"]]
    return results


async def test_a_backup_of_sqlite_restores_into_postgres(tmp_path: Path) -> None:
    async with opened(tmp_path / "one") as memory:
        await lived(memory)
        before = await snapshot(memory)
        made = await memory.admin.backup(tmp_path / "b.backup")
    async with running_server().database() as dsn:
        await restore(made.path, settings(tmp_path, database=dsn), open_with_fake)
        async with opened(tmp_path, database=dsn) as memory:
            assert await snapshot(memory) == before


def test_the_command_line_makes_verifies_and_restores(tmp_path: Path) -> None:
    cli, file = Cli(tmp_path / "home"), str(tmp_path / "b.backup")
    id = cli.add("Knows qvzkanari", "--user", "ann")
    cli.add("Likes tea", "--user", "ann")
    assert "memories 2" in cli("backup", "make", file).stdout
    assert "is intact" in cli("backup", "verify", file).stdout
    cli("erase", "--memory", id, "--user", "ann", "--yes")
    assert "--force" in cli.error("backup", "restore", file, code=4)
    output = cli("backup", "restore", file, "--force", "--yes").stdout
    assert "repeated later erasures: 1" in output
    assert [each["memory"] for each in cli.json("list", "--user", "ann")["results"]] == ["Likes tea"]
    Path(file).write_bytes(Path(file).read_bytes()[:-4096])
    assert "damaged" in cli.error("backup", "verify", file, code=6)
