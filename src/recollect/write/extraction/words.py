"""The numbers, names and words of a text, in the forms in which two texts can be compared."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files

from recollect.ledger.terms import terms_of

_NUMBER = re.compile(
    r"(\d{1,3}(?:[.,'’\u00a0\u202f]\d{3})+(?!\d)|\d{1,15}(?:[.,]\d{1,9})?)(?:[ \u00a0-]?([^\W\d_]{1,9}))?"
)
_GROUPED = re.compile(r"\d{1,3}(?:[.,'’\u00a0\u202f]\d{3})+")
_SEPARATOR = re.compile(r"[.,'’\u00a0\u202f]")
_WORD = re.compile(r"[^\W_]+(?:[’'&.+-][^\W_]+)*")
# Nobody counts further in words.
_MOST_SPOKEN = 10**12
_SENTENCE_ENDS = '.!?:;—–"“„»«(\n'
_AND = ("and", "und", "et", "y", "e")
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
    months: frozenset[str]
    days: frozenset[str]
    noun_telling: frozenset[str]
    english_telling: frozenset[str]


@cache
def words() -> Words:
    """The words of all languages, read once."""
    read = tomllib.loads((files(__package__) / "words.toml").read_text(encoding="utf-8"))
    units: dict[str, int] = {}
    hundreds = set()
    for listed in read["numbers"].values():
        ones, tens, hundred = (part.split() for part in listed.split("/"))
        units |= {word: number for number, word in enumerate(ones)}
        units |= {word: number * 10 for number, word in enumerate(tens, 2)}
        hundreds.update(hundred)
    return Words(
        generic=frozenset(term for word in read["generic"].split() for term in terms_of(word)),
        denies=frozenset(read["denies"].split()),
        ends=frozenset(read["ends"].split()),
        scales=read["scales"],
        units=units,
        hundreds=frozenset(hundreds),
        months=frozenset(read["dates"]["months"].split()),
        days=frozenset(read["dates"]["days"].split()),
        noun_telling=frozenset(read["capital_nouns"]["telling"].split()),
        english_telling=frozenset(read["capital_nouns"]["english"].split()),
    )


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


def spoken_numbers(text: str) -> set[Decimal]:
    """The values of numbers in words, alone and put together: "twenty five thousand" is 25,000, and 20 and 5 too."""
    known = words()
    found: set[Decimal] = set()
    total = 0
    counting = False
    for word in [*(match.group().casefold() for match in _WORD.finditer(text.replace("-", " "))), ""]:
        if total > _MOST_SPOKEN:
            counting, total = False, 0
        if word in known.units:
            found.add(Decimal(known.units[word]))
            total += known.units[word]
        elif word in known.hundreds:
            total = max(total, 1) * 100
        elif word in known.scales and len(word) > 2 and counting:
            total *= known.scales[word]
        else:
            if word not in _AND:
                counting, total = False, 0
            continue
        counting = True
        found.add(Decimal(total).normalize())
    return found


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
