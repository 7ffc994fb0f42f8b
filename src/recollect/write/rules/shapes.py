"""What a value must look like to be taken: a name, a place, an amount, a date, or some words that are clear."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from recollect.write.rules.clauses import trimmed
from recollect.write.rules.pack import Pack

_WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
_CAPITAL = r"[A-ZÀ-ÖØ-ÞŁŠŽ]"
_LINK = r"(?:(?:of|the|de|da|do|del|la|las|los|di|du|van|von|der|den|am|upon|bin|al|and|&) ){0,2}"
_CAPITAL_RUN = re.compile(rf"{_CAPITAL}[\w'’.&-]*(?:,? {_LINK}(?:{_CAPITAL}|\d)[\w'’.&-]*){{0,5}}")
_NAME = re.compile(r"[^\W\d_][\w'’.-]*(?: (?:(?:van|de|von|der|da|al|bin|la|del) ){0,2}[^\W\d_][\w'’.-]*){0,3}")
# What stands behind a number and is no unit of it.
_SMALL = (
    r"(?:a|an|per|for|and|or|but|to|in|on|at|of|with|from|by|now|as|is|if|so|right|max|each|every|this|next|not|maybe"
    r"|im|pro|für|und|oder|mit|bis|aber|al|por|para|y|o|con|pero|par|pour|et|ou|avec|mais)"
)
_AMOUNT = re.compile(
    r"(?:about |around |roughly |approximately |up to |under |over |at most |max(?:imum)? |less than |more than |~"
    r"|etwa |ca\. |rund |unos |alrededor de |environ |jusqu'à |bis zu |hasta )?"
    r"(?:(?:US|CA|AU|NZ)?[$€£¥₹]\s?\d(?:[\d.,']*\d)?(?:[ \u00a0\u202f]\d{3})*"
    r"(?:\s?(?:k|m|thousand|million|billion|mil|millones|tausend))?\b"
    rf"|\d(?:[\d.,']*\d)?(?:[ \u00a0\u202f]\d{{3}})*(?:\s?(?:k\b|%|[$€£¥₹]|(?!{_SMALL}\b)\w+\b))?)"
    r"(?:\s?(?:-|to|–)\s?[$€£]?\d[\d.,]*k?)?"
    r"(?: (?:dollars|euros?|pounds|usd|eur|gbp|bucks|dólares|pesos|livres))?"
    r"(?:(?: per | a | an |/| al | par | pro | im )"
    r"(?:hour|day|week|month|year|night|person|mes|año|mois|an|monat|jahr|woche)\b)?",
    re.IGNORECASE,
)
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}(?:[./]\d{2,4})?|\b(?:tomorrow|tonight|today|next|noon|midnight|end of|eod"
    r"|morgen|heute|demain|mañana|hoy|\w*day|(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch|lunes|martes|jueves|viernes"
    r"|lundi|mardi|mercredi|jeudi|vendredi|jan\w*|feb\w*|mar(?:ch|s|zo)?|märz|apr\w*|ma[iy]o?|june?|juni?o?|juin|july?"
    r"|juli?o?|juillet|aug\w*|ao[uû]t|sep\w*|o[ck]t\w*|nov\w*|de[cz]\w*|enero|abril|avril|janvier|février|q[1-4]"
    r"|\d{1,2}(?:st|nd|rd|th)"
    r"|\d{1,2}(?::\d\d)? ?(?:am|pm|uhr|h))\b|\bin (?:a|\w+) (?:days?|weeks?|months?)\b",
    re.IGNORECASE,
)
# Written small, a place ends before what else is said of it.
_PREPOSITION = re.compile(
    r" (?:with|near|for|during|over|by|at|on|from|until|till|next|mit|bei|con|cerca|avec|chez)\b", re.IGNORECASE
)
_MOST_WORDS = 30
_MOST_ITEM_WORDS = 6
_LAST_ITEM = re.compile(r"(?:^|\s)(?:and|or|&|und|y|et) ", re.IGNORECASE)
_OF_ADDRESS = re.compile(rf"(?:\d|{_CAPITAL})(?!'[a-z])(?:(?! (?:is|are|was|and|but|so|please|where|which|I)\b).)*$")


def shaped(shape: str, value: str, pack: Pack) -> str | None:
    """The part of the text that has the shape; None if it has not, or if it depends on what would be cut off."""
    found = _SHAPES[shape](value, pack)
    if not found or not value.startswith(found):
        return found
    # Nobody is told from others by "who" when they are named.
    binds = "binds" if shape in ("words", "phrase") else "binds_for_sure"
    return None if pack.patterns[binds].match(value, len(found)) else found


def _nothing(value: str, pack: Pack) -> str | None:
    return value


def _name(value: str, pack: Pack) -> str | None:
    """A person's name: words with capitals, or one word that is nothing else."""
    if run := _CAPITAL_RUN.match(value):
        first = run.group().split(",")[0].split(" and ")[0].rstrip(".' ")
        return first if _WORD.match(first)[0].lower() not in pack.words["no_name"] else None  # type: ignore[index]
    if (found := _NAME.match(value)) is None:
        return None
    # Written small, a name ends where any other word begins.
    words = found.group().split()
    if len(words) > 2 or found.end() < len(value.split(",")[0]) or words[0].lower() in pack.words["no_name"]:
        return None
    return " ".join(words)


def _given_name(value: str, pack: Pack) -> str | None:
    """A name that is not said to be one: with a capital, alone, and no word for where people are from."""
    run = _CAPITAL_RUN.match(value)
    if run is None:
        return None
    name = run.group().split(",")[0].rstrip(".' ")
    rest = value[len(name) :]
    if rest and not pack.patterns["after_name"].match(rest):
        return None
    lower = name.lower()
    if len(name) < 2 or lower.split()[0] in pack.words["no_name"] or pack.patterns["people"].search(lower):
        return None
    return name


def _place(value: str, pack: Pack) -> str | None:
    """A place: words with capitals, or a word or two that end the clause."""
    run = _CAPITAL_RUN.match(value.removeprefix("the "))
    if run:
        words = run.group().split(" and ")[0].rstrip(".' ,").split()
    else:
        words = _PREPOSITION.split(_cut(value, pack), maxsplit=1)[0].split()
        if len(words) > 3 or words[:1] == [] or words[0].lower() in pack.words["no_place"]:
            return None
    place = " ".join(words)
    if words[0].lower() in pack.words["days"] or pack.patterns["for_a_time"].match(
        value, value.index(place) + len(place)
    ):
        return None
    return place


def _amount(value: str, pack: Pack) -> str | None:
    found = _AMOUNT.match(value)
    return found.group().strip(" .,") if found else None


def _date(value: str, pack: Pack) -> str | None:
    cut = _cut(value, pack, at_comma=False)
    return cut if _DATE.search(cut) and len(cut.split()) <= 10 else None


def _measure(value: str, pack: Pack) -> str | None:
    """An amount, a date, a proper name: something exact."""
    cut = _cut(value, pack)
    exact = any(sign.isdigit() for sign in cut) or _CAPITAL_RUN.search(cut) is not None
    return cut if exact and cut and _clear(cut, pack) else None


def _words(value: str, pack: Pack) -> str | None:
    """Words that are clear without what was said before them."""
    cut = _cut(value, pack, at_comma=False)
    return cut if cut and len(cut.split()) <= _MOST_WORDS and _clear(cut, pack) else None


def _phrase(value: str, pack: Pack) -> str | None:
    """A few clear words, up to the first pause."""
    cut = _cut(value, pack)
    return cut if cut and len(cut.split()) <= 12 and _clear(cut, pack) else None


def _list(value: str, pack: Pack) -> str | None:
    """Things that are listed, up to where the list ends."""
    items: list[str] = []
    for item in _cut(value, pack, at_comma=False).split(", "):
        if len(item.split()) > _MOST_ITEM_WORDS or not _clear(item, pack):
            break
        items.append(item)
        if _LAST_ITEM.search(item):
            break
    return _cut(", ".join(items), pack, at_comma=False) or None


def _several(value: str, pack: Pack) -> str | None:
    """More than one thing: a single word may as well say what they are like."""
    found = _list(value, pack)
    return found if found and (", " in found or _LAST_ITEM.search(found)) else None


def _exact_list(value: str, pack: Pack) -> str | None:
    """Amounts, dates, proper names that are listed."""
    found = _list(value, pack)
    return found if found and (any(map(str.isdigit, found)) or _CAPITAL_RUN.search(found)) else None


def _address(value: str, pack: Pack) -> str | None:
    """An address, with all its lines: each begins with a capital or a number."""
    lines = _cut(value, pack, at_comma=False).split(", ")
    end = next((place for place, line in enumerate(lines) if not _OF_ADDRESS.match(line)), len(lines))
    return ", ".join(lines[:end]) or None


def _clear(value: str, pack: Pack) -> bool:
    words = [word.lower() for word in _WORD.findall(value)]
    return bool(words) and words[0] not in pack.words["vague_first"] and pack.words["vague"].isdisjoint(words)


def _cut(value: str, pack: Pack, *, at_comma: bool = True) -> str:
    """The value up to where something else begins; what it depends on ("who ...", "unless ...") belongs to it."""
    binds = pack.patterns["binds"]
    end = next((end for end in pack.patterns["ends"].finditer(value) if not binds.match(value, end.start())), None)
    cut = value[: end.start()] if end else value
    if at_comma:
        cut = re.split(r"[,;:(]| [-–—] ", cut, maxsplit=1)[0]
    return trimmed(cut, " .,;:!-–—'\"")


_SHAPES: Mapping[str, Callable[[str, Pack], str | None]] = {
    "": _nothing,
    "name": _name,
    "given_name": _given_name,
    "place": _place,
    "amount": _amount,
    "date": _date,
    "measure": _measure,
    "words": _words,
    "phrase": _phrase,
    "several": _several,
    "exact_list": _exact_list,
    "address": _address,
}
