"""Pruning forgets old, unused and unimportant memories."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from recollect.ledger.ledger import Ledger
from recollect.maintenance.forgetting import prune, retention_score
from recollect.model.memory import Category
from tests.support.maintenance_samples import (
    ANN,
    NOW,
    contents,
    days,
    keep,
    ledger_in,
    memory,
    reported_contents,
    run,
    snapshot,
    undo,
)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    async with ledger_in(tmp_path) as ledger:
        # Somebody was here all the time.
        await keep(ledger, *(memory(f"day {n}", age_days=n, importance=1.0) for n in range(30, 130, 10)))
        yield ledger


def faint(content: str, **fields: Any) -> Any:
    return memory(content, **{"age_days": 300, "importance": 0.2, "confidence": 0.6, **fields})


async def test_old_unused_and_unimportant_memories_are_pruned(ledger: Ledger) -> None:
    await keep(
        ledger,
        faint("saw a red car"),
        faint("recalled once", access_count=1, last_accessed_at=days(200)),
        faint("young", age_days=20),
        faint("changed lately", updated_at=days(5)),
        faint("important", importance=0.9, confidence=1.0),
    )
    report = await prune(ANN, ledger=ledger, run=run())
    assert reported_contents(report) == {"saw a red car"}
    assert (report.looked_at, {step.why for step in report.steps}) == (5, {"pruned"})


@pytest.mark.parametrize("category", [Category.IDENTITY, Category.CONSTRAINT, Category.INSTRUCTION])
async def test_important_identities_constraints_and_instructions_stay(ledger: Ledger, category: Category) -> None:
    await keep(
        ledger,
        faint("matters", category=category, importance=0.5, confidence=0.1, age_days=3000),
        faint("does not", category=category, importance=0.1),
    )
    assert reported_contents(await prune(ANN, ledger=ledger, run=run())) == {"does not"}
    assert "matters" in await contents(ledger)


async def test_turns_and_summaries_are_not_pruned(ledger: Ledger) -> None:
    await keep(ledger, faint("said", category=Category.TURN), faint("summed up", category=Category.SUMMARY))
    assert not (await prune(ANN, ledger=ledger, run=run())).steps


async def test_a_dry_run_changes_nothing_and_one_undo_restores_all(ledger: Ledger) -> None:
    await keep(ledger, faint("one"), faint("two"))
    before = await snapshot(ledger)
    assert reported_contents(await prune(ANN, ledger=ledger, run=run(dry_run=True))) == {"one", "two"}
    assert await snapshot(ledger) == before
    report = await prune(ANN, ledger=ledger, run=run())
    assert reported_contents(report) == {"one", "two"}
    await undo(ledger, report)
    assert await snapshot(ledger) == before


async def test_a_restored_memory_is_not_pruned_again(ledger: Ledger) -> None:
    await keep(ledger, faint("one"))
    await undo(ledger, await prune(ANN, ledger=ledger, run=run()))
    assert not (await prune(ANN, ledger=ledger, run=run())).steps


async def test_a_run_is_limited_and_reports_that_there_is_more(ledger: Ledger) -> None:
    await keep(ledger, *(faint(f"faint {n}", age_days=400 - n) for n in range(5)))
    report = await prune(ANN, ledger=ledger, run=run(max_changes=2))
    assert (reported_contents(report), report.more) == ({"faint 0", "faint 1"}, True)


async def test_a_clock_ten_years_ahead_prunes_nothing(ledger: Ledger) -> None:
    await keep(ledger, *(faint(f"yesterday {n}", age_days=1) for n in range(9)))
    at = NOW + timedelta(days=3652)
    report = await prune(ANN, ledger=ledger, run=run(at=at))
    assert (report.steps, "clock" in report.left[0]) == ((), True)


def score_of(**fields: Any) -> float:
    return retention_score(memory("something", **fields), NOW)


def test_recency_halves_with_each_half_life() -> None:
    new, old, older = (score_of(age_days=age, importance=0.0) for age in (0, 90, 180))
    assert new == pytest.approx(0.3)
    assert old == pytest.approx(new / 2)
    assert older == pytest.approx(old / 2)


def test_the_score_rises_with_importance_confidence_and_use() -> None:
    plain = score_of(importance=0.4, confidence=0.5)
    assert score_of(importance=0.5, confidence=0.5) > plain
    assert score_of(importance=0.4, confidence=0.6) > plain
    assert score_of(importance=0.4, confidence=0.5, access_count=1) > plain


def test_a_recall_or_a_change_renews_recency() -> None:
    old = score_of(age_days=400)
    assert score_of(age_days=400, last_accessed_at=days(1)) > old
    assert score_of(age_days=400, updated_at=days(1)) > old


@pytest.mark.parametrize("age", [-10_000, 0, 1, 1e5])
@pytest.mark.parametrize("count", [0, 1, 2**31])
def test_the_score_is_between_0_and_1(age: float, count: int) -> None:
    assert 0 <= score_of(age_days=age, access_count=count, importance=1.0) <= 1 + 1e-9
