"""Two statements with what one tells another way round told as the other does: "has had it", "got it ago"."""

from __future__ import annotations

from dataclasses import replace

from recollect.write.settling.bearers import by_name_alone
from recollect.write.settling.lexicon import MUST, USER, WANT, entry
from recollect.write.settling.reading import Reading

BUY, SELL = "buy", "sell"
_AGO, _LATELY = "ago", "recently"
PLAN, SEARCH, OWN, HAVE, BE = "@plan", "search", "own", "have", "be"
# How what has been so for some time began, by what has been so since.
_BEGINNINGS = {"have": frozenset(["buy", "receiv", "acquir", "adopt", "obtain"])}
MOVE = "reschedul"
_BEGAN = {"live": MOVE, "know": "meet", "own": "buy", "member": "join"}
_GOT = frozenset(["got", "gotten"])
_BECAME = frozenset(["became", "become", "got"])
_START = "start"
_IN = frozenset(["in", "on", "at"])
_ARRANGING = frozenset(["organiz", "arrang"])
_OTHER_DUTIES = frozenset("must should ought need needs needed".split())


def retold(a: Reading, b: Reading) -> tuple[Reading, Reading]:
    """The two with what is told another way round put as one."""
    if a.names != b.names:
        a, b = by_name_alone(a, b), by_name_alone(b, a)
    if a.lasting != b.lasting:
        a, b = _since(a, b), _since(b, a)
    if a.times != b.times:
        a, b = _just(a, b), _just(b, a)
    if a.marks != b.marks:
        a, b = _planned(a, b), _planned(b, a)
        a, b = _had_to(a, b), _had_to(b, a)
    if a.relation != b.relation:
        a, b = _having(a, b), _having(b, a)
    return (a, b) if a.lead == b.lead else (_bought_there(a, b), _bought_there(b, a))


def _since(reading: Reading, other: Reading) -> Reading:
    """What began some time ago, or then, told as what has been so since, where the other tells it so."""
    told = {_AGO} if "since" not in other.order else set()
    if not other.lasting or reading.times - other.times != told or (not told and _IN.isdisjoint(reading.order)):
        return reading
    begun, state = _beginning(reading, other)
    if not state:
        return reading
    return replace(
        reading,
        times=reading.times - {_AGO},
        words=reading.words - begun | ({state} & other.words),
        past=reading.past - begun | (other.past & {HAVE}),
        present=reading.present | (other.present & {HAVE, BE, state}),
        relation=other.relation,
    )


def _beginning(reading: Reading, other: Reading) -> tuple[set[str], str]:
    """The words that tell how it began, and what has been so since; nothing where the two do not belong together."""
    if HAVE in other.past:
        how = reading.words & _BEGINNINGS[HAVE]
        return (set(), HAVE) if how or not _GOT.isdisjoint(reading.order) else (set(), "")
    if _START in reading.past - other.past:
        return {_START}, BE
    for state, began in _BEGAN.items():
        if state in other.words and began in reading.past - other.words:
            # Who moved from there does not live there.
            there = began != MOVE or bool(reading.follows.get("to", set()) & other.words)
            return ({began}, state) if there else (set(), "")
    lasts = BE in other.present and not reading.past and not _BECAME.isdisjoint(reading.order)
    return (set(), BE if lasts else "")


def _just(reading: Reading, other: Reading) -> Reading:
    """What was done recently told as just done."""
    told = reading.times - other.times == {_LATELY} and "just" in other.order and "only" not in other.order
    return replace(reading, times=reading.times - {_LATELY}) if told else reading


def wanted(reading: Reading, other: Reading) -> Reading:
    """What is looked for told as wanted, where the other wants it and says nothing else.

    The two are to be in the same words before, as far as can be.
    """
    looks = reading.seeks and SEARCH in reading.words - other.words and WANT in other.marks - reading.marks
    if not looks or not other.words <= reading.words or reading.lead != USER or other.lead != USER:
        return reading
    return replace(reading, words=reading.words - {SEARCH}, marks=reading.marks | {WANT})


def _planned(reading: Reading, other: Reading) -> Reading:
    """What is being organized told as planned, where the other tells it so."""
    how = reading.words & reading.present & _ARRANGING - other.words
    if not how or PLAN not in other.marks - reading.marks or reading.past or other.words - reading.words != {"plan"}:
        return reading
    return replace(reading, marks=reading.marks | {PLAN})


def _had_to(reading: Reading, other: Reading) -> Reading:
    """What had to be done told as done, where the other tells it so."""
    had = reading.duty in other.past and "had" in reading.order and MUST in reading.marks - other.marks
    if not had or not _OTHER_DUTIES.isdisjoint(reading.order):
        return reading
    past, present = reading.past - {BE} | {reading.duty}, reading.present - {reading.duty}
    return replace(reading, marks=reading.marks - {MUST}, past=past, present=present, duty="")


def _bought_there(reading: Reading, other: Reading) -> Reading:
    """What a shop sold to the user told as bought there, where the other tells it so."""
    sold = SELL in reading.past - other.past and USER in reading.follows.get("to", ()) and reading.of_user
    there = other.lead == USER and BUY in other.past and reading.lead in {entry(name).verb for name in other.placed}
    if not sold or not there or BUY in reading.past:
        return reading
    words, past = reading.words - {SELL} | {BUY}, reading.past - {SELL} | {BUY}
    follows = {pivot: those for pivot, those in reading.follows.items() if pivot != "to"}
    return replace(reading, words=words, past=past, lead=USER, relation=BUY, follows=follows)


def _having(reading: Reading, other: Reading) -> Reading:
    """What is owned told as had, where the other tells it so."""
    if reading.relation != OWN or other.relation != HAVE or OWN in other.words or OWN in reading.past:
        return reading
    return replace(reading, words=reading.words - {OWN}, present=reading.present - {OWN} | {HAVE}, relation=HAVE)
