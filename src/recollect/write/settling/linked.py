"""What small words link to what comes behind them: with and for whom, for how long, instead of which number."""

from __future__ import annotations

from recollect.write.settling.lexicon import MARK, entry
from recollect.write.settling.quantity import number_in, spelt_number
from recollect.write.settling.reading import Reading
from recollect.write.settling.small_words import INSTEAD

_BESIDE = frozenset(["with", "for"])
_CUES = _BESIDE | INSTEAD | {"since"}
_HAS = frozenset(["has", "have"])
_ABOUT = frozenset("about around roughly approximately".split())
_LOOKING = frozenset(["looking", "searching"])
# What is already there is looked for because it is lost: "his keys".
_CERTAIN = frozenset("the my his her their its our user's this that these those it him them".split())


def note_links(words: list[str], reading: Reading) -> None:
    """Add to what was read what is told by a small word and those behind it."""
    if _CUES.isdisjoint(words):
        return
    for at, word in enumerate(words):
        if word in _BESIDE:
            _note_beside(reading, words, at)
            if word == "for":
                _note_for(reading, words, at)
        elif word in INSTEAD:
            _note_instead(reading, words, at + 1)
        elif word == "since" and not _HAS.isdisjoint(words[:at]):
            reading.lasting = True


def _note_beside(reading: Reading, words: list[str], at: int) -> None:
    """Note what stands behind "with" or "for": cooking with someone is not cooking for them."""
    ahead = words[at + 1 : at + 6]
    numbers = [entry(word).number and word not in reading.names for word in ahead]
    told = [entry(word).parts for word, counts in zip(ahead, numbers, strict=True) if not counts]
    found = [parts for parts in told if parts and parts[0][0] != MARK]
    # "For a two-bedroom flat" is for a flat.
    counted = len(found) > 1 and any(numbers[:2])
    reading.beside.setdefault(words[at], set()).update(found[counted] if found else ())


def _note_for(reading: Reading, words: list[str], at: int) -> None:
    """Note whether something has been so for a time that is told, or is looked for: "has had it for a week"."""
    ahead = [each for each in words[at + 1 : at + 6] if each not in _ABOUT]
    first = ahead[0] if ahead else ""
    if entry(first).number or first in ("a", "an", "one"):
        span = any(entry(each).time or entry(each).unit for each in ahead[1:4])
        reading.lasting |= span and not _HAS.isdisjoint(words[:at])
    if at and words[at - 1] in _LOOKING:
        reading.seeks |= first not in _CERTAIN and first not in reading.names


def _note_instead(reading: Reading, words: list[str], at: int) -> None:
    """Note the number or time that is no longer so: "at seven instead of eight"."""
    told = [*words[at + 1 : at + 3], "", ""]
    if told[0][:1].isdigit():
        found = number_in(told[0], told[1])
        reading.follows.setdefault("instead", set()).update((found.time,) if found.time else found.numbers)
    elif entry(told[0]).number:
        reading.follows.setdefault("instead", set()).add(spelt_number(words[at + 1 : at + 9])[0])
