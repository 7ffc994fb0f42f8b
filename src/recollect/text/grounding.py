"""Find the numbers and names of one text that another text lacks.

A light check of generated text: it sees a number or a name that was invented or lost, and nothing else. Number words
up to twelve are not compared, since texts count for themselves; names are capitalised words within a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from decimal import Decimal

from recollect.text.names import capitalised_words
from recollect.text.numbers import find_numbers, number_values

_ISO_DATE = re.compile(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)")
_GROUPED = re.compile(r"\d{1,3}(?:[.,]\d{3})+")
_MAX_COUNT_WORD = 12
_FRACTIONS = ("half", "quarter")
_WORD = re.compile(r"[^\W\d_]\w+")
_MAX_ENDING = 2
_MIN_STEM = 3


def missing_numbers(text: str, source: str) -> dict[str, set[Decimal]]:
    """Return the numbers of the text, as written and with their values, that the source does not contain."""
    source_values = number_values(source)
    missing: dict[str, set[Decimal]] = {}
    # The month of an ISO date may be a word in the other text.
    for written, values in find_numbers(_ISO_DATE.sub(r" \1, \3, ", text)):
        if _GROUPED.fullmatch(written):
            values = {Decimal(re.sub("[.,]", "", written))}
        if _is_exact(written, values) and not values & source_values:
            missing.setdefault(written, values)
    return missing


def missing_names(text: str, source: str) -> list[str]:
    """Return the names of the text that the source does not contain, allowing for an ending such as a genitive."""
    words = {word.casefold() for word in _WORD.findall(source)}
    return [name for name in find_names(text) if not _occurs(name.casefold(), words)]


def find_names(text: str) -> list[str]:
    """Return the capitalised words that do not begin a sentence, without months and weekdays."""
    return list(dict.fromkeys(word[0] for word, opens in capitalised_words(text) if not opens))


def _is_exact(written: str, values: Collection[Decimal]) -> bool:
    if any(char.isdecimal() for char in written):
        return True
    return written not in _FRACTIONS and min(values) > _MAX_COUNT_WORD


def _occurs(name: str, words: Collection[str]) -> bool:
    return name in words or any(_differ_by_ending(name, word) for word in words)


def _differ_by_ending(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    ending = long[len(short) :]
    return len(short) >= _MIN_STEM and len(ending) <= _MAX_ENDING and ending.isalpha() and long.startswith(short)
