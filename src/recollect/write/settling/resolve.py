"""Resolve: settle what was learned against what is known, as far as rules can.

Exact words, near-equal words, equal meaning, a key that has a value, a correction of one thing said before. What is
left is something new, or for an LLM to decide. Nothing that differs in a number, a name, a time or a negation is ever
taken for the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recollect.model.learned import Learned
from recollect.model.memory import Category, MemoryRecord, Status, text_hash
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.write.settling.correction import clearly_nearer, corrected, opposite
from recollect.write.settling.differs import MODE, NEGATION
from recollect.write.settling.fuller import completed, in_known_words, says_less
from recollect.write.settling.lexicon import ENDED
from recollect.write.settling.listed import holds_more, without
from recollect.write.settling.relation import changed, nearness, turned_round
from recollect.write.settling.resolution import Limits, Neighbour, Resolution, Undecided, level_of
from recollect.write.settling.same import likeness, said_again
from recollect.write.settling.settlement import Settlement, outranks

__all__ = ["Limits", "Neighbour", "Resolution", "resolve"]

# The log, and what was made of whole conversations, are no statements.
NO_STATEMENTS = frozenset([Category.TURN, Category.SUMMARY, Category.EPISODE, Category.FILE])
# Two statements of one batch have no vectors to compare; their words decide.
_UNMEASURED = 0.5


def resolve(
    scope: Scope,
    learned: Sequence[Learned],
    neighbours: Sequence[Sequence[Neighbour]],
    *,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    prompt_digest: str | None = None,
) -> Resolution:
    """Decide what becomes of each statement, given the memories near to it; what cannot be decided is left open.

    The neighbours of a keyed statement must include the memory that holds its key. What is said twice in one batch is
    one memory.
    """
    settlement = Settlement(scope, limits, prompt_digest)
    for each, those in zip(learned, neighbours, strict=True):
        _settle(settlement, each, _usable(settlement, each, those))
    return settlement.done()


def _usable(settlement: Settlement, learned: Learned, given: Sequence[Neighbour]) -> list[Neighbour]:
    """The statements that count, as the batch has left them, with those that it has brought in itself."""
    statuses = (Status.ACTIVE, Status.REVIEW) if learned.review else (Status.ACTIVE,)
    ended = settlement.ended
    usable = [
        Neighbour(settlement.current(each.record), each.similarity)
        for each in sorted(given, key=lambda each: -each.similarity)
        if each.record.status in statuses
        and each.record.category not in NO_STATEMENTS
        and each.record.id not in ended
    ]
    own = [change.record for change in settlement.added.values() if change.record.id not in ended]
    return usable + [Neighbour(record, _UNMEASURED) for record in own if record.status in statuses]


def _settle(settlement: Settlement, learned: Learned, known: Sequence[Neighbour]) -> None:
    if learned.retraction and settlement.taken_back >= settlement.limits.forgets:
        why = f"no more than {settlement.limits.forgets} memories are taken back at once"
        settlement.add(learned, why, unreconciled=True)
        return
    if learned.key is not None and not learned.review and _settle_key(settlement, learned, known):
        return
    if learned.only_known:
        settlement.ignore(learned, None, "nothing is known that it changes")
        return
    if learned.over and not learned.review:
        _end(settlement, learned, known)
        return
    if _settle_same(settlement, learned, known):
        return
    if learned.review:
        settlement.add(learned, f"waits for review: {learned.review}")
    elif learned.correction or learned.retraction:
        _correct(settlement, learned, known)
    elif turned := _turned_round(settlement, learned, known):
        settlement.supersede(learned, turned, "what was preferred is now preferred less")
    elif near := _near(settlement, learned, known):
        settlement.leave_open(Undecided(learned, near), f"{len(near)} memories may have to do with it")
    else:
        settlement.add(learned, "nothing like it is known")


def _settle_key(settlement: Settlement, learned: Learned, known: Sequence[Neighbour]) -> bool:
    """Settle a keyed statement against the memory that holds its key; whether there is one."""
    holder = _holder(settlement, learned, known)
    if holder is None:
        return False
    expired = holder.expires_at is not None and holder.expires_at <= now()
    if learned.only_known:
        learned = in_known_words(learned, holder)
    if not learned.retraction:
        learned = completed(learned, holder)
    if learned.retraction:
        if holds_more(holder.value or holder.content, learned.content):
            return False
        if outranks(learned, holder) and _names(settlement, learned, holder):
            settlement.supersede(_as_over(learned), holder, f"{learned.key} no longer holds")
        else:
            settlement.ignore(learned, holder, f"{learned.key} is known to be something else, or in better words")
    elif _value(learned) == _value(holder):
        settlement.known(learned, holder, f"{learned.key} is known to be that")
    elif not outranks(learned, holder):
        settlement.ignore(learned, holder, f"{learned.key} is known in words to be trusted more")
    elif not learned.correction and not expired and says_less(learned, holder):
        settlement.known(learned, holder, f"{learned.key} is known more fully")
    elif learned.correction or expired or learned.confidence >= holder.confidence:
        why = "corrected" if learned.correction else "said anew"
        settlement.take_key(learned, holder, f"{learned.key} is {why}")
    else:
        sure = f"{learned.confidence:g} is less sure than {holder.confidence:g}"
        settlement.ignore(learned, holder, f"{learned.key} is known better: {sure}")
    return True


def _holder(settlement: Settlement, learned: Learned, known: Sequence[Neighbour]) -> MemoryRecord | None:
    """The memory that holds the key: what holds here comes before what holds everywhere."""
    scope = settlement.scope
    slot = (learned.key, learned.category)
    places = (scope.place(level_of(scope, settlement.limits)), scope.place(scope.natural_level), "")
    held = [each.record for each in known if (each.record.key, each.record.category) == slot]
    # Of two in one place the later is of this batch, and newer.
    return next((record for place in places for record in reversed(held) if record.place == place), None)


def _value(said: Learned | MemoryRecord) -> str:
    return text_hash(said.value or said.content)


def _names(settlement: Settlement, learned: Learned, holder: MemoryRecord) -> bool:
    """Whether it is the value of the key that is taken back, by that value or by words that deny it."""
    if learned.value is None or _value(learned) == _value(holder):
        return True
    mine, theirs = settlement.text(learned.over or learned.content).reading, settlement.text(holder.content).reading
    return mine is not None and theirs is not None and corrected(mine, theirs) in (NEGATION, MODE)


def _as_over(learned: Learned) -> Learned:
    return replace(learned, content=learned.over) if learned.over else learned


def _settle_same(settlement: Settlement, learned: Learned, known: Sequence[Neighbour]) -> bool:
    """Settle a statement that was said before; whether it was."""
    found = _same(settlement, learned, known)
    if found is not None:
        record, how, exact = found
        _again(settlement, learned, record, how or "exactly that is known", exact=exact)
    return found is not None


def _same(
    settlement: Settlement, learned: Learned, known: Sequence[Neighbour]
) -> tuple[MemoryRecord, str, bool] | None:
    """The memory that says the same, by what it does, and whether in the same words."""
    mine = settlement.text(learned.content)
    for each in known:
        if settlement.text(each.record.content).plain == mine.plain:
            return each.record, "", True
    if learned.key is not None and learned.correction:
        return None
    for each in known:
        alike = likeness(mine, settlement.text(each.record.content))
        how = said_again(alike, each.similarity, limits=settlement.limits.same)
        if how:
            share = {"letters": alike.letters, "words": alike.words}.get(how, each.similarity)
            return each.record, f"the same by {how}, {share:.2f}", False
    return None


def _end(settlement: Settlement, learned: Learned, known: Sequence[Neighbour]) -> None:
    """End what is over where it is told as it was: nothing of that may stay, or come back with it."""
    if (same := _same(settlement, learned, known)) is not None:
        record = same[0]
        if outranks(learned, record):
            settlement.supersede(_as_over(learned), record, "it no longer holds")
        else:
            settlement.ignore(learned, record, "it is known in words to be trusted more")
    elif (reduced := _reduced(learned, known)) is not None:
        settlement.supersede(learned, reduced[0], "one of what it lists is over", content=reduced[1])
    else:
        _correct(settlement, _as_over(learned), known)


def _again(settlement: Settlement, learned: Learned, record: MemoryRecord, reason: str, *, exact: bool) -> None:
    if learned.review or not outranks(learned, record):
        settlement.ignore(learned, record, f"{reason}; nothing is added to it")
    elif learned.key is not None and record.key is None and record.id not in settlement.added:
        # The same with a key is worth more: it is always found.
        settlement.supersede(learned, record, f"{reason}, now with its key")
    elif exact:
        settlement.known(learned, record, reason)
    else:
        settlement.merge(learned, record, reason)


def _correct(settlement: Settlement, learned: Learned, known: Sequence[Neighbour]) -> None:
    """Put a correction in the place of the one thing it corrects, if it is plain which."""
    if (found := _corrected(settlement, learned, known)) is not None:
        record, what = found
        settlement.supersede(learned, record, f"it changes {what} of that")
    elif learned.retraction and (reduced := _reduced(learned, known)) is not None:
        settlement.supersede(learned, reduced[0], "one of what it lists is over", content=reduced[1])
    elif near := _near(settlement, learned, known):
        settlement.leave_open(Undecided(learned, near), "what it corrects is not plain")
    elif learned.retraction and not _tells_an_end(settlement, learned):
        settlement.ignore(learned, None, "nothing is known that it denies")
    else:
        settlement.add(learned, "what it corrects is not known", unreconciled=True)


def _reduced(learned: Learned, known: Sequence[Neighbour]) -> tuple[MemoryRecord, str] | None:
    """The one memory that lists what is taken back among other things, and what is left of it."""
    found = [
        (each.record, left)
        for each in known
        if outranks(learned, each.record) and (left := without(each.record.content, learned.content))
    ]
    return found[0] if len(found) == 1 else None


def _tells_an_end(settlement: Settlement, learned: Learned) -> bool:
    """Whether it says something even if nothing was known: what is no longer so was so once."""
    reading = settlement.text(learned.content).reading
    return reading is None or ENDED in reading.marks


def _turned_round(settlement: Settlement, learned: Learned, known: Sequence[Neighbour]) -> MemoryRecord | None:
    mine = settlement.text(learned.content).reading
    for each in known:
        theirs = settlement.text(each.record.content).reading
        if not mine or not theirs or not outranks(learned, each.record):
            continue
        if turned_round(mine, theirs) or (learned.category is Category.PREFERENCE and opposite(mine, theirs)):
            return each.record
    return None


def _corrected(
    settlement: Settlement, learned: Learned, known: Sequence[Neighbour]
) -> tuple[MemoryRecord, str] | None:
    """The one memory that is plainly meant, and what of it is changed."""
    mine = settlement.text(learned.content).reading
    if mine is None:
        return None
    found: list[tuple[tuple[float, float], MemoryRecord, str]] = []
    # How near those of this batch are was never measured: beside them only words count.
    measured = not any(each.record.id in settlement.added for each in known)
    for each in known:
        theirs = settlement.text(each.record.content).reading
        what = corrected(mine, theirs) if theirs else ""
        if learned.retraction and what not in (NEGATION, MODE):
            # What is over is not what holds now: who left Rome may live in Milan.
            what = ""
        if theirs and what and outranks(learned, each.record):
            near = nearness(mine, theirs), each.similarity if measured else 0.0
            found.append((near, each.record, what))
    found.sort(key=lambda each: each[0], reverse=True)
    if not found or (len(found) > 1 and not clearly_nearer(found[0][0], found[1][0])):
        return None
    return found[0][1:]


def _near(settlement: Settlement, learned: Learned, known: Sequence[Neighbour]) -> tuple[Neighbour, ...]:
    """The memories that it may have to do with, the nearest first."""
    mine = settlement.text(learned.content).reading
    own = settlement.added
    near = [
        each
        for each in known
        if each.record.id not in own
        and (
            each.similarity >= settlement.limits.near
            or (mine and (theirs := settlement.text(each.record.content).reading) and changed(mine, theirs))
        )
    ]
    return tuple(near[: settlement.limits.neighbours])
