"""Words that may stand for each other, as `kin.txt` tells it; read when two statements first differ in a word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import combinations

from recollect.write.settling.lexicon import ENDED, PAST, PERSON, PLEASE, US, USER, WANT, entry, lexicon
from recollect.write.settling.reading import Reading
from recollect.write.settling.retold import retold, wanted

# What one does not have or avoids is what one does not eat, drink or use.
CONSUMING = frozenset(["eat", "drink", "use", "consum", "take"])
# Who prefers something wants it.
WISH, LIKE = "prefer", "like"
_OUR = frozenset(["our", "we", "us"])
TEAM = PERSON + "team"
# Who has or gets 500 euros need not pay, make or give them.
_NOT_HAVING = frozenset(["cost", "spend", "use", "give", "make"])
GETTING = frozenset("get gets getting got".split())
STOP = "quit"
_ALSO = {"befor": "by", "until": "to"}
SPOUSE = PERSON + "spouse"
_HANDING = frozenset(["give", "take", "receiv"])


def aligned(a: Reading, b: Reading) -> tuple[Reading, Reading]:
    """The two in the same words, as far as words of one have kin among those of the other.

    What is left over on one side only, and says little by itself, is left out: "goes for a run", "runs".
    """
    a, b = _unless_nobody(a, b), _unless_nobody(b, a)
    if a.ordered != b.ordered:
        a, b = (a, _as_order(b, a)) if a.ordered else (_as_order(a, b), b)
    if a.short or b.short:
        a, b = _by_initials(a, b), _by_initials(b, a)
    if a.people != b.people:
        a, b = _wed(a, b), _wed(b, a)
        a, b = _of_its_kind(a, b), _of_its_kind(b, a)
    a, b = _ended(a, b), _ended(b, a)
    a, b = _by_then(a, b), _by_then(b, a)
    a, b = _former(a, b), _former(b, a)
    a, b = _wishing(a, b), _wishing(b, a)
    if a.lesser and b.lesser:
        a, b = _preferring(a, b), _preferring(b, a)
    a, b = retold(a, b)
    mine, theirs = a.words - b.words, b.words - a.words
    if mine and theirs and (becomes := _kin_of(mine, theirs)):
        b = _renamed(b, becomes)
        mine, theirs = mine - set(becomes.values()), theirs - becomes.keys()
    if a.seeks != b.seeks and a.marks != b.marks:
        a, b = wanted(a, b), wanted(b, a)
        mine, theirs = a.words - b.words, b.words - a.words
    if mine and theirs:
        a, b = _compounds(a, b, mine, theirs)
        mine, theirs = a.words - b.words, b.words - a.words
    if mine and not theirs:
        a = _without(a, mine & _idle(a, b))
    elif theirs and not mine:
        b = _without(b, theirs & _idle(b, a))
    return a, b


def _unless_nobody(reading: Reading, other: Reading) -> Reading:
    """The reading without "we" where the other tells of the user or of nobody: "we keep logs", "logs are kept"."""
    if US in reading.people and US not in other.people and (reading.simple or not other.of_user):
        reading = replace(reading, people=reading.people - {US}, of_user=True)
        return replace(reading, lead=USER, relation=other.relation) if reading.lead == US else reading
    if TEAM in reading.people - other.people and not _OUR.isdisjoint(other.order):
        return replace(reading, people=reading.people - {TEAM})
    return reading


def _as_order(reading: Reading, order: Reading) -> Reading:
    """What the user wants told as an order is: "wants short answers" and "keep answers short"."""
    wanted = reading.of_user and (reading.marks & {WANT, PLEASE} or WISH in reading.words)
    if not wanted or WISH in order.words:
        return reading
    return replace(reading, ordered=True, marks=reading.marks - {WANT}, words=reading.words - {WISH})


def _wed(reading: Reading, other: Reading) -> Reading:
    """The reading with a spouse told as the other tells it, for a wife or a husband is one."""
    apart = other.people - reading.people
    if SPOUSE not in reading.people or len(apart) != 1 or not apart <= {PERSON + "wife", PERSON + "husband"}:
        return reading
    (told,) = apart
    swap = {SPOUSE: told}
    return replace(
        _renamed(reading, swap),
        people=reading.people - {SPOUSE} | apart,
        owned={swap.get(w, w) for w in reading.owned},
    )


def _by_initials(reading: Reading, other: Reading) -> Reading:
    """The reading with a name of several words told by its initials, where the other has those."""
    for short in other.short - reading.order.keys():
        told = sorted(reading.names - other.order.keys(), key=lambda name: reading.order.get(name, 0))
        if len(told) != len(short) or "".join(name[0] for name in told) != short:
            continue
        if len(short) == 2 and not is_being(told[-1]):
            # Two letters stand for much: NH is New Haven to one and New Hampshire to another. SC is a court.
            continue
        first, last = (reading.order.get(name, 0) for name in (told[0], told[-1]))
        if last - first == len(short) - 1:
            known, *rest = (entry(name).verb or name for name in told)
            reading = _renamed(_without(reading, set(rest)), {known: entry(short).verb or short})
            reading = replace(
                reading, names=reading.names - set(told) | {short}, order=reading.order | {short: first}
            )
    return reading


def _preferring(reading: Reading, other: Reading) -> Reading:
    """The reading with what is liked more than something else told as preferred, where the other does so."""
    if LIKE in reading.words - other.words and WISH in other.words - reading.words:
        return _renamed(reading, {LIKE: WISH})
    return reading


def _by_then(reading: Reading, other: Reading) -> Reading:
    """The reading without "before" or "until" where the other has another word: "by summer", "from May to June"."""
    told = {word for word, also in _ALSO.items() if word in reading.words - other.words and also in other.order}
    return _without(reading, told)


def _former(reading: Reading, other: Reading) -> Reading:
    """The reading with what used to be told as what was, where the other tells it so."""
    told = PAST in reading.marks - other.marks and "be" in other.past and reading.simple and other.simple
    return replace(reading, marks=reading.marks - {PAST}, past=reading.past | {"be"}) if told else reading


def _wishing(reading: Reading, other: Reading) -> Reading:
    """The reading with what is preferred told as wanted, where the other tells it so."""
    if WISH in reading.words - other.words and WANT in other.marks - reading.marks and not reading.lesser:
        return replace(reading, words=reading.words - {WISH}, marks=reading.marks | {WANT})
    return reading


def _ended(reading: Reading, other: Reading) -> Reading:
    """The reading with what was stopped told as what is no longer so, where the other tells it so."""
    stops = STOP in reading.words - other.words and ENDED in reading.marks & other.marks
    if not stops or reading.negated or len(other.negated) != 1 or not (reading.simple and other.simple):
        return reading
    return replace(reading, words=reading.words - {STOP}, negated=list(other.negated), past=reading.past - {STOP})


def _of_its_kind(reading: Reading, other: Reading) -> Reading:
    """The reading with what a beagle is, where the other says it."""
    implied = {lexicon().kinds[word] for word in reading.words & other.words if word in lexicon().kinds}
    implied &= other.people
    return replace(reading, people=reading.people | implied) if implied else reading


def _compounds(a: Reading, b: Reading, mine: set[str], theirs: set[str]) -> tuple[Reading, Reading]:
    """The two with what one writes as one word and the other as two put as one: "sun glasses", "sunglasses"."""
    for word in theirs:
        if (parts := _parts_in(a, word)) and parts & mine:
            a = replace(a, words=a.words - parts | {word})
    for word in mine:
        if (parts := _parts_in(b, word)) and parts & theirs:
            b = replace(b, words=b.words - parts | {word})
    return a, b


def _parts_in(reading: Reading, word: str) -> set[str]:
    for at in range(2, len(word) - 1):
        if word[:at] in reading.order and word[at:] in reading.order:
            return {word[:at], word[at:]}
    return set()


def _kin_of(mine: set[str], theirs: set[str]) -> dict[str, str]:
    """For words of theirs the words of mine that may stand for them, one for each."""
    known, free, found = kin(), sorted(mine), {}
    # Those that begin alike first: "flight" is "fly" before it is "leave".
    for word in sorted(theirs, key=lambda each: not any(each[:3] == other[:3] for other in free)):
        near = [each for each in free if each in known.get(word, ())]
        meant = next((each for each in near if each[:3] == word[:3]), near[0] if near else None)
        if meant is not None:
            found[word] = meant
            free.remove(meant)
    return found


def _idle(reading: Reading, other: Reading) -> set[str]:
    """What says little by itself: not what is over, unless the other too tells of something past.

    Where others are spoken of too, giving and taking say who has it in the end.
    """
    idle = reading.idle if other.past else reading.idle - reading.past
    if reading.ordered and reading.lead in lexicon().orders:
        idle = idle | {reading.lead}
    if reading.negated and other.negated:
        idle = idle | CONSUMING
    if other.relation == "have" or (reading.lead == USER and not GETTING.isdisjoint(other.order)):
        idle = idle - _NOT_HAVING
    # "From work" says more than "work".
    idle = idle - reading.follows.get("from", set())
    if "present" in reading.words & other.words:
        # Who attends a presentation does not give it.
        idle = idle - {"attend"}
    told_from_whom = reading.origins and reading.origins == other.origins
    return idle if told_from_whom or not (reading.people or reading.names) else idle - _HANDING


def _without(reading: Reading, words: set[str]) -> Reading:
    return replace(reading, words=reading.words - words) if words else reading


def _renamed(reading: Reading, becomes: Mapping[str, str]) -> Reading:
    """The reading with some of its words put in other words."""

    def name(word: str) -> str:
        return becomes.get(word, word)

    def names(words: set[str]) -> set[str]:
        return {becomes.get(word, word) for word in words}

    return replace(
        reading,
        words=names(reading.words),
        names={name(entry(word).verb) if entry(word).verb in becomes else word for word in reading.names},
        counted={name(word): number for word, number in reading.counted.items()},
        negated=[name(word) for word in reading.negated],
        past=names(reading.past),
        present=names(reading.present),
        perfect=names(reading.perfect),
        undergone=names(reading.undergone),
        doing=names(reading.doing),
        grouped=names(reading.grouped),
        repeated=names(reading.repeated),
        clauses=[names(part) for part in reading.clauses],
        lesser=names(reading.lesser),
        agents=names(reading.agents),
        deeds={actor: names(done) for actor, done in reading.deeds.items()},
        owners={name(word): name(owner) for word, owner in reading.owners.items()},
        follows={pivot: names(words) for pivot, words in reading.follows.items()},
        beside={pivot: names(words) for pivot, words in reading.beside.items()},
        governed={name(word): by for word, by in reading.governed.items()},
        opening=name(reading.opening),
        lead=name(reading.lead),
        relation=name(reading.relation),
        duty=name(reading.duty),
        order={name(word): at for word, at in reading.order.items()},
    )


@cache
def beings() -> frozenset[str]:
    """The words for people and animals, and for those who act as if they were one: a firm, a school."""
    lines = (files(__package__) / "beings.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(lines[1:]) | lexicon().bodies


def tells_of_beings(reading: Reading, parts: set[str]) -> bool:
    """Whether any of some words of weight stands for someone, as it is written there."""
    return bool(parts) and any(entry(word).verb in parts and is_being(word) for word in reading.order)


def is_being(word: str) -> bool:
    """Whether a word stands for someone, one or several of them: "agency", "agencies"."""
    return not beings().isdisjoint((word, word.removesuffix("s"), word[:-3] + "y" if word.endswith("ies") else word))


@cache
def never_kin() -> Mapping[str, set[str]]:
    """The words that must not stand for a word of weight, whatever else says so."""
    found: dict[str, set[str]] = {}
    for word, others in lexicon().apart.items():
        found.setdefault(entry(word).verb, set()).update(entry(each).verb for each in others)
    return found


@cache
def kin() -> Mapping[str, frozenset[str]]:
    """The words that may stand for a word of weight, all as readings hold them."""
    lines = (files(__package__) / "kin.txt").read_text(encoding="utf-8").splitlines()
    pairs = [(one, other) for one, *others in map(str.split, lines[1:]) for other in others]
    for group in lexicon().near:
        pairs += combinations([entry(word).verb for word in group.split()], 2)
    apart = never_kin()
    found: dict[str, set[str]] = {}
    for one, other in pairs:
        if one and other and one != other and other not in apart.get(one, ()):
            found.setdefault(one, set()).add(other)
            found.setdefault(other, set()).add(one)
    return {word: frozenset(others) for word, others in found.items()}
