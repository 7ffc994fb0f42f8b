"""The numbers that a text says in words: counted, in order, of a date, in halves and dozens, and years cut short."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

from recollect.ledger.terms import STOP_WORDS
from recollect.write.extraction.words import words

# Nobody counts further in words.
_MOST_SPOKEN = 10**12
_MOST_WORD_CHARS = 40
_LONGEST_PIECE = 12
_LATEST_SHORT_YEAR = 40
_TOKEN = re.compile(r"[^\W_]+|[.,;:!?()\n]")
_MARKS = ".,;:!?()\n"
_AND = frozenset(["and", "und", "et", "y", "e", "en"])
_ARTICLES = frozenset(["a", "an", "of", "the", "eine", "einer", "un", "une", "una", "le", "d"])
_SHORT_YEAR = re.compile(r"(?<![^\W_])['’](\d\d)(?!\d)")
_DECADE = re.compile(r"(?<!\d)(?:19|20)?(\d0)['’]?s\b")
_ORDINAL_END = re.compile(r"st(?:e[nrs]?)$")
# Written in one word in these.
_JOINING = ("de", "nl", "it")


@dataclass(frozen=True, slots=True)
class _Number:
    """A number in words, from a word up to another, with what its parts come to on the way."""

    value: Decimal
    start: int
    end: int
    parts: frozenset[Decimal]


def spoken_numbers(text: str) -> set[Decimal]:
    """The values of numbers in words, alone and put together: "twenty five thousand" is 25,000, and 20 and 5 too."""
    found: set[Decimal] = set()
    for tokens in _runs(text):
        numbers = list(_numbers(tokens))
        for each in numbers:
            found |= each.parts
        found |= set(_side_by_side(numbers)) | set(_years(tokens, numbers)) | set(_amounts(tokens))
    for short in _SHORT_YEAR.findall(text):
        found |= set(_short_year(int(short)))
    for decade in _DECADE.findall(text):
        found |= set(_decade(int(decade)))
    return {each.normalize() for each in found}


def _runs(text: str) -> Iterator[list[str]]:
    """The words between two marks, small, with those that are several numbers taken apart."""
    run: list[str] = []
    for token in _TOKEN.findall(text):
        if token in _MARKS:
            if run:
                yield run
            run = []
        else:
            run += _apart(token.casefold())
    if run:
        yield run


def _apart(word: str) -> Sequence[str]:
    """The number words that a word is made of: "fünfundzwanzig"; the word itself if it is of none."""
    if not 6 <= len(word) <= _MOST_WORD_CHARS or word in words().units:
        return (word,)
    return _cut(_ORDINAL_END.sub("", word)) or (word,)


def _cut(word: str) -> tuple[str, ...]:
    """The pieces that a word is made of, the longest first; nothing if some of it is none."""
    ways: dict[int, tuple[str, ...]] = {len(word): ()}
    for start in range(len(word) - 1, -1, -1):
        for end in range(min(len(word), start + _LONGEST_PIECE), start + 1, -1):
            if end in ways and word[start:end] in _pieces():
                ways[start] = (word[start:end], *ways[end])
                break
    return ways.get(0, ())


@cache
def _pieces() -> frozenset[str]:
    known = words()
    counting = {word for language in _JOINING for word in known.spoken[language]} | {"ein", "hundert", "honderd"}
    return frozenset(counting | known.joints | {word for word in known.scales if len(word) > 3})


def _numbers(tokens: Sequence[str]) -> Iterator[_Number]:
    at = 0
    while at < len(tokens):
        number = _number(tokens, at)
        if number is None:
            at += 1
        else:
            yield number
            at = number.end


def _number(tokens: Sequence[str], start: int) -> _Number | None:
    """The number that begins here, as long as it goes on."""
    known = words()
    at = start
    if tokens[at] in known.fractions:
        return _part_of_scale(tokens, start)
    total, group, scale = Decimal(0), None, 1
    parts: set[Decimal] = set()
    while at < len(tokens) and total + (group or 0) <= _MOST_SPOKEN:
        value, size = _unit(tokens, at)
        if value is not None:
            if not _fits(group, value):
                break
            parts.add(Decimal(value))
            group = (group or Decimal(0)) + value
        elif tokens[at] in known.hundreds:
            group, size = (group or Decimal(1)) * 100, 1
        elif _is_scale(tokens, at, counting=bool(group or total)):
            scale, size = known.scales[tokens[at]], 1
            total, group = (total * scale, None) if group is None and total else (total + (group or 1) * scale, None)
        elif at > start and (joined := _joined(tokens, at, group, total)) is not None:
            more, size = joined
            # "A million and a half" is half a million more.
            group = group + more if group is not None else more * (scale if more < 1 else 1)
        else:
            break
        at += size
        parts.add(total + (group or 0))
    return _Number(total + (group or 0), start, at, frozenset(parts)) if at > start else None


def _unit(tokens: Sequence[str], at: int) -> tuple[int | None, int]:
    known = words()
    pair = known.phrases.get(tuple(tokens[at : at + 2]))
    return (pair, 2) if pair is not None else (known.units.get(tokens[at]), 1)


def _fits(group: Decimal | None, value: int) -> bool:
    """Whether the word goes on counting ("twenty five"), or begins another number ("nineteen ninety")."""
    if group is None:
        return True
    below = group % 100
    if not group or not value:
        return False
    if value < 10:
        # "Dix sept" is seventeen.
        return below == 0 or (below >= 20 and below % 10 == 0) or (below % 20 == 10 and value >= 7)
    return below == 0 or (value < 20 and below in (60, 80))


def _is_scale(tokens: Sequence[str], at: int, *, counting: bool) -> bool:
    word = tokens[at]
    if word not in words().scales or (len(word) <= 2 and not (word == "k" and counting)):
        return False
    # "1.5 million" is no million.
    return counting or at == 0 or not tokens[at - 1].isdecimal()


def _joined(tokens: Sequence[str], at: int, group: Decimal | None, total: Decimal) -> tuple[Decimal, int] | None:
    """What "and" adds to a number, and how many words that takes: "and a half", "hundred and one", "und zwanzig"."""
    if tokens[at] not in _AND:
        return None
    after = at + 1
    while after < len(tokens) and tokens[after] in _ARTICLES and tokens[after] not in words().units:
        after += 1
    if after < len(tokens) and (fraction := words().fractions.get(tokens[after])) is not None:
        return fraction, after + 1 - at
    value, size = _unit(tokens, at + 1) if at + 1 < len(tokens) else (None, 0)
    if value is None:
        return None
    below = (group or Decimal(0)) % 100
    if tokens[at] in words().joints and 0 < below < 10 and value >= 20 and value % 10 == 0:
        return Decimal(value), 1 + size
    if tokens[at] == "and":
        goes_on = below == 0 and bool(total or (group or 0) >= 100)
    else:
        goes_on = _fits(group, value) and (below >= 20 or bool(total or (group or 0) >= 100))
    return (Decimal(value), 1 + size) if goes_on else None


def _part_of_scale(tokens: Sequence[str], start: int) -> _Number:
    """Half a million, a quarter of a million; else a half."""
    known = words()
    value, at = known.fractions[tokens[start]], start + 1
    while at < len(tokens) and tokens[at] in _ARTICLES:
        at += 1
    if at < len(tokens) and tokens[at] in known.scales and len(tokens[at]) > 2:
        whole = value * known.scales[tokens[at]]
        return _Number(whole, start, at + 1, frozenset([whole]))
    return _Number(value, start, start + 1, frozenset([value]))


def _side_by_side(numbers: Sequence[_Number]) -> Iterator[Decimal]:
    """Years said in two halves ("nineteen ninety-eight", "twenty oh nine"), and figures said one by one."""
    figures = ""
    for at, each in enumerate(numbers):
        after = numbers[at + 1 : at + 3]
        if 10 <= each.value <= 21 and after and after[0].start == each.end:
            if 10 <= after[0].value <= 99:
                yield each.value * 100 + after[0].value
            elif not after[0].value and len(after) > 1 and after[1].start == after[0].end and after[1].value < 10:
                yield each.value * 100 + after[1].value
        adjoins = bool(at) and numbers[at - 1].end == each.start
        single = each.value < 10 and each.value == int(each.value)
        figures = (figures if adjoins else "") + str(int(each.value)) if single else ""
        if 3 <= len(figures) <= 15:
            yield Decimal(figures)


def _years(tokens: Sequence[str], numbers: Sequence[_Number]) -> Iterator[Decimal]:
    """Years cut short: "since ninety-eight", "in 98", "the nineties"."""
    known = words()
    for each in numbers:
        if 10 <= each.value <= 99 and _is_year(tokens, each.start, each.end):
            yield from _short_year(int(each.value))
        elif not each.value and each.end < len(tokens) and tokens[each.end] in known.units:
            # "Oh nine".
            yield from _short_year(known.units[tokens[each.end]])
    for at, token in enumerate(tokens):
        if len(token) == 2 and token.isdecimal() and _is_year(tokens, at, at + 1):
            yield from _short_year(int(token))
        if token in known.decades:
            yield from _decade(known.decades[token])


def _is_year(tokens: Sequence[str], start: int, end: int) -> bool:
    """Whether what stands around a number of two figures makes it a year: it counts nothing."""
    before = tokens[start - 1] if start else ""
    if before in words().decade_leads:
        return True
    return before in words().year_leads and (end == len(tokens) or tokens[end] in STOP_WORDS)


def _short_year(number: int) -> Iterator[Decimal]:
    if number < 100:
        yield Decimal(1900 + number)
        if number <= _LATEST_SHORT_YEAR:
            yield Decimal(2000 + number)


def _decade(number: int) -> Iterator[Decimal]:
    yield Decimal(number)
    yield from (Decimal(century + number) for century in (1900, 2000) if century == 1900 or number <= 20)


def _amounts(tokens: Sequence[str]) -> Iterator[Decimal]:
    """What amounts without a number come to: "an hour and a half"."""
    for at in range(len(tokens)):
        for phrase, come_to in _amounts_by_first().get(tokens[at], ()):
            if tuple(tokens[at : at + len(phrase)]) == phrase:
                yield from come_to


@cache
def _amounts_by_first() -> dict[str, list[tuple[tuple[str, ...], tuple[Decimal, ...]]]]:
    found: dict[str, list[tuple[tuple[str, ...], tuple[Decimal, ...]]]] = {}
    for phrase, come_to in words().amounts.items():
        found.setdefault(phrase[0], []).append((phrase, come_to))
    return found
