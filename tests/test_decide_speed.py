"""Deciding costs next to nothing, whatever is sent."""

from __future__ import annotations

import re
from time import thread_time

import pytest

from recollect.language import small_talk as small_talk_module
from recollect.read import decide as decide_module
from recollect.read.decide import decide


def seconds(text: str) -> float:
    best = 10.0
    for _ in range(3):
        start = thread_time()
        decide(text)
        best = min(best, thread_time() - start)
    return best


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "hi ",
        "who ",
        "i need to ",
        "1+",
        "1 + ",
        "A ",
        "Anna ",
        "你好",
        "好",
        "\u200b",
        "\u0301",
        "é",
        "ﷺ",
        "' ",
        "\ud800",
        "हि",
        "x" * 99 + " ",
    ],
)
def test_the_worst_of_100_kb_is_decided_in_a_moment(unit: str) -> None:
    assert seconds((unit * 100_000)[:100_000]) < 0.25


@pytest.mark.parametrize(
    "pattern",
    [
        (module.__name__, name)
        for module in (small_talk_module, decide_module)
        for name, value in vars(module).items()
        if isinstance(value, re.Pattern)
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "unit", ["a", "Aa", "A", "1", "1 ", "1+", "1 + ", "\u0301", "\u200b", "漢", "हि", " ", "_", "a\u0301"]
)
def test_every_expression_takes_time_in_line_with_the_text(pattern: tuple[str, str], unit: str) -> None:
    module = {"recollect.language.small_talk": small_talk_module, "recollect.read.decide": decide_module}[pattern[0]]
    expression: re.Pattern[str] = vars(module)[pattern[1]]
    text = (unit * 100_000)[:100_000] + "!"

    def taken(part: str) -> float:
        start = thread_time()
        expression.sub("", part)
        expression.fullmatch(part)
        expression.findall(part)
        return thread_time() - start

    whole = min(taken(text) for _ in range(3))
    quarter = min(taken(text[:25_000]) for _ in range(3))
    assert whole < 0.75
    assert whole < 10 * quarter + 0.05


def test_a_normal_message_is_decided_at_once() -> None:
    text = "What is the name of that hiking trail in the park you were telling Anna about the other day?"
    decide(text)
    assert seconds(text) < 0.002
