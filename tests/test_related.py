"""The memories that an LLM is shown with new lines: those it may have to update or end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from remember_samples import ALEX, llm_requests, opened, say

from recollect.testing.scripted_llm import ScriptedLLM

UNRELATED = [f"The user's neighbour number {number} collects stamps of country {number}" for number in range(40)]


def related_rows(llm: ScriptedLLM) -> list[dict[str, Any]]:
    lines = llm_requests(llm)[-1].text.partition("\n===")[2].splitlines()
    return [json.loads(line) for line in lines if line.startswith('{"memory":')]


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ("The user deploys on Fridays", "deploys moved to thursday"),
        ("The new billing service is called Heron", "legal vetoed the name. billing service = Kestrel from here on"),
        ("The user's stay in Hallstatt is booked for May", "hallstatt fell through, cabin got flooded"),
        ("The user wants answers in bullet points", "no more bullets please, plain prose"),
    ],
)
def test_the_memory_that_changes_is_among_those_shown(
    tmp_path: Path, llm: ScriptedLLM, known: str, said: str
) -> None:
    with opened(tmp_path, llm) as memory:
        for each in (known, *UNRELATED):
            memory.add(each, user_id=ALEX)
        say(memory, said)
    rows = related_rows(llm)
    assert known in [row["says"] for row in rows]
    assert len(rows) <= 20
    assert [row["memory"] for row in rows] == list(range(1, len(rows) + 1))


def test_keyed_facts_and_instructions_are_shown_even_if_nothing_points_to_them(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    with opened(tmp_path, llm) as memory:
        for each in UNRELATED:
            memory.add(each, user_id=ALEX)
        memory.add("The user lives in Rome", user_id=ALEX, key="city", value="Rome", category="identity")
        memory.add("Always answer in German", user_id=ALEX, category="instruction")
        say(memory, "my neighbours collect stamps")
    rows = {row["says"]: row for row in related_rows(llm)}
    assert rows["The user lives in Rome"]["key"] == "city"
    assert "Always answer in German" in rows


def test_nothing_of_another_user_or_of_the_log_is_shown(tmp_path: Path, llm: ScriptedLLM) -> None:
    with opened(tmp_path, llm) as memory:
        memory.add("Sam's bike is red", user_id="sam")
        say(memory, "My bike is red")
        say(memory, "My bike is green")
    assert related_rows(llm) == []
