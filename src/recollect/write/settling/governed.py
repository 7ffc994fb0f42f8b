"""By which small word a thing is told of, where that makes two things of it: in the box, on the box."""

from __future__ import annotations

from recollect.write.settling.lexicon import MARK, entry
from recollect.write.settling.reading import Reading
from recollect.write.settling.small_words import AUXILIARY, JOINS

_AS = {"inside": "in", "within": "in", "upon": "on", "via": "through", "toward": "to", "towards": "to"}
_GOVERNS = frozenset(
    "in on at by off to from with for about over past despite through across along around because of into".split()
) | set(_AS)
# "Looks like Anna": elsewhere it is what someone likes.
_SEEMING = frozenset(
    f"{verb}{end}" for verb in ("look", "sound", "feel", "taste", "smell") for end in ("", "s", "ed", "ing")
)
_STOPS = _GOVERNS | AUXILIARY | JOINS | {"like", "who", "which", "that", "but", "when", "while", "if"}
# What tells of something else, by what it is told by; what is in none of these tells the same, or too little.
_BY_WAY = frozenset("through across along around over past".split())
_APART = {
    "despite": _GOVERNS - {"despite"},
    "off": frozenset(["on", "at", "in", "with", "to"]),
    "past": frozenset(["in", "into"]),
    "like": frozenset(["at", "for", "to", "with"]),
    "about": frozenset(["from"]),
    "through": frozenset(["for"]),
    "by": frozenset(["for"]),
    "to": _BY_WAY,
}
# On a train one is in it; but what is on these is not in them.
_HOLDING = frozenset(
    entry(word).verb
    for word in (
        "box drawer desk table cupboard cabinet closet wardrobe locker safe shed garage tent house car van truck bag "
        "basket bucket pocket jar pot bowl envelope folder case suitcase fridge freezer oven sink"
    ).split()
)
_AHEAD = 4


def note_governed(words: list[str], reading: Reading) -> None:
    """Note for each thing by which small words it is told of."""
    for at, word in enumerate(words):
        if word in _GOVERNS or (word == "like" and at and words[at - 1] in _SEEMING):
            for part in _behind(words, at):
                reading.governed.setdefault(part, set()).add(_AS.get(word, word))


def _behind(words: list[str], at: int) -> list[str]:
    found: list[str] = []
    for word in words[at + 1 : at + 1 + _AHEAD]:
        if word in _STOPS:
            break
        found += [part for part in entry(word).parts if part[0] != MARK]
    return found


def told_by_another(a: Reading, b: Reading) -> bool:
    """Whether something that both tell of is told of by words that make two things of it."""
    if a.lesser or b.lesser:
        # "Tea over coffee", "tea to coffee".
        return False
    return any(
        _apart(part, mine - theirs, theirs - mine) or _apart(part, theirs - mine, mine - theirs)
        for part, mine in a.governed.items()
        if (theirs := b.governed.get(part)) and mine.isdisjoint(theirs)
    )


def _apart(part: str, mine: set[str], theirs: set[str]) -> bool:
    if part in _HOLDING and "in" in mine and "on" in theirs:
        return True
    return any(not _APART.get(word, frozenset()).isdisjoint(theirs) for word in mine)
