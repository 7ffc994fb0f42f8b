"""Why a memory was found: a line a person understands, and the numbers it is made of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from recollect import Memory
from recollect.model.result import SearchResult
from recollect.read.explain import break_down_score, explain
from recollect.read.fuse import learned_blend
from recollect.read.signals import FEATURE_NAMES


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
    signals = dict.fromkeys(FEATURE_NAMES, 3.0)
    assert explain("zzz", "qqq", scores={"newest": 1.0}, features=signals).count(";") == 2


def test_the_account_adds_up_to_the_relevance(memory: Memory) -> None:
    memory.add("Likes green tea", user_id="alex")
    memory.add("Works in Lisbon", user_id="alex")
    for candidate in search(memory, "Which tea do I like?").candidates:
        account = break_down_score(candidate.signals)
        assert 1 / (1 + math.exp(-account.odds)) == pytest.approx(candidate.relevance, abs=1e-4)


def test_the_strongest_are_the_candidates_own_for_and_against() -> None:
    weights = dict(zip(FEATURE_NAMES, map(float, learned_blend().weights), strict=True))
    account = break_down_score({"meaning": 2.0, "assistant": 1.0, "q_terms": 5.0})
    report = account.strongest(5)
    assert {each.feature for each in report} == {"meaning", "assistant"}
    assert [abs(each.odds) for each in report] == sorted((abs(each.odds) for each in report), reverse=True)
    assert account.question == pytest.approx(5 * weights["q_terms"])
    assert account.strongest(1) == report[:1]
