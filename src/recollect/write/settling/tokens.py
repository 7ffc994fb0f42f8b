"""The words of a statement, as they are written: contractions parted, addresses and dates kept whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from recollect.write.settling.lexicon import TIME

# A word as written small, whether it was written large, whether it begins a sentence.
Token: TypeAlias = tuple[str, bool, bool]

# A word, a number with what hangs on it, a sign of money; scripts without spaces by the character.
_PIECE = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff]"
    r"|\d(?:[\d.,:/]*\d)?[^\W\d_\u3040-\u30ff\u3400-\u9fff]*"
    r"|[^\W\d_\u3040-\u30ff\u3400-\u9fff][^\W_\u3040-\u30ff\u3400-\u9fff]*(?:'[^\W\d_]+)*"
    # Signs that are part of a name or a grade: C++, F#, A*, A-.
    r"(?:(?:\+{1,2}|#)(?!\w)|(?<=\b[A-Z])\*(?![\w*])|(?:(?<=\b[ABCDO])|(?<=\bAB))-(?![\w-]))?"
    r"|[$€£¥₹%]|[.!?;:]|(?<![\w)])[-\u2212](?=[$€£¥₹]?\d)"
)
_MINUS = frozenset("-\u2212")
# A score, or from when to when: 3-1.
_JOINED = re.compile(r"\d{1,3}-\d{1,3}")
# What is sugar-free has none.
_FREE, LACKING = "-free", "freeof"
_ISO_DATE = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)")
# A label is one name too: eu-west-1.
_LABEL = re.compile(r"[^\W\d_]\w*(?:-\w+)*-\d+")
_AROUND = ".,;:!?()[]<>\"'"
# Points that end no sentence.
_HALVES = (
    *(("a.m.", "am"), ("p.m.", "pm"), ("A.M.", "am"), ("P.M.", "pm")),
    *((f"{title}. ", f"{title} ") for title in ("Mr", "Mrs", "Ms", "Dr", "Prof", "St")),
)
_ENDS = frozenset(".!?;:")
_SHORT = {"ll": "will", "d": "would", "ve": "have", "re": "are", "m": "am"}
_SHORT_NOT = {"can": "can", "won": "will", "shan": "shall", "ain": "is"}
# The same written in haste: "dont".
_HASTY = {
    f"{verb}nt": verb
    for verb in "do does did is are was were has have had would could should must might need".split()
} | {"cant": "can", "wont": "will", "aint": "is"}
# Behind these it is "is": "it's", "there's"; behind others it is whose something is.
_IS_SHORT = frozenset("user nutzer it he she that this there here what who where when how let one".split())
_ELISIONS = frozenset(["l", "d", "j", "m", "t", "s", "c", "qu", "n"])


def tokens_of(text: str) -> list[Token]:
    """The words of a text, in order, in small letters."""
    found: list[Token] = []
    opens = True
    for piece in _pieces(text):
        if piece in _ENDS:
            opens = True
            continue
        if piece in _MINUS:
            piece = "minus"
        lower = piece.lower()
        if "'" in lower:
            found += _parted(lower, piece[0].isupper(), opens)
        elif lower in _HASTY:
            found += ((_HASTY[lower], piece[0].isupper(), opens), ("not", False, False))
        else:
            found.append((lower, piece[0].isupper(), opens))
        opens = False
    return found


def _pieces(text: str) -> Iterable[str]:
    for dotted, short in _HALVES:
        text = text.replace(dotted, short)
    is_plain = "@" not in text and "://" not in text and "-" not in text
    return _PIECE.findall(text) if is_plain else _chunked(text)


def _chunked(text: str) -> Iterator[str]:
    for chunk in text.split():
        if "@" in chunk or "://" in chunk:
            # An address is one name, whatever it is made of.
            yield chunk.strip(_AROUND) or chunk
        elif _LABEL.fullmatch(chunk.strip(_AROUND)):
            yield chunk.strip(_AROUND)
        elif (bare := chunk.strip(_AROUND)).endswith(_FREE):
            yield bare.removesuffix(_FREE)
            yield LACKING
        elif _JOINED.fullmatch(chunk.strip(_AROUND)):
            yield chunk.strip(_AROUND).replace("-", "/")
        elif date := _ISO_DATE.match(chunk):
            yield date[1]
            yield f"{TIME}m{int(date[2])}"
            yield str(int(date[3]))
            yield from _PIECE.findall(chunk[date.end() :])
        else:
            yield from _PIECE.findall(chunk)


def _parted(lower: str, capital: bool, opens: bool) -> Iterator[Token]:
    """The parts of a word with an apostrophe: "don't" is two, "l'ami" is one and a bit."""
    head, _, tail = lower.partition("'")
    if tail == "t" and head.endswith("n"):
        yield _SHORT_NOT.get(head, head[:-1]), capital, opens
        yield "not", False, False
    elif head in _ELISIONS:
        yield "ne" if head == "n" else head, False, False
        yield tail, False, opens
    else:
        yield head if tail != "s" or head not in ("user", "nutzer") else "user's", capital, opens
        if tail in _SHORT:
            yield _SHORT[tail], False, False
        elif tail == "s" and head not in _IS_SHORT:
            yield "'s", False, False
