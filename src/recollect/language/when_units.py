"""Read time counted from the moment of speaking: "last week", "two years ago", "yesterday", "on Monday"."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from recollect.language import when_words as say
from recollect.language.when_calendar import TimeSpan, day_span, rolling_span, span_ago, unit_span
from recollect.language.when_text import TimeMatch, TokenizedText

# Nobody calls the hour before this one the last hour, or means a calendar decade by "this decade".
_NEVER_WHOLE = ("minute", "hour", "day", "decade")
_LATELY_DAYS = 30
_OTHER_DAY_DAYS = 14


def parse_unit(text: TokenizedText, place: int) -> TimeMatch | None:
    """A week, month or year that the words around it place in the past or the present."""
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
    """A number of units, where the words around say from when on they count."""
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
    """The count just before a place: where it begins, the least and the most that it can mean."""
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
    """Today, yesterday, the day before."""
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
    """The latest such day before today; with "this", the one of this week."""
    before, after = text.before(place), text.word(place + 1)
    if before in say.NEXT or before in say.RECURRING or after in say.NEXT:
        return None
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


def _in_part(text: TokenizedText, day: TimeMatch) -> TimeMatch:
    """The day, or the part of it that the next word names."""
    hours = say.DAY_PARTS.get(text.word(day.last))
    return day if hours is None else replace(day, last=day.last + 1, when=_hours(day.when, hours))


def _hours(day: TimeSpan, hours: tuple[int, int]) -> TimeSpan:
    return day[0] + timedelta(hours=hours[0]), day[0] + timedelta(hours=hours[1])


def parse_day_part(text: TokenizedText, place: int) -> TimeMatch | None:
    """This morning, last night."""
    before, hours = text.before(place), say.DAY_PARTS[text.words[place]]
    if text.word(place + 1) in say.LAST_AFTER:
        return TimeMatch(place, place + 2, _hours(day_span(text.at, 1), hours))
    if before in say.LAST or before in say.THIS:
        return TimeMatch(place - 1, place + 1, _hours(day_span(text.at, int(before in say.LAST)), hours))
    return None


def parse_night(text: TokenizedText, place: int) -> TimeMatch | None:
    """Tonight, or last night in one word."""
    hours = say.DAY_PARTS["night"]
    return TimeMatch(place, place + 1, _hours(day_span(text.at, say.NIGHTS_BACK[text.words[place]]), hours))


def parse_lately(text: TokenizedText, place: int) -> TimeMatch | None:
    """The last thirty days."""
    return TimeMatch(place, place + 1, rolling_span(text.at, "day", _LATELY_DAYS))
