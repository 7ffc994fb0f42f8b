"""Instructions that users paste are told apart from those that they give; the figures of the unseen third."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recollect.quotes.quoted_text import author_text, quotes_instruction
from tests.support.linear_time import assert_linear

DATA = Path(__file__).parents[2] / "evals/data/pasted_instructions.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
UNSEEN = [row for row in ROWS if row["split"] == "test"]


def is_active(row: dict[str, Any], instruction: dict[str, Any]) -> bool:
    return " ".join(instruction["text"].split()) in " ".join(author_text(row["text"]).split())


def instructions(*, own: bool) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(row, each) for row in UNSEEN for each in row["instructions"] if each["own"] is own]


def test_most_unseen_pasted_instructions_are_recognised() -> None:
    pasted = instructions(own=False)
    found = [pair for pair in pasted if not is_active(*pair)]
    assert (len(found), len(pasted)) >= (79, 91)


def test_most_unseen_own_instructions_stay_active() -> None:
    own = instructions(own=True)
    lost = [pair for pair in own if not is_active(*pair)]
    assert len(own) == 84
    assert len(lost) <= 6


def test_the_labels_are_consistent() -> None:
    assert len(ROWS) >= 500
    assert len({row["text"] for row in ROWS}) == len(ROWS)
    assert 0.3 < len(UNSEEN) / len(ROWS) < 0.36
    for row in ROWS:
        pasted = [row["text"][start:end] for start, end in row["pasted"]]
        for each in row["instructions"]:
            assert each["text"] in row["text"]
            assert each["own"] or any(each["text"] in part for part in pasted)


@pytest.mark.parametrize("unit", ["From now on always answer. ", "always\n", '"never say ', "<b>always ", ": never "])
def test_recognition_takes_linear_time(unit: str) -> None:
    assert_linear(quotes_instruction, unit, chars=20_000)
