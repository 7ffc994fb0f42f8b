"""Jobs with kill -9 and many processes: every job is done, and none has its effect twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from recollect.ledger.ledger import Ledger
from recollect.model.job import JobKind, JobState, NewJob
from recollect.model.query import Listing
from recollect.model.scope import Scope
from tests.drills import job_workers
from tests.drills.children import barrier, queue, start
from tests.drills.job_workers import do_jobs, do_some, talk_and_work
from tests.drills.sizes import Sizes
from tests.drills.stores import open_store

USERS = 40


def _acked(notes: Path) -> list[str]:
    return [line for file in notes.iterdir() for line in file.read_text().split("\n")[:-1]]


async def _learned(ledger: Ledger) -> list[str]:
    """Return the turns that were learned from, once for each time."""
    results: list[str] = []
    for user in await ledger.users():
        page = await ledger.find(Scope(user), Listing(limit=100_000))
        results += [each.content.split()[-1] for each in page if " learned from " in each.content]
    return results


async def _lives(store: str, notes: Path, *, kills: int, seed: int, apart: bool = False) -> None:
    """Run pairs of processes that send turns and run jobs, and kill each at a random moment."""
    chance = random.Random(seed)
    await asyncio.to_thread(notes.mkdir)
    children = [start(talk_and_work, store, notes, n, apart) for n in range(2)]
    for number in range(2, 2 + kills):
        # Each has acknowledged something.
        expected = len(_acked(notes)) + 5
        while len(_acked(notes)) < expected:
            assert all(child.is_alive() for child in children), "a worker ended by itself"
            await asyncio.sleep(0.01)
        await asyncio.sleep(chance.uniform(0.02, 0.3))
        child = children.pop(0)
        assert child.is_alive(), "a worker ended by itself"
        child.kill()
        child.join()
        children.append(start(talk_and_work, store, notes, number, apart))
    for child in children:
        child.kill()
        child.join()


async def test_every_turn_is_learned_from_exactly_once_through_kill_9(
    store: str, sizes: Sizes, seed: int, tmp_path: Path, say: Callable[[str], None]
) -> None:
    await (await open_store(store)).close()
    await _lives(store, tmp_path / "notes", kills=sizes.kills, seed=seed)
    ledger = await open_store(store)
    await do_jobs(ledger, until_idle_s=4 * job_workers.LEASE_S)
    acked, learned = _acked(tmp_path / "notes"), await _learned(ledger)
    assert set(acked) <= set(learned), "a turn was acknowledged and nothing was learned from it"
    assert len(learned) == len(set(learned)), "something was learned twice"
    turns = [turn.id for n in range(4) for turn in await ledger.turns(Scope(f"user {n}", "", "s"), limit=100_000)]
    assert sorted(turns) == sorted(learned)
    jobs = await ledger.jobs(limit=100_000)
    assert {job.state for job in jobs} == {JobState.DONE}
    # Cost is recorded with its job: one call for each job, one token for each turn.
    [spent] = await ledger.usage(by=["model"])
    assert (spent.calls, spent.tokens_in) == (len(jobs), len(learned))
    taken_over = sum(job.tries > 1 for job in jobs)
    await ledger.close()
    say(f"{sizes.kills + 2} kills, {len(acked):,} turns, {len(jobs):,} jobs, {taken_over} of them taken over")


async def test_the_job_drill_catches_a_worker_that_finishes_its_job_in_a_second_write(
    seed: int, tmp_path: Path
) -> None:
    store = str(tmp_path / "recollect.db")
    await (await open_store(store)).close()
    twice = 0
    for life in range(30):
        await _lives(store, tmp_path / f"notes-{life}", kills=4, seed=seed + life, apart=True)
        ledger = await open_store(store)
        await do_jobs(ledger, until_idle_s=4 * job_workers.LEASE_S)
        learned = await _learned(ledger)
        await ledger.close()
        twice = len(learned) - len(set(learned))
        if twice:
            break
    assert twice


async def test_many_processes_do_every_job_exactly_once(store: str, sizes: Sizes, say: Callable[[str], None]) -> None:
    ledger = await open_store(store)
    for n in range(USERS):
        new = [NewJob(kind=JobKind.EXTRACT, key=f"{m}") for m in range(sizes.jobs_of_each_user)]
        await ledger.enqueue(Scope(f"user {n}", "", "s"), new)
    meet, answers = barrier(sizes.processes), queue()
    children = [start(do_some, store, meet, answers) for _ in range(sizes.processes)]
    for child in children:
        await asyncio.to_thread(child.join)
    assert [child.exitcode for child in children] == [0] * sizes.processes
    done = [answers.get() for _ in range(sizes.processes)]
    jobs = await ledger.jobs(limit=10_000)
    [spent] = await ledger.usage(by=["model"])
    assert sum(done) == spent.calls == len(jobs) == USERS * sizes.jobs_of_each_user
    assert {job.state for job in jobs} == {JobState.DONE}
    took_over = sum(job.tries > 1 for job in jobs)
    began, ended = min(job.created_at for job in jobs), max(job.updated_at for job in jobs)
    await ledger.close()
    say(f"{len(jobs):,} jobs by {done}, {took_over} taken over, {(ended - began).total_seconds():.1f} s")
