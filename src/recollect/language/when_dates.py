"""Read dates, months, seasons and years; what could be something else needs a word beside it that tells."""

from __future__ import annotations

import re
from datetime import datetime

from recollect.language import when_words as say
from recollect.language.when_calendar import (
    DAY,
    TimeSpan,
    add_months,
    day_span,
    latest_date,
    third_of_span,
    unit_span,
)
from recollect.language.when_text import TimeMatch, TokenizedText

_DAY_NUMBER = re.compile(r"([0-9]{1,2})(st|nd|rd|th|er|º)?")
_DECADE = re.compile(r"(19|20)?([0-9]0)s")
_YEARS = range(1900, 2101)


def parse_month(text: TokenizedText, place: int) -> TimeMatch | None:
    """A month, or a day of it if a number follows."""
    number, before = say.MONTHS[text.words[place]], text.before(place)
    if before in say.NEXT or before in say.RECURRING or text.word(place + 1) in say.NEXT:
        return None
    if match := _month_and_day(text, place):
        return match
    part, first = _part_before(text, place)
    year, last = _year_after(text, place + 1)
    floating = None
    if year:
        when = unit_span("month", datetime(year, number, 1))
    elif text.word(last) in say.LAST_AFTER or before in say.LAST or before in say.PAST:
        when = latest_date(number, 0, upto=unit_span("month", text.at)[0] - DAY)
        last, first = last + (text.word(last) in say.LAST_AFTER), min(first, place - (before in say.LAST | say.PAST))
    elif before in say.THIS:
        when, first = unit_span("month", datetime(text.at.year, number, 1)), place - 1
    else:
        when, floating = latest_date(number, 0, upto=text.at), (number, 0)
    if not (year or part is not None or _is_month(text, place)):
        return None
    return TimeMatch(first, last, when if part is None else third_of_span(when, part), "month", floating)


def _is_month(text: TokenizedText, place: int) -> bool:
    """Whether the word is a month, and not a verb, a name, a planet or a sauce."""
    word, before, after = text.words[place], text.before(place), text.word(place + 1)
    if word in say.PLAIN_MONTHS or after in say.LAST_AFTER:
        return True
    if _goes_on(text, place):
        return True
    if word in say.ROMANCE_MONTHS:
        return before in say.BEFORE_ROMANCE_MONTH
    if word == "may" and after in say.AFTER_MAY and before not in ("in", "during"):
        return False
    return before in say.BEFORE_MONTH or (before in say.FROM and (after in say.TO or after in say.AND))


def _goes_on(text: TokenizedText, place: int) -> bool:
    """Whether the words before are of time too: "in March or April", "from 2019 to 2021", "the first week of May"."""
    before = text.before(place)
    if before == "of":
        return text.word(place - 2) in say.UNITS
    return 0 < text.free == place - 1 and (before in say.AND or before in say.OR or before in say.TO)


def _month_and_day(text: TokenizedText, place: int) -> TimeMatch | None:
    """May 7th, May 7, 2023."""
    match = _DAY_NUMBER.fullmatch(text.word(place + 1))
    if match is None or text.is_part(place + 1) or text.word(place + 2) in say.COUNTED:
        return None
    year, last = _year_after(text, place + 2)
    sure = year or match[2] or text.is_capital(place) or text.before(place) in say.BEFORE_DAY
    # "March 3 miles" and "may 7 people come" are not dates.
    if not sure and text.words[place] not in say.PLAIN_MONTHS:
        return None
    return _date(text, place, last, (year, say.MONTHS[text.words[place]], int(match[1])))


def parse_numeric_date(text: TokenizedText, place: int) -> TimeMatch | None:
    """2023-05-07, 13/5/2023, 7 May 2023, in 2023, in the 1990s."""
    word = text.words[place]
    if len(word) == 10 and word[4] == "-":
        return _date(text, place, place + 1, (int(word[:4]), int(word[5:7]), int(word[8:])))
    if word.isdecimal() and len(word) <= 4 and (date_match := _numbers(text, place)):
        return date_match
    if match := _DAY_NUMBER.fullmatch(word):
        return _day_and_month(text, place, match)
    if match := _DECADE.fullmatch(word):
        return _decade(text, place, match)
    return parse_year(text, place) if len(word) == 4 and word.isdecimal() else None


def _numbers(text: TokenizedText, place: int) -> TimeMatch | None:
    """Three numbers with a sign between, if there is one way to read them; with points the day comes first."""
    three, signs = text.words[place : place + 5 : 2], text.words[place + 1 : place + 5 : 2]
    if signs not in (["/", "/"], [".", "."], ["-", "-"]) or len(three) < 3 or not all(map(str.isdecimal, three)):
        return None
    if text.marks[place + 4][1] - text.marks[place][0] != sum(map(len, three)) + 2:
        return None
    # An address or a version goes on with more of the same.
    for sign, far in ((place - 1, place - 2), (place + 5, place + 6)):
        if text.word(sign) == signs[0] and text.word(far)[:1].isdecimal():
            return None
    lengths = [len(each) for each in three]
    if lengths[0] == 4 and max(lengths[1:]) <= 2:
        return _date(text, place, place + 5, (int(three[0]), int(three[1]), int(three[2])))
    if lengths[2] != 4 or max(lengths[:2]) > 2:
        return None
    first, second, year = map(int, three)
    if signs[0] == "." or first > 12 or first == second:
        return _date(text, place, place + 5, (year, second, first))
    return _date(text, place, place + 5, (year, first, second)) if second > 12 else None


def _day_and_month(text: TokenizedText, place: int, match: re.Match[str]) -> TimeMatch | None:
    """7 May, 7th of May 2023, 7. Mai, 7 de mayo de 2023."""
    at = place + 1 + (text.word(place + 1) in (".", "of", "de"))
    # After a full stop only German goes on: "the bill was 5. May I ask" is no date.
    if text.word(at) not in say.MONTHS or (text.word(at - 1) == "." and text.word(at) in say.VERB_MONTHS):
        return None
    year, last = _year_after(text, at + 1)
    sure = year or match[2] or at > place + 1 or text.is_capital(at) or text.before(place) in say.BEFORE_DAY
    if not sure and text.words[at] in say.VERB_MONTHS:
        return None
    return _date(text, place, last, (year, say.MONTHS[text.words[at]], int(match[1])))


def _date(text: TokenizedText, first: int, last: int, date: tuple[int, int, int]) -> TimeMatch | None:
    year, month, day = date
    if not 1 <= day <= 31:
        return None
    if year:
        match = TimeMatch(first, last, day_span(datetime(year, month, day)), "day")
    else:
        match = TimeMatch(first, last, latest_date(month, day, upto=text.at), "day", (month, day))
    if text.ends(first, "week", "of"):
        return TimeMatch(first - 2, last, unit_span("week", match.when[0]))
    return match


def parse_year(text: TokenizedText, place: int) -> TimeMatch | None:
    """A year that is said to be one."""
    first = int(text.words[place])
    part, begin = _part_before(text, place)
    before = text.word(place - 2) if text.before(place) == "de" else text.before(place)
    if first not in _YEARS or not (part is not None or _goes_on(text, place) or before in say.BEFORE_YEAR):
        return None
    when, last = unit_span("year", datetime(first, 1, 1)), place + 1
    if text.word(last) in ("-", "–") and (until := text.word(last + 1)).isdecimal() and len(until) == 4:
        when, last = (when[0], unit_span("year", datetime(int(until), 1, 1))[1]), last + 2
    elif _is_count(text, place):
        return None
    if when[1] <= when[0]:
        return None
    return TimeMatch(begin, last, when if part is None else third_of_span(when, part), "year")


def _is_count(text: TokenizedText, place: int) -> bool:
    """Whether a number of four digits counts something, or is part of a longer one."""
    after = text.word(place + 1)
    if text.is_part(place) or text.word(place - 1) in ("$", "€", "£", "#") or after in say.COUNTED:
        return True
    round_number = int(text.words[place]) % 100 == 0
    return round_number and after.isalpha() and after not in say.AFTER_ROUND_YEAR


def _year_after(text: TokenizedText, place: int) -> tuple[int, int]:
    """The year that follows and the place after it; 0 and the same place if there is none."""
    at = place + (text.word(place) in (",", "of", "de", "del", "'"))
    word = text.word(at)
    if len(word) == 4 and word.isdecimal() and int(word) in _YEARS and not _is_count(text, at):
        return int(word), at + 1
    return 0, place


def _part_before(text: TokenizedText, place: int) -> tuple[int | None, int]:
    """Which third is named before (early, mid, late), and where the words for it begin."""
    at = place
    while at > max(text.free, place - 3) and text.words[at - 1] in ("of", "the", "-", "de", "in", "des", "d", "'"):
        at -= 1
    part = say.PARTS.get(text.before(at))
    return (part, at - 1) if part is not None else (None, place)


def _decade(text: TokenizedText, place: int, match: re.Match[str]) -> TimeMatch | None:
    # "In her 30s" is an age.
    if text.before(place) not in ("the", "early", "mid", "late", "-"):
        return None
    short = int(match[2])
    start = int(match[1]) * 100 + short if match[1] else short + (2000 if short < 30 else 1900)
    when = datetime(start, 1, 1), datetime(start + 10, 1, 1)
    part, first = _part_before(text, place)
    return TimeMatch(first, place + 1, when if part is None else third_of_span(when, part))


def parse_season(text: TokenizedText, place: int) -> TimeMatch | None:
    """A season of the northern half of the earth, by whole months; winter counts for the year it begins in."""
    start, before, after = say.SEASONS[text.words[place]], text.before(place), text.word(place + 1)
    if before in say.NEXT or before in say.RECURRING or after in say.NEXT or after in say.AFTER_SPRING:
        return None
    part, first = _part_before(text, place)
    year, last = _year_after(text, place + 1)
    now = text.at
    if year:
        begin = datetime(year, start, 1)
    elif before in say.LAST or before in say.PAST or after in say.LAST_AFTER:
        begin = latest_date(start, 0, upto=unit_span("season", now)[0] - DAY)[0]
        first, last = min(first, place - (after not in say.LAST_AFTER)), last + (after in say.LAST_AFTER)
    elif before in say.THIS:
        begin, first = datetime(now.year - (start == 12 and now.month < 3), start, 1), place - 1
    elif part is not None or _is_season(text, place):
        begin = latest_date(start, 0, upto=now)[0]
    else:
        return None
    when: TimeSpan = begin, add_months(begin, 3)
    return TimeMatch(first, last, when if part is None else third_of_span(when, part))


def _is_season(text: TokenizedText, place: int) -> bool:
    before = text.before(place)
    if before in say.ARTICLES:
        before = text.before(place - (2 if before == "'" else 1))
    return before in say.BEFORE_SEASON


def parse_quarter(text: TokenizedText, place: int) -> TimeMatch | None:
    """Q1 2023, or the latest first quarter that has begun."""
    start = int(text.words[place][1]) * 3 - 2
    year, last = _year_after(text, place + 1)
    if not year and text.before(place) not in say.BEFORE_YEAR | say.LAST:
        return None
    begin = datetime(year, start, 1) if year else latest_date(start, 0, upto=text.at)[0]
    return TimeMatch(place, last, unit_span("quarter", begin))
