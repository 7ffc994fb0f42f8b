"""What goes before the main clause of a statement, put behind it."""

from __future__ import annotations

import re

from recollect.write.settling.lexicon import entry

_FRONTING = frozenset(
    "on in at for every each next last when if because before after since until during of as twice once with "
    "without over throughout around between within while despite instead thanks due from to by besides unlike "
    "starting near behind outside inside".split()
)
# Before a number these tell how many, not when: "over 50 guests came".
_ABOUT = frozenset(["over", "around"])
_BEFORE = frozenset("to of from with by for and than about like unlike".split())
_LEADING = frozenset(["at", "in", "on", "of"])
_ADVERBS = frozenset(
    "someday sometimes usually normally typically generally often currently recently today tomorrow yesterday "
    "tonight lately nowadays eventually".split()
)
_YEAR = 4
_OPENING = _FRONTING | _ADVERBS
_OPINION = re.compile(r"[Ii]n my (?:opinion|view|eyes),? ")
_SUBJECT = re.compile(r" (?:the user|user|user's|the user's|I|we|my)(?= )")
# What may stand in a time that goes before: "on the 3rd of May", "every second Monday".
_BETWEEN = frozenset("the of this every each other next last and at in on now a per am pm o'clock".split())


def turned(text: str) -> str:
    """The text with what goes before its main clause put behind it: "on Mondays I swim" is "I swim on Mondays"."""
    first, _, _ = text.partition(" ")
    if opinion := _OPINION.match(text):
        return f"I think {text[opinion.end() :]}"
    opens = first.lower().strip(",")
    if ". " in text or (opens not in _OPENING and not entry(opens).number):
        return text
    if opens in _ABOUT and _is_amount(text.split(" ", 2)[1:2]):
        return text
    if opens in _ADVERBS:
        at = len(first)
    else:
        at = _end_of_time(text) or (_end_of_clause(text) if opens in _FRONTING else 0)
    if not at:
        return text
    front = (first.lower() + text[len(first) : at]).rstrip(", ")
    return f"{text[at:].strip().rstrip('.')} {front}"


def _is_amount(words: list[str]) -> bool:
    return any(entry(word.lower()).number or not word[:1].isalpha() for word in words)


def _end_of_time(text: str) -> int:
    """Where a time that the text begins with ends: "in 2022 they moved"; 0 if it begins with something else."""
    at, told, last = 0, False, ""
    for word in text.split(" "):
        plain = word.strip(",").lower()
        known = entry(plain)
        if known.time or known.unit or known.number or plain.removesuffix("s") in ("time", "week", "month", "year"):
            # A number that comes first is a year or counts something: "12 hurt in crash".
            told = told or bool(known.time or known.unit or (plain.isdigit() and (at or len(plain) == _YEAR)))
        elif at and plain not in _BETWEEN:
            if last in _LEADING:
                # "Every year at Christmas": the time goes on.
                return 0
            break
        last = plain
        at += len(word) + 1
        if word.endswith(","):
            break
    return at - 1 if told and at < len(text) else 0


def _end_of_clause(text: str) -> int:
    if comma := text.find(", ") + 1:
        return comma
    for subject in _SUBJECT.finditer(text):
        if text[: subject.start()].rpartition(" ")[2] not in _BEFORE:
            return subject.start()
        if text[subject.end() + 1 : subject.end() + 2].isupper():
            # "Thanks to the user Anna won" tells what Anna did.
            return subject.end()
    return 0
