"""Find the periods in a text: "last March", "two weeks ago", "between May and July 2022", "vorgestern".

What is meant, where people differ:
- A day is a calendar day in the zone of the moment the question was asked at; a week begins on Monday.
- "Last week" is the week before this one; "the past week" and "the last 3 weeks" count back from the end of today.
- "Two weeks ago" is the week around that day, "two months ago" the month around it; "three days ago" is that day.
- A month, day or season without a year is the latest that has begun: "in May" said on 2 May is this May, and
  "last May" said in May is the one a year before. Weekdays lie before today.
- The future gives nothing: what is to come has not been remembered. "Next Monday" is not Monday.
- When in doubt a word is not about time: "may" and "march" are verbs, "April" is a name, 2000 is a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from recollect.errors import InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.model.query import EVERYTHING, And, Filter, Not, Op, Or, Where
from recollect.model.text import head_and_tail
from recollect.text import time_parsers
from recollect.text import time_words as say
from recollect.text.statement_dates import PAST_TENSE, coming_period
from recollect.text.time_spans import TimeMatch, TokenizedText, add_units, latest_date, span_ago

if TYPE_CHECKING:
    from numpy.typing import NDArray


# A question says when in its first or last words; what was pasted between them is not read.
_WINDOW_CHARS = 2000
_MAX_PERIODS = 16
_DAY_S = 86_400.0
_EARLIEST = datetime(1, 1, 1, tzinfo=UTC)
_EDGES = say.BEFORE | say.AFTER | say.SINCE | say.UNTIL

TimeWords: TypeAlias = Literal["prefer", "filter", "off"]
Parser = Callable[[TokenizedText, int], TimeMatch | None]
_PARSERS: Mapping[str, Parser] = {
    **dict.fromkeys(say.UNITS, time_parsers.parse_unit),
    **dict.fromkeys(say.DAY_PARTS, time_parsers.parse_day_part),
    **dict.fromkeys(say.DAYS_BACK, time_parsers.parse_day_back),
    **dict.fromkeys(say.NIGHTS_BACK, time_parsers.parse_night),
    **dict.fromkeys(say.LATELY, time_parsers.parse_lately),
    **dict.fromkeys(say.WEEKDAYS, time_parsers.parse_weekday),
    **dict.fromkeys(say.SEASONS, time_parsers.parse_season),
    **dict.fromkeys(say.MONTHS, time_parsers.parse_month),
    **dict.fromkeys(("q1", "q2", "q3", "q4"), time_parsers.parse_quarter),
}


@frozen_dataclass
class Period:
    """A period of time in UTC that excludes its end; None for an open side.

    `said` are the words for it, at `span` in the text. `grain_s` is how long the thing named is, so how exactly it
    was meant: a day in "since Monday", a year in "before 2020".
    """

    start: datetime | None
    end: datetime | None
    phrase: str
    span: tuple[int, int]
    grain_s: float


def find_periods(text: str, *, at: datetime) -> list[Period]:
    """Return the periods in a text, in order, relative to the moment `at`."""
    if at.utcoffset() is None:
        raise InvalidInput("the moment a text was said at needs a zone")
    results: list[Period] = []
    for offset, piece in _windows(text):
        words = TokenizedText(piece, at.replace(tzinfo=None))
        for each in _interpret(words, _expressions(words)):
            try:
                start, end = (edge and edge.replace(tzinfo=at.tzinfo).astimezone(UTC) for edge in each.when)
            except OverflowError:
                continue
            first, last = words.marks[each.first][0], words.marks[each.last - 1][1]
            results.append(Period(start, end, piece[first:last], (first + offset, last + offset), each.grain_s))
    return results[:_MAX_PERIODS]


def _windows(text: str) -> Iterator[tuple[int, str]]:
    """Return the parts of the text that are parsed, cut between words."""
    if len(text) <= 2 * _WINDOW_CHARS:
        yield 0, text
        return
    yield 0, text[: max(text.rfind(" ", 0, _WINDOW_CHARS), 0)]
    start = text.find(" ", len(text) - _WINDOW_CHARS)
    if start >= 0:
        yield start, text[start:]


def _expressions(text: TokenizedText) -> list[TimeMatch]:
    """Yield every single expression, from left to right."""
    matches: list[TimeMatch] = []
    place, count = 0, len(text.words)
    while place < count and len(matches) < _MAX_PERIODS:
        word = text.words[place]
        parser = _PARSERS.get(word) or (time_parsers.parse_numeric_date if "0" <= word[0] <= "9" else None)
        try:
            match = parser(text, place) if parser is not None else None
        except (ValueError, OverflowError):
            # There is no such day, or it lies outside of the calendar.
            match = None
        if match is None:
            place += 1
            continue
        if match.kind == "day" and matches and matches[-1].kind == "weekday" and _adjoins(text, matches[-1], match):
            # "Monday, 7 May" is one day.
            match.first = matches.pop().first
        matches.append(match)
        place = text.free = match.last
    return matches


def _adjoins(text: TokenizedText, first: TimeMatch, second: TimeMatch) -> bool:
    gap = text.words[first.last : second.first]
    return not gap or (gap[0] in (",", "the") and len(gap) <= 2 and all(word in say.ARTICLES for word in gap[1:]))


@frozen_dataclass
class _Interpretation:
    """Return the period of an expression, with its open sides."""

    first: int
    last: int
    when: tuple[datetime | None, datetime | None]
    grain_s: float


def _interpret(text: TokenizedText, matches: list[TimeMatch]) -> Iterator[_Interpretation]:
    """Combine expressions with the words around them: from X to Y, before X, since X."""
    place = 0
    while place < len(matches):
        each, after = matches[place], matches[place + 1] if place + 1 < len(matches) else None
        text.free = matches[place - 1].last if place else 0
        preceding = _preceding_words(text, each)
        place += 1
        try:
            if after is not None and (whole := _read_range(text, each, after, preceding)):
                place += 1
                yield whole
            else:
                yield _read_edge(text, each, preceding)
        except (ValueError, OverflowError):
            # What lies beside it is outside of the calendar.
            continue


def _grain_s(match: TimeMatch) -> float:
    return (match.when[1] - match.when[0]).total_seconds()


def _preceding_words(text: TokenizedText, match: TimeMatch) -> list[int]:
    """Yield the indexes of the few words before an expression that may modify it, nearest first."""
    places = []
    for place in range(match.first - 1, max(text.free, match.first - 4) - 1, -1):
        places.append(place)
        if text.words[place] not in say.FILLERS:
            break
    return places


def _read_range(
    text: TokenizedText, first: TimeMatch, second: TimeMatch, preceding: list[int]
) -> _Interpretation | None:
    """Return the period from the first to the second, if the words say so; a year given once applies to both."""
    gap = [word for word in text.words[first.last : second.first] if word not in say.FILLERS]
    if len(gap) != 1 or not (
        gap[0] in say.TO or (gap[0] in say.AND and any(text.words[at] in say.FROM for at in preceding))
    ):
        return None
    if gap[0] in ("-", "–", "—") and first.kind != second.kind:
        return None
    start, end = first.when[0], second.when[1]
    if first.floating is not None:
        start = latest_date(*first.floating, upto=second.when[0])[0]
    elif first.kind == second.kind == "weekday" and start >= end:
        start = add_units(start, "week", -1)
    begin = min((at for at in preceding if text.words[at] in say.FROM), default=first.first)
    grain_s = max(_grain_s(first), _grain_s(second))
    return _Interpretation(begin, second.last, (start, end), grain_s) if start < end else None


def _read_edge(text: TokenizedText, match: TimeMatch, preceding: list[int]) -> _Interpretation:
    """Return the expression, or the time before or after it; "after yesterday's lunch" is still yesterday."""
    start, end = match.when
    itself = _Interpretation(match.first, match.last, match.when, _grain_s(match))
    at = next((at for at in preceding if text.words[at] not in say.FILLERS), -1)
    word = text.word(at)
    if word not in _EDGES or (text.word(match.last) == "'" and text.word(match.last + 1) == "s"):
        return itself
    if (offset := _read_offset(text, match, at)) is not None:
        return _Interpretation(offset.first, offset.last, offset.when, _grain_s(offset))
    if word in say.SINCE:
        return replace(itself, first=at, when=(start, None))
    if word in say.AFTER:
        return replace(itself, first=at, when=(end, None))
    return replace(itself, first=at, when=(None, end if word in say.UNTIL else start))


def _read_offset(text: TokenizedText, match: TimeMatch, at: int) -> TimeMatch | None:
    """Parse the week before 7 May, two days after it."""
    unit, before = say.UNITS.get(text.before(at)), text.words[at] in say.BEFORE
    if unit is None or not (before or text.words[at] in say.AFTER):
        return None
    start, end = match.when
    count = time_parsers.parse_count_before(text, at - 1)
    if count is None:
        when = (add_units(start, unit, -1), start) if before else (end, add_units(end, unit, 1))
        return replace(match, first=at - 1, when=when)
    first, min_count, max_count = count
    return replace(
        match,
        first=first,
        when=span_ago(start, unit, *((min_count, max_count) if before else (-max_count, -min_count))),
    )


def nearness(period: Period, occurred: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return how near each moment (seconds since 1970) is to the period, from 1 inside it to 0 far away.

    A bell outside: a day off a day is still 0.6, two days off 0.1; half a year off a year 0.6. What has no time (NaN)
    is near to nothing.
    """
    spread = max(_DAY_S, period.grain_s / 2)
    off = np.zeros(len(occurred))
    if period.start is not None:
        off = np.maximum(off, period.start.timestamp() - occurred)
    if period.end is not None:
        off = np.maximum(off, occurred - period.end.timestamp())
    near = np.exp(-0.5 * np.square(off / spread))
    return np.where(np.isnan(occurred), 0.0, near).astype(np.float32)


@frozen_dataclass
class TimeFilter:
    """The periods in a question, and a filter on them in mode `filter`."""

    periods: tuple[Period, ...] = ()
    filter: Filter = EVERYTHING


# Questions about plans that look like the past tense: "what is planned", and German "was".
_AHEAD = lazy_pattern(
    r"\b(?:planned|scheduled|booked|supposed|expected|geplant|gebucht)\b"
    r"|^\W*was\s+(?:ist|sind|mach\w*|steht|gibt|passiert|läuft|kommt)\b",
    re.IGNORECASE,
)


def parse_time_filter(question: str, *, at: datetime, mode: TimeWords) -> TimeFilter:
    """Return the periods in a question, with a filter in mode `filter`; none in mode `off`.

    Unless the question is in the past tense, "in August" and "on Friday" are the next as well as the last ones.
    """
    question = head_and_tail(question, 2 * _WINDOW_CHARS)
    mentioned = tuple(find_periods(question, at=at)) if mode != "off" else ()
    if mentioned and (_AHEAD.search(question) or not PAST_TENSE.search(question)):
        mentioned += tuple(filter(None, (coming_period(each, at) for each in mentioned)))
    if mode != "filter" or not mentioned:
        return TimeFilter(mentioned)
    return TimeFilter(mentioned, Or(tuple(period_filter(period) for period in mentioned)))


def period_filter(period: Period) -> Filter:
    """Return a filter for memories of the period; without a time of their own, their creation counts."""
    happened = Where("occurred_at", Op.GTE, _EARLIEST)
    return Or((_within(period, "occurred_at"), And((Not(happened), _within(period, "created_at")))))


def _within(period: Period, field: str) -> Filter:
    # At least one comparison, so that a field that is not set is never within.
    parts = [Where(field, Op.GTE, period.start or _EARLIEST)]
    if period.end is not None:
        parts.append(Where(field, Op.LT, period.end))
    return And(tuple(parts))
