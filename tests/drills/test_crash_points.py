"""Kill a process at every statement and file call of a write, and at every statement of a migration."""

from __future__ import annotations

import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import apsw
import pytest

from recollect.errors import StoreTooNew
from recollect.ledger.sql import migrate
from recollect.ledger.sql.tx import ALL_TENANTS, Tx
from tests.drills.children import die_while_opening, die_while_taking, later_migrations, start
from tests.drills.findings import examine
from tests.drills.notes import Notes, Step, WriterReport, read_notes
from tests.drills.sizes import Sizes
from tests.drills.stores import open_store
from tests.drills.writers import Writer
from tests.support.postgres_server import running_server

_COUNTS = ("memories", "turns", "superseded", "forgotten", "review")
VERBS = ("add", "batch", "update", "supersede", "forget", "say")
USER = "user"


def _was_killed(child: BaseProcess) -> bool:
    """Wait for the end of a child; return whether it was killed as planned."""
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


async def _landed(store: str, writer: Writer, acked: list[Step], step: Step) -> bool:
    """Reopen the ledger and assert that the step happened completely or not at all; return whether it happened."""
    ledger = await open_store(store)
    findings = await examine(ledger, {writer.name: WriterReport(USER, acked, step)})
    assert findings.wrong + await ledger.check() == []
    await ledger.close()
    return findings.landed_unasked == 1


async def _die_at_every(kind: str, store: str, *, stride: int, seed: int, notes: Path) -> tuple[int, int]:
    """Kill writes of every kind before each point; return the number of kills, and of writes that happened."""
    writer = Writer(1, user=USER, seed=seed)
    ledger = await open_store(store)
    for verb in ("add", "batch", "say"):
        await writer.insist(ledger, Notes(notes), writer.next_step(verb), pytest.fail)
    await ledger.close()
    acked = read_notes(notes)[writer.name].acked
    kills = landings = 0
    for verb in VERBS:
        step, point, killed = writer.next_step(verb), random.Random(seed).randint(1, stride), True
        while killed:
            killed = _was_killed(start(die_while_taking, store, step, point, kind))
            if await _landed(store, writer, acked, step):
                acked.append(step)
                writer.state = writer.state.after(step)
                step = writer.next_step(verb)
                landings += killed
            else:
                assert killed, "a write was acknowledged and is not there"
            point, kills = point + stride, kills + killed
    assert kills > len(VERBS)
    return kills, landings


def _stride(store: str, sizes: Sizes) -> int:
    """Return the stride between killed statements; it is larger on PostgreSQL, where processes start slowly."""
    return sizes.crash_stride if store.startswith("postgresql") else max(1, sizes.crash_stride // 2)


async def test_a_write_killed_before_any_statement_never_happened(
    store: str, sizes: Sizes, seed: int, tmp_path: Path, say: Callable[[str], None]
) -> None:
    stride = _stride(store, sizes)
    kills, landings = await _die_at_every("statement", store, stride=stride, seed=seed, notes=tmp_path / "notes")
    assert not landings, "it was there before it was committed"
    say(f"{kills} kills")


async def test_a_write_killed_before_any_file_call_happened_whole_or_not_at_all(
    sizes: Sizes, seed: int, tmp_path: Path, say: Callable[[str], None]
) -> None:
    store, stride = str(tmp_path / "recollect.db"), sizes.crash_stride
    kills, landings = await _die_at_every("file call", store, stride=stride, seed=seed, notes=tmp_path / "notes")
    say(f"{kills} kills, {landings} writes landed unanswered")


def _remove(store: str) -> None:
    for tail in ("", "-wal", "-shm", "-journal"):
        Path(store + tail).unlink(missing_ok=True)


@asynccontextmanager
async def _fresh(store: str) -> AsyncIterator[str]:
    """Yield the address of another empty ledger of the same kind."""
    if store.startswith("postgresql"):
        async with running_server().database() as address:
            yield address
    else:
        yield store
        _remove(store)


async def test_a_first_opening_killed_at_any_statement_is_made_good_by_the_next(
    store: str, sizes: Sizes, seed: int, tmp_path: Path, say: Callable[[str], None]
) -> None:
    stride = sizes.opening_stride
    point = random.Random(seed).randint(1, stride)
    killed, kills = True, 0
    while killed:
        async with _fresh(store) as address:
            killed = _was_killed(start(die_while_opening, address, point, False))
            ledger = await open_store(address)
            notes = tmp_path / f"notes-{point}"
            await Writer(point, user=USER, seed=seed).go_on(ledger, Notes(notes), steps=1)
            findings = await examine(ledger, read_notes(notes))
            assert findings.wrong + await ledger.check() == []
            await ledger.close()
        point, kills = point + stride, kills + killed
    assert kills > 30 / stride
    say(f"{kills} kills, one before each statement" if stride == 1 else f"{kills} kills")


async def _schema_at(store: str) -> int:
    """Return the number of the last finished migration."""
    sql = "SELECT value FROM meta WHERE name = 'schema'"
    if store.startswith("postgresql"):
        database = store.partition("@/")[2].partition("?")[0]
        return int((await running_server().run(sql, database=database))[0][0])
    connection = apsw.Connection(store)
    try:
        return int(connection.execute(sql).get)
    finally:
        connection.close()


async def test_a_migration_of_a_full_ledger_killed_at_any_statement_starts_again(
    store: str, sizes: Sizes, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, say: Callable[[str], None]
) -> None:
    notes = Notes(tmp_path / "notes")
    ledger = await open_store(store)
    await Writer(1, user=USER, seed=seed).go_on(ledger, notes, steps=30)
    await ledger.close()
    first = await _schema_at(store)

    stride = _stride(store, sizes)
    schema, point, kills = first, 1, 0
    while _was_killed(start(die_while_opening, store, point, True)):
        kills += 1
        after = await _schema_at(store)
        assert schema <= after <= min(schema + stride, first + 2)
        # A finished migration is not repeated: start at the first statement of the next one.
        schema, point = after, point + stride if after == schema else 1
    assert await _schema_at(store) == first + 2

    with pytest.raises(StoreTooNew):
        await open_store(store)
    monkeypatch.setattr(migrate, "migrations", later_migrations)
    ledger = await open_store(store)
    findings = await examine(ledger, read_notes(tmp_path / "notes"))
    assert findings.wrong + await ledger.check() == []

    async def moved(tx: Tx) -> int:
        return int((await tx.rows("SELECT count(*) FROM extras", {}))[0][0])

    counts = await ledger.stats(USER)
    assert await ledger.engine.read(moved, tenant=ALL_TENANTS) == sum(counts[name] for name in _COUNTS)
    await ledger.close()
    say(f"two migrations, {kills} kills before statements of opening")
