"""Read time counted from the moment of speaking: "last week", "two years ago", "yesterday", "on Monday"."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from recollect.language import when_words as say
from recollect.language.when_calendar import Stretch, ago, day_of, rolling, whole
from recollect.language.when_text import Found, Words

# Nobody calls the hour before this one the last hour, or means a calendar decade by "this decade".
_NEVER_WHOLE = ("minute", "hour", "day", "decade")
_LATELY_DAYS = 30
_OTHER_DAY_DAYS = 14


def unit(text: Words, place: int) -> Found | None:
    """A week, month or year that the words around it place in the past or the present."""
    name, first, last = say.UNITS[text.words[place]], place, place + 1
    if name == "week" and text.begins(last, "-", "end"):
        name, last = "weekend", last + 2
    elif name == "week" and text.ends(place, "fin", "de"):
        name, first = "weekend", place - 2
    before, after = text.before(first), text.word(last)
    if before in say.NEXT or before in say.AGAIN or after in say.NEXT:
        return None
    # The French year is an English article; only French words around it make it a year.
    is_article = text.words[place] == "an"
    if (found := _counted(text, name, first, last)) and (text.words[found.first] == "il" or not is_article):
        return found
    if after in say.LAST_AFTER:
        short = name in ("minute", "hour")
        return Found(first, last + 1, rolling(text.at, name, 1) if short else whole(name, text.at, back=1))
    if is_article:
        return None
    if before in say.PAST:
        begin = first - 2 if text.before(first - 1) in say.THIS else first - 1
        when = whole(name, text.at, back=1) if name in ("weekend", "season") else rolling(text.at, name, 1)
        return Found(begin, last, when)
    return _odd_days(text, place) if name in _NEVER_WHOLE else _whole(text, name, first, last)


def _whole(text: Words, name: str, first: int, last: int) -> Found | None:
    before = text.before(first)
    # "The last week of March" is not last week.
    if before in say.LAST and text.word(last) not in ("of", "de", "du"):
        return Found(first - 1, last, whole(name, text.at, back=1))
    if before in say.THIS:
        return Found(first - 1, last, whole(name, text.at))
    if text.begins(last, "before", "last"):
        return Found(first, last + 2, whole(name, text.at, back=2))
    if before in say.LAST_BUT_ONE:
        return Found(first - 1, last, whole(name, text.at, back=2))
    return None


def _odd_days(text: Words, place: int) -> Found | None:
    if text.begins(place, "day") and text.before(place) == "other":
        return Found(place - 1, place + 1, rolling(text.at, "day", _OTHER_DAY_DAYS))
    if text.begins(place, "days") and text.before(place) == "these":
        return Found(place - 1, place + 1, rolling(text.at, "day", _LATELY_DAYS))
    return None


def _counted(text: Words, name: str, first: int, last: int) -> Found | None:
    """A number of units, where the words around say from when on they count."""
    # French puts the word between: "les trois derniers jours".
    inner = text.before(first) in say.LAST or text.before(first) in say.PAST
    count = count_before(text, first - 1 if inner else first)
    if count is None:
        # "Years ago" is some years ago.
        if text.word(last) == "ago" and text.words[first].endswith("s"):
            return Found(first, last + 1, ago(text.at, name, 2, 6))
        return None
    start, least, most = count
    if inner:
        return Found(start, last, rolling(text.at, name, most)) if most > 1 else None
    before = text.before(start)
    if before in say.LAST or before in say.PAST:
        return Found(start - 1, last, rolling(text.at, name, most)) if name != "season" else None
    end = last
    if text.begins(end, "and", "a", "half"):
        end, least, most = end + 3, least + 0.5, most + 0.5
    elif text.begins(end, "or", "so"):
        end += 2
    if most == 0.5:
        name, least, most = say.HALVES.get(name, (name, least, most))
    if text.word(end) in ("ago", "back"):
        return Found(start, end + 1, ago(text.at, name, least, most))
    begin = start - 1 if before in say.ABOUT else start
    begin = begin - 3 if text.ends(begin, "il", "y", "a") else begin - (text.before(begin) in say.AGO_BEFORE)
    return Found(begin, last, ago(text.at, name, least, most)) if text.words[begin] in say.AGO_OPENS else None


def count_before(text: Words, end: int) -> tuple[int, float, float] | None:
    """The count just before a place: where it begins, the least and the most that it can mean."""
    place = end - 2 if text.ends(end, "couple", "of") else end - 1
    count = _count(text, place)
    if count is None:
        return None
    least, most = count
    before = text.before(place)
    if before == "or" and (lower := _count(text, place - 2)):
        return place - 2, lower[0], most
    if before == "half" and most == 1:
        return place - 1, 0.5, 0.5
    # The article of "a few"; in "il y a quelques jours" it is no article.
    has_article = most > least and before in ("a", "ein") and not text.ends(place, "il", "y", "a")
    return place - has_article, least, most


def _count(text: Words, place: int) -> tuple[float, float] | None:
    word = text.words[place] if place >= text.free else ""
    if word.isdecimal():
        return (float(word), float(word)) if len(word) <= 3 and not text.is_part(place) else None
    return say.COUNTS.get(word)


def day_back(text: Words, place: int) -> Found | None:
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
    return _in_part(text, Found(first, last, day_of(text.at, back), "day"))


def weekday(text: Words, place: int) -> Found | None:
    """The latest such day before today; with "this", the one of this week."""
    before, after = text.before(place), text.word(place + 1)
    if before in say.NEXT or before in say.AGAIN or after in say.NEXT:
        return None
    ahead = say.WEEKDAYS[text.words[place]] - text.at.weekday()
    first, last = place, place + 1
    if before in say.THIS:
        return _in_part(text, Found(place - 1, last, day_of(text.at, -ahead), "weekday"))
    if before in say.LAST or before in say.PAST:
        first = place - 2 if text.before(place - 1) in say.THIS else place - 1
    elif after in say.LAST_AFTER:
        last += 1
    # Whoever means today says so: Monday said on a Monday was a week ago.
    return _in_part(text, Found(first, last, day_of(text.at, -ahead if ahead < 0 else 7 - ahead), "weekday"))


def _in_part(text: Words, day: Found) -> Found:
    """The day, or the part of it that the next word names."""
    hours = say.DAY_PARTS.get(text.word(day.last))
    return day if hours is None else replace(day, last=day.last + 1, when=_hours(day.when, hours))


def _hours(day: Stretch, hours: tuple[int, int]) -> Stretch:
    return day[0] + timedelta(hours=hours[0]), day[0] + timedelta(hours=hours[1])


def day_part(text: Words, place: int) -> Found | None:
    """This morning, last night."""
    before, hours = text.before(place), say.DAY_PARTS[text.words[place]]
    if text.word(place + 1) in say.LAST_AFTER:
        return Found(place, place + 2, _hours(day_of(text.at, 1), hours))
    if before in say.LAST or before in say.THIS:
        return Found(place - 1, place + 1, _hours(day_of(text.at, int(before in say.LAST)), hours))
    return None


def night(text: Words, place: int) -> Found | None:
    """Tonight, or last night in one word."""
    hours = say.DAY_PARTS["night"]
    return Found(place, place + 1, _hours(day_of(text.at, say.NIGHTS_BACK[text.words[place]]), hours))


def lately(text: Words, place: int) -> Found | None:
    """The last thirty days."""
    return Found(place, place + 1, rolling(text.at, "day", _LATELY_DAYS))
