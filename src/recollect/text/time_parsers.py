"""Read time counted from the moment of speaking: "last week", "two years ago", "yesterday", "on Monday"."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta

from recollect.lazy_pattern import lazy_pattern
from recollect.text import time_words as say
from recollect.text.time_spans import (
    DAY,
    TimeMatch,
    TimeSpan,
    TokenizedText,
    add_months,
    day_span,
    latest_date,
    rolling_span,
    span_ago,
    third_of_span,
    unit_span,
)

# Nobody calls the hour before this one the last hour, or means a calendar decade by "this decade".
_NEVER_WHOLE = ("minute", "hour", "day", "decade")
_LATELY_DAYS = 30
_OTHER_DAY_DAYS = 14
_ORDINAL_DAY = lazy_pattern(r"([0-9]{1,2})(?:st|nd|rd|th)")
# A day of the month falls on each weekday within a year.
_MAX_NUMBERED_DAYS = 366


def parse_unit(text: TokenizedText, place: int) -> TimeMatch | None:
    """Parse a week, month or year that the words around it place in the past or the present."""
    name, first, last = say.UNITS[text.words[place]], place, place + 1
    if name == "week" and text.begins(last, "-", "end"):
        name, last = "weekend", last + 2
    elif name == "week" and text.ends(place, "fin", "de"):
        name, first = "weekend", place - 2
    before, after = text.before(first), text.word(last)
    if before in say.NEXT or before in say.RECURRING or after in say.NEXT:
        return None
    # The French year is an English article; only French words around it make it a year.
    is_article = text.words[place] == "an"
    if (match := _counted(text, name, first, last)) and (text.words[match.first] == "il" or not is_article):
        return match
    if after in say.LAST_AFTER:
        short = name in ("minute", "hour")
        return TimeMatch(
            first, last + 1, rolling_span(text.at, name, 1) if short else unit_span(name, text.at, back=1)
        )
    if is_article:
        return None
    if before in say.PAST:
        begin = first - 2 if text.before(first - 1) in say.THIS else first - 1
        when = unit_span(name, text.at, back=1) if name in ("weekend", "season") else rolling_span(text.at, name, 1)
        return TimeMatch(begin, last, when)
    return _odd_days(text, place) if name in _NEVER_WHOLE else _whole(text, name, first, last)


def _whole(text: TokenizedText, name: str, first: int, last: int) -> TimeMatch | None:
    before = text.before(first)
    # "The last week of March" is not last week.
    if before in say.LAST and text.word(last) not in ("of", "de", "du"):
        return TimeMatch(first - 1, last, unit_span(name, text.at, back=1))
    if before in say.THIS:
        return TimeMatch(first - 1, last, unit_span(name, text.at))
    if text.begins(last, "before", "last"):
        return TimeMatch(first, last + 2, unit_span(name, text.at, back=2))
    if before in say.LAST_BUT_ONE:
        return TimeMatch(first - 1, last, unit_span(name, text.at, back=2))
    return None


def _odd_days(text: TokenizedText, place: int) -> TimeMatch | None:
    if text.begins(place, "day") and text.before(place) == "other":
        return TimeMatch(place - 1, place + 1, rolling_span(text.at, "day", _OTHER_DAY_DAYS))
    if text.begins(place, "days") and text.before(place) == "these":
        return TimeMatch(place - 1, place + 1, rolling_span(text.at, "day", _LATELY_DAYS))
    return None


def _counted(text: TokenizedText, name: str, first: int, last: int) -> TimeMatch | None:
    """Parse a number of units, if the words around it say where the count starts."""
    # French puts the word between: "les trois derniers jours".
    inner = text.before(first) in say.LAST or text.before(first) in say.PAST
    count = parse_count_before(text, first - 1 if inner else first)
    if count is None:
        # "Years ago" is some years ago.
        if text.word(last) == "ago" and text.words[first].endswith("s"):
            return TimeMatch(first, last + 1, span_ago(text.at, name, 2, 6))
        return None
    start, min_count, max_count = count
    if inner:
        return TimeMatch(start, last, rolling_span(text.at, name, max_count)) if max_count > 1 else None
    before = text.before(start)
    if before in say.LAST or before in say.PAST:
        return TimeMatch(start - 1, last, rolling_span(text.at, name, max_count)) if name != "season" else None
    end = last
    if text.begins(end, "and", "a", "half"):
        end, min_count, max_count = end + 3, min_count + 0.5, max_count + 0.5
    elif text.begins(end, "or", "so"):
        end += 2
    if max_count == 0.5:
        name, min_count, max_count = say.HALVES.get(name, (name, min_count, max_count))
    if text.word(end) in ("ago", "back"):
        return TimeMatch(start, end + 1, span_ago(text.at, name, min_count, max_count))
    begin = start - 1 if before in say.ABOUT else start
    begin = begin - 3 if text.ends(begin, "il", "y", "a") else begin - (text.before(begin) in say.AGO_BEFORE)
    return (
        TimeMatch(begin, last, span_ago(text.at, name, min_count, max_count))
        if text.words[begin] in say.AGO_OPENS
        else None
    )


def parse_count_before(text: TokenizedText, end: int) -> tuple[int, float, float] | None:
    """Return the count before an index: where it begins, and its minimum and maximum."""
    place = end - 2 if text.ends(end, "couple", "of") else end - 1
    count = _count(text, place)
    if count is None:
        return None
    min_count, max_count = count
    before = text.before(place)
    if before == "or" and (lower := _count(text, place - 2)):
        return place - 2, lower[0], max_count
    if before == "half" and max_count == 1:
        return place - 1, 0.5, 0.5
    # The article of "a few"; in "il y a quelques jours" it is no article.
    has_article = max_count > min_count and before in ("a", "ein") and not text.ends(place, "il", "y", "a")
    return place - has_article, min_count, max_count


def _count(text: TokenizedText, place: int) -> tuple[float, float] | None:
    word = text.words[place] if place >= text.free else ""
    if word.isdecimal():
        return (float(word), float(word)) if len(word) <= 3 and not text.is_part(place) else None
    return say.COUNTS.get(word)


def parse_day_back(text: TokenizedText, place: int) -> TimeMatch | None:
    """Parse today, yesterday, the day before."""
    word, first, last = text.words[place], place, place + 1
    back = say.DAYS_BACK[word]
    if word == "hier" and say.FRENCH.isdisjoint(text.words):
        return None
    if word == "aujourd":
        last = place + 3 if text.begins(last, "'", "hui") else last
    before_that = (("day", "before"), ("avant", "-"), ("antes", "de"))
    if back == 1 and any(text.ends(place, *words) for words in before_that):
        back, first = 2, place - 2
    return _in_part(text, TimeMatch(first, last, day_span(text.at, back), "day"))


def parse_weekday(text: TokenizedText, place: int) -> TimeMatch | None:
    """Parse a weekday: the latest before today; with "this", the one of this week."""
    before, after = text.before(place), text.word(place + 1)
    if before in say.NEXT or before in say.RECURRING or after in say.NEXT or _recurs(text, place):
        return None
    if (numbered := _parse_numbered_weekday(text, place)) is not None:
        return numbered
    ahead = say.WEEKDAYS[text.words[place]] - text.at.weekday()
    first, last = place, place + 1
    if before in say.THIS:
        return _in_part(text, TimeMatch(place - 1, last, day_span(text.at, -ahead), "weekday"))
    if before in say.LAST or before in say.PAST:
        first = place - 2 if text.before(place - 1) in say.THIS else place - 1
    elif after in say.LAST_AFTER:
        last += 1
    # Whoever means today says so: Monday said on a Monday was a week ago.
    return _in_part(text, TimeMatch(first, last, day_span(text.at, -ahead if ahead < 0 else 7 - ahead), "weekday"))


def _parse_numbered_weekday(text: TokenizedText, place: int) -> TimeMatch | None:
    """Parse "Thursday the 26th": the nearest day that is both."""
    last = place + 2 if text.word(place + 1) == "the" else place + 1
    number = _ORDINAL_DAY.fullmatch(text.word(last))
    if number is None or text.word(last + 1) in say.MONTHS or text.word(last + 1) in say.OF:
        return None
    today = day_span(text.at)[0]
    days = (today + timedelta(days=sign * ahead) for ahead in range(_MAX_NUMBERED_DAYS) for sign in (1, -1))
    for day in days:
        if day.day == int(number.group(1)) and day.weekday() == say.WEEKDAYS[text.words[place]]:
            return _in_part(text, TimeMatch(place, last + 1, (day, day + timedelta(days=1)), "day"))
    return None


def _recurs(text: TokenizedText, place: int) -> bool:
    """Return whether a weekday is one of many: "Monday evenings", "the first Monday of the month"."""
    before, after = text.before(place), text.word(place + 1)
    if after.removesuffix("s") in say.DAY_PARTS and after not in say.DAY_PARTS:
        return True
    if before in say.ALTERNATE and text.before(place - 1) in say.RECURRING:
        return True
    return before in say.ORDINALS | say.LAST and after in say.OF and text.word(place + 2) not in say.LAST | say.THIS


def _in_part(text: TokenizedText, day: TimeMatch) -> TimeMatch:
    """Return the day, or the part of it that the next word names."""
    hours = say.DAY_PARTS.get(text.word(day.last))
    return day if hours is None else replace(day, last=day.last + 1, when=_hours(day.when, hours))


def _hours(day: TimeSpan, hours: tuple[int, int]) -> TimeSpan:
    return day[0] + timedelta(hours=hours[0]), day[0] + timedelta(hours=hours[1])


def parse_day_part(text: TokenizedText, place: int) -> TimeMatch | None:
    """Parse this morning, last night."""
    before, hours = text.before(place), say.DAY_PARTS[text.words[place]]
    if text.word(place + 1) in say.LAST_AFTER:
        return TimeMatch(place, place + 2, _hours(day_span(text.at, 1), hours))
    if before in say.LAST or before in say.THIS:
        return TimeMatch(place - 1, place + 1, _hours(day_span(text.at, int(before in say.LAST)), hours))
    return None


def parse_night(text: TokenizedText, place: int) -> TimeMatch | None:
    """Parse tonight, or last night in one word."""
    hours = say.DAY_PARTS["night"]
    return TimeMatch(place, place + 1, _hours(day_span(text.at, say.NIGHTS_BACK[text.words[place]]), hours))


def parse_lately(text: TokenizedText, place: int) -> TimeMatch | None:
    """Return the last thirty days."""
    return TimeMatch(place, place + 1, rolling_span(text.at, "day", _LATELY_DAYS))


_DAY_NUMBER = lazy_pattern(r"([0-9]{1,2})(st|nd|rd|th|er|º)?")
_DECADE = lazy_pattern(r"(19|20)?([0-9]0)s")
_YEARS = range(1900, 2101)


def parse_month(text: TokenizedText, place: int) -> TimeMatch | None:
    """Parse a month, or a day of it if a number follows."""
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
    """Return whether the word is a month, and not a verb, a name, a planet or a sauce."""
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
    """Return whether the words before are time words too: "in March or April", "the first week of May"."""
    before = text.before(place)
    if before == "of":
        return text.word(place - 2) in say.UNITS
    return 0 < text.free == place - 1 and (before in say.AND or before in say.OR or before in say.TO)


def _month_and_day(text: TokenizedText, place: int) -> TimeMatch | None:
    """Parse May 7th, May 7, 2023."""
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
    """Parse 2023-05-07, 13/5/2023, 7 May 2023, in 2023, in the 1990s."""
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
    """Parse three numbers with a separator, if unambiguous; with points the day comes first."""
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
    """Parse 7 May, 7th of May 2023, 7. Mai, 7 de mayo de 2023."""
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
    """Parse a year that the words before it mark as one."""
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
    """Return whether a four-digit number counts something, or is part of a longer one."""
    after = text.word(place + 1)
    if text.is_part(place) or text.word(place - 1) in ("$", "€", "£", "#") or after in say.COUNTED:
        return True
    round_number = int(text.words[place]) % 100 == 0
    return round_number and after.isalpha() and after not in say.AFTER_ROUND_YEAR


def _year_after(text: TokenizedText, place: int) -> tuple[int, int]:
    """Return the year that follows and the index after it; 0 and the same index if there is none."""
    at = place + (text.word(place) in (",", "of", "de", "del", "'"))
    word = text.word(at)
    if len(word) == 4 and word.isdecimal() and int(word) in _YEARS and not _is_count(text, at):
        return int(word), at + 1
    return 0, place


def _part_before(text: TokenizedText, place: int) -> tuple[int | None, int]:
    """Return which third is named before (early, mid, late), and where its words begin."""
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
    """Parse a season of the northern hemisphere, in whole months; winter belongs to the year it begins in."""
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
    """Parse Q1 2023, or the latest first quarter that has begun."""
    start = int(text.words[place][1]) * 3 - 2
    year, last = _year_after(text, place + 1)
    if not year and text.before(place) not in say.BEFORE_YEAR | say.LAST:
        return None
    begin = datetime(year, start, 1) if year else latest_date(start, 0, upto=text.at)[0]
    return TimeMatch(place, last, unit_span("quarter", begin))
