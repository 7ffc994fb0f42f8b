"""Decay: how much a memory stands for falls with time, rises with use, and is never written down."""

from __future__ import annotations

from typing import Any

import pytest
from upkeep_samples import NOW, days, memory

from recollect.errors import InvalidInput
from recollect.upkeep.decay import Decay, retention_score


def retention_score(**fields: Any) -> float:
    return retention_score(memory("something", **fields), NOW, decay=Decay())


def test_it_falls_with_age_and_halves_what_is_left_of_being_recent() -> None:
    new, old, older = (retention_score(age_days=age, importance=0.0) for age in (0, 90, 180))
    assert new == pytest.approx(0.3)
    assert old == pytest.approx(new / 2)
    assert older == pytest.approx(old / 2)


def test_it_rises_with_importance_confidence_and_use() -> None:
    plain = retention_score(importance=0.4, confidence=0.5)
    assert retention_score(importance=0.5, confidence=0.5) > plain
    assert retention_score(importance=0.4, confidence=0.6) > plain
    assert retention_score(importance=0.4, confidence=0.5, access_count=1) > plain


def test_being_recalled_or_changed_makes_it_young_again() -> None:
    old = retention_score(age_days=400)
    assert retention_score(age_days=400, last_accessed_at=days(1)) > old
    assert retention_score(age_days=400, updated_at=days(1)) > old


@pytest.mark.parametrize("age", [-10_000, 0, 1, 1e5])
@pytest.mark.parametrize("count", [0, 1, 2**31])
def test_it_stays_between_nothing_and_one(age: float, count: int) -> None:
    assert 0 <= retention_score(age_days=age, access_count=count, importance=1.0) <= 1 + 1e-9


@pytest.mark.parametrize("wrong", [{"importance": 0.9}, {"recency": -0.3, "use": 0.8}, {"half_life_days": 0}])
def test_weights_that_do_not_add_up_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        Decay(**wrong)
