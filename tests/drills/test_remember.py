"""The write flow with kill -9: every acknowledged turn is stored, and is learned from exactly once."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from recollect.ledger.ledger import Ledger
from recollect.maintenance.worker import RetryPolicy
from recollect.model.job import JobKind, JobState
from recollect.model.memory import Category, Status
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.testing.scripted_llm import ScriptedLLM
from tests.drills.children import start
from tests.drills.learners import LOCKER, POINTS, USERS, Crash, answer, talk, work
from tests.drills.sizes import Sizes
from tests.drills.stores import open_store

# As long as it takes on a machine that is busy with much else.
RECOVERED_WITHIN_S = 600.0
_ALL = 1_000_000


@pytest.fixture
def model(llm: ScriptedLLM) -> ScriptedLLM:
    """Return a model that extracts one fact from each turn."""
    llm.default = answer
    return llm


def _acked(notes: Path) -> dict[str, str]:
    """Return the lockers by acknowledged turn."""
    lines = [line for file in notes.iterdir() for line in file.read_text().split("\n")[:-1]]
    return dict(line.split() for line in lines)  # type: ignore[misc]


@asynccontextmanager
async def _talkers(store: str, notes: Path) -> AsyncIterator[Callable[[], None]]:
    """Run a process that sends turns; yield a function that kills and replaces it."""
    await asyncio.to_thread(notes.mkdir)
    numbers = iter(range(1, 1_000_000))
    children = [start(talk, store, notes / "1", next(numbers))]

    def replace() -> None:
        child = children.pop()
        assert child.is_alive(), "the talker ended by itself"
        child.kill()
        child.join()
        number = next(numbers)
        children.append(start(talk, store, notes / f"{number}", number))

    try:
        yield replace
    finally:
        for child in children:
            child.kill()
            child.join()


async def _life(store: str, model: ScriptedLLM, notes: Path, crash: Crash, chance: random.Random) -> None:
    """Run a worker until its crash point, or kill it after a moment if it has none."""
    text = len(_acked(notes))
    child = start(work, store, model.base_url, crash)
    if crash.point:
        await asyncio.to_thread(child.join, RECOVERED_WITHIN_S)
        assert child.exitcode == -9, f"it never came to {crash.point}"
        return
    while len(_acked(notes)) < text + 3:
        assert child.is_alive(), "a worker ended by itself"
        await asyncio.sleep(0.01)
    await asyncio.sleep(chance.uniform(0.05, 0.6))
    assert child.is_alive(), "a worker ended by itself"
    child.kill()
    child.join()


def _crashes(count: int, chance: random.Random) -> list[Crash]:
    """Return crashes, half of them at named points, each at least once, and half at random moments."""
    named = [Crash(point, chance.randint(1, 40) if point == "within" else chance.randint(1, 2)) for point in POINTS]
    more = [Crash(chance.choice(POINTS), chance.randint(1, 4)) for _ in range(count // 2 - len(named))]
    crashes = [*named, *more, *(Crash() for _ in range(count - count // 2))]
    chance.shuffle(crashes)
    return crashes


async def _recovered_s(store: str, model: ScriptedLLM, *, lease_s: float | None = None) -> float:
    """Run two workers until everything is learned; return the seconds."""
    began = time.monotonic()
    leases = () if lease_s is None else (lease_s,)
    children = [start(work, store, model.base_url, Crash(), *leases) for _ in range(2)]
    ledger = await open_store(store)
    try:
        while await _left(ledger):
            assert time.monotonic() - began < RECOVERED_WITHIN_S, "it is not learned in time"
            await asyncio.sleep(0.05)
        return time.monotonic() - began
    finally:
        await ledger.close()
        for child in children:
            child.kill()
            child.join()


async def _left(ledger: Ledger) -> int:
    open_jobs = await ledger.jobs(states=[JobState.WAITING, JobState.RUNNING], limit=_ALL)
    return sum(job.kind is JobKind.EXTRACT for job in open_jobs)


async def _learned(ledger: Ledger) -> Counter[str]:
    """Count how often each locker was learned: its memories and their changes."""
    results: Counter[str] = Counter()
    for n in range(USERS):
        scope = Scope(f"user {n}")
        page = await ledger.find(scope, Listing(limit=_ALL, statuses=tuple(Status)))
        lockers = {each.id: each.content for each in page if each.category is not Category.TURN}
        output = await ledger.history(scope, limit=_ALL)
        times = Counter(entry.memory_id for entry in output if entry.memory_id in lockers)
        for id, content in lockers.items():
            results.update({LOCKER.findall(content)[0]: times[id]})
    return results


async def _logged_turns(ledger: Ledger) -> dict[str, str]:
    turns = [turn for n in range(USERS) for turn in await ledger.turns(Scope(f"user {n}", "", "s"), limit=_ALL)]
    return {turn.id: LOCKER.findall(turn.content)[0] for turn in turns if turn.role == "user"}


async def _check(store: str, notes: Path) -> str:
    """Assert that everything was learned once; return a summary."""
    ledger = await open_store(store)
    acked, text, learned = _acked(notes), await _logged_turns(ledger), await _learned(ledger)
    assert acked.items() <= text.items(), "a turn was acknowledged and is not there"
    assert set(text.values()) <= set(learned), "nothing was learned from a turn"
    assert set(learned) <= set(text.values()), "something was learned that nobody said"
    assert {locker: times for locker, times in learned.items() if times > 1} == {}, "something was learned twice"
    jobs = [job for job in await ledger.jobs(limit=_ALL) if job.kind is JobKind.EXTRACT]
    assert {job.state for job in jobs} == {JobState.DONE}
    assert await ledger.check() == []
    await ledger.close()
    taken_over = sum(job.tries > 1 for job in jobs)
    return f"{len(acked):,} turns, {len(jobs):,} jobs, {taken_over} of them taken over"


async def test_every_turn_is_learned_from_exactly_once_wherever_workers_and_writers_die(
    store: str, sizes: Sizes, seed: int, model: ScriptedLLM, tmp_path: Path, say: Callable[[str], None]
) -> None:
    await (await open_store(store)).close()
    chance, notes = random.Random(seed), tmp_path / "notes"
    crashes = _crashes(sizes.kills // 2, chance)
    async with _talkers(store, notes) as replace_talker:
        for number, crash in enumerate(crashes):
            await _life(store, model, notes, crash, chance)
            if number % 4 == 3:
                replace_talker()
    took_s = await _recovered_s(store, model)
    report = await _check(store, notes)
    say(f"{len(crashes)} workers killed, {report}; all learned {took_s:.1f} s after the last start")


@pytest.mark.drill
async def test_what_a_killed_worker_left_is_learned_within_a_minute_with_the_patience_of_every_day(
    tmp_path: Path, model: ScriptedLLM, say: Callable[[str], None]
) -> None:
    store, notes = str(tmp_path / "recollect.db"), tmp_path / "notes"
    await (await open_store(store)).close()
    lease_s = RetryPolicy().lease_s
    async with _talkers(store, notes):
        child = start(work, store, model.base_url, Crash("answered", 2), lease_s)
        await asyncio.to_thread(child.join, RECOVERED_WITHIN_S)
        assert child.exitcode == -9
    took_s = await _recovered_s(store, model, lease_s=lease_s)
    say(f"{await _check(store, notes)}; all learned {took_s:.1f} s after the start, with leases of {lease_s:.0f} s")


async def test_the_drill_catches_a_worker_that_writes_what_it_learned_before_the_end_of_its_job(
    tmp_path: Path, model: ScriptedLLM, seed: int
) -> None:
    store, notes, chance = str(tmp_path / "recollect.db"), tmp_path / "notes", random.Random(seed)
    await (await open_store(store)).close()
    async with _talkers(store, notes):
        for times in (1, 2, 1):
            await _life(store, model, notes, Crash("between", times), chance)
    await _recovered_s(store, model)
    with pytest.raises(AssertionError, match="learned twice"):
        await _check(store, notes)
