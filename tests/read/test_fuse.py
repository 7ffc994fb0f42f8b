"""Fuse: whatever the signals, one relevance from 0 to 1, which rises with what speaks for a candidate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays

from recollect import Memory
from recollect.model.result import SearchResult
from recollect.read.explain import break_down_score, explain
from recollect.read.features import FEATURE_NAMES
from recollect.read.fuse import Fusion, fuse, learned_blend, parse_blend

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
    weights = learned_blend(has_late=False).weights
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


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory("memory:") as memory:
        yield memory


def search(memory: Memory, query: str, **options: Any) -> SearchResult:
    return memory.search(query, user_id="alex", explain=True, trace=True, **options)


def why(results: SearchResult, memory: str) -> str:
    return next(hit.why for hit in results if hit.memory == memory)


def test_shared_words_and_nearness_are_told(memory: Memory) -> None:
    memory.add("Likes green tea", user_id="alex")
    report = why(search(memory, "green tea"), "Likes green tea")
    assert report.startswith("shares green, tea (words 0.")
    assert "near in meaning (0." in report


def test_an_answer_to_a_question_that_matches_says_so(memory: Memory) -> None:
    messages = [
        {"role": "assistant", "content": "What is the name of the hotel in Maui?"},
        {"role": "user", "content": "Plumeria"},
    ]
    memory.remember(messages, user_id="alex", session_id="s")
    hits = search(memory, "What is the name of the hotel in Maui?")
    assert why(hits, "Plumeria").endswith("it answers a question that matches")


def test_the_turn_before_counts_where_it_is_no_question(memory: Memory) -> None:
    messages = [
        {"role": "user", "content": "We talked about the hotel in Maui."},
        {"role": "user", "content": "Plumeria, I think"},
    ]
    memory.remember(messages, user_id="alex", session_id="s")
    assert "the turn before it matches" in why(search(memory, "hotel in Maui"), "Plumeria, I think")


def test_the_one_asked_about_is_told(memory: Memory) -> None:
    messages = [
        {"role": "user", "name": "Caroline", "content": "I adopted a dog"},
        {"role": "user", "name": "Melanie", "content": "I adopted a cat"},
    ]
    memory.remember(messages, user_id="alex", session_id="s")
    hits = search(memory, "What did Caroline adopt?")
    assert "said by the one asked about" in why(hits, "I adopted a dog")
    assert "said by the one asked about" not in why(hits, "I adopted a cat")


def test_the_time_asked_about_is_told(memory: Memory) -> None:
    memory.add("Ran the marathon", user_id="alex", occurred_at="2026-03-10")
    hits = search(memory, "What did I run last March?", at="2026-06-01")
    assert "from the time asked about" in why(hits, "Ran the marathon")


@pytest.mark.parametrize(
    ("scores", "signals", "told"),
    [
        ({"dense": 0.5, "newest": 1.0}, {}, "near in meaning (0.50); newer than what it replaces"),
        ({"dense": 0.8, "rerank": 0.93}, {}, "very near in meaning (0.80); 0.93 at a second look"),
        ({"dense": 0.1}, {"after_words": 0.9}, "distant in meaning (0.10); the turn after it matches"),
        ({}, {"answers_words": 0.9, "before_words": 0.9}, "it answers a question that matches"),
        ({"dense": 0.1}, {"time_asked": 1.0}, "distant in meaning (0.10); it tells when, as asked"),
        ({}, {}, "no closer than anything else"),
    ],
)  # fmt: skip
def test_what_else_speaks_for_it_is_told(scores: dict[str, float], signals: dict[str, float], told: str) -> None:
    assert explain("zzz", "qqq", scores=scores, features=signals) == told


def test_at_most_three_circumstances_are_told() -> None:
    signals = dict.fromkeys(FEATURE_NAMES, 3.0) | {"q_late": 0.0}
    assert explain("zzz", "qqq", scores={"newest": 1.0}, features=signals).count(";") == 2


def test_the_account_adds_up_to_the_relevance(memory: Memory) -> None:
    memory.add("Likes green tea", user_id="alex")
    memory.add("Works in Lisbon", user_id="alex")
    for candidate in search(memory, "Which tea do I like?").candidates:
        account = break_down_score(candidate.signals)
        assert 1 / (1 + math.exp(-account.odds)) == pytest.approx(candidate.relevance, abs=1e-4)


def test_the_strongest_are_the_candidates_own_for_and_against() -> None:
    weights = dict(zip(FEATURE_NAMES, map(float, learned_blend(has_late=False).weights), strict=True))
    account = break_down_score({"meaning": 2.0, "assistant": 1.0, "q_terms": 5.0})
    report = account.strongest(5)
    assert {each.feature for each in report} == {"meaning", "assistant"}
    assert [abs(each.odds) for each in report] == sorted((abs(each.odds) for each in report), reverse=True)
    assert account.question == pytest.approx(5 * weights["q_terms"])
    assert account.strongest(1) == report[:1]
