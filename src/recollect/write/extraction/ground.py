"""Tell what was said from what a model made up: cheaply, and in no language in particular.

A statement stands when its numbers and names were said, or are dates that can be worked out, and when at least one of
its other words was said in the turns it cites, and not turned round. Wording may differ; what it is about may not.
"""

from __future__ import annotations

import re
import unicodedata
from calendar import monthrange
from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from functools import cached_property

from recollect.language.when_words import MONTHS
from recollect.ledger.terms import terms_of
from recollect.model.turn import Turn
from recollect.write.extraction.clock import Clock, clocks, clocks_in_figures
from recollect.write.extraction.faithful import Part, parts_of, topics_of, turned
from recollect.write.extraction.spoken import spoken_numbers
from recollect.write.extraction.words import has_capital_nouns, names_of, plain_words, readings, words

# How far from the day of a turn a day can lie that the turn speaks of without naming it.
MAX_DAYS_AWAY = 400
_ISO_DATE = re.compile(r"(?<!\d)(\d{4})-(\d{2})(?:-(\d{2}))?(?!\d)")
_CLOCK = re.compile(r"(?<!\d)(\d{1,2}):(\d{2})(?!\d)")
_MIDDLE_OF_MONTH = 15
_SHORT = 4
_STEM = 5


class Said:
    """What some texts say, in the forms in which a statement can be looked up in it."""

    def __init__(self, texts: Iterable[str], days: Iterable[date] = ()) -> None:
        self.days = sorted(set(days))
        self.text = "\n".join(texts)
        self.terms = frozenset(terms_of(self.text))
        self.numbers = spoken_numbers(self.text).union(*readings(self.text))
        self.words = frozenset(plain_words(self.text))
        self._stems = frozenset(word[:_STEM] for word in self.terms | self.words if len(word) >= _STEM)
        self._starts = frozenset(word[:_SHORT] for word in self.words if len(word) >= _SHORT)
        self._acronyms = frozenset(word.casefold() for word in _capitals(self.text))
        self.scripts = scripts_of(self.text)
        self.years = self._near_years()
        self.names_month = not self.words.isdisjoint(words().months)

    @classmethod
    def of(cls, turns: Sequence[Turn], known: Sequence[str] = ()) -> Said:
        """What the turns say; `known` helps to understand them."""
        texts = [text for turn in turns for text in (turn.content, turn.name or "")]
        return cls([*texts, *known], [turn.said_at.date() for turn in turns])

    @cached_property
    def clocks(self) -> set[Clock]:
        """The times of day that are told."""
        return clocks(self.text)

    @cached_property
    def parts(self) -> list[Part]:
        """What is said, one thing at a time."""
        return parts_of(self.text)

    def has_term(self, term: str) -> bool:
        """Whether the term, or a word of the same stem, was said."""
        return term in self.terms or (len(term) >= _STEM and term[:_STEM] in self._stems)

    def has_literally(self, text: str) -> bool:
        """Whether it was said just so, signs included: "A+", "C"."""
        return re.search(rf"(?<![^\W_]){re.escape(text.strip())}(?![^\W_]|[+#])", self.text) is not None

    def has_name(self, run: Sequence[str], word: str) -> bool:
        """Whether a word of a name was said, also as a short form, a longer form or an acronym of it."""
        plain = word.casefold()
        if plain in self.words or plain[:_SHORT] in self._starts or (len(plain) > 3 and plain[:3] in self.words):
            return True
        if any(term in self.terms for term in terms_of(word)):
            return True
        initials = "".join(each[0] for each in run).casefold()
        capitals = "".join(char for char in word if char.isupper()).casefold()
        return any(
            (len(initials) > 1 and short.startswith(initials))
            or (len(capitals) > 1 and short == capitals)
            or plain.startswith(short)
            for short in self._acronyms
        )

    def _near_years(self) -> set[Decimal]:
        """The years around the turns, and those so many years before."""
        ago = {int(number) for number in self.numbers if number == int(number) and 0 < number <= 120}
        return {Decimal(day.year + off) for day in self.days for off in {-1, 0, 1} | {-years for years in ago}}

    def has_parts_of(self, word: str) -> bool:
        """Whether a part of a compound was said: "Budget" of "Reisebudget"."""
        plain = word.casefold()[:40]
        ends = range(_STEM, len(plain) + 1)
        return any(plain[at : at + size] in self.words for size in ends for at in range(len(plain) - size + 1))


def _capitals(text: str) -> list[str]:
    """Words of two to four capital letters."""
    return re.findall(r"(?<![^\W_])[^\W\d_a-z]{2,4}(?![^\W_])", text)


def scripts_of(text: str) -> frozenset[str]:
    """The scripts a text is written in, those of East Asia taken as one."""
    found = {unicodedata.name(char, "?").split()[0] for char in set(text[:20_000]) if char.isalpha()}
    east = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "HALFWIDTH", "FULLWIDTH"}
    return frozenset({"EAST"} | found - east if found & east else found)


def made_up(content: str, *, when: date | None, cited: Said, shown: Said, users: Said | None = None) -> str:
    """Why the statement cannot come from what was said; nothing if it can.

    `shown` is all that the model saw; `users` is what the user says in the cited turns, if those are not all theirs.
    """
    return unsaid(content, when=when, cited=cited, shown=shown) or turned(content, (users or cited).parts)


def unsaid(content: str, *, when: date | None, cited: Said, shown: Said) -> str:
    """What of it nobody said; nothing if all of it was said, be it the other way round."""
    if number := _unsaid_number(content, when=when, cited=cited, shown=shown):
        return f"nobody said {number}"
    if not scripts_of(content) & shown.scripts:
        # Translated into another script: its words cannot be compared.
        return ""
    if name := _unsaid_name(content, shown):
        return f"nobody said {name}"
    return (
        "" if is_supported(content, cited=cited, shown=shown) else "none of its words was said in the turns it cites"
    )


def denies_what_was_said(content: str, cited: Said) -> bool:
    """Whether it says no in the very words in which the turns say nothing of the kind."""
    if not denies(content) or denies(cited.text):
        return False
    telling = set(terms_of(content)) - words().generic - {term for word in words().denies for term in terms_of(word)}
    return bool(telling) and all(cited.has_term(term) for term in telling)


def denies(text: str) -> bool:
    """Whether it says no to something."""
    return "n't" in text.replace("\u2019", "'") or not words().denies.isdisjoint(plain_words(text))


def is_supported(content: str, *, cited: Said, shown: Said) -> bool:
    """Whether a word that matters was said in the cited turns, or a word at all where they only point at the rest."""
    terms = set(terms_of(content))
    telling = terms - words().generic
    if any(cited.has_term(term) for term in telling):
        return True
    # Who would never touch a cigarette does not smoke.
    if topics_of(content).keys() & topics_of(cited.text).keys():
        return True
    # "NYC" says "New York".
    if any(all(cited.has_name(run, word) for word in run) for run in names_of(content)):
        return True
    return any(cited.has_term(term) for term in terms) and any(shown.has_term(term) for term in telling)


def rests_on(content: str, quoted: Said, *, rather_than: Said, every_word: bool = False) -> bool:
    """Whether a word that matters, or `every_word` there is, was said in the one and not in the other."""
    terms = set(terms_of(content)) - (frozenset() if every_word else words().generic)
    return any(quoted.has_term(term) and not rather_than.has_term(term) for term in terms)


def is_near(day: date, said: Said) -> bool:
    """Whether the day can be worked out from what was said: near a turn's day, or its year was named."""
    return Decimal(day.year) in said.numbers or any(abs((day - each).days) <= MAX_DAYS_AWAY for each in said.days)


def _unsaid_number(content: str, *, when: date | None, cited: Said, shown: Said) -> str:
    allowed = shown.numbers | shown.years | _worked_out(content, when, cited, shown) | _afternoon(content, shown)
    unsaid = [values for values in readings(content) if not values & allowed]
    return f"{min(unsaid[0]):f}" if unsaid else ""


def _afternoon(content: str, shown: Said) -> set[Decimal]:
    """The hours and minutes of 15:30 where someone said half past three, or 3 and 30, or 3 alone for 15:00."""
    parts: set[Decimal] = set()
    for match, clock in clocks_in_figures(content):
        if clock in shown.clocks:
            parts |= {value for values in readings(match.group()) for value in values}
    for hour, minute in _CLOCK.findall(content):
        said_hour = {Decimal(hour), Decimal(int(hour) - 12)} & shown.numbers
        if said_hour and Decimal(minute) in shown.numbers | {Decimal(0)}:
            parts |= {Decimal(hour), Decimal(minute)}
    return parts


def _worked_out(content: str, when: date | None, cited: Said, shown: Said) -> set[Decimal]:
    """The parts of dates that nobody named but a turn's day tells: only where the turns name no date themselves."""
    parts: set[Decimal] = set()
    dates = [(int(year), int(month), int(day or 1)) for year, month, day in _ISO_DATE.findall(content)]
    dates += [(when.year, when.month, when.day)] if when else []
    for year, month, day in dates:
        try:
            near = is_near(date(year, month, day), shown)
        except ValueError:
            continue
        if near:
            # A month that was named by its name is a number nobody said.
            parts |= {Decimal(year), Decimal(month)}
            parts |= set() if cited.names_month else {Decimal(day)}
    if cited.names_month:
        parts |= _edges_of_month(cited)
    if not cited.names_month and not words().months.isdisjoint(plain_words(content)):
        parts |= {Decimal(day) for day in range(1, 32)}
    return parts


def _edges_of_month(cited: Said) -> set[Decimal]:
    """The days that are meant by the end, the beginning or the middle of a month that is named."""
    told = words().month_parts
    named = {MONTHS[word] for word in cited.words if word in MONTHS}
    days = {monthrange(day.year + off, month)[1] for month in named for day in cited.days for off in (0, 1)}
    found = {Decimal(day) for day in days} if not cited.words.isdisjoint(told["last"]) else set()
    found |= {Decimal(1)} if not cited.words.isdisjoint(told["first"]) else set()
    return found | ({Decimal(_MIDDLE_OF_MONTH)} if not cited.words.isdisjoint(told["middle"]) else set())


def _unsaid_name(content: str, shown: Said) -> str:
    known = words()
    runs = names_of(content)
    total = sum(map(len, runs))
    unsaid = [
        word
        for run in runs
        for word in run
        if not shown.has_name(run, word)
        and word.casefold() not in known.months | known.days
        and not set(terms_of(word)) <= known.generic
    ]
    if unsaid and has_capital_nouns(content):
        # Nouns may be put otherwise, as long as half of them were said.
        unsaid = [word for word in unsaid if not shown.has_parts_of(word)]
        return unsaid[0] if len(unsaid) * 2 > total else ""
    return unsaid[0] if unsaid else ""
