"""Counting tokens and cutting texts to size."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.text.tokens import MAX_CHARS_PER_TOKEN, TRUNCATION_MARK, count_tokens, truncate_words

# How the vocabularies cl100k and o200k count them.
TOKEN_COUNTS = {
    "User's budget for the Hawaii vacation is $10,000 and they prefer aisle seats.": (18, 18),
    "用户的夏威夷旅行预算是一万美元。": (20, 11),
    "Пользователь живёт в Санкт-Петербурге.": (21, 10),
    "👩🏽🚀👍🎉😂": (17, 10),
    "3f2a9c0d1b4e5f60718293a4b5c6d7e8": (27, 27),
    "def f(x):\n    return x[0]['a'] or {}": (14, 14),
    "ተጠቃሚው በአዲስ አበባ ይኖራል": (48, 35),
    "https://example.com/a/b?c=d&e=%20f#g": (14, 14),
}


@pytest.mark.parametrize(("text", "counts"), TOKEN_COUNTS.items(), ids=[text[:20] for text in TOKEN_COUNTS])
def test_the_count_is_on_the_safe_side_of_real_vocabularies(text: str, counts: tuple[int, int]) -> None:
    assert max(counts) <= count_tokens(text) <= 3 * max(counts)


def test_nothing_has_no_tokens_and_a_letter_has_one() -> None:
    assert count_tokens("") == 0
    assert count_tokens("a") == count_tokens("\n") == 1


def test_half_a_character_can_be_counted() -> None:
    assert count_tokens("tea \ud800") >= 2


@given(st.lists(st.text(max_size=40), max_size=6))
def test_a_text_has_no_more_tokens_than_its_lines_and_line_ends(lines: list[str]) -> None:
    assert count_tokens("\n".join(lines)) <= sum(count_tokens(line) + 1 for line in lines)


@given(st.text(min_size=1, max_size=200))
def test_no_token_stands_for_more_characters_than_promised(text: str) -> None:
    solid = "x" + text.strip() + "x"
    assert count_tokens(solid) * MAX_CHARS_PER_TOKEN >= len(solid)


def test_a_short_memory_is_counted_in_microseconds() -> None:
    text = next(iter(TOKEN_COUNTS))
    runs = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(1000):
            count_tokens(text)
        runs.append((time.process_time() - start) / 1000)
    # About 6 µs; the rest is for a busy machine.
    assert min(runs) < 100e-6


@pytest.mark.parametrize("unit", ["a", "A", "1", "a1", " ", "\n", "-", "茶", "👍", "aB", "=/"])
def test_the_worst_texts_are_counted_in_time(unit: str) -> None:
    text = unit * (100_000 // len(unit.encode()))
    runs = []
    for _ in range(3):
        start = time.process_time()
        count_tokens(text)
        runs.append(time.process_time() - start)
    assert min(runs) < 0.25


@given(words=st.text(min_size=1, max_size=400), limit=st.integers(min_value=1, max_value=100))
def test_what_was_cut_fits_and_is_a_beginning(words: str, limit: int) -> None:
    cut = truncate_words(words, limit, count=count_tokens)
    assert count_tokens(cut) <= limit
    assert cut == "" or (cut.endswith(TRUNCATION_MARK) and words.startswith(cut.removesuffix(TRUNCATION_MARK)))


def test_a_cut_is_at_the_end_of_a_word_and_uses_the_room() -> None:
    words = " ".join(["wonderful"] * 1000)
    cut = truncate_words(words, 200, count=count_tokens)
    assert set(cut.removesuffix(TRUNCATION_MARK).split(" ")) == {"wonderful"}
    assert 190 <= count_tokens(cut) <= 200


@pytest.mark.parametrize(
    "words", ["茶" * 5000, "x" * 5000, "👍" * 5000, "茶" * 500 + " tea" * 5000, "tea " * 500 + "茶" * 5000]
)
def test_a_cut_uses_the_room_whatever_the_script(words: str) -> None:
    assert 0.9 * 300 <= count_tokens(truncate_words(words, 300, count=count_tokens)) <= 300


def test_where_not_even_the_mark_fits_nothing_is_left() -> None:
    assert truncate_words("tea for two", 2, count=count_tokens) == ""
