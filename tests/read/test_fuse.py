"""Fusion returns a relevance from 0 to 1 that rises with the evidence for a candidate, and can be explained."""

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
# Features from 0 to 1 that the fusions use.
UNIT = ("lexical", "lexical_relative", "coverage", "in_period")

# With so many memories, relevance is not adjusted for their number.
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
def test_no_candidates_give_an_empty_array(fusion: Fusion) -> None:
    assert fuse(table(0), MANY, fusion).shape == (0,)


@pytest.mark.parametrize("fusion", FUSIONS)
def test_relevance_rises_with_shared_words_and_similarity(fusion: Fusion) -> None:
    steps = np.linspace(0, 1, 11)
    rows = table(
        11, semantic=steps, semantic_relative=4 * steps, lexical=steps / 5, lexical_relative=steps, coverage=steps
    )
    relevance = fuse(rows, MANY, fusion)
    assert (np.diff(relevance) > 0).all()


@pytest.mark.parametrize("name", ["semantic", "coverage", "speaker_named", "session_lexical", "reply_lexical"])
def test_the_learned_relevance_rises_with_each_positive_feature(name: str) -> None:
    assert (np.diff(fuse(table(5, **{name: np.linspace(0, 2, 5)}), MANY)) > 0).all()


def test_the_learned_blend_is_the_logistic_of_the_weighted_features() -> None:
    blend = parse_blend("base = -1.5\n[weights]\nsemantic = 2.0\ncoverage = 0.5", FEATURE_NAMES)
    odds = np.array([-1.5, 2 * 0.6 - 1.5, 2 * 0.6 + 0.5 - 1.5])
    rows = table(3, semantic=[0, 0.6, 0.6], coverage=[0, 0, 1], lexical=[9, 9, 9])
    assert blend.relevance(rows, MANY) == pytest.approx(1 / (1 + np.exp(-odds)))


def test_extreme_odds_do_not_overflow() -> None:
    weights = learned_blend(has_late=False).weights
    worst = np.sign(weights) * 1e6
    worst[FEATURE_NAMES.index("in_period")] = 0
    assert fuse(np.array([worst, -worst], np.float32), MANY) == pytest.approx([1, 0])


def test_reciprocal_ranks_are_averaged_over_vectors_and_words() -> None:
    rows = table(3, semantic=[0.9, 0.5, 0.1], lexical=[0.1, 0.5, 0.0])
    expected = [(1 + 21 / 22) / 2, (21 / 22 + 1) / 2, (21 / 23) / 2]
    assert fuse(rows, MANY, "rrf") == pytest.approx(expected)


def test_fixed_weights_are_six_tenths_lexical_and_four_tenths_semantic() -> None:
    rows = table(4, semantic_relative=[4, 2, -3, 9], lexical_relative=[0, 0.5, 1, 1])
    assert fuse(rows, MANY, "weights") == pytest.approx([0.4, 0.3 + 0.2, 0.6, 1.0])


@pytest.mark.parametrize("fusion", FUSIONS)
def test_candidates_with_equal_features_keep_their_order(fusion: Fusion) -> None:
    same = table(6, semantic=0.5, semantic_relative=1, lexical=0.1, lexical_relative=1, coverage=0.5)
    relevance = fuse(same, MANY, fusion)
    assert np.argsort(-relevance, kind="stable").tolist() == list(range(6))
    assert fusion == "rrf" or len(set(relevance.tolist())) == 1


@pytest.mark.parametrize("fusion", FUSIONS)
def test_a_memory_of_the_period_in_the_question_is_more_relevant(fusion: Fusion) -> None:
    same = {"semantic": 0.5, "semantic_relative": 1, "lexical": 0.1, "lexical_relative": 1, "coverage": 0.5}
    before, then = fuse(table(1, **same), MANY, fusion)[0], fuse(table(1, **same, in_period=1), MANY, fusion)[0]
    half = fuse(table(1, **same, in_period=0.5), MANY, fusion)[0]
    assert before < half < then < 1 or before == then == 1
    assert fuse(table(1, in_period=1), MANY, "rrf")[0] == 0


def test_unrelated_memories_are_penalised_less_when_there_are_few() -> None:
    rows = table(2, semantic=[3, -3], coverage=[1, 0], lexical_relative=[1, 0])
    worse = [float(fuse(rows, count)[1]) for count in (0, 1, 5, 50, 5000)]
    assert worse == sorted(worse, reverse=True)
    assert all(fuse(rows, count)[0] > fuse(rows, count)[1] for count in (1, 5, 50, 5000))


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory("memory:") as memory:
        yield memory


def search(memory: Memory, query: str, **options: Any) -> SearchResult:
    return memory.search(query, user_id="alex", explain=True, trace=True, **options)


def why(results: SearchResult, memory: str) -> str:
    return next(hit.why for hit in results if hit.memory == memory)


def test_an_explanation_names_shared_words_and_similarity(memory: Memory) -> None:
    memory.add("Likes green tea", user_id="alex")
    reason = why(search(memory, "green tea"), "Likes green tea")
    assert reason.startswith("shares green, tea (words 0.")
    assert "near in meaning (0." in reason


def test_an_explanation_names_the_matching_question_of_a_reply(memory: Memory) -> None:
    messages = [
        {"role": "assistant", "content": "What is the name of the hotel in Maui?"},
        {"role": "user", "content": "Plumeria"},
    ]
    memory.remember(messages, user_id="alex", session_id="s")
    hits = search(memory, "What is the name of the hotel in Maui?")
    assert why(hits, "Plumeria").endswith("it answers a question that matches")


def test_an_explanation_names_a_matching_previous_turn(memory: Memory) -> None:
    messages = [
        {"role": "user", "content": "We talked about the hotel in Maui."},
        {"role": "user", "content": "Plumeria, I think"},
    ]
    memory.remember(messages, user_id="alex", session_id="s")
    assert "the previous turn matches" in why(search(memory, "hotel in Maui"), "Plumeria, I think")


def test_an_explanation_names_the_speaker_in_the_question(memory: Memory) -> None:
    messages = [
        {"role": "user", "name": "Caroline", "content": "I adopted a dog"},
        {"role": "user", "name": "Melanie", "content": "I adopted a cat"},
    ]
    memory.remember(messages, user_id="alex", session_id="s")
    hits = search(memory, "What did Caroline adopt?")
    assert "said by the person in the question" in why(hits, "I adopted a dog")
    assert "said by the person in the question" not in why(hits, "I adopted a cat")


def test_an_explanation_names_the_time_in_the_question(memory: Memory) -> None:
    memory.add("Ran the marathon", user_id="alex", occurred_at="2026-03-10")
    hits = search(memory, "What did I run last March?", at="2026-06-01")
    assert "from the time in the question" in why(hits, "Ran the marathon")


@pytest.mark.parametrize(
    ("scores", "features", "reason"),
    [
        ({"dense": 0.5, "newest": 1.0}, {}, "near in meaning (0.50); newer than the statement it replaces"),
        ({"dense": 0.8, "rerank": 0.93}, {}, "very near in meaning (0.80); 0.93 by the reranker"),
        ({"dense": 0.1}, {"next_lexical": 0.9}, "distant in meaning (0.10); the next turn matches"),
        ({}, {"reply_lexical": 0.9, "previous_lexical": 0.9}, "it answers a question that matches"),
        ({}, {"has_time_x_asks_when": 1.0}, "it states a time, and the question asks when"),
        ({}, {}, "no more similar than other memories"),
    ],
)  # fmt: skip
def test_an_explanation_names_other_reasons(
    scores: dict[str, float], features: dict[str, float], reason: str
) -> None:
    assert explain("zzz", "qqq", scores=scores, features=features) == reason


def test_an_explanation_has_at_most_three_other_reasons() -> None:
    features = dict.fromkeys(FEATURE_NAMES, 3.0) | {"q_has_late": 0.0}
    assert explain("zzz", "qqq", scores={"newest": 1.0}, features=features).count(";") == 2


def test_the_contributions_add_up_to_the_relevance(memory: Memory) -> None:
    memory.add("Likes green tea", user_id="alex")
    memory.add("Works in Lisbon", user_id="alex")
    for candidate in search(memory, "Which tea do I like?").candidates:
        breakdown = break_down_score(candidate.features)
        assert 1 / (1 + math.exp(-breakdown.odds)) == pytest.approx(candidate.relevance, abs=1e-4)


def test_the_strongest_contributions_are_those_of_the_candidate() -> None:
    weights = dict(zip(FEATURE_NAMES, map(float, learned_blend(has_late=False).weights), strict=True))
    breakdown = break_down_score({"semantic": 2.0, "by_assistant": 1.0, "q_length": 5.0})
    strongest = breakdown.strongest(5)
    assert {each.feature for each in strongest} == {"semantic", "by_assistant"}
    assert [abs(each.odds) for each in strongest] == sorted((abs(each.odds) for each in strongest), reverse=True)
    assert breakdown.question == pytest.approx(5 * weights["q_length"])
    assert breakdown.strongest(1) == strongest[:1]
