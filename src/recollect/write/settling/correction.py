"""Whether a statement corrects or ends another for sure: the same is said of the same, and only its value changed."""

from __future__ import annotations

from recollect.write.settling.differs import MODE, NEGATION
from recollect.write.settling.lexicon import USER
from recollect.write.settling.reading import Reading
from recollect.write.settling.relation import changed, others

# Words that only say that something is over, or that someone has it.
_ENDING, _OWNING = frozenset(["quit", "stop"]), frozenset(["own"])
_BARE = frozenset(["", "be", "have", USER])
_JOINS = frozenset("and or but und oder aber y o pero et ou mais".split())
_LINKS = _JOINS | frozenset(
    "of in on at to for by with as from near about into onto per via since during because who which that where when "
    "von vom zu zum zur im am an auf für mit bei als de del en por para con du au aux dans pour par avec chez".split()
)
# So much nearer must the best be than the next to be plainly the best: in its words, or in its meaning.
_CLEARLY_WORDS, _CLEARLY_MEANING = 0.1, 0.05


def corrected(new: Reading, old: Reading) -> str:
    """What the new statement changes of the old; empty unless both say the same of the same.

    "I no longer have the bike" ends "I have a red bike", never "my bike has a bell" or "I like the bike".
    """
    what = changed(new, old)
    if not what or not _same_relation(new, old):
        return ""
    if what not in (NEGATION, MODE):
        # Whoever says less of what it belongs to may speak of something else.
        return "" if others(old, new) and not others(new, old) else what
    denying, denied = (new, old) if len(new.negated) >= len(old.negated) else (old, new)
    return what if _denies(denying, denied) else ""


def opposite(new: Reading, old: Reading) -> bool:
    """Whether one says that something is so, and the other of the very same that it is not."""
    same = (new.words, new.names, new.times, new.numbers) == (old.words, old.names, old.times, old.numbers)
    return same and corrected(new, old) == NEGATION


def clearly_nearer(best: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether of two, each with its nearness by words and by meaning, the first is plainly what is meant."""
    words, meaning = best[0] - other[0], best[1] - other[1]
    return words >= _CLEARLY_WORDS or (words >= 0 and meaning >= _CLEARLY_MEANING)


def _same_relation(new: Reading, old: Reading) -> bool:
    if not (others(new, old) or others(old, new)):
        return True
    mine, theirs = _told(new), _told(old)
    # "Works as a nurse" and "the job is that of a nurse" are one relation, told by the verb or by the subject.
    return mine == theirs or bool(set(mine) & set(theirs) - _BARE)


def _told(reading: Reading) -> tuple[str, str]:
    return reading.lead, "have" if reading.relation in _OWNING else reading.relation


def _denies(denying: Reading, denied: Reading) -> bool:
    """Whether the whole of one is denied by the other: what is said of less is not over for more.

    Who no longer has a bike may have a bike lock, or a lock for the bike; who no longer likes jazz may like the
    blues of "jazz and blues". But they have no red bike, and no bike at home.
    """
    if others(denying, denied) - _ENDING - _OWNING:
        return False
    shared = denying.words - _ENDING - _OWNING - {denied.relation}
    if not shared:
        return True
    if denied.listed and denied.words - shared - {denied.relation}:
        # Of several things some may still be so.
        return False
    met, waiting, link = False, False, ""
    for part in denied.order:
        if part in _LINKS:
            if waiting:
                return False
            link = part
        elif part in shared:
            met, waiting, link = True, False, ""
        elif part in denied.words and part != denied.relation:
            if met:
                return bool(link) and link not in _JOINS
            waiting = True
    return met and not waiting
