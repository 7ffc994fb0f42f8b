"""A text as the readers of time see it: its words, where they stand, and the moment they were said at."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime

from recollect.language.when_calendar import TimeSpan

# Words with their digits and accents, single signs, and an ISO date as one word.
_TOKEN = re.compile(r"(?<![-/.])\d{4}-\d\d-\d\d(?!\d)|[\w\u0300-\u036f]+|[^\w\s]")


@dataclass(slots=True)
class TimeMatch:
    """An expression: which words it takes, the local time it means, and its month and day if no year was said."""

    first: int
    last: int
    when: TimeSpan
    kind: str = ""
    floating: tuple[int, int] | None = None


class TokenizedText:
    """The words of a text in lower case, read from left to right; `free` is the first not yet part of anything."""

    __slots__ = ("at", "free", "marks", "text", "words")

    def __init__(self, text: str, at: datetime) -> None:
        self.text, self.at, self.free = text, at, 0
        self.marks = [match.span() for match in _TOKEN.finditer(text)]
        self.words = [text[start:end].lower() for start, end in self.marks]
        if not text.isascii():
            self.words = [unicodedata.normalize("NFC", word).replace("’", "'") for word in self.words]

    def word(self, place: int) -> str:
        """The word there, or nothing beyond the ends of the text."""
        return self.words[place] if 0 <= place < len(self.words) else ""

    def before(self, place: int) -> str:
        """The word before, unless it belongs to another expression already."""
        return self.words[place - 1] if place > self.free else ""

    def ends(self, place: int, *words: str) -> bool:
        """Whether just these words stand before the place."""
        start = place - len(words)
        return start >= self.free and self.words[start:place] == list(words)

    def begins(self, place: int, *words: str) -> bool:
        """Whether just these words stand from the place on."""
        return self.words[place : place + len(words)] == list(words)

    def is_capital(self, place: int) -> bool:
        """Whether the word was written with a capital letter."""
        return self.text[self.marks[place][0]].isupper()

    def is_part(self, place: int) -> bool:
        """Whether a number is part of something longer, as in 3.14, 1:30 or 2,000."""
        for sign, far in ((place - 1, place - 2), (place + 1, place + 2)):
            if self.word(sign) in (".", ",", ":", "/", "-") and self.word(far)[:1].isdecimal():
                low, high = min(place, far), max(place, far)
                if self.marks[high][0] - self.marks[low][1] == 1:
                    return True
        return False
