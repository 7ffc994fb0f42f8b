"""What two statements differ in that keeps them apart, however alike they sound."""

from __future__ import annotations

from recollect.write.settling.finer import is_plural
from recollect.write.settling.kin import CONSUMING, aligned, never_kin, tells_of_beings
from recollect.write.settling.lexicon import (
    EVERY,
    FUTURE,
    GROUP,
    MUST,
    PERSON,
    PLEASE,
    SOME,
    USER,
    WANT,
    entry,
    lexicon,
)
from recollect.write.settling.reader import read
from recollect.write.settling.reading import Reading
from recollect.write.settling.retold import SEARCH
from recollect.write.settling.roles import turned_about
from recollect.write.settling.small_words import AUXILIARY, HABITUAL

NUMBER, NAME, TIME, NEGATION, SUBJECT = "a number", "a name", "a time", "a negation", "whom it is about"
MODE, TENSE, ORDER, WORDS, DIRECTION = (
    "whether it is so",
    "when it was so",
    "who does what",
    "what is said",
    "a direction",
)


_HAVING = frozenset(["have", "own"])
_BEING = frozenset(["be", "have"])
_TURNING = frozenset(
    ["befor", "after", "until", "beneath", "behind", "outsid", "lose", "near", "front", "abov", "opposit", "between"]
)
_INTO, _OUT = frozenset(["into", "onto"]), frozenset(["out", "off"])
_LESS = frozenset(["down", "lower"])
_CAN = frozenset(["can", "cannot"])
_GETTING = frozenset("get gets got getting".split())
# How someone may get something; other deeds are others: "got a boat", "built a boat".
_GAINING = frozenset(
    "buy receiv adopt acquir obtain win earn inherit order collect pickup find choos catch book take score reach "
    "experiens suffer develop hire join enrol bring land secur gain be have make visit start arriv graduat".split()
)
_DONE_TO_SOMEONE = frozenset("visit see watch drive host teach invit".split())
_LASTING = frozenset("last live work stay know own hold rent".split())
_MONEY = frozenset("dollar euro pound yen rupe franc".split())
_SWAP = "replac"
_TO_COME = frozenset(["next", "tomorrow", "soon"])
_HABITS = frozenset("usually normally typically generally always often regularly".split())


def differs(a: str, b: str) -> str:
    """What the two differ in, or nothing: what differs is never the same memory said again."""
    return difference(read(a), read(b))


def difference(a: Reading, b: Reading) -> str:
    """What two read statements differ in, the gravest first; empty if they may be the same."""
    a, b = aligned(a, b)
    return differing(a, b)


def differing(a: Reading, b: Reading) -> str:
    """The same for two that were put in the same words as far as can be."""
    return (
        _value(a, b)
        or (NEGATION if _negation(a, b) else "")
        or (SUBJECT if _subject(a, b) else "")
        or (MODE if _mode(a, b) else "")
        or (TENSE if _tense(a, b) else "")
        or (DIRECTION if _direction(a, b) else "")
        or (ORDER if turned_about(a, b) else "")
        or (WORDS if _words(a, b) else "")
    )


def _value(a: Reading, b: Reading) -> str:
    if a.numbers != b.numbers or (len(a.numbers) > 1 and _counted_apart(a, b)) or _others_counted(a, b):
        return NUMBER
    if a.times != b.times:
        return TIME
    mine, theirs = a.words & _MONEY, b.words & _MONEY
    if mine != theirs and mine and theirs:
        # "€180, up from $120" and "$180, up from $120".
        return NUMBER
    if not all(_met(name, b) for name in a.names) or not all(_met(name, a) for name in b.names):
        return NAME
    return ""


def _met(name: str, other: Reading) -> bool:
    """Whether the other has a name too; one that is a known word may be there in another form: EUR and euros."""
    return name in other.order or (name in lexicon().becomes and entry(name).verb in other.words)


def _counted_apart(a: Reading, b: Reading) -> bool:
    """Whether the same things are counted, but not the same number of each: two cats and three dogs."""
    return any(b.counted.get(what, number) != number for what, number in a.counted.items())


def _others_counted(a: Reading, b: Reading) -> bool:
    """Whether both tell of the same people and count others of them: two sisters and a brother, or the reverse."""
    mine, theirs = ({who for who in each.counted if who[0] == PERSON} for each in (a, b))
    return mine != theirs and mine <= b.people and theirs <= a.people and bool(mine and theirs)


def _negation(a: Reading, b: Reading) -> bool:
    if len(a.negated) != len(b.negated):
        return True
    if not a.negated:
        return False
    if len(a.negated) == 1 and a.simple and b.simple and not (a.words ^ b.words):
        # Of one clause all is denied, wherever it is said.
        return False
    # What one denies the other must not say; and what is denied must be the same, word for word.
    apart, extra = set(a.negated) ^ set(b.negated), a.words ^ b.words
    once = len(a.negated) == 1 and len(apart) == 2
    if once and extra <= apart & CONSUMING and (_verb_and_next(a, apart) or _verb_and_next(b, apart)):
        # "Doesn't drink coffee", "drinks no coffee", "avoids coffee".
        return False
    if any(part and part in (a.words | a.people) and part in (b.words | b.people) for part in apart):
        return True
    return any(_within(a, part) or _within(b, part) for part in extra)


def _within(reading: Reading, part: str) -> bool:
    """Whether a word is denied, or comes behind what is: "no red meat"."""
    first = min(reading.order.get(each, 0) for each in reading.negated)
    return part in reading.words and reading.order[part] >= first


def _verb_and_next(reading: Reading, parts: set[str]) -> bool:
    """Whether the two are what is done and what it is done to, side by side."""
    verb, (other, *_) = reading.relation, [*(parts - {reading.relation}), ""]
    return verb in parts and reading.order.get(other, -1) == reading.order.get(verb, -1) + 1


def _subject(a: Reading, b: Reading) -> bool:
    if a.people != b.people:
        return True
    if a.pronouns != b.pronouns and (a.of_user != b.of_user or (a.pronouns and b.pronouns)):
        # "It is mine" and "it is his", "her car" and "his car".
        return True
    if a.people and a.lead != b.lead and _user_acts(a) != _user_acts(b):
        return True
    if (
        a.of_user != b.of_user
        and not (a.ordered or b.ordered)
        and (b.words - a.words if a.of_user else a.words - b.words)
    ):
        # "Bob likes tea" and "the user likes tea".
        return True
    if _narrower(a, b) or _narrower(b, a):
        return True
    # "My guests like tea" is not "I like tea", "the baker sleeps badly" is not "the user sleeps badly".
    mine, theirs = a.words - b.words, b.words - a.words
    return bool((mine | theirs) & {a.may_name, b.may_name}) or tells_of_beings(a, mine) or tells_of_beings(b, theirs)


def _narrower(a: Reading, b: Reading) -> bool:
    """Whether the first tells of one kind of what the other tells of: "my office phone" and "my phone"."""
    has_it = b.relation == "have" or b.owned & (a.words - a.owned)
    return bool(a.owned & (a.words - b.words) and has_it)


def _user_acts(reading: Reading) -> bool:
    """Whether the user does something or has it done: to have a sister is to do nothing."""
    return USER in reading.order and not (reading.lead == USER and reading.relation in _HAVING)


def _mode(a: Reading, b: Reading) -> bool:
    apart = (a.marks ^ b.marks) - {PLEASE, GROUP}
    if not _several(a, b) or not _several(b, a):
        return True
    if apart == {SOME} and GROUP in (a.marks if SOME in a.marks else b.marks):
        # "Several tourists", "a group of tourists", "tourists".
        return False
    if apart == {FUTURE} and _is_to_be(*((b, a) if FUTURE in a.marks else (a, b))):
        return False
    if apart == {FUTURE} and EVERY not in a.marks and a.past == b.past:
        # "The wedding is on 21 June" and "will be on 21 June": a date tells the future by itself, as "next week".
        to_come = not a.times.isdisjoint(_TO_COME) and a.origins == b.origins
        return not to_come and not any(time[0] == "m" and time[1:].isdigit() for time in a.times)
    if a.seeks != b.seeks and SEARCH in a.words ^ b.words:
        # Who looks for something has it not.
        return True
    if apart == {"@may", "@maybe"} or (apart == {FUTURE} and "@maybe" in a.marks):
        # "May move" and "might move", "perhaps will move".
        return False
    if apart == {"@leisure"} and {"like", "hobbi"} & a.words & b.words:
        return False
    if apart == {EVERY} and not HABITUAL.isdisjoint(a.order.keys() | b.order.keys()):
        # "In the mornings" and "every morning".
        return False
    if apart == {EVERY} and not _HABITS.isdisjoint(a.order.keys() | b.order.keys()):
        # "Usually on a Monday" and "on Mondays".
        return False
    if apart == {MUST} and a.negated and b.negated and _CAN & (a.order if MUST in b.marks else b.order).keys():
        # "Must not eat" and "cannot eat".
        return False
    if apart == {MUST, WANT}:
        # "Notes must be short" and "the user wants short notes".
        return (a if MUST in a.marks else b).of_user
    if apart == {MUST} and (b if MUST in a.marks else a).past:
        # "Must be done" and "was done".
        return True
    if apart == {MUST}:
        # "Logs must be kept" and "keep logs": an order needs no "must".
        return (a.duty or b.duty) not in (a.lead, b.lead)
    return bool(apart)


def _is_to_be(headline: Reading, other: Reading) -> bool:
    """Whether the first tells the future as headlines do: "city to ban cars" and "city will ban cars"."""
    told = "to" in headline.order and "to" not in other.order
    return told and not headline.of_user and AUXILIARY.isdisjoint(headline.order)


def _several(a: Reading, b: Reading) -> bool:
    """Whether there are several in the second too of what is taken together in the first."""
    return all(any(is_plural(word) and part in entry(word).parts for word in b.order) for part in a.grouped)


def _tense(a: Reading, b: Reading) -> bool:
    return _is_over(a, b) or _is_over(b, a)


def _is_over(then: Reading, now: Reading) -> bool:
    """Whether something was so for the first that is so for the other."""
    if {WANT, MUST} & then.marks & now.marks and "be" in then.past - now.past:
        # "Needed it done" and "needs it done".
        return True
    if (
        now.relation in (then.perfect & now.present) - now.past - _LASTING
        and then.lead == now.lead
        and not then.lasting
    ):
        # "Has painted four fences" and "paints four fences".
        return True
    if then.past and now.past & _BEING and then.simple and now.simple:
        # "Broke down" and "had a breakdown".
        return False
    if "got" in now.order and not now.past and then.past == {"be"}:
        # "Got divorced in May" and "the divorce was in May".
        return False
    if not now.past and (then.past & _BEING or (now.present & _BEING and then.past & now.words)):
        # "Was a nurse" and "is a nurse", "lived here" and "has a home here".
        return True
    if not now.past and now.present & _BEING and then.past - now.words - _BEING:
        # "Went to school" and "is at school".
        return True
    if then.lead == now.lead and _in_its_past(then) and _in_its_present(now):
        # "Lived with her parents" and "shares a home with her parents".
        return True
    over = (then.past - then.present) & (now.present - now.past)
    # "We wrote it in Go" and "it is written in Go".
    return bool(over - now.undergone if then.lead != now.lead else over)


def _in_its_past(reading: Reading) -> bool:
    return reading.relation in reading.past - reading.present


def _in_its_present(reading: Reading) -> bool:
    over = reading.past or "got" in reading.order or any(entry(word).past for word in reading.order)
    return not over and reading.relation in reading.present


def _direction(a: Reading, b: Reading) -> bool:
    if (
        _opposed(a.words ^ b.words, a.words & b.words)
        or _come_apart(a, b)
        or _come_apart(b, a)
        or (a.words ^ b.words) & _TURNING
        or any(_swapped(a, b, pivot) for pivot in a.follows)
        or (a.numbers and (a.words ^ b.words) & _LESS)
        or _in_and_out(a, b)
        or _in_and_out(b, a)
    ):
        return True
    if ((a.words ^ b.words) - _TURNING) & (a.follows.get("from", set()) | b.follows.get("from", set())):
        # "The train", "the train from work".
        return True
    if a.beside and b.beside and _beside_others(a, b):
        return True
    if _parts_with(a, b) or _parts_with(b, a) or _is_met(a, b) or _is_met(b, a):
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
    return parts and a.lead == b.lead == USER and b.relation not in _MONEY and not _GETTING.isdisjoint(b.order)


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
    there = b.follows.get("to", set()) | b.agents | ({b.lead} if b.relation not in _BEING else set())
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


def _words(a: Reading, b: Reading) -> bool:
    """Whether each says something that the other does not; what it says again may stand in the place of that."""
    mine, theirs = a.words - b.words, b.words - a.words
    again = (b.repeated - a.repeated) & a.words if mine else (a.repeated - b.repeated) & b.words
    return bool((mine and theirs) or ((mine or theirs) and again))
