"""Reported speech put one way round: who says it comes first, as in "the mayor said the bridge is safe"."""

from __future__ import annotations

import re

from recollect.write.settling.kin import is_being, kin
from recollect.write.settling.lexicon import entry, lexicon
from recollect.write.settling.small_words import BEFORE_NOUNS, PLURALS

_SAYING = r"(?:said|says|say|wrote|writes|added|adds|announced|told reporters)"
_WHEN = r" (?:in an? (?:\w+ )?(?:statement|interview)|(?:on )?[A-Z]\w+day|yesterday|today|earlier|later|again)"
_CUE = re.compile(rf"\b{_SAYING}\b|ccording to |, I ")
_OPINION = re.compile(r"(?P<what>.+), (?P<think>I (?:think|believe|guess|suppose|feel))\.?")
# 'The mayor said: "...".'
_BEFORE = re.compile(rf'(?P<who>[^":]{{2,80}}?) {_SAYING}(?P<when>{_WHEN})?(?:: ?"?|,? ")(?P<what>.+)')
# "..., said Dana Ruiz, a harbour official": all that follows tells who.
_SAID_WHO = re.compile(rf"""[,.!?]["']* {_SAYING} (?!that\b)""")
# "..., the mayor said in a statement".
_WHO_SAID = re.compile(rf"(?P<who>[^,;:]{{2,60}}?) {_SAYING}(?P<when>{_WHEN})?")
# "Ida Lund, a tax adviser, said ...".
_APPOSED = re.compile(
    rf"(?P<name>[A-Z][\w.'-]+(?: [A-Z][\w.'-]*){{1,3}}), (?:(?:an?|the) )?(?P<role>[^,;:]{{3,60}}?),? (?={_SAYING}\b)"
)
_QUOTES = "\"' ,."
_LONGEST = 8
_OPENS_CLAUSE = frozenset("and but which who as when because if that or so".split())
# Who says something is told without these.
_OF_CLAUSES = frozenset(
    "is are was were am be been will would has have had can could may might must should do does did not".split()
)


def told_by(text: str) -> str:
    """The text with whoever is said to say it put before what they say."""
    if not _CUE.search(text):
        return text
    return _APPOSED.sub(_role_first, text if _APPOSED.match(text) else _turned(text), count=1)


def _role_first(found: re.Match[str]) -> str:
    """What someone is put before their name: "Ida Lund, a tax adviser, said" is "tax adviser Ida Lund said"."""
    role = found["role"]
    return f"{role[:1].upper()}{role[1:]} {found['name']} " if not found.start() and _may_say(role) else found[0]


def _turned(text: str) -> str:
    text = text.replace("``", '"').replace("''", '"').replace("“", '"').replace("”", '"')
    if found := _OPINION.fullmatch(text):
        return f"{found['think']} {_lowered(found['what'])}"
    if (at := text.find("ccording to ")) > 0:
        return _according(text, at)
    if found := _BEFORE.fullmatch(text):
        return _put(found["who"], found["what"], when=found["when"] or "")
    if found := _SAID_WHO.search(text):
        who = text[found.end() :]
        return _put(who, text[: found.start()]) if _may_say(who.partition(",")[0]) and _is_someone(who) else text
    at = max(text.rfind(","), text.rfind('" '))
    found = _WHO_SAID.fullmatch(text[at + 1 :].strip(_QUOTES)) if at > 0 else None
    return _put(found["who"], text[:at], when=found["when"] or "") if found and _may_say(found["who"]) else text


def _according(text: str, at: int) -> str:
    """The same for "according to": who that is stands between it and the next comma, or the end."""
    before, after = text[: at - 1].strip(_QUOTES), text[at + len("ccording to ") :]
    who, _, what = after.partition(", ") if not before else (after, "", before)
    return _put(who, what) if what and _may_say(who) else text


def _may_say(who: str) -> bool:
    """Whether these words tell of someone, and are no clause themselves."""
    words = who.lower().split()
    return 0 < len(words) <= _LONGEST and words[0] not in _OPENS_CLAUSE and _OF_CLAUSES.isdisjoint(words)


def _is_someone(who: str) -> bool:
    """Whether words behind "said" tell who said it, and not what: "said police", but "said no"."""
    first, last = who.split()[0], who.partition(",")[0].split()[-1].strip(_QUOTES)
    return who[0].isupper() or first in BEFORE_NOUNS | PLURALS or is_being(first) or is_being(last)


def _put(who: str, what: str, *, when: str = "") -> str:
    who = who.strip(_QUOTES)
    if when.startswith(" in "):
        # That it was a statement says nothing.
        when = ""
    return f"{who[:1].upper()}{who[1:]} said {_lowered(what)}{when}"


def _lowered(what: str) -> str:
    """What is said, within a sentence: a capital that opened it stays only where it may be of a name."""
    what = what.strip(_QUOTES)
    first = what.partition(" ")[0]
    word = first.lower().partition("'")[0].strip(_QUOTES)
    if first != "I" and (word in lexicon().becomes or not entry(word).verb or entry(word).verb in kin()):
        return what[:1].lower() + what[1:]
    return what
