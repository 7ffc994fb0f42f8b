"""The selector: the statements it selects without an LLM, their keys and dates."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from recollect.model.memory import Category
from recollect.model.turn import Role
from recollect.write import select
from recollect.write.key_patterns import find_key
from recollect.write.operations import ExtractedFact
from recollect.write.select import score_statements, select_facts
from tests.support.extract_samples import turn
from tests.support.remember_samples import ALEX, facts, opened, say

MONDAY = datetime(2026, 11, 16, 9, tzinfo=UTC)


def selected(text: str) -> list[ExtractedFact]:
    return select_facts([turn(text, at=MONDAY)])


@pytest.mark.parametrize(
    ("said", "statement"),
    [
        ("I'm allergic to peanuts.", "I'm allergic to peanuts"),
        ("My sister Ana is a nurse in Oslo.", "My sister Ana is a nurse in Oslo"),
        ("my daughter Emma turns 6 in May, any gift ideas?", "My daughter Emma turns 6 in May"),
        ("Can you suggest a gift for my daughter Emma who turns 6 in May?", "My daughter Emma who turns 6 in May"),
        ("we cancelled the trip to Rome", "We cancelled the trip to Rome"),
        ("Ich bin Vegetarierin und wohne in Graz.", "Ich bin Vegetarierin und wohne in Graz"),
    ],
)
def test_a_statement_about_the_user_is_selected_in_their_words(said: str, statement: str) -> None:
    assert statement in [fact.content for fact in selected(said)]


@pytest.mark.parametrize(
    "said",
    [
        "who is my favourite author",
        "do i still go to choir",
        "How do I sort a list of dictionaries by two keys in Python?",
        "What is the difference between a mutex and a semaphore?",
        "Thanks, that helps a lot!",
        "Translate into English: Ich bin seit drei Wochen krank und wohne in Köln.",
        "Off the record: I am looking for another job.",
        "Can you explain how tides work?",
    ],
)
def test_questions_requests_pasted_and_confidential_text_are_not_selected(said: str) -> None:
    assert selected(said) == []


def test_a_word_with_a_hyphen_is_not_cut() -> None:
    assert "I ride a Gazelle e-bike to work" in " ".join(
        fact.content for fact in selected("I ride a Gazelle e-bike to work")
    )


def test_an_assistants_words_are_not_selected() -> None:
    assert select_facts([turn("You live in Oslo", role=Role.ASSISTANT)]) == []


def test_an_explicit_request_to_remember_is_selected_whatever_its_score() -> None:
    [fact] = selected("Please remember that the blue folder is in drawer 7")
    assert (fact.content, fact.confidence) == ("The blue folder is in drawer 7", 0.9)


@pytest.mark.parametrize(
    ("said", "key", "value"),
    [
        ("My name is Ines", "name", "Ines"),
        ("I moved to Ghent last week.", "city", "Ghent"),
        ("I moved to Lisbon in May", "city", "Lisbon"),
        ("Ich wohne in Frankfurt am Main", "city", "Frankfurt am Main"),
        ("Ich wohne jetzt in Leipzig", "city", "Leipzig"),
        ("Vivo en Sevilla", "city", "Sevilla"),
        ("J'habite à Nantes depuis dix ans", "city", "Nantes"),
        ("I work at Siemens now", "employer", "Siemens"),
        ("I work at Bosch in Stuttgart", "employer", "Bosch"),
        ("I'm 34", "age", "34"),
        ("我叫小明", "name", "小明"),
    ],
)
def test_a_trait_with_one_value_gets_its_key(said: str, key: str, value: str) -> None:
    results = find_key(said)
    assert results is not None
    assert (results.key, results.value) == (key, value)


@pytest.mark.parametrize(
    "said",
    ["My sister lives in Rome", "I live in a small flat", "I'm 1.85 m tall", "I work at home", "I moved the files"],
)
def test_a_statement_that_only_looks_like_a_trait_gets_no_key(said: str) -> None:
    assert find_key(said) is None


def test_a_relative_date_is_resolved() -> None:
    [fact] = selected("we went hiking with Tom on Saturday")
    assert "(2026-11-14)" in fact.content
    assert fact.occurred_at == datetime(2026, 11, 14, tzinfo=UTC)


def test_a_standing_instruction_has_its_category() -> None:
    [fact] = selected("never use emojis with me")
    assert fact.category is Category.INSTRUCTION


def test_only_a_key_supersedes_without_an_llm(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        for text in ("I live in Porto.", "My bike is red.", "I moved to Ghent last week.", "My bike is green."):
            say(memory, text)
        assert [each.value for each in facts(memory) if each.key == "city"] == ["Ghent"]
        assert len([each for each in facts(memory) if "bike" in each.content]) == 2
        [before] = memory.get_all(user_id=ALEX, statuses=["superseded"])
        assert "Porto" in before.content


def test_the_weights_are_small_and_the_scores_probabilities() -> None:
    folder = Path(select.__file__).parent
    assert sum((folder / name).stat().st_size for name in ("selector.npz", "selector_cuts.npz")) < 1_000_000
    scores = [each.confidence for each in score_statements("I like tea. What time is it? My dog is called Rex.")]
    assert all(0 <= score <= 1 for score in scores)
    assert len(scores) == 3
