"""Which way round two statements tell of something: from and to, into and out of, with and for, got and sold."""

from __future__ import annotations

from recollect.write.settling.finer import LEAVING
from recollect.write.settling.governed import told_by_another
from recollect.write.settling.kin import GETTING, never_kin
from recollect.write.settling.lexicon import USER, entry, lexicon
from recollect.write.settling.reading import Reading
from recollect.write.settling.small_words import BEING, CURRENCIES, HAVING

_PLACES = frozenset(["in", "at", "inside"])
_TURNING = frozenset(
    ["befor", "after", "until", "beneath", "behind", "outsid", "lose", "near", "front", "abov", "opposit", "between"]
)
_INTO, _OUT = frozenset(["into", "onto"]), frozenset(["out", "off"])
_LESS = frozenset(["down", "lower"])
# How someone may get something; other deeds are others: "got a boat", "built a boat".
_GAINING = frozenset(
    "buy receiv adopt acquir obtain win earn inherit order collect pickup find choos catch book take score reach "
    "experiens suffer develop hire join enrol bring land secur gain be have make visit start arriv graduat".split()
)
_DONE_TO_SOMEONE = frozenset("visit see watch drive host teach invit".split())
_SWAP = "replac"
_PLAIN = frozenset(["leave", "depart", "head"])


def other_way(a: Reading, b: Reading) -> bool:
    """Whether what is told of goes, stands or is done another way round in one of the two."""
    if (
        _opposed(a.words ^ b.words, a.words & b.words)
        or _come_apart(a, b)
        or _come_apart(b, a)
        or (a.words ^ b.words) & _TURNING
        or any(_swapped(a, b, pivot) for pivot in a.follows)
        or (a.numbers and (a.words ^ b.words) & _LESS)
        or _in_and_out(a, b)
        or _in_and_out(b, a)
        or told_by_another(a, b)
    ):
        return True
    if ((a.words ^ b.words) - _TURNING) & (a.follows.get("from", set()) | b.follows.get("from", set())):
        # "The train", "the train from work".
        return True
    if a.beside and b.beside and _beside_others(a, b):
        return True
    if any(
        apart(*each) for apart in (_parts_with, _is_met, _joins, _leaves, _is_within) for each in ((a, b), (b, a))
    ):
        return True
    if a.sides == b.sides:
        return False
    opposite = lexicon().opposite
    mine, theirs = a.sides - b.sides, b.sides - a.sides
    return any(opposite[side] & theirs - _elsewhere(a, b, side) for side in mine)


def _parts_with(a: Reading, b: Reading) -> bool:
    """Whether the user parts with what was got in the other: "sold a bike", "got a bike"."""
    parts = a.relation in a.past - _GAINING and a.relation != b.relation and a.relation not in b.words
    # Who got 50 euros for it has sold it.
    return parts and a.lead == b.lead == USER and b.relation not in CURRENCIES and not GETTING.isdisjoint(b.order)


def _joins(a: Reading, b: Reading) -> bool:
    """Whether someone does with the user here what is done for them there: "and Leo cook", "cooks for Leo"."""
    return a.relation in a.names & b.beside.get("for", set())


def _leaves(a: Reading, b: Reading) -> bool:
    """Whether the user leaves here where they go there: "left Rome", "flew to Rome"."""
    # What was put in the same words may have "depart" in both.
    left = not LEAVING.isdisjoint(a.order) and (LEAVING - _PLAIN).isdisjoint(b.order)
    return left and bool(a.words & b.names & b.follows.get("to", set()) - a.follows.get("to", set()))


def _is_within(a: Reading, b: Reading) -> bool:
    """Whether the user is somewhere here and has the place there: "is in a bar", "owns a bar"."""
    has = b.relation in HAVING and a.relation == "be"
    return has and a.lead == b.lead == USER and bool(_PLACES & a.order.keys() - b.order.keys())


def _is_met(a: Reading, b: Reading) -> bool:
    """Whether someone comes along here to whom it is done there: "visits Oslo with Leo", "visits Leo"."""
    if "with" not in a.beside or "with" in b.beside or a.relation != b.relation or b.relation not in _DONE_TO_SOMEONE:
        return False
    at = b.order.get(b.relation, -1) + 1
    return any(b.order.get(who, -1) == at for who in a.beside["with"])


def _beside_others(a: Reading, b: Reading) -> bool:
    """Whether what stands behind "with" here stands behind "for" there, or two were replaced by each other."""
    mine, for_mine = a.beside.get("with", set()), a.beside.get("for", set())
    theirs, for_theirs = b.beside.get("with", set()), b.beside.get("for", set())
    if _SWAP in a.words & b.words:
        mine, theirs = mine | for_mine, theirs | for_theirs
        return (
            mine.isdisjoint(theirs) and any(_has(b, part) for part in mine) and any(_has(a, part) for part in theirs)
        )
    # "Cooks for Tom with Anna" and "cooks for Anna with Tom".
    return bool((mine & for_theirs) - (for_mine | theirs) or (theirs & for_mine) - (for_theirs | mine))


def _elsewhere(a: Reading, b: Reading, side: str) -> set[str]:
    """What is no opposite of "with" or "for" here, as it stands before something else, or in "replace with"."""
    other = {"with": "for", "for": "with"}.get(side, "")
    apart = a.beside.get(side, set()).isdisjoint(b.beside.get(other, ()))
    return {other} if apart or _SWAP in a.words & b.words else set()


def _in_and_out(a: Reading, b: Reading) -> bool:
    """Whether something goes into something in the first and out of it in the other."""
    if not _OUT.isdisjoint(a.order) or _OUT.isdisjoint(b.order):
        return False
    into = not _INTO.isdisjoint(a.order) and _INTO.isdisjoint(b.order)
    return into or ("in" in a.order and _INTO.isdisjoint(b.order) and "in" not in b.order)


def _opposed(extra: set[str], shared: set[str]) -> bool:
    """Whether one says more that is not the same as what both say: "works", "does volunteer work"."""
    return any(not shared.isdisjoint(never_kin().get(word, ())) for word in extra)


def _come_apart(a: Reading, b: Reading) -> bool:
    """Whether something comes from someone in the first, and goes to them or is done by them in the other."""
    there = b.follows.get("to", set()) | b.agents | ({b.lead} if b.relation not in BEING else set())
    return any(
        b.origins or ((entry(name).verb or name) in there and not _of_there(name, b))
        for name in a.origins - b.origins
    )


def _of_there(name: str, reading: Reading) -> bool:
    """Whether what is from a country is told by a word for that: "a Kenyan runner" is a runner from Kenya."""
    return any(word in lexicon().demonyms and entry(word).verb == entry(name).verb for word in reading.order)


def _swapped(a: Reading, b: Reading, pivot: str) -> bool:
    """Whether other things stand behind "before" or "from" in each, and the other has them elsewhere."""
    mine, theirs = a.follows[pivot], b.follows.get(pivot, set())
    if not mine.isdisjoint(theirs):
        # "To see Anna, called Tom" and "to see Tom, called Anna".
        named = {entry(name).verb for name in a.names & b.names}
        mine, theirs = (mine - theirs) & named, (theirs - mine) & named
    return any(_has(b, part) for part in mine) and any(_has(a, part) for part in theirs)


def _has(reading: Reading, part: str) -> bool:
    return part in reading.order or part in reading.numbers or part in reading.times or part == USER
