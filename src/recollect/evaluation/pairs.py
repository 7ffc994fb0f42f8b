"""Pairs of sentences with how alike they are, and in what two sentences differ that must not be taken for one."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from recollect.errors import InvalidInput
from recollect.evaluation.files import read_text

SHAPE = 'CSV with three columns and no titles: "text","text",similarity from 0 to 5'
NUMBER, NEGATION, NAME = "number", "negation", "name"
KINDS = (NUMBER, NEGATION, NAME)

_WORD = re.compile(r"\w+(?:['’]\w+)?")
_DIGITS = re.compile(r"\d[\d.,:]*")
_SPELT = {
    word: str(number)
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty".split()
    )
} | {word: word for word in "thirty forty fifty sixty seventy eighty ninety hundred thousand million dozen".split()}
# What sentences begin with, so that a short file does not take these for names.
_OPENERS = frozenset(
    "a an the this that these those i you he she it we they my your his her its our their there here in on at to "
    "from with for and but or if when while after before no not yes all some many".split()
)
_NEGATIONS = frozenset("no not never none nobody nothing nowhere neither nor without cannot".split())


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sentences and how alike people find them, from 0 to 5."""

    first: str
    second: str
    similarity: float


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a file, or an InvalidInput that names the line."""
    pairs = list(_pairs(path))
    if len(pairs) < 2:
        raise InvalidInput(f"{path} holds fewer than two pairs; it should be {SHAPE}")
    return pairs


def _pairs(path: Path) -> Iterator[Pair]:
    rows = csv.reader(io.StringIO(read_text(path, shape=SHAPE), newline=""))
    try:
        for row in rows:
            if row:
                yield _pair(row, f"{path}, line {rows.line_num}")
    except csv.Error as error:
        raise InvalidInput(f"{path}, line {rows.line_num}: {error}; it should be {SHAPE}") from None


def _pair(row: list[str], where: str) -> Pair:
    if len(row) != 3 or not row[0].strip() or not row[1].strip():
        raise InvalidInput(f"{where} has not two texts and a number; it should be {SHAPE}")
    try:
        similarity = float(row[2])
    except ValueError:
        similarity = math.nan
    if not 0 <= similarity <= 5:
        raise InvalidInput(f"{where}: {row[2]!r} is no similarity; it should be {SHAPE}")
    return Pair(row[0], row[1], similarity)


def differences(pairs: Sequence[Pair]) -> list[frozenset[str]]:
    """For each pair, which of number, negation and name stand in one sentence and not in the other.

    A name is a word in capitals that nowhere in the file begins with a small letter.
    """
    common = {word for pair in pairs for text in (pair.first, pair.second) for word in _words(text) if word.islower()}
    common |= _OPENERS
    return [
        frozenset(kind for kind, of in _SIDES.items() if of(pair.first, common) != of(pair.second, common))
        for pair in pairs
    ]


def _words(text: str) -> list[str]:
    return [word.replace("’", "'").removesuffix("'s") for word in _WORD.findall(text)]


def _numbers(text: str, common: set[str]) -> set[str]:
    written = {each.rstrip(".,:").replace(",", "") for each in _DIGITS.findall(text)}
    return written | {_SPELT[word] for each in _words(text) if (word := each.casefold()) in _SPELT}


def _negated(text: str, common: set[str]) -> bool:
    return any(word in _NEGATIONS or word.endswith("n't") for each in _words(text) if (word := each.casefold()))


def _names(text: str, common: set[str]) -> set[str]:
    return {word.casefold() for word in _words(text) if word[0].isupper() and word.casefold() not in common}


_SIDES: Mapping[str, Callable[[str, set[str]], set[str] | bool]] = {
    NUMBER: _numbers,
    NEGATION: _negated,
    NAME: _names,
}
