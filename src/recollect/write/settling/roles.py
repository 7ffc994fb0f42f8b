"""Whether those who act in a statement and those to whom it is done have changed places in another."""

from __future__ import annotations

from recollect.write.settling.lexicon import HE, PERSON, SHE, USER, entry
from recollect.write.settling.reading import Reading

_BEING = frozenset(["be", "have"])


def turned_about(a: Reading, b: Reading) -> bool:
    """Whether someone does what is done to them in the other, or has what is another's there."""
    if a.lesser and b.lesser and a.lesser != b.lesser:
        return True
    if _told_apart(a.degrees, b.degrees) or _told_apart(a.owners, b.owners):
        # "Some Turkish" and "fluent Turkish"; "my landlord is Sam" and "I am Sam's landlord".
        return True
    if (a.agents ^ b.agents) & {HE, SHE}:
        return True
    leads = {_actor(a), _actor(b)}
    if a.of_user and b.of_user and not a.people and len(leads) == 2 and USER in leads and leads & (a.names | b.names):
        # "I borrowed Sam's car" and "Sam borrowed my car".
        return True
    actors = _actors(a, b, leads)
    mine = _in_order(a, [part for part in a.order if part in actors and part in b.order])
    theirs = _in_order(b, [part for part in b.order if part in actors and part in a.order])
    return len(mine) > 1 and mine != theirs and _clusters(a, mine) != _clusters(b, theirs)


def _told_apart(mine: dict[str, str], theirs: dict[str, str]) -> bool:
    return any(theirs.get(what, told) != told for what, told in mine.items())


def _actors(a: Reading, b: Reading, leads: set[str]) -> set[str]:
    """Whoever may act: people, and names that do not only say where, whence or whither."""
    names = {entry(name).verb or name for name in (a.names | b.names) - (a.placed & b.placed)}
    alike = {part for pivot, those in a.follows.items() for part in those & b.follows.get(pivot, set())}
    found = names - alike | {part for part in a.order if part[0] == PERSON}
    if a.lead == b.lead:
        # "Oslo Ltd bought Rome Ltd" and "Oslo Ltd was bought by Rome Ltd".
        return found | {a.lead} if a.agents != b.agents else found
    led = set().union(*a.follows.values(), *b.follows.values())
    acts = leads & (names - led) and not {a.relation, b.relation} & _BEING
    return found | {a.lead, b.lead} if acts else found


def _actor(reading: Reading) -> str:
    """Who acts: whoever comes first, or by whom it is done."""
    names = {entry(name).verb for name in reading.names}
    return next((each for each in reading.agents if each[0] == PERSON or each in names), reading.lead)


def _in_order(reading: Reading, actors: list[str]) -> list[str]:
    """Who acts comes first, also where it is said last."""
    return sorted(actors, key=lambda actor: actor not in reading.agents)


def _clusters(reading: Reading, actors: list[str]) -> list[set[str]]:
    """Those who stand side by side taken together, as in "Anna, my sister" and "my sister is Anna"."""
    found: list[set[str]] = []
    last = ""
    for actor in actors:
        beside = last and USER not in (last, actor) and abs(reading.order[actor] - reading.order[last]) <= 1
        if beside and PERSON in (actor[0], last[0]):
            found[-1].add(actor)
        else:
            found.append({actor})
        last = actor
    return found
