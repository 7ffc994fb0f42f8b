"""Freshen: of two statements of one fact the newer comes first, for a question about now and of one speaker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect import Memory
from recollect.model.memory import Category
from recollect.read.candidate import Candidate
from recollect.read.freshen import LOOKED_AT, PAIR_SIGNALS, freshen, pair_table
from recollect.read.question import look_at
from recollect.settings import Settings
from recollect.testing.fake_embedder import embed_words
from recollect.testing.suite_samples import memory as record

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW, BEFORE = "How many interviews do I have?", "How many interviews did I have before, at first?"
THREE = "I have three interviews for the new job"
FIVE = "I now have five interviews for the new job"
SEVEN = "I now have seven interviews for the new job"


def statement(
    content: str, *, week: float, relevance: float = 0.6, role: str = "user", name: str | None = None, **parts: float
) -> Candidate:
    """A turn of that week, which the question fits."""
    detail = {"role": role} | ({"name": name} if name else {})
    said = record(
        content, category=Category.TURN, created_at=NOON, occurred_at=NOON + timedelta(weeks=week), detail=detail
    )
    usual = {"coverage": 0.8, "meaning": 0.8, "dense": 0.5, "lexical": 0.4}
    return Candidate(0, int(week), said, relevance, relevance, usual | parts)


def order(question: str, *candidates: Candidate) -> list[str]:
    vectors = embed_words([each.record.content for each in candidates], 64)
    return [each.record.content for each in freshen(candidates, vectors, look_at(question))]


def three_and_five(**newer: Any) -> tuple[Candidate, Candidate]:
    return statement(THREE, week=0), statement(FIVE, week=4, relevance=0.55, **newer)


def test_for_a_question_about_now_the_newest_statement_comes_first() -> None:
    assert order(NOW, *three_and_five()) == [FIVE, THREE]


def test_for_a_question_about_before_the_order_stays() -> None:
    assert order(BEFORE, *three_and_five()) == [THREE, FIVE]


def test_an_older_statement_never_takes_the_place_of_a_newer() -> None:
    assert order(NOW, statement(FIVE, week=4), statement(THREE, week=0, relevance=0.55)) == [FIVE, THREE]


def test_of_three_statements_the_newest_comes_first() -> None:
    said = [
        statement(THREE, week=0),
        statement(SEVEN, week=8, relevance=0.5),
        statement(FIVE, week=4, relevance=0.55),
    ]
    for first in range(3):
        turned = said[first:] + said[:first]
        scored = [
            statement(each.record.content, week=each.row, relevance=0.6 - at / 20) for at, each in enumerate(turned)
        ]
        assert order(NOW, *scored)[0] == SEVEN


@pytest.mark.parametrize("voice", [{"role": "assistant"}, {"name": "Bob"}], ids=str)
def test_what_another_says_replaces_nothing(voice: dict[str, Any]) -> None:
    assert order(NOW, *three_and_five(**voice)) == [THREE, FIVE]


def test_something_else_said_later_replaces_nothing() -> None:
    later = statement("The garden needs water again on Friday", week=4, relevance=0.55, coverage=0.0, meaning=0.0)
    assert order(NOW, statement(THREE, week=0), later)[0] == THREE


def test_a_fresher_statement_scores_as_the_one_it_replaces_and_says_so() -> None:
    old, new = three_and_five()
    [first, second] = freshen([old, new], embed_words([THREE, FIVE], 64), look_at(NOW))
    assert first is new
    assert first.score == second.score == 0.6
    assert first.relevance < second.relevance
    assert first.parts["fresher"] == 1
    assert "fresher" not in second.parts


@pytest.mark.parametrize("score", [1.0, 0.6, 0.0])
def test_scores_stay_from_0_to_1_and_fall(score: float) -> None:
    candidates = [statement(text, week=4 * at, relevance=score) for at, text in enumerate((THREE, FIVE, SEVEN))]
    vectors = embed_words([each.record.content for each in candidates], 64)
    scores = [each.score for each in freshen(candidates, vectors, look_at(NOW))]
    assert all(0 <= each <= 1 for each in scores)
    assert scores == sorted(scores, reverse=True)


def test_only_the_first_hits_are_looked_at() -> None:
    crowd = [
        statement(f"Other thing {n} entirely", week=n, relevance=0.7, coverage=0.0) for n in range(LOOKED_AT - 1)
    ]
    candidates = [*crowd, *three_and_five()]
    assert order(NOW, *candidates)[-2:] == [THREE, FIVE]


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_or_one_is_left_as_it_is(count: int) -> None:
    candidates = [statement(THREE, week=0)][:count]
    assert freshen(candidates, np.zeros((count, 4), np.float32), look_at(NOW)) == candidates
    assert pair_table(candidates, np.zeros((count, 4), np.float32), look_at(NOW)).table.shape == (
        0,
        len(PAIR_SIGNALS),
    )


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(settings=Settings(home=tmp_path, search_min_score=0.0)) as memory:
        yield memory


def said_later(memory: Memory, *texts: str, name: str | None = None) -> None:
    """Each a week after the one before, until yesterday."""
    for at, text in enumerate(texts):
        when = datetime.now(UTC) - timedelta(days=1 + 7 * (len(texts) - at))
        memory.add(text, user_id="a", occurred_at=when)


def found(memory: Memory, question: str) -> Sequence[str]:
    return [hit.memory for hit in memory.search(question, user_id="a")]


def test_a_search_gives_the_newest_number_first(memory: Memory) -> None:
    said_later(memory, THREE, FIVE)
    memory.add("The neighbour's cat is called Momo", user_id="a")
    assert found(memory, NOW)[:2] == [FIVE, THREE]


def test_a_search_gives_the_newest_of_three_first(memory: Memory) -> None:
    said_later(memory, THREE, FIVE, SEVEN)
    assert found(memory, NOW)[0] == SEVEN
