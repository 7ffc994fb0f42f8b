"""The times of day that a text tells, in figures or in words: "half past six", "7.30 pm", "noon"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from recollect.write.extraction.words import clock_table, words

# Hour and minute, the hour below 12: whoever says six may mean either.
Clock: TypeAlias = tuple[int, int]

_FIGURES = re.compile(r"(?<![\d.,:])(\d{1,2})[:.h](\d\d)(?![\d:]|[.,]\d)")
_HOUR = re.compile(r"(?<![\d.,:])(\d{1,2}) ?(?:[ap]\.?m\b|uhr\b|h\b|o'clock)", re.IGNORECASE)
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_HALF_A_DAY = 12 * 60


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to tell the time: its words, and the minutes that are added to the hour (None: those that are said)."""

    language: str
    said: tuple[str, ...]
    minutes: int | None
    sign: int


def clocks_in_figures(text: str) -> list[tuple[re.Match[str], Clock]]:
    """The times that are written in figures, with where they stand."""
    found = [(match, (int(match[1]), int(match[2]))) for match in _FIGURES.finditer(text)]
    found += [(match, (int(match[1]), 0)) for match in _HOUR.finditer(text)]
    return [(match, (hour % 12, minute)) for match, (hour, minute) in found if hour <= 24 and minute < 60]


def clocks(text: str) -> set[Clock]:
    """All times that are told, as one reads them from a dial."""
    found = {clock for _, clock in clocks_in_figures(text)}
    tokens = [token.casefold().replace("’", "'") for token in _TOKEN.findall(text)]
    for at, token in enumerate(tokens):
        for way in _ways().get(token, ()):
            found |= set(_told(tokens, at, way))
        if _count(tokens, at, "")[1]:
            for way in _ways()[""]:
                found |= set(_told(tokens, at, way))
    return found


def _told(tokens: Sequence[str], at: int, way: _Way) -> Iterator[Clock]:
    hour, minutes = 0, way.minutes
    for word in way.said:
        if word in ("N", "M"):
            number, size = _count(tokens, at, way.language)
            if not size or (number > 24 if word == "N" else not 0 < number < 60):
                return
            if word == "N":
                hour = number
            else:
                minutes = way.sign * number
            at += size
        elif at < len(tokens) and tokens[at] == word:
            at += 1
        else:
            return
    whole = (hour * 60 + (minutes or 0)) % _HALF_A_DAY
    yield whole // 60, whole % 60


def _count(tokens: Sequence[str], at: int, language: str) -> tuple[int, int]:
    """The number below 60 that begins here, and of how many words it is; none if that is 0."""
    if at >= len(tokens):
        return 0, 0
    if len(tokens[at]) <= 2 and tokens[at].isdecimal():
        return int(tokens[at]), 1
    units = words().spoken[language] if language else words().units
    first = units.get(tokens[at])
    if first is None:
        return 0, 0
    second = units.get(tokens[at + 1], 0) if at + 1 < len(tokens) and first >= 20 else 0
    return (first + second, 2) if 0 < second < 10 else (first, 1)


@cache
def _ways() -> dict[str, list[_Way]]:
    """The ways to tell the time by their first word; those that begin with a number under nothing."""
    found: dict[str, list[_Way]] = {"": []}
    for language, listed in clock_table().items():
        for row in listed.replace("\n", "").split("|"):
            said, _, meant = row.partition("=")
            first = said.split()[0]
            found.setdefault("" if first in ("N", "M") else first, []).append(_way(language, said, meant))
    return found


def _way(language: str, said: str, meant: str) -> _Way:
    if ":" in meant:
        hour, minute = meant.split(":")
        return _Way(language, tuple(said.split()), int(hour) * 60 + int(minute), 1)
    if meant in "+-":
        return _Way(language, tuple(said.split()), None, -1 if meant == "-" else 1)
    return _Way(language, tuple(said.split()), int(meant), 1)
