"""Calendar arithmetic: periods of local days without a time zone that exclude their end."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from recollect.lazy_pattern import lazy_pattern

TimeSpan: TypeAlias = tuple[datetime, datetime]

DAY = timedelta(days=1)
# Units that are so many of a smaller one.
_DAYS = {"day": 1, "week": 7, "fortnight": 14}
_MONTHS = {"month": 1, "quarter": 3, "season": 3, "year": 12, "decade": 120}
_SHORT = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1)}


def add_months(day: datetime, months: int) -> datetime:
    """Return the same day `months` later, or the last day of a shorter month."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    # No month ends before its 28th; from there on the next month is at most three days away.
    for last in range(day.day, 27, -1):
        try:
            return day.replace(year=year, month=month + 1, day=last)
        except ValueError:
            continue
    return day.replace(year=year, month=month + 1)


def day_span(moment: datetime, back: int = 0) -> TimeSpan:
    """Return the calendar day, or one some days before it."""
    start = moment.replace(hour=0, minute=0, second=0, microsecond=0) - back * DAY
    return start, start + DAY


def unit_span(unit: str, moment: datetime, *, back: int = 0) -> TimeSpan:
    """Return the calendar unit of the moment, or one some units before it. Weeks begin on Monday."""
    today = day_span(moment)[0]
    if unit in _DAYS:
        days = _DAYS[unit]
        start = today - (today.weekday() if days > 1 else 0) * DAY - back * days * DAY
        return start, start + days * DAY
    if unit == "weekend":
        start = today + (5 - today.weekday() - 7 * back) * DAY
        return start, start + 2 * DAY
    months = _MONTHS[unit]
    # Seasons begin in December, March, June and September; years and quarters with the calendar.
    into = today.month % 3 if unit == "season" else (today.year * 12 + today.month - 1) % months
    start = add_months(today.replace(day=1), -into - back * months)
    return start, add_months(start, months)


def span_ago(moment: datetime, unit: str, min_count: float, max_count: float) -> TimeSpan:
    """Return the time between `most` and `least` units ago, widened by half a unit; days are whole days."""
    today = day_span(moment)[0]
    if unit in _SHORT:
        each = _SHORT[unit]
        return moment - max_count * each - each / 2, moment - min_count * each + each / 2
    if unit == "weekend":
        return unit_span(unit, moment, back=round(max_count))[0], unit_span(unit, moment, back=round(min_count))[1]
    if unit in _DAYS:
        days = _DAYS[unit]
        return today - (round(max_count * days) + days // 2) * DAY, today - (
            round(min_count * days) - days // 2 - 1
        ) * DAY
    months = _MONTHS[unit]
    first, last = add_months(today, -round(max_count * months)), add_months(today, -round(min_count * months))
    if months == 1:
        return first - 15 * DAY, last + 16 * DAY
    return add_months(first, -(months // 2)), add_months(last, months // 2)


def rolling_span(moment: datetime, unit: str, count: float) -> TimeSpan:
    """Return the last units, up to the end of today."""
    if unit in _SHORT:
        return moment - count * _SHORT[unit], moment
    if unit == "weekend":
        return unit_span(unit, moment, back=round(count))[0], unit_span(unit, moment, back=1)[1]
    today, end = day_span(moment)
    return add_units(today, unit, -count), end


def add_units(moment: datetime, unit: str, count: float) -> datetime:
    """Return the moment some units later, or earlier for a negative count."""
    if unit in _SHORT:
        return moment + count * _SHORT[unit]
    if unit in _MONTHS:
        return add_months(moment, round(count * _MONTHS[unit]))
    return moment + round(count * _DAYS.get(unit, 7)) * DAY


def latest_date(month: int, day: int, *, upto: datetime) -> TimeSpan:
    """Return the latest such month (day 0) or day that had begun by then."""
    # A 29 February comes after eight years at the latest.
    for year in range(upto.year, upto.year - 9, -1):
        try:
            start = datetime(year, month, day or 1)
        except ValueError:
            continue
        if start <= upto:
            return start, start + DAY if day else add_months(start, 1)
    raise ValueError(f"no month {month} has a day {day}")


def third_of_span(stretch: TimeSpan, which: int) -> TimeSpan:
    """Return the early (0), middle (1) or late (2) part, in whole days."""
    start, end = stretch
    days = (end - start).days
    return start + days * which // 3 * DAY, start + days * (which + 1) // 3 * DAY


# Words with their digits and accents, single signs, and an ISO date as one word.
_TOKEN = lazy_pattern(r"(?<![-/.])\d{4}-\d\d-\d\d(?!\d)|[\w\u0300-\u036f]+|[^\w\s]")


@dataclass(slots=True)
class TimeMatch:
    """An expression: its words, the local time it means, and its month and day if it has no year."""

    first: int
    last: int
    when: TimeSpan
    kind: str = ""
    floating: tuple[int, int] | None = None


class TokenizedText:
    """The words of a text in lower case, parsed from left to right; `free` is the first unparsed one."""

    __slots__ = ("at", "free", "marks", "text", "words")

    def __init__(self, text: str, at: datetime) -> None:
        self.text, self.at, self.free = text, at, 0
        self.marks = [match.span() for match in _TOKEN.finditer(text)]
        self.words = [text[start:end].lower() for start, end in self.marks]
        if not text.isascii():
            self.words = [unicodedata.normalize("NFC", word).replace("’", "'") for word in self.words]

    def word(self, place: int) -> str:
        """Return the word at an index; empty beyond the ends of the text."""
        return self.words[place] if 0 <= place < len(self.words) else ""

    def before(self, place: int) -> str:
        """Return the word before, unless it is part of another expression."""
        return self.words[place - 1] if place > self.free else ""

    def ends(self, place: int, *words: str) -> bool:
        """Return whether these words are directly before the index."""
        start = place - len(words)
        return start >= self.free and self.words[start:place] == list(words)

    def begins(self, place: int, *words: str) -> bool:
        """Return whether these words begin at the index."""
        return self.words[place : place + len(words)] == list(words)

    def is_capital(self, place: int) -> bool:
        """Return whether the word begins with a capital letter."""
        return self.text[self.marks[place][0]].isupper()

    def is_part(self, place: int) -> bool:
        """Return whether a number is part of something longer, as in 3.14, 1:30 or 2,000."""
        for sign, far in ((place - 1, place - 2), (place + 1, place + 2)):
            if self.word(sign) in (".", ",", ":", "/", "-") and self.word(far)[:1].isdecimal():
                low, high = min(place, far), max(place, far)
                if self.marks[high][0] - self.marks[low][1] == 1:
                    return True
        return False
