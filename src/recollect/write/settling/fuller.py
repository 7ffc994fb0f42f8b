"""A value that says less than the one that is known does not replace it, and may be completed by it."""

from __future__ import annotations

import re
from dataclasses import replace

from recollect.model.learned import Learned
from recollect.model.memory import Category, MemoryRecord

_WORD = re.compile(r"\w+")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
BIRTHDAY = "birthday"


def in_known_words(learned: Learned, holder: MemoryRecord) -> Learned:
    """A new value in the words in which the old one is known, if it stands there once."""
    value = holder.value or ""
    if learned.retraction or not learned.value or not value or holder.content.count(value) != 1:
        return learned
    return replace(learned, content=holder.content.replace(value, learned.value))


def says_less(learned: Learned, holder: MemoryRecord) -> bool:
    """Whether who the user is was told in more words before: "Maria" after "Maria Lindqvist"."""
    if learned.category is not Category.IDENTITY:
        return False
    new, old = (_WORD.findall((each or "").casefold()) for each in (learned.value, holder.value))
    if not new or len(new) >= len(old):
        return False
    # York is not New York, but any part of a date is of that date.
    return set(new) <= set(old) if learned.key == BIRTHDAY else new == old[: len(new)]


def completed(learned: Learned, holder: MemoryRecord) -> Learned:
    """A birthday with what only the known one tells: the year where only the day is said, or the day."""
    value, known = learned.value or "", holder.value or ""
    if learned.key != BIRTHDAY or not value:
        return learned
    year = _YEAR.search(known)
    if year and not _YEAR.search(value):
        whole = f"{value}, {year[0]}" if value[-1].isdigit() else f"{value} {year[0]}"
    elif _YEAR.fullmatch(value) and known and not year:
        whole = f"{known}, {value}" if known[-1].isdigit() else f"{known} {value}"
    else:
        return learned
    return replace(learned, value=whole, content=learned.content.replace(value, whole, 1))
