"""What is said to be over may be told as it was: "User is vegan", not "User is no longer vegan"."""

from __future__ import annotations

import re

from recollect.write.extraction.ground import denies
from recollect.write.extraction.words import plain_words, words
from recollect.write.rules.pack import pack_for
from recollect.write.settling.lexicon import ENDED, PAST
from recollect.write.settling.reading import Reading
from recollect.write.settling.same import ready

_PARTS = re.compile(r"[.!?;,:\n]+")
# Whoever says it in so many parts has not said it plainly.
_MOST_PARTS = 50


def told_as_over(content: str, own: str, *, opposite: bool) -> str:
    """A statement that is over in words that say so, if it is told as it was; empty if it tells the end itself.

    `own` is what the user said of it; `opposite` is whether that plainly says the opposite. What the user says so
    themselves is what holds now: "I am vegan again".
    """
    mine = ready(content).reading
    if mine is None:
        return ""
    if not opposite and (_names_an_end(content) or _tells_an_end(mine) or _is_said(mine, own)):
        return ""
    return pack_for(content).texts["untrue"].format(content=content)


def _names_an_end(content: str) -> bool:
    return denies(content) or not words().ends.isdisjoint(plain_words(content))


def _tells_an_end(reading: Reading) -> bool:
    """Whether it says that something is not so, or what happened: "sold", "has left", "used to"."""
    return bool(reading.negated or reading.past or reading.perfect or {ENDED, PAST} & reading.marks)


def _is_said(mine: Reading, own: str) -> bool:
    parts = [own, *_PARTS.split(own)[:_MOST_PARTS]]
    read = [found for part in parts if part.strip() and (found := ready(part).reading)]
    return any(mine.words <= said.words and mine.people == said.people and not _tells_an_end(said) for said in read)
