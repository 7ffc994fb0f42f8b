"""Find the time of a statement, and add the date to relative words such as "yesterday" or "next Friday"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from recollect.text.time_spans import TokenizedText, add_units, day_span, unit_span
from recollect.text.time_words import COUNTS, LAST, MONTHS, NEXT, UNITS, WEEKDAYS

if TYPE_CHECKING:
    from recollect.text.time_expressions import Period


_DAY = timedelta(days=1)
_TOMORROW = frozenset("tomorrow morgen demain mañana".split())
_MORNING_BEFORE = frozenset("heute gestern am jeden la esta cada de".split())
_UPCOMING = frozenset("coming upcoming kommende kommenden kommender".split())
_IN = frozenset("in within dans en dentro".split())
# Black Friday is not the last Friday there was.
_NAMED_DAYS = frozenset("black cyber good easter giving super fat ash palm".split())
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_DIGIT = re.compile(r"\d")
_DAY_OF_MONTH = re.compile(r"([0-9]{1,2})(?:st|nd|rd|th)?")
# A date without a year is in the future, unless the sentence is in the past tense.
PAST_TENSE = re.compile(
    r"\b(?:was|were|had|went|got|did|saw|met|bought|\w{3,}ed|yesterday|ago|last|since|gestern|war|hatte|wurde|letzt\w+|ge\w+t|ayer|fui"
    r"|estuve|pasad[oa]|hier|était|dernier|dernière)\b|昨|上[周个]|了",
    re.IGNORECASE,
)
_MAX_DAYS = 370
# So many words on, a week still belongs to a weekday.
_MAX_WEEK_DISTANCE = 4


@dataclass(frozen=True, slots=True)
class StatementDate:
    """A time in a text: its start, its date as text, and whether the words alone are unambiguous."""

    start: datetime
    formatted: str
    span: tuple[int, int]
    is_relative: bool


def find_date(text: str, *, at: datetime, ahead: bool = False) -> StatementDate | None:
    """Return the first time in the text, relative to `at`; with `ahead`, a time in the future.

    Stretches that are still running ("this week", "for the past three months") are no time of an event.
    """
    words, periods = _tokenize(text, at)
    if (coming := _find_future_date(words, ahead=ahead)) is not None:
        return coming
    for period in periods:
        if period.start is None or period.end is None or period.end - period.start > _MAX_DAYS * _DAY:
            continue
        shift = _shift(period, at) if ahead else 0 * _DAY
        start, end = period.start + shift, period.end + shift
        if _in_another_week(period, (start, periods), words):
            continue
        named = text[: period.span[0]].rstrip().rpartition(" ")[2].lower() in _NAMED_DAYS
        over = ahead and end <= at and _is_relative(period)
        if named or over or (end - start > _DAY and start <= at < end):
            continue
        return _statement_date(start, end, period.span, is_relative=_is_relative(period))
    return None


def _in_another_week(period: Period, at: tuple[datetime, Sequence[Period]], words: TokenizedText) -> bool:
    """Return whether a weekday belongs to a week named next to it: "Monday and Tuesday last week"."""
    if _words_of(period).isdisjoint(WEEKDAYS):
        return False
    start, periods = at
    weeks = [each for each in periods if any(UNITS.get(word) == "week" for word in _words_of(each))]
    if weeks:
        return not any(each.start and each.end and each.start <= start < each.end for each in weeks)
    # A week that could not be told: "Friday the week after next".
    place = next(place for place, mark in enumerate(words.marks) if mark[1] >= period.span[1])
    return any(UNITS.get(word) == "week" for word in words.words[place + 1 : place + _MAX_WEEK_DISTANCE])


def _words_of(period: Period) -> set[str]:
    return set(period.phrase.lower().replace(",", " ").split())


def _tokenize(text: str, at: datetime) -> tuple[TokenizedText, list[Period]]:
    # It brings numpy along.
    from recollect.text.time_expressions import find_periods

    return TokenizedText(text, at), find_periods(text, at=at)


def insert_date(content: str, when: StatementDate) -> str:
    """Return the content with dates after relative time words."""
    if not when.is_relative:
        return content
    end = when.span[1]
    return f"{content[:end]} ({when.formatted}){content[end:]}"


_INSERTED = re.compile(r" \(~?\d{4}-\d\d(?:-\d\d)?(?: to \d{4}-\d\d-\d\d)?\)")


def remove_inserted_dates(content: str) -> str:
    """Return the content as it was before `insert_date`."""
    return _INSERTED.sub("", content)


def coming_period(period: Period, at: datetime) -> Period | None:
    """Return the next month or weekday of a period that names no year or week; None if it does, or lies ahead."""
    if period.start is None or period.end is None or not (shift := _shift(period, at)):
        return None
    return replace(period, start=period.start + shift, end=period.end + shift)


def _shift(period: Period, at: datetime) -> timedelta:
    """Return how far a day without a year or week lies after the latest such day."""
    words = _words_of(period)
    if _YEAR.search(period.phrase) or period.start is None or not words.isdisjoint(LAST):
        return 0 * _DAY
    today = at.replace(hour=0, minute=0, second=0, microsecond=0)
    if period.start >= today or "today" in words:
        return 0 * _DAY
    if not words.isdisjoint(WEEKDAYS) and not _DIGIT.search(period.phrase):
        return 7 * _DAY * -(-(today - period.start).days // 7)
    if words.isdisjoint(MONTHS) or (period.end is not None and period.end > today):
        return 0 * _DAY
    return _next_year(period.start, today) - period.start


def _next_year(start: datetime, today: datetime) -> datetime:
    for year in range(today.year, today.year + 9):
        try:
            day = start.replace(year=year)
        except ValueError:
            continue
        if day >= today:
            return day
    return start


def _is_relative(period: Period) -> bool:
    phrase = period.phrase.lower()
    return not _YEAR.search(phrase) and not any(word in MONTHS for word in re.findall(r"\w+", phrase))


def _find_future_date(text: TokenizedText, *, ahead: bool) -> StatementDate | None:
    """Find tomorrow, next week, the coming Friday; in three days, unless it is a duration."""
    today = day_span(text.at)[0]
    for place, word in enumerate(text.words):
        before = text.word(place - 1)
        if word in _TOMORROW and before not in _MORNING_BEFORE:
            days = 2 if text.ends(place, "day", "after") else 1
            return _future_date(text, (place, place), (today + days * _DAY, today + (days + 1) * _DAY))
        # The French year is an English article: only "an prochain" is next year.
        after = text.word(place + 1)
        follows = before in NEXT or (after in NEXT and (word != "an" or after == "prochain"))
        if word in WEEKDAYS and follows:
            # The one of next week; only a coming Friday can be in this one.
            days = WEEKDAYS[word] - today.weekday()
            days += 0 if days > 0 and before in _UPCOMING else 7
            return _future_date(text, (place, place), (today + days * _DAY, today + (days + 1) * _DAY))
        if word in UNITS and UNITS[word] == "year" and before in NEXT and (day := _day_before(text, place - 1)):
            return day
        if word in UNITS and follows and UNITS[word] not in ("minute", "hour", "day"):
            return _future_date(text, (place, place), unit_span(UNITS[word], text.at, back=-1))
        if ahead and word in UNITS and text.word(place - 2) in _IN:
            count = float(before) if before.isdecimal() and len(before) < 4 else COUNTS.get(before, (0.0, 0.0))[0]
            if count and UNITS[word] not in ("minute", "hour", "season", "weekend"):
                start = day_span(add_units(text.at, UNITS[word], count))[0]
                return _future_date(text, (place - 2, place), (start, start + _DAY), about=UNITS[word] != "day")
    return None


def _day_before(text: TokenizedText, place: int) -> StatementDate | None:
    """Return the day of "12 June next year" or "June 12 next year", whose last two words begin at `place`."""
    first, second = text.word(place - 2), text.word(place - 1)
    month = MONTHS.get(second) or MONTHS.get(first)
    number = _DAY_OF_MONTH.fullmatch(first if second in MONTHS else second)
    if month is None or number is None:
        return None
    try:
        start = day_span(text.at.replace(year=text.at.year + 1, month=month, day=int(number.group(1))))[0]
    except ValueError:
        return None
    return _future_date(text, (place - 2, place + 1), (start, start + _DAY))


def _future_date(
    text: TokenizedText, places: tuple[int, int], stretch: tuple[datetime, datetime], *, about: bool = False
) -> StatementDate:
    span = text.marks[places[0]][0], text.marks[places[1]][1]
    date = _statement_date(*stretch, span, is_relative=True)
    return StatementDate(date.start, f"~{date.formatted}", span, True) if about else date


def _statement_date(start: datetime, end: datetime, span: tuple[int, int], *, is_relative: bool) -> StatementDate:
    days = (end - start).days
    if days <= 1:
        return StatementDate(start, f"{start:%Y-%m-%d}", span, is_relative)
    if start.day == 1 and 28 <= days <= 31:
        return StatementDate(start, f"{start:%Y-%m}", span, is_relative)
    if start.day == start.month == 1 and days >= 365:
        return StatementDate(start, f"{start:%Y}", span, is_relative)
    if days == 2 or (days == 7 and start.weekday() == 0) or not is_relative:
        return StatementDate(start, f"{start:%Y-%m-%d} to {end - _DAY:%Y-%m-%d}", span, is_relative)
    # "Two months ago" reaches to both sides of the day that is meant.
    middle = (start + (end - start) / 2).replace(hour=0, minute=0, second=0, microsecond=0)
    return StatementDate(middle, f"~{middle:%Y-%m-%d}", span, is_relative)
