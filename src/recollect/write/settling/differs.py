"""What two statements differ in that keeps them apart, however alike they sound."""

from __future__ import annotations

from recollect.write.settling.lexicon import EVERY, FUTURE, MUST, PERSON, USER, lexicon
from recollect.write.settling.reading import Reading, read

NUMBER, NAME, TIME, NEGATION, SUBJECT = "a number", "a name", "a time", "a negation", "whom it is about"
MODE, TENSE, ORDER, WORDS, DIRECTION = (
    "whether it is so",
    "when it was so",
    "who does what",
    "what is said",
    "a direction",
)


def differs(a: str, b: str) -> str:
    """What the two differ in, or nothing: what differs is never the same memory said again."""
    return difference(read(a), read(b))


def difference(a: Reading, b: Reading) -> str:
    """What two read statements differ in, the gravest first; empty if they may be the same."""
    return (
        _value(a, b)
        or (NEGATION if _negation(a, b) else "")
        or (SUBJECT if _subject(a, b) else "")
        or (MODE if _mode(a, b) else "")
        or (TENSE if _tense(a, b) else "")
        or (DIRECTION if _direction(a, b) else "")
        or (ORDER if _order(a, b) else "")
        or (WORDS if _words(a, b) else "")
    )


def _value(a: Reading, b: Reading) -> str:
    if a.numbers != b.numbers or (len(a.numbers) > 1 and _counted_apart(a, b)):
        return NUMBER
    if a.times != b.times:
        return TIME
    if any(name not in b.order for name in a.names) or any(name not in a.order for name in b.names):
        return NAME
    return ""


def _counted_apart(a: Reading, b: Reading) -> bool:
    """Whether the same things are counted, but not the same number of each: two cats and three dogs."""
    return any(b.counted.get(what, number) != number for what, number in a.counted.items())


def _negation(a: Reading, b: Reading) -> bool:
    if len(a.negated) != len(b.negated):
        return True
    if not a.negated:
        return False
    # What one denies the other must not say; and what is denied must be the same, word for word.
    apart = set(a.negated) ^ set(b.negated)
    return any(part and part in (a.words | a.people) and part in (b.words | b.people) for part in apart) or bool(
        a.words ^ b.words
    )


def _subject(a: Reading, b: Reading) -> bool:
    if a.people != b.people:
        return True
    extra = a.words ^ b.words
    if not extra:
        return False
    # "My guests like tea" and "Anna likes tea" are not about the one who likes tea; "my boss leads" is not "I lead".
    if extra & ({a.opening, b.opening} | a.owned | b.owned):
        return True
    return bool(a.people) and (USER in a.order) != (USER in b.order)


def _mode(a: Reading, b: Reading) -> bool:
    apart = a.marks ^ b.marks
    if apart == {FUTURE} and EVERY not in a.marks and a.past == b.past:
        # "The wedding is on 21 June" and "will be on 21 June": a date tells the future by itself.
        return not any(time[0] == "m" and time[1:].isdigit() for time in a.times)
    if apart == {MUST}:
        # "Logs must be kept" and "keep logs": an order needs no "must".
        return (a.duty or b.duty) not in (a.lead, b.lead)
    return bool(apart)


def _tense(a: Reading, b: Reading) -> bool:
    if ("be" in a.past and not b.past) or ("be" in b.past and not a.past):
        return True
    return bool((a.past - a.present) & (b.present - b.past)) or bool((b.past - b.present) & (a.present - a.past))


def _direction(a: Reading, b: Reading) -> bool:
    if a.sides == b.sides:
        return False
    opposite = lexicon().opposite
    if a.origins != b.origins:
        return True
    mine, theirs = a.sides - b.sides, b.sides - a.sides
    return any(opposite[side] & theirs for side in mine)


def _order(a: Reading, b: Reading) -> bool:
    """Whether those who act and those to whom it is done have changed places."""
    if a.lesser and b.lesser and a.lesser != b.lesser:
        return True
    leads = {a.lead, b.lead}
    if a.of_user and b.of_user and not a.people and len(leads) == 2 and USER in leads and leads & (a.names | b.names):
        # "I borrowed Sam's car" and "Sam borrowed my car".
        return True
    actors = a.names | b.names | {part for part in a.order if part[0] == PERSON}
    mine = _in_order(a, [part for part in a.order if part in actors and part in b.order])
    theirs = _in_order(b, [part for part in b.order if part in actors and part in a.order])
    return len(mine) > 1 and mine != theirs and not (_one_person(a, mine) and _one_person(b, mine))


def _in_order(reading: Reading, actors: list[str]) -> list[str]:
    """Who acts comes first, also where it is said last."""
    return sorted(actors, key=lambda actor: actor not in reading.agents)


def _one_person(reading: Reading, actors: list[str]) -> bool:
    """Whether a name and a person stand side by side, as in "Anna, my sister" and "my sister is Anna"."""
    if len(actors) != 2 or len({actor[0] == PERSON for actor in actors}) != 2:
        return False
    one, other = (reading.order[actor] for actor in actors)
    return abs(one - other) == 1


def _words(a: Reading, b: Reading) -> bool:
    """Whether each says something that the other does not."""
    return bool(a.words - b.words) and bool(b.words - a.words)
