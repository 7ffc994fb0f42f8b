"""What recall leaves behind: counts of what was used, and a trace of every candidate."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from recollect import Memory
from recollect.model.scope import Scope
from recollect.read.access_counter import AccessCounter
from recollect.read.features import FEATURE_NAMES
from tests.support.recall_samples import TEA, opened


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with opened(tmp_path) as memory:
        yield memory


def accesses(memory: Memory, id: str) -> int:
    return memory.get(id, user_id="a").access_count


def test_what_was_used_is_counted_behind_and_survives_closing(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        used = memory.add("I buy my green tea at the harbour", user_id="a").id
        other = memory.add("The weather is grey over the hills", user_id="a").id
        memory.recall(TEA, user_id="a", limit=1)
        assert accesses(memory, used) == 0
    with opened(tmp_path) as memory:
        record = memory.get(used, user_id="a")
        assert record.access_count == 1
        assert record.last_accessed_at is not None
        assert (record.version, record.updated_at) == (1, record.created_at)
        assert accesses(memory, other) == 0


def test_what_did_not_fit_into_the_context_is_not_counted(tmp_path: Path) -> None:
    with opened(tmp_path, context_tokens=256) as memory:
        ids = [memory.add(f"green tea {'leaf ' * 120} {n}", user_id="a").id for n in range(4)]
        recalled = memory.recall(TEA, user_id="a")
        assert 0 < len(recalled.context.used) < 4
    with opened(tmp_path) as memory:
        assert {id for id in ids if accesses(memory, id)} == set(recalled.context.used)


def test_a_recall_without_memories_counts_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        id = memory.add("I buy my green tea at the harbour", user_id="a").id
        memory.recall("Hi!", user_id="a")
        memory.recall(TEA, user_id="a", limit=0)
        memory.recall(TEA, user_id="b")
    with opened(tmp_path) as memory:
        assert accesses(memory, id) == 0


class SlowLedger:
    """Takes its time to count, and notes what it counted."""

    def __init__(self) -> None:
        self.counted: list[tuple[str, str]] = []
        self.started = asyncio.Event()

    async def touch(self, scope: Scope, ids: list[str], *, at: datetime) -> None:
        self.started.set()
        await asyncio.sleep(0.05)
        self.counted += [(scope.user, id) for id in ids]


async def test_closing_while_counts_are_written_loses_none() -> None:
    ledger = SlowLedger()
    counts = AccessCounter(ledger, wait_s=0)  # type: ignore[arg-type]
    counts.record(Scope("a"), ["1", "2"])
    counts.record(Scope("b"), ["3"])
    await ledger.started.wait()
    counts.record(Scope("a"), ["4"])
    await counts.close()
    assert sorted(ledger.counted) == [("a", "1"), ("a", "2"), ("a", "4"), ("b", "3")]


async def test_what_is_recalled_while_counts_are_written_is_written_too() -> None:
    ledger = SlowLedger()
    counts = AccessCounter(ledger, wait_s=0)  # type: ignore[arg-type]
    counts.record(Scope("a"), ["1"])
    await ledger.started.wait()
    counts.record(Scope("a"), ["2"])
    async with asyncio.timeout(60):
        while len(ledger.counted) < 2:  # noqa: ASYNC110 - nothing tells of the second
            await asyncio.sleep(0.01)
    assert ledger.counted == [("a", "1"), ("a", "2")]
    await counts.close()


def test_counts_noted_in_a_loop_that_ended_are_written_from_the_next() -> None:
    ledger = SlowLedger()
    counts = AccessCounter(ledger, wait_s=60)  # type: ignore[arg-type]

    async def note(*ids: str) -> None:
        counts.record(Scope("a"), ids)
        await asyncio.sleep(0)

    asyncio.run(note("1"))
    asyncio.run(note("2"))
    asyncio.run(counts.close())
    assert ledger.counted == [("a", "1"), ("a", "2")]


def test_a_trace_has_every_candidate_with_its_decision(memory: Memory) -> None:
    [turn] = memory.remember("green tea in the garden", user_id="a", session_id="s")
    for number in range(3):
        memory.add(f"green tea in the garden, reading {number}", user_id="a", evidence=[turn.id])
    memory.add("Green  TEA in the garden", user_id="a")
    memory.add("black coffee", user_id="a")
    memory.add("grey weather", user_id="a")
    hits = memory.search("green tea in the garden", user_id="a", session_id="s", limit=3, trace=True)
    decisions = [each.decision for each in hits.candidates]
    assert len(decisions) == 7
    assert decisions.count("selected") == len(hits) == 3
    assert "duplicate of another hit" in decisions
    assert "there are already 2 hits from the same turn" in decisions
    assert "the limit of 3 was reached" in decisions
    assert {each.id for each in hits.candidates if each.decision == "selected"} == {hit.id for hit in hits}
    assert all(set(each.features) == set(FEATURE_NAMES) for each in hits.candidates)
    assert all({"dense", "lexical", "recency"} <= set(each.scores) for each in hits.candidates)
    strict = memory.search("green tea in the garden", user_id="a", session_id="s", min_score=1.0, trace=True)
    assert all("is below 1" in each.decision for each in strict.candidates)


def test_without_a_trace_there_are_no_candidates(memory: Memory) -> None:
    memory.add("green tea", user_id="a")
    assert memory.search("green tea", user_id="a").candidates == ()
    assert memory.recall(TEA, user_id="a").candidates == ()
    assert len(memory.recall(TEA, user_id="a", trace=True).candidates) == 1


def test_a_trace_changes_nothing_of_what_is_found(memory: Memory) -> None:
    draw = random.Random(3)
    words = ["green", "tea", "garden", "rain", "bread", "bike", "moon", "river", "piano", "salt"]
    now = datetime.now(UTC)
    memory.import_(
        {
            "memory": f"{' '.join(draw.sample(words, 4))} {number}",
            "user_id": "a",
            "occurred_at": (now - timedelta(days=draw.random() * 400)).isoformat(),
        }
        for number in range(150)
    )
    # Until every memory has its token vectors, two searches one after the other can differ.
    memory.remember("hello", user_id="a", wait=True)
    for question in ("green tea in the garden", "a piano by the river", "moon bread", "nothing of this"):
        for ask in (memory.search, memory.recall):
            plain, report = (ask(question, user_id="a", limit=3, trace=trace) for trace in (False, True))
            assert [hit.id for hit in plain] == [hit.id for hit in report], (question, ask)


def test_the_first_hits_do_not_depend_on_the_limit(memory: Memory) -> None:
    for number in range(30):
        memory.add(f"green tea number {number}", user_id="a")
    # Until every memory has its token vectors, two searches one after the other can differ.
    memory.remember("hello", user_id="a", wait=True)
    best = [hit.id for hit in memory.search("green tea number 7", user_id="a", limit=5)]
    assert [hit.id for hit in memory.search("green tea number 7", user_id="a", limit=25)][:5] == best
