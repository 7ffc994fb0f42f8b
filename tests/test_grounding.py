"""Numbers and names that one text has and another lacks."""

from __future__ import annotations

import pytest

from recollect.text.grounding import find_names, missing_names, missing_numbers


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("It costs $10,000", "It costs 10k dollars"),
        ("It costs 10.000 Euro", "Es kostet 10,000 €"),
        ("It costs 1.5 million", "It costs 1,500,000"),
        ("She has 3 cats", "She has three cats"),
        ("They have two cats and half of a house", "They have cats and a house"),
        ("It was on 2024-05-03", "It was on 3 May 2024"),
        ("It was on May 3, 2024", "It was on 2024-05-03"),
    ],
)
def test_a_number_written_otherwise_is_not_missing(text: str, source: str) -> None:
    assert missing_numbers(text, source) == {}


@pytest.mark.parametrize(
    ("text", "source", "missing"),
    [
        ("It costs $10,000", "It costs $12,000", ["10,000"]),
        ("It costs $4,500", "Four people paid 5 dollars", ["4,500"]),
        ("Room 12 on floor 3", "Room 12", ["3"]),
        ("It takes forty minutes", "It takes a while", ["forty"]),
        ("It was on 2024-05-03", "It was on 4 May 2024", ["03"]),
    ],
)
def test_another_number_is_missing(text: str, source: str, missing: list[str]) -> None:
    assert list(missing_numbers(text, source)) == missing


def test_names_are_capitalised_words_within_a_sentence() -> None:
    text = "The user met Ana in New York on Monday. They paid: Bob wasn't there, said Zoë in May."
    assert find_names(text) == ["Ana", "New", "York", "Zoë"]


def test_a_name_may_have_an_ending_and_no_other_letters() -> None:
    assert missing_names("It is Anna's and Marias", "Anna and Maria know it") == []
    assert missing_names("The user met Mario and Person2", "The user met Maria and Person21") == ["Mario", "Person2"]
