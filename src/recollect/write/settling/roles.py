"""Whether those who act in a statement and those to whom it is done have changed places in another."""

from __future__ import annotations

from recollect.write.settling.kin import tells_of_beings
from recollect.write.settling.lexicon import HE, PERSON, SHE, USER, entry
from recollect.write.settling.reading import Reading
from recollect.write.settling.small_words import BEING, OF_BOTH_TIMES

_NAMING = frozenset(["name", "named", "called", "call"])
# Two sides of one thing, so that with the same one doing both it is two things.
_SIDES = {"inherits": "leaves", "inherited": "left"}
_GETTING = frozenset("get gets getting got receive receives received".split())


def turned_about(a: Reading, b: Reading) -> bool:
    """Whether someone does what is done to them in the other, or has what is another's there."""
    if bool(a.lesser) != bool(b.lesser) or not (a.lesser <= b.lesser or b.lesser <= a.lesser):
        return True
    if a.lead == b.lead and not (a.undergone or b.undergone) and (_other_side(a, b) or _other_side(b, a)):
        # "Inherits the house" and "leaves the house".
        return True
    if _told_apart(a.degrees, b.degrees) or _told_apart(a.owners, b.owners):
        # "Some Turkish" and "fluent Turkish"; "my landlord is Sam" and "I am Sam's landlord".
        return True
    if any(done & other for who, done in a.deeds.items() for whom, other in b.deeds.items() if who != whom):
        # "I cook and my husband cleans" and "my husband cooks and I clean".
        return True
    if a.undergone & b.doing or b.undergone & a.doing or _parted(a, b):
        # "Hates being asked" and "hates asking".
        return True
    if (a.agents ^ b.agents) & {HE, SHE} or _changed_places(a, b):
        return True
    leads = {_actor(a), _actor(b)}
    if _acts_in_turn(a, b, leads):
        # "I borrowed Sam's car" and "Sam borrowed my car".
        return True
    if _lead_changed(a, b) or _lead_changed(b, a):
        return True
    if a.ordered or b.ordered:
        # An order does not say who acts.
        return False
    if a.lead == b.lead and not (a.agents or b.agents):
        if _undergone(a, b) or _undergone(b, a):
            return True
        if a.simple and b.simple:
            # The same one acts; what is done to whom is told by "to" and "from", which were compared.
            return False
    elif a.undergone != b.undergone and not any(each[0] == PERSON for each in leads):
        # "The key is kept by the door", "the user keeps the key by the door".
        return False
    actors = _actors(a, b, leads)
    mine = _in_order(a, [part for part in a.order if part in actors and part in b.order])
    theirs = _in_order(b, [part for part in b.order if part in actors and part in a.order])
    return len(mine) > 1 and mine != theirs and _clusters(a, mine) != _clusters(b, theirs)


def _other_side(a: Reading, b: Reading) -> bool:
    return any(word in a.order and other in b.order for word, other in _SIDES.items())


def _changed_places(a: Reading, b: Reading) -> bool:
    """Whether two have changed places about what is done: "a cart pulls a tractor" and "a tractor pulls a cart"."""
    if a.of_user or b.of_user or a.agents or b.agents or a.undergone or b.undergone:
        return False
    verbs = ((a.present | a.past | OF_BOTH_TIMES) & (b.present | b.past | (OF_BOTH_TIMES & b.words))) - BEING
    if not verbs:
        return False
    shared = [(a.order[part], b.order[part]) for part in a.order if part in b.order and _acts(part, a, b)]
    for verb in verbs:
        mine, theirs = a.order.get(verb, 0), b.order.get(verb, 0)
        ways = {(here < mine, there < theirs) for here, there in shared if here != mine and there != theirs}
        if (True, False) in ways and (False, True) in ways:
            return True
    return False


def _acts(part: str, a: Reading, b: Reading) -> bool:
    return (part in a.words and part in b.words) or (part in a.people and part in b.people)


def _acts_in_turn(a: Reading, b: Reading, leads: set[str]) -> bool:
    """Whether the user acts in one, and in the other someone with a name: not if one is the name of the user."""
    if not (a.of_user and b.of_user) or a.people or len(leads) != 2 or USER not in leads:
        return False
    named = not (_NAMING.isdisjoint(a.order) or _NAMING.isdisjoint(b.order))
    return not named and bool(leads & ((a.names | b.names) - (a.placed | b.placed)))


def _told_apart(mine: dict[str, str], theirs: dict[str, str]) -> bool:
    return any(theirs.get(what, told) != told for what, told in mine.items())


def _parted(a: Reading, b: Reading) -> bool:
    """Whether both have two parts and what stands together in one does not in the other: "good at A but bad at B"."""
    if len(a.clauses) != 2 or len(b.clauses) != 2:
        return False
    shared = (a.clauses[0] | a.clauses[1]) & (b.clauses[0] | b.clauses[1])
    mine, theirs = [part & shared for part in a.clauses], [part & shared for part in b.clauses]
    if any(len(part) < 2 for part in (*mine, *theirs)):
        return False
    return mine not in (theirs, theirs[::-1])


def _undergone(a: Reading, b: Reading) -> bool:
    """Whether the first suffers what the other does: "was paid" and "paid"."""
    return a.lead[:1] == PERSON and _GETTING.isdisjoint(b.order) and b.relation in a.undergone - b.undergone


def _lead_changed(a: Reading, b: Reading) -> bool:
    """Whether the user acts in the first and someone named there in the other: "I called Sam", "Sam called me"."""
    if a.lead != USER or b.relation in BEING or a.agents or b.agents:
        return False
    if a.relation == "be":
        # "I am a mentor to two interns" and "two interns mentor me".
        return USER in b.order and b.lead in a.follows.get("to", ()) and tells_of_beings(b, {b.lead})
    return b.lead in a.order and USER in b.order and (b.lead == b.may_name != "" or tells_of_beings(b, {b.lead}))


def _actors(a: Reading, b: Reading, leads: set[str]) -> set[str]:
    """Whoever may act: people, and names that do not only say where, whence or whither."""
    names = {entry(name).verb or name for name in (a.names | b.names) - (a.placed & b.placed)}
    # "Lives in Toronto" and "Toronto is home".
    places = {entry(name).verb for name in a.placed | b.placed}
    names -= {each.lead for each in (a, b) if each.relation in BEING} & places
    alike = {part for pivot, those in a.follows.items() for part in those & b.follows.get(pivot, set())}
    found = names - alike | {part for part in a.order if part[0] == PERSON}
    if a.lead == b.lead:
        # "Oslo Ltd bought Rome Ltd" and "Oslo Ltd was bought by Rome Ltd".
        return found | {a.lead} if a.agents != b.agents else found
    led = set().union(*a.follows.values(), *b.follows.values())
    acts = leads & (({a.may_name, b.may_name} | names) - led) and not {a.relation, b.relation} & BEING
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
        if beside:
            found[-1].add(actor)
        else:
            found.append({actor})
        last = actor
    return found
