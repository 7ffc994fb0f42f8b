"""Words that may stand for each other, as `kin.txt` tells it; read when two statements first differ in a word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import combinations

from recollect.write.settling.lexicon import US, entry, lexicon
from recollect.write.settling.reading import Reading

# What one does not have or avoids is what one does not eat, drink or use.
CONSUMING = frozenset(["eat", "drink", "use", "consum", "take"])
_HANDING = frozenset(["give", "take", "receiv"])


def aligned(a: Reading, b: Reading) -> tuple[Reading, Reading]:
    """The two in the same words, as far as words of one have kin among those of the other.

    What is left over on one side only, and says little by itself, is left out: "goes for a run", "runs".
    """
    a, b = _unless_nobody(a, b), _unless_nobody(b, a)
    mine, theirs = a.words - b.words, b.words - a.words
    if mine and theirs and (becomes := _kin_of(mine, theirs)):
        b = _renamed(b, becomes)
        mine, theirs = mine - set(becomes.values()), theirs - becomes.keys()
    if mine and not theirs:
        a = _without(a, mine & _idle(a, b))
    elif theirs and not mine:
        b = _without(b, theirs & _idle(b, a))
    return a, b


def _unless_nobody(reading: Reading, other: Reading) -> Reading:
    """The reading without "we" where the other speaks of nobody: "we keep logs", "logs are kept"."""
    if US in reading.people and not other.people and not other.of_user:
        return replace(reading, people=reading.people - {US})
    return reading


def _kin_of(mine: set[str], theirs: set[str]) -> dict[str, str]:
    """For words of theirs the words of mine that may stand for them, one for each."""
    known, free, found = kin(), sorted(mine), {}
    for word in sorted(theirs):
        meant = next((each for each in free if each in known.get(word, ())), None)
        if meant is not None:
            found[word] = meant
            free.remove(meant)
    return found


def _idle(reading: Reading, other: Reading) -> set[str]:
    """What says little by itself: not what is over, unless the other too tells of something past.

    Where others are spoken of too, giving and taking say who has it in the end.
    """
    idle = reading.idle if other.past else reading.idle - reading.past
    if reading.negated and other.negated:
        idle = idle | CONSUMING
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
        lesser=names(reading.lesser),
        agents=names(reading.agents),
        owners={name(word): name(owner) for word, owner in reading.owners.items()},
        follows={pivot: names(words) for pivot, words in reading.follows.items()},
        opening=name(reading.opening),
        lead=name(reading.lead),
        relation=name(reading.relation),
        duty=name(reading.duty),
        order={name(word): at for word, at in reading.order.items()},
    )


@cache
def kin() -> Mapping[str, frozenset[str]]:
    """The words that may stand for a word of weight, all as readings hold them."""
    lines = (files(__package__) / "kin.txt").read_text(encoding="utf-8").splitlines()
    pairs = [(one, other) for one, *others in map(str.split, lines[1:]) for other in others]
    for group in lexicon().near:
        pairs += combinations([entry(word).verb for word in group.split()], 2)
    apart = {entry(word).verb: {entry(each).verb for each in others} for word, others in lexicon().apart.items()}
    found: dict[str, set[str]] = {}
    for one, other in pairs:
        if one and other and one != other and other not in apart.get(one, ()):
            found.setdefault(one, set()).add(other)
            found.setdefault(other, set()).add(one)
    return {word: frozenset(others) for word, others in found.items()}
