"""Rank and select: the score is the formula, the threshold is on relevance, and hits say different things."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect import Memory
from recollect.config.settings import Settings
from recollect.errors import InvalidInput
from recollect.model.memory import Category
from recollect.read.rank import RankingWeights, SearchCandidate, rank
from recollect.read.select import SelectionConfig, filter_relevant, select
from recollect.testing.fake_embedder import FakeEmbedder
from tests.support.ledger_samples import memory

NOW = datetime(2026, 3, 15, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def candidate(
    relevance: float, content: str = "", *, age_days: float = 0, score: float = 0, **fields: Any
) -> SearchCandidate:
    record = memory(content or f"says {relevance}", created_at=NOW - age_days * DAY, **fields)
    return SearchCandidate(0, 0, record, relevance, score or relevance)


def ranked(*candidates: SearchCandidate, **weights: float) -> list[SearchCandidate]:
    return rank(candidates, RankingWeights(**weights), now=NOW)


def vectors(*rows: list[float]) -> np.ndarray:
    results = np.array(rows, np.float32)
    return results / np.maximum(np.linalg.norm(results, axis=1, keepdims=True), 1e-9)


def apart(count: int) -> np.ndarray:
    return np.eye(count, dtype=np.float32)


@pytest.mark.parametrize("age_days", [0, 0.5, 1, 29, 30, 365, 3650])
@pytest.mark.parametrize("weight", [0.0, 0.2, 0.5, 1.0])
def test_the_score_is_relevance_blended_with_exponential_recency(age_days: float, weight: float) -> None:
    [each] = ranked(candidate(0.8, age_days=age_days), recency=weight)
    assert each.parts["recency"] == pytest.approx(math.exp(-age_days / 30.0))
    assert each.score == pytest.approx((1 - weight) * 0.8 + weight * math.exp(-age_days / 30.0))


def test_a_fifth_of_the_score_is_for_being_recent_by_default() -> None:
    [each] = ranked(candidate(0.5, age_days=30))
    assert each.score == pytest.approx(0.8 * 0.5 + 0.2 * math.exp(-1))


def test_the_age_goes_by_when_it_was_stated_not_by_when_it_happens() -> None:
    for occurred_at in (NOW - 365 * DAY, NOW + 365 * DAY):
        [each] = ranked(candidate(0.5, age_days=60, occurred_at=occurred_at))
        assert each.parts["recency"] == pytest.approx(math.exp(-2))


def test_importance_and_familiarity_count_as_much_as_they_are_given() -> None:
    often, never = ranked(
        candidate(0.5, "often", importance=1.0, access_count=100, age_days=9999),
        candidate(0.5, "never", importance=0.0, access_count=0, age_days=9999),
        recency=0.1, importance=0.3, access=0.2,
    )  # fmt: skip
    assert often.score == pytest.approx(0.4 * 0.5 + 0.3 + 0.2)
    assert never.score == pytest.approx(0.4 * 0.5)
    assert (
        ranked(candidate(1, importance=1.0, access_count=10**9), recency=0.2, importance=0.3, access=0.5)[0].score
        <= 1
    )


def test_weights_of_more_than_all_are_refused() -> None:
    with pytest.raises(InvalidInput, match="more than 1"):
        RankingWeights(recency=0.5, importance=0.4, access=0.2)


def test_ranking_is_best_first_and_keeps_the_order_of_equals() -> None:
    same = [candidate(0.5, f"n {number}") for number in range(5)]
    order = ranked(*same, candidate(0.9, "best"))
    assert [each.record.content for each in order] == ["best", *(f"n {number}" for number in range(5))]


def test_the_threshold_is_on_relevance_so_that_being_recent_lifts_no_noise_over_it() -> None:
    noise, old = candidate(0.34, "noise"), candidate(0.36, "old", age_days=3650)
    stored = filter_relevant(ranked(noise, old), 0.35)
    assert noise.score > old.score
    assert stored == [old]
    assert noise.decision == "relevance 0.34 is below 0.35"
    assert filter_relevant([candidate(0.35)], 0.35)


@pytest.mark.parametrize("diversity", [0.0, 0.3, 0.7, 0.9])
def test_variety_is_chosen_by_marginal_relevance(diversity: float) -> None:
    rng = np.random.default_rng(3)
    totals = np.sort(rng.random(12))[::-1]
    near = vectors(*rng.normal(size=(12, 4)).tolist())
    candidates = [candidate(float(total), f"n {at}") for at, total in enumerate(totals)]
    stored = select(candidates, near, SelectionConfig(limit=6, diversity=diversity))
    expected = [0]
    while len(expected) < 6:
        score = {
            at: diversity * totals[at] - (1 - diversity) * max(float(near[at] @ near[taken]) for taken in expected)
            for at in range(12)
            if at not in expected
        }
        expected.append(max(score, key=score.__getitem__))
    assert [each.record.content for each in stored] == [f"n {at}" for at in expected]


def test_the_best_is_chosen_first_and_its_double_only_after_something_else() -> None:
    candidates = [candidate(0.9, "best"), candidate(0.85, "double"), candidate(0.6, "other")]
    near = vectors([1, 0], [1, 0.01], [0, 1])
    by_default = select(candidates, near, SelectionConfig(limit=3))
    assert [each.record.content for each in by_default] == ["best", "other", "double"]
    plain = select(candidates, near, SelectionConfig(limit=3, diversity=1))
    assert [each.record.content for each in plain] == ["best", "double", "other"]


def test_what_has_no_vector_is_redundant_with_nothing() -> None:
    candidates = [candidate(0.9, "best"), candidate(0.8, "double"), candidate(0.7, "bare")]
    stored = select(candidates, vectors([1, 0], [1, 0], [0, 0]), SelectionConfig(limit=2))
    assert [each.record.content for each in stored] == ["best", "bare"]


def test_no_more_are_kept_than_asked_for_and_the_rest_are_told() -> None:
    candidates = [candidate(1 - at / 10, f"n {at}") for at in range(5)]
    stored = select(candidates, apart(5), SelectionConfig(limit=2, diversity=1))
    assert stored == candidates[:2]
    assert [each.decision for each in candidates] == ["", "", *["the limit of 2 was reached"] * 3]


def test_nothing_to_choose_from_gives_nothing() -> None:
    assert select([], np.empty((0, 4), np.float32), SelectionConfig(limit=5)) == []


def test_a_steep_fall_of_relevance_ends_the_hits_where_that_is_wanted() -> None:
    numbers = (0.9, 0.8, 0.5, 0.2, 0.19)
    candidates = [candidate(number) for number in numbers]
    stored = select(candidates, apart(5), SelectionConfig(limit=5, diversity=1, elbow=True))
    assert [each.relevance for each in stored] == [0.9, 0.8, 0.5]
    assert [each.decision for each in candidates[3:]] == ["the relevance falls steeply before it"] * 2
    assert (
        len(select([candidate(number) for number in numbers], apart(5), SelectionConfig(limit=5, diversity=1))) == 5
    )


def test_the_same_words_are_given_once() -> None:
    candidates = [candidate(0.9, "Likes  green tea"), candidate(0.8, "likes green TEA"), candidate(0.7, "likes tea")]
    stored = select(candidates, apart(3), SelectionConfig(limit=3, diversity=1))
    assert [each.relevance for each in stored] == [0.9, 0.7]
    assert candidates[1].decision == "duplicate of another hit"


def test_at_most_two_hits_stem_from_one_turn() -> None:
    turn = candidate(0.9, "the turn itself", id="t1", category=Category.TURN)
    facts = [candidate(0.8 - at / 10, f"fact {at}", evidence=("t1",)) for at in range(4)]
    other = candidate(0.1, "another", evidence=("t2",))
    without = [candidate(0.05, f"without evidence {at}") for at in range(4)]
    candidates = [turn, *facts, other, *without]
    stored = select(candidates, apart(10), SelectionConfig(limit=10, diversity=1))
    assert stored == [turn, facts[0], other, *without]
    assert facts[1].decision == "there are already 2 hits from the same turn"
    only = select([turn, *facts], apart(5), SelectionConfig(limit=10, diversity=1, per_source=1))
    assert only == [turn]


def test_a_fact_of_several_turns_counts_for_each_of_them() -> None:
    turn = candidate(0.9, "the turn itself", id="t1", category=Category.TURN)
    facts = [candidate(0.8 - at / 10, f"fact {at}", evidence=(f"other {at}", "t1")) for at in range(3)]
    assert select([turn, *facts], apart(4), SelectionConfig(limit=10, diversity=1)) == [turn, facts[0]]


@pytest.fixture
def door(tmp_path: Path) -> Any:
    # Without a worker: what it learns meanwhile would be found too.
    settings = Settings(home=tmp_path, search_min_score=0.0, worker=False)
    with Memory(settings=settings, embedder=FakeEmbedder(64)) as opened:
        yield opened


def test_a_turn_gives_at_most_two_hits_of_a_search(door: Memory) -> None:
    [turn] = door.remember("green tea in the garden", user_id="a", session_id="s")
    for number in range(5):
        door.add(f"green tea in the garden, reading {number}", user_id="a", evidence=[turn.id])
    door.add("black coffee", user_id="a")
    match = [hit.memory for hit in door.search("green tea in the garden", user_id="a", session_id="s")]
    assert sum("green tea" in text for text in match) == 2
    assert "black coffee" in match


def test_a_value_that_was_superseded_is_not_found(door: Memory) -> None:
    for city in ("Oslo", "Rome", "Bern"):
        door.add(f"Lives in {city}", user_id="a", key="city", value=city)
    assert [hit.memory for hit in door.search("Where do I live? Oslo?", user_id="a")] == ["Lives in Bern"]


def test_a_threshold_is_kept_by_what_was_just_said(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, recency_weight=0.9, recency_adds=True, search_min_score=0.0)
    with Memory(settings=settings, embedder=FakeEmbedder(64)) as memory:
        memory.add("The weather is grey over the harbour", user_id="a")
        [hit] = memory.search("Which allergies do I have?", user_id="a")
        assert hit.score > 0.8
        assert hit.scores["relevance"] < 0.5
        assert len(memory.search("Which allergies do I have?", user_id="a", min_score=0.5)) == 0
