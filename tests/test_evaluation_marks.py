"""Marks of a ranking and what is made of them are what the books say."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from recollect.evaluation.metrics import auroc, bootstrap, percentile, rank_marks, spearman


def test_the_marks_of_a_ranking_are_those_of_the_books() -> None:
    marks = rank_marks(["a", "x", "b", "y"], ["a", "b", "c", "d"], k=10)
    assert marks["R@1"] == 0.25
    assert marks["R@5"] == marks["R@10"] == marks["R@20"] == 0.5
    assert (marks["hit@10"], marks["all@10"], marks["MRR"], marks["P@10"]) == (1, 0, 1, 0.5)
    ideal = sum(1 / math.log2(rank + 1) for rank in (1, 2, 3, 4))
    assert marks["NDCG@10"] == pytest.approx((1 + 1 / math.log2(4)) / ideal)


def test_what_stands_below_the_cut_does_not_count() -> None:
    marks = rank_marks(["x", "y", "z", "a"], ["a"], k=3)
    assert (marks["hit@3"], marks["all@3"], marks["NDCG@3"], marks["P@3"]) == (0, 0, 0, 0)
    assert (marks["R@5"], marks["MRR"]) == (1, 0.25)


def test_an_empty_answer_has_no_mark_at_all() -> None:
    assert set(rank_marks([], ["a"], k=10).values()) == {0.0}


def test_the_area_under_the_curve_counts_ties_half_and_nothing_found_as_lowest() -> None:
    assert auroc([0.9, 0.5], [0.5, 0.1]) == 7 / 8
    assert auroc([0.2], [float("-inf")]) == 1
    assert auroc([0.2], []) is None


def test_correlation_by_rank_shares_the_ranks_of_equals() -> None:
    left, right = np.array([1.0, 2, 2, 4]), np.array([10.0, 30, 20, 40])
    assert spearman(left, right) == pytest.approx(0.9486833)
    assert spearman(np.ones(4), right) == 0


def test_the_bootstrap_interval_covers_the_mean_as_often_as_it_says() -> None:
    draw = random.Random(1)
    covered = 0
    for _ in range(60):
        low, high = bootstrap([draw.gauss(0.3, 1) for _ in range(100)])
        covered += low <= 0.3 <= high
    assert 50 <= covered <= 60
    assert bootstrap([0.5] * 10) == (0.5, 0.5)
    assert bootstrap([1, 2, 3]) == bootstrap([1, 2, 3])


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile([1.0], 0.95) == 1
