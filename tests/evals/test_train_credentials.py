"""Redaction of the texts that the credential model was not trained on, as docs/security.md states it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evals.train_credentials import Example, Figures, measure, parse, read_examples, read_ordinary

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"


@pytest.fixture(scope="module")
def held_out() -> Figures:
    return measure([example for example in read_examples() if example.is_test])


def test_the_data_has_enough_unseen_texts() -> None:
    examples = read_examples()
    for has_secret in (True, False):
        chosen = [each for each in examples if bool(each.spans) == has_secret and each.shape != "word-list"]
        assert sum(each.is_test for each in chosen) >= 200
    trained = {each.text for each in examples if not each.is_test}
    assert not [each.text for each in examples if each.is_test and each.text in trained]


def test_at_least_nine_in_ten_unseen_credentials_are_redacted(held_out: Figures) -> None:
    assert held_out.recall >= 0.9


def test_at_most_one_in_twenty_unseen_look_alikes_is_changed(held_out: Figures) -> None:
    assert held_out.false_alarms <= 0.05


def test_no_shape_is_missed_more_often_than_once_in_three(held_out: Figures) -> None:
    counts = held_out.credentials
    assert {shape: missed for shape, missed in held_out.missed.items() if missed * 3 > counts[shape]} == {}


def test_the_documented_figures_are_those_of_the_stored_model(held_out: Figures) -> None:
    text = SECURITY.read_text(encoding="utf-8")
    stated = dict(re.findall(r"^\| ([a-z-]+) \| (\d+ of \d+) \|$", text, re.MULTILINE))
    counts = held_out.credentials
    assert stated == {shape: f"{count - held_out.missed[shape]} of {count}" for shape, count in counts.items()}
    assert f"{held_out.recall:.1%}" in text
    assert f"{held_out.false_alarms:.1%}" in text


def test_ordinary_messages_are_unchanged() -> None:
    figures = measure([Example(text, (), "ordinary") for text in read_ordinary()])
    assert figures.errors == ()


def test_marks_are_removed_from_a_text() -> None:
    assert parse("my pin is [[4821]] ok") == ("my pin is 4821 ok", ((10, 14),))
