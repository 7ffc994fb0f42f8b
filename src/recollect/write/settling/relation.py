"""Whether one statement gives another value for the very thing that another speaks of."""

from __future__ import annotations

from recollect.write.settling.differs import MODE, NAME, NEGATION, NUMBER, TIME, WORDS
from recollect.write.settling.lexicon import EVERY, USER, entry
from recollect.write.settling.reading import Reading

# Light words that tell what is said of someone when no other does.
_ANCHORS = frozenset(["name", "named", "called", "call", "heißt", "llama", "nom", "nombre"])
_MOST_WORDS = 2


def changed(new: Reading, old: Reading) -> str:
    """What the new statement changes of the old: a number, a name, a time; empty if they are about two things.

    Only the same subject and the same relation count: the same people, something else in common, and one kind of
    value that differs. "I live in Rome" changes "I live in Oslo", never "my sister lives in Oslo".
    """
    if new.people != old.people or not _common(new, old):
        return ""
    mine, theirs = others(new, old), others(old, new)
    if mine and theirs:
        # One value at a time: other words and other numbers make another thing.
        same = new.numbers == old.numbers and new.times == old.times and not (_unmet(new, old) or _unmet(old, new))
        few = max(len(mine), len(theirs)) <= _MOST_WORDS
        return WORDS if same and few and len(new.negated) == len(old.negated) else ""
    value = _value(new, old)
    if value is not None:
        return value
    if len(new.negated) != len(old.negated):
        return NEGATION
    return MODE if new.marks != old.marks or new.past != old.past else ""


def _value(new: Reading, old: Reading) -> str | None:
    """The one kind of value that both have and that is another; empty if it is more than that, None if it is none."""
    unmet = _unmet(new, old), _unmet(old, new)
    if new.numbers != old.numbers:
        both = bool(set(new.numbers) - set(old.numbers)) and bool(set(old.numbers) - set(new.numbers))
        return NUMBER if both and not any(unmet) else ""
    if new.times != old.times:
        return TIME if _kinds(new.times - old.times) & _kinds(old.times - new.times) and not any(unmet) else ""
    if any(unmet):
        # A name that only one of them has completes it.
        return NAME if all(unmet) else ""
    return None


def _kinds(times: set[str]) -> set[str]:
    """Months, weekdays and hours by their letter; all other times are of one kind."""
    return {time[0] if time[1:].isdigit() else "" for time in times}


def nearness(new: Reading, old: Reading) -> float:
    """How much of what the two are about they share, from 0 to 1."""
    most = max(len(new.words | new.people), len(old.words | old.people))
    return len((new.words | new.people) & (old.words | old.people)) / most if most else 0.0


def turned_round(new: Reading, old: Reading) -> bool:
    """Whether both prefer one of the same two things, and not the same one."""
    same = new.words == old.words and new.people == old.people and new.numbers == old.numbers
    if not same or "prefer" not in new.words or len(new.negated) != len(old.negated):
        return False
    apart = not (new.lesser <= old.lesser or old.lesser <= new.lesser)
    return bool(new.lesser and old.lesser) and apart and new.marks == old.marks


def same_subject(new: Reading, old: Reading) -> bool:
    """Whether the two are about the same people and share at least something said of them."""
    return new.people == old.people and bool(_common(new, old) or new.names & old.names)


def completes(new: Reading, old: Reading) -> bool:
    """Whether the two say the same of the same, and one of them only tells more: with whom, or for whom.

    "I love to play cricket with friends" completes "I like to play cricket"; "my brother likes cricket" does not.
    """
    if (new.lead, new.relation, len(new.negated)) != (old.lead, old.relation, len(old.negated)):
        return False
    nested = (old.words <= new.words or new.words <= old.words) and (
        old.people <= new.people or new.people <= old.people
    )
    # How often it is so completes it; whether it is so does not.
    if not nested or not _common(new, old) or (new.marks ^ old.marks) - {EVERY}:
        return False
    return _comes_last(new.people - old.people, new, old) and _comes_last(old.people - new.people, old, new)


def _comes_last(people: set[str], reading: Reading, other: Reading) -> bool:
    """Whether they are named after all that both say: who comes earlier may be the one who does it."""
    said = max((reading.order.get(word, 0) for word in reading.words & other.words), default=0)
    return all(reading.order.get(person, 0) > said for person in people)


def keeps(text: Reading, source: Reading) -> str:
    """What of the source the text has lost: its numbers, times or names; empty if it kept them all."""
    if any(number not in text.numbers for number in source.numbers):
        return NUMBER
    if not source.times <= text.times:
        return TIME
    if _unmet(source, text):
        return NAME
    return NEGATION if len(source.negated) > len(text.negated) else ""


def _common(new: Reading, old: Reading) -> set[str]:
    shared = (new.words & old.words) - _name_parts(new) - _name_parts(old)
    if not shared and _ANCHORS & new.order.keys() and _ANCHORS & old.order.keys():
        shared = {"name"}
    return shared or ((new.people & old.people) - {USER})


def others(reading: Reading, other: Reading) -> set[str]:
    """The words of weight that the other has not, names apart."""
    return reading.words - other.words - _name_parts(reading)


def _unmet(reading: Reading, other: Reading) -> bool:
    return any(name not in other.order for name in reading.names)


def _name_parts(reading: Reading) -> set[str]:
    return {part for name in reading.names for part in (entry(name).parts or (name,))}
