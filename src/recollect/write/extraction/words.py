"""The numbers, names and words of a text, in the forms in which two texts can be compared."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

from recollect.ledger.terms import terms_of

_NUMBER = re.compile(
    r"(\d{1,3}(?:[.,'’\u00a0\u202f]\d{3})+(?!\d)|\d{1,15}(?:[.,]\d{1,9})?)(?:[ \u00a0-]?([^\W\d_]{1,9}))?"
)
_GROUPED = re.compile(r"\d{1,3}(?:[.,'’\u00a0\u202f]\d{3})+")
_SEPARATOR = re.compile(r"[.,'’\u00a0\u202f]")
_WORD = re.compile(r"[^\W_]+(?:[’'&.+-][^\W_]+)*")
_SENTENCE_ENDS = '.!?:;—–"“„»«(\n'
_POSSESSIVE = re.compile(r"['’]s?$")


@dataclass(frozen=True, slots=True)
class Words:
    """What of languages is data; see words.toml."""

    generic: frozenset[str]
    denies: frozenset[str]
    ends: frozenset[str]
    scales: dict[str, int]
    units: dict[str, int]
    hundreds: frozenset[str]
    spoken: dict[str, dict[str, int]]
    phrases: dict[tuple[str, ...], int]
    amounts: dict[tuple[str, ...], tuple[Decimal, ...]]
    fractions: dict[str, Decimal]
    decades: dict[str, int]
    joints: frozenset[str]
    year_leads: frozenset[str]
    decade_leads: frozenset[str]
    month_parts: dict[str, frozenset[str]]
    months: frozenset[str]
    days: frozenset[str]
    noun_telling: frozenset[str]
    english_telling: frozenset[str]


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((files(__package__) / "words.toml").read_text(encoding="utf-8"))


@cache
def words() -> Words:
    """The words of all languages, read once."""
    read = _table()
    spoken = {language: _counting(listed) for language, listed in read["numbers"].items()}
    units = {word: number for each in spoken.values() for word, number in each.items()}
    # Where a word is a number in several languages, the words for the numbers themselves go first.
    units = {word: int(number) for number, some in read["more_numbers"].items() for word in some.split()} | units
    hundreds = [word for listed in read["numbers"].values() for word in listed.split("/")[2].split()]
    return Words(
        generic=frozenset(term for word in read["generic"].split() for term in terms_of(word)),
        denies=frozenset(read["denies"].split()),
        ends=frozenset(read["ends"].split()),
        scales=read["scales"],
        units=units,
        hundreds=frozenset(hundreds),
        spoken=spoken,
        phrases={tuple(phrase.split()): number for phrase, number in read["number_phrases"].items()},
        amounts={
            tuple(phrase.split()): tuple(Decimal(str(each)) for each in come_to)
            for phrase, come_to in read["amounts"].items()
        },
        fractions={word: Decimal(str(part)) for word, part in read["fractions"].items()},
        decades={word: int(decade) for decade, some in read["decades"].items() for word in some.split()},
        joints=frozenset(read["number_joints"]["words"].split()),
        year_leads=frozenset(read["years"]["leads"].split()),
        decade_leads=frozenset(read["years"]["decades"].split()),
        month_parts={part: frozenset(some.split()) for part, some in read["month_parts"].items()},
        months=frozenset(read["dates"]["months"].split()),
        days=frozenset(read["dates"]["days"].split()),
        noun_telling=frozenset(read["capital_nouns"]["telling"].split()),
        english_telling=frozenset(read["capital_nouns"]["english"].split()),
    )


def _counting(listed: str) -> dict[str, int]:
    """The number words of a language by what they count."""
    ones, tens, _ = (part.split() for part in listed.split("/"))
    counted = {word: number for number, word in enumerate(ones)}
    return counted | {word: number * 10 for number, word in enumerate(tens, 2)}


def clock_table() -> dict[str, str]:
    """How each language says what time it is, as words.toml has it."""
    clock: dict[str, str] = _table()["clock"]
    return clock


def readings(text: str) -> list[frozenset[Decimal]]:
    """For each number in figures the values it can have: 10,000 and 10.000 and 10k are one and the same."""
    return [frozenset(_values(match)) for match in _NUMBER.finditer(text)]


def _values(match: re.Match[str]) -> Iterator[Decimal]:
    figures, scale = match[1], (match[2] or "").casefold()
    # In scripts without spaces what is counted follows at once: 10万元.
    scale = scale[:1] if scale[:1] in words().scales and not scale.isascii() else scale
    if _GROUPED.fullmatch(figures):
        value = Decimal(_SEPARATOR.sub("", figures))
    else:
        value = Decimal(figures.replace(",", "."))
    # "5 m" may be metres: both readings count.
    if scale not in words().scales or scale == "m":
        yield value.normalize()
    if scale in words().scales:
        yield (value * words().scales[scale]).normalize()


def names_of(text: str) -> list[list[str]]:
    """Runs of words with a capital letter, as in "New York"; the first word of a sentence is left out."""
    runs: list[list[str]] = []
    end, follows = 0, True
    for match in _WORD.finditer(text):
        between = text[end : match.start()].strip(" ")
        first = not end or any(mark in _SENTENCE_ENDS for mark in between)
        word = _POSSESSIVE.sub("", match.group())
        capital = word[:1].isupper() and not (first and word[1:].islower()) and len(word) > 1
        if capital and follows and runs and not between:
            runs[-1].append(word)
        elif capital:
            runs.append([word])
        end, follows = match.end(), capital
    return runs


def plain_words(text: str) -> list[str]:
    """The words without their case and what hangs on them."""
    return [_POSSESSIVE.sub("", match.group()).casefold() for match in _WORD.finditer(text)]


def has_capital_nouns(text: str) -> bool:
    """Whether the text is in a language that writes all nouns with a capital letter."""
    said = set(plain_words(text))
    return len(said & words().noun_telling) > len(said & words().english_telling)
