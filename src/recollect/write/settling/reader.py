"""Read a statement: what it says of whom, and every detail in which another must not differ."""

from __future__ import annotations

import re

from recollect.write.settling.finer import note_details
from recollect.write.settling.fronted import turned
from recollect.write.settling.kin import kin
from recollect.write.settling.lexicon import entry, lexicon
from recollect.write.settling.measures import in_figures
from recollect.write.settling.mended import mended
from recollect.write.settling.plainer import plainer
from recollect.write.settling.reading import Reading
from recollect.write.settling.recast import recast
from recollect.write.settling.reported import told_by
from recollect.write.settling.senses import by_sense
from recollect.write.settling.small_words import BEFORE_ORDERS, CLAUSES, JOINS
from recollect.write.settling.titled import untitled
from recollect.write.settling.tokens import Token, tokens_of
from recollect.write.settling.walk import Walk

_INITIALS = re.compile(r"\b[A-Z]{2,5}\b")


def read(text: str) -> Reading:
    """What a statement holds."""
    plain = turned(told_by(mended(text)))
    # Where all is written large, a capital says nothing.
    tokens = plainer(untitled(in_figures(by_sense(tokens_of(plain)))))
    told = recast(tokens)
    reading = Walk(told, shouted=plain.isupper()).read()
    note_details(told, reading)
    if reading.names:
        reading.short = reading.names.intersection(short.lower() for short in _INITIALS.findall(plain))
    reading.bare = _bare(tokens)
    reading.may_name = "" if reading.bare in kin() else reading.bare
    reading.ordered = _is_order(tokens)
    reading.simple = ", " not in plain and CLAUSES.isdisjoint(reading.order)
    reading.quotes = '"' in plain and "said" in reading.order
    reading.listed = ", " in plain or not JOINS.isdisjoint(reading.order)
    return reading


def _is_order(tokens: list[Token]) -> bool:
    """Whether it begins as an order does: "keep", "please do not use"."""
    for word, *_ in tokens[:4]:
        if word not in BEFORE_ORDERS:
            asked = "please" in (tokens[0][0], tokens[-1][0])
            return word in lexicon().orders or (asked and word not in ("i", "user", "the"))
    return False


def _bare(tokens: list[Token]) -> str:
    """The first word as readings hold it, if it may stand for someone: "Bob likes tea"."""
    word, capital, _ = tokens[0] if tokens else ("", False, False)
    if not capital or word in lexicon().becomes or word.endswith(("ing", "ed")) or _is_plural(word):
        return ""
    # "Depuis 2015" is no name.
    return "" if entry(tokens[1][0] if len(tokens) > 1 else "").number else entry(word).verb


def _is_plural(word: str) -> bool:
    return word.endswith("s") and not word.endswith(("us", "is", "as", "os", "ss"))
