"""Whether two statements say the same: by letters, by words, by meaning, and never where something differs."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from recollect.model.at_hand import at_hand
from recollect.write.settling.differs import differing
from recollect.write.settling.kin import aligned
from recollect.write.settling.reader import read
from recollect.write.settling.reading import Reading

# Of all that the richer statement holds, the other must hold this much; with less, the meaning must be surer.
_NEARLY_ALL, _MOST = 0.75, 0.6
# Where every word of weight is the same, little more is asked; one such word alone says little.
_NOT_UNLIKE, _ONE_WORD = 0.3, 0.5
_LESS_SURE = 0.1

# What is longer is no statement and the same only as itself: comparing takes time by the product of the lengths.
MAX_CHARS = 2_000
LENGTH = "its length"


@dataclass(frozen=True, slots=True)
class Likeness:
    """How alike two texts are, from 0 to 1; what they differ in for good; how many words of weight the richer has."""

    letters: float
    words: float
    differs: str = ""
    held: int = 2


@dataclass(frozen=True, slots=True)
class SameLimits:
    """From where on two statements in which nothing differs are one: above `letters` or `meaning`, of 0 to 1."""

    letters: float = 0.8
    meaning: float = 0.9


@dataclass(frozen=True, slots=True)
class Text:
    """A text made ready to be compared many times."""

    plain: str
    reading: Reading | None
    # All of weight that it holds.
    held: frozenset[str] = frozenset()


def ready(text: str) -> Text:
    """A text made ready to be compared; it is read once while it is compared often."""
    return _ready_again(text) if len(text) <= MAX_CHARS else _made_ready(text)


def _made_ready(text: str) -> Text:
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    if len(plain) > MAX_CHARS:
        return Text(plain, None)
    reading = read(text)
    return Text(plain, reading, reading.held())


# Those who talk for a while are near the same few memories again and again.
_ready_again = at_hand(1_024)(_made_ready)


def compare(a: str, b: str) -> Likeness:
    """How alike two statements are, and what keeps them apart if anything does."""
    return likeness(ready(a), ready(b))


def likeness(a: Text, b: Text) -> Likeness:
    """How alike two texts are that were made ready before."""
    if a.plain == b.plain:
        return Likeness(1.0, 1.0)
    if a.reading is None or b.reading is None:
        return Likeness(0.0, 0.0, LENGTH)
    one, other = aligned(a.reading, b.reading)
    words, held = _words(one.held(), other.held())
    return Likeness(_letters(a.plain, b.plain), words, differing(one, other), held)


def said_again(alike: Likeness, similarity: float, *, limits: SameLimits) -> str:
    """By what two statements are one: their letters, words or meaning; empty if they are two.

    `similarity` is how near their meanings are, from 0 to 1.
    """
    if alike.differs:
        return ""
    if alike.words >= _NEARLY_ALL and alike.letters > limits.letters:
        return "letters"
    if alike.words == 1 and max(similarity, alike.letters) >= (_NOT_UNLIKE if alike.held > 1 else _ONE_WORD):
        return "words"
    sure = similarity > limits.meaning or (alike.words >= _NEARLY_ALL and similarity > limits.meaning - _LESS_SURE)
    return "meaning" if sure and alike.words >= _MOST else ""


def _letters(a: str, b: str) -> float:
    from rapidfuzz.distance import Levenshtein

    return float(Levenshtein.normalized_similarity(a, b))


def _words(mine: frozenset[str], theirs: frozenset[str]) -> tuple[float, int]:
    """The share of what the richer of two statements holds that the other holds too, and how much that is."""
    most = max(len(mine), len(theirs))
    return (len(mine & theirs) / most if most else 0.0), most
