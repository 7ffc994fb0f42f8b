"""Fuse: whatever the signals, one relevance from 0 to 1, which rises with what speaks for a candidate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays

from recollect.read.fuse import Fusion, fuse, learned_blend, parse_blend
from recollect.read.signals import FEATURE_NAMES

FUSIONS: tuple[Fusion, ...] = ("learned", "rrf", "weights")
MANY = 10**9
# What each way looks at, and how large it gets.
UNIT = ("words", "words_here", "coverage", "in_period")

# So many memories that nothing is held back.
MANY = 10**9


def table(count: int, **columns: object) -> np.ndarray:
    rows = np.zeros((count, len(FEATURE_NAMES)), np.float32)
    for name, values in columns.items():
        rows[:, FEATURE_NAMES.index(name)] = values
    return rows


@pytest.mark.parametrize("fusion", FUSIONS)
@given(numbers=arrays(np.float32, (7, len(FEATURE_NAMES)), elements=some.floats(-50, 50, width=32)))
def test_a_relevance_is_from_0_to_1(fusion: Fusion, numbers: np.ndarray) -> None:
    for name in UNIT:
        numbers[:, FEATURE_NAMES.index(name)] = np.abs(numbers[:, FEATURE_NAMES.index(name)]) / 50
    relevance = fuse(numbers, MANY, fusion)
    assert relevance.shape == (7,)
    assert relevance.dtype == np.float32
    assert ((relevance >= 0) & (relevance <= 1)).all()


@pytest.mark.parametrize("fusion", FUSIONS)
def test_nothing_to_fuse_gives_nothing(fusion: Fusion) -> None:
    assert fuse(table(0), MANY, fusion).shape == (0,)


@pytest.mark.parametrize("fusion", FUSIONS)
def test_more_of_the_words_and_a_nearer_meaning_never_count_less(fusion: Fusion) -> None:
    steps = np.linspace(0, 1, 11)
    report = table(11, meaning=steps, meaning_here=4 * steps, words=steps / 5, words_here=steps, coverage=steps)
    relevance = fuse(report, MANY, fusion)
    assert (np.diff(relevance) > 0).all()


@pytest.mark.parametrize("name", ["meaning", "coverage", "speaker_asked", "session_words", "answers_words"])
def test_the_learned_blend_rises_with_what_speaks_for_a_candidate(name: str) -> None:
    assert (np.diff(fuse(table(5, **{name: np.linspace(0, 2, 5)}), MANY)) > 0).all()


def test_the_learned_blend_is_the_logistic_of_the_weighed_signals() -> None:
    blend = parse_blend("base = -1.5\n[weights]\nmeaning = 2.0\ncoverage = 0.5", FEATURE_NAMES)
    odds = np.array([-1.5, 2 * 0.6 - 1.5, 2 * 0.6 + 0.5 - 1.5])
    report = table(3, meaning=[0, 0.6, 0.6], coverage=[0, 0, 1], words=[9, 9, 9])
    assert blend.relevance(report, MANY) == pytest.approx(1 / (1 + np.exp(-odds)))


def test_odds_beyond_all_measure_raise_no_warning() -> None:
    weights = learned_blend().weights
    worst = np.sign(weights) * 1e6
    worst[FEATURE_NAMES.index("in_period")] = 0
    assert fuse(np.array([worst, -worst], np.float32), MANY) == pytest.approx([1, 0])


def test_reciprocal_ranks_are_the_mean_over_both_ways_of_finding() -> None:
    report = table(3, meaning=[0.9, 0.5, 0.1], words=[0.1, 0.5, 0.0])
    expected = [(1 + 21 / 22) / 2, (21 / 22 + 1) / 2, (21 / 23) / 2]
    assert fuse(report, MANY, "rrf") == pytest.approx(expected)


def test_plain_weights_are_six_tenths_words_and_four_tenths_meaning() -> None:
    report = table(4, meaning_here=[4, 2, -3, 9], words_here=[0, 0.5, 1, 1])
    assert fuse(report, MANY, "weights") == pytest.approx([0.4, 0.3 + 0.2, 0.6, 1.0])


@pytest.mark.parametrize("fusion", FUSIONS)
def test_equal_signals_keep_their_order(fusion: Fusion) -> None:
    same = table(6, meaning=0.5, meaning_here=1, words=0.1, words_here=1, coverage=0.5)
    relevance = fuse(same, MANY, fusion)
    assert np.argsort(-relevance, kind="stable").tolist() == list(range(6))
    assert fusion == "rrf" or len(set(relevance.tolist())) == 1


@pytest.mark.parametrize("fusion", FUSIONS)
def test_what_happened_at_the_time_that_is_asked_about_is_more_relevant(fusion: Fusion) -> None:
    same = {"meaning": 0.5, "meaning_here": 1, "words": 0.1, "words_here": 1, "coverage": 0.5}
    before, then = fuse(table(1, **same), MANY, fusion)[0], fuse(table(1, **same, in_period=1), MANY, fusion)[0]
    half = fuse(table(1, **same, in_period=0.5), MANY, fusion)[0]
    assert before < half < then < 1 or before == then == 1
    assert fuse(table(1, in_period=1), MANY, "rrf")[0] == 0


def test_among_few_memories_noise_is_less_surely_noise() -> None:
    report = table(2, meaning=[3, -3], coverage=[1, 0], words_here=[1, 0])
    worse = [float(fuse(report, count)[1]) for count in (0, 1, 5, 50, 5000)]
    assert worse == sorted(worse, reverse=True)
    assert all(fuse(report, count)[0] > fuse(report, count)[1] for count in (1, 5, 50, 5000))
