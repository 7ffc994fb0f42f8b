"""kill -9 at any moment: acknowledged writes are complete; others are complete or absent."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.drills.children import start, write_for_ever
from tests.drills.findings import Findings, examine
from tests.drills.notes import Notes, read_notes
from tests.drills.sizes import Sizes
from tests.drills.stores import open_store
from tests.drills.writers import Writer
from tests.support.postgres_server import running_server

WRITERS = 6


def _has_started(notes: Path) -> bool:
    return notes.exists() and b"acked" in notes.read_bytes()


async def _life(
    store: str, notes: Path, number: int, *, seed: int, longest_s: float, too_soon: bool = False
) -> Findings:
    """Run two processes that write, kill each at a random moment, and examine the ledger."""
    chance = random.Random(f"{seed} {number}")
    first = 2 + number * 2 * WRITERS
    children = [
        start(write_for_ever, store, notes, range(at, at + WRITERS), seed, too_soon)
        for at in (first, first + WRITERS)
    ]
    while not _has_started(notes):
        assert all(child.is_alive() for child in children), "a writer ended by itself"
        await asyncio.sleep(0.002)
    for child in children:
        await asyncio.sleep(chance.uniform(0, longest_s))
        assert child.is_alive(), "a writer ended by itself"
        child.kill()
        child.join()
    ledger = await open_store(store)
    try:
        findings = await examine(ledger, read_notes(notes))
        findings.wrong += await ledger.check()
    finally:
        await ledger.close()
    return findings


async def test_nothing_acknowledged_is_lost_to_kill_9(
    store: str, sizes: Sizes, seed: int, tmp_path: Path, say: Callable[[str], None]
) -> None:
    acked = landed = life = 0
    while acked < sizes.killed_writes or 2 * life < sizes.kills:
        results = await _life(store, tmp_path / f"notes-{life}", life, seed=seed, longest_s=sizes.longest_life_s)
        assert results.wrong == []
        acked, landed, life = acked + results.acked, landed + results.landed_unasked, life + 1
    ledger = await open_store(store)
    for number in range(life):
        assert (await examine(ledger, read_notes(tmp_path / f"notes-{number}"))).wrong == []
    await ledger.close()
    say(f"{2 * life} kills, {acked:,} acknowledged writes, none lost; {landed} landed unanswered")


async def test_the_kill_drill_catches_a_writer_that_answers_before_it_commits(seed: int, tmp_path: Path) -> None:
    lost = 0
    for life in range(30):
        store, notes = str(tmp_path / "broken.db"), tmp_path / f"notes-{life}"
        results = await _life(store, notes, life, seed=seed, longest_s=0.3, too_soon=True)
        lost += results.lost
        if lost:
            break
    assert lost


async def test_nothing_acknowledged_is_lost_when_the_postgres_server_is_killed(
    sizes: Sizes, seed: int, tmp_path: Path, say: Callable[[str], None]
) -> None:
    chance, errors = random.Random(seed), Counter[str]()
    server = running_server()
    async with server.database() as store:
        ledger = await open_store(store)
        notes, ended = Notes(tmp_path / "notes"), asyncio.Event()

        async def write(writer: Writer) -> None:
            while not ended.is_set():
                step = writer.next_step()
                await writer.insist(ledger, notes, step, lambda error: errors.update([type(error).__name__]))

        writers = [Writer(n, user=f"user-{n // 2}", seed=seed) for n in range(2, 2 + WRITERS)]
        at_work = asyncio.gather(*map(write, writers))
        for _ in range(sizes.server_kills):
            await asyncio.sleep(chance.uniform(0.2, 1.0))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        await asyncio.sleep(0.2)
        ended.set()
        await at_work
        findings = await examine(ledger, read_notes(tmp_path / "notes"))
        assert findings.wrong + await ledger.check() == []
        await ledger.close()
    say(f"{sizes.server_kills} kills, {findings.acked:,} acknowledged writes, none lost; errors: {dict(errors)}")
