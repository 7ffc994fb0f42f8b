"""What two statements differ in that keeps them apart, however alike they sound."""

from __future__ import annotations

from recollect.write.settling.direction import other_way
from recollect.write.settling.finer import is_plural
from recollect.write.settling.kin import CONSUMING, GETTING, aligned, tells_of_beings
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
from recollect.write.settling.small_words import AUXILIARY, BEING, CURRENCIES, HABITUAL, HAVING, LIKING

NUMBER, NAME, TIME, NEGATION, SUBJECT = "a number", "a name", "a time", "a negation", "whom it is about"
MODE, TENSE, ORDER, WORDS, DIRECTION = (
    "whether it is so",
    "when it was so",
    "who does what",
    "what is said",
    "a direction",
)


# Who grows a tree, drives a Volvo or lives with a friend has one.
_KEEPING = frozenset(["grow", "drive", "live"])
_CAN = frozenset(["can", "cannot"])
_LASTING = frozenset("last live work stay know own hold rent".split())
_PERCENT = "percent"
_TO_COME = frozenset(["next", "tomorrow", "soon"])
_HABITS = frozenset("usually normally typically generally always often regularly".split())
_OFTEN = frozenset("often frequently usually normally typically".split())
# Who likes walks likes walking; who likes fish need not like fishing.
_DEEDS = frozenset("walk run swim hike dance ride climb travel sleep work talk chat research".split())


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
        or (DIRECTION if other_way(a, b) else "")
        or (ORDER if turned_about(a, b) else "")
        or (WORDS if _words(a, b) else "")
    )


def _value(a: Reading, b: Reading) -> str:
    if a.numbers != b.numbers or (len(a.numbers) > 1 and _counted_apart(a, b)) or _others_counted(a, b):
        return NUMBER
    if a.numbers and _PERCENT in a.words ^ b.words:
        return NUMBER
    if a.times != b.times:
        return TIME
    mine, theirs = a.words & CURRENCIES, b.words & CURRENCIES
    if mine != theirs and mine and theirs:
        # "€180, up from $120" and "$180, up from $120".
        return NUMBER
    if not all(_met(name, b) for name in a.names) or not all(_met(name, a) for name in b.names):
        return NAME
    return ""


def _met(name: str, other: Reading) -> bool:
    """Whether the other has a name too; one that is a known word may be there in another form: EUR and euros."""
    if name in lexicon().given and name not in other.names and name in other.order:
        # "Ms Green" is not green.
        return entry(name).verb in (other.opening, other.bare)
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
    return USER in reading.order and not (reading.lead == USER and reading.relation in HAVING)


def _mode(a: Reading, b: Reading) -> bool:
    apart = (a.marks ^ b.marks) - {PLEASE, GROUP}
    if _always(a, b) or _always(b, a):
        return True
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


def _always(a: Reading, b: Reading) -> bool:
    """Whether the first does always what the other often does."""
    often = "always" not in b.order and not _OFTEN.isdisjoint(b.order)
    return often and "always" in a.order and _OFTEN.isdisjoint(a.order)


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
    if then.quotes and now.quotes and then.lead == now.lead and then.past - now.past == {"be"}:
        # 'The mayor said he is "appalled"' and 'the mayor said he was "appalled"': the words tell when.
        return False
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
    if then.past and now.past & BEING and then.simple and now.simple:
        # "Broke down" and "had a breakdown".
        return False
    if "got" in now.order and not now.past and then.past == {"be"}:
        # "Got divorced in May" and "the divorce was in May".
        return False
    if not now.past and (then.past & BEING or (now.present & BEING and then.past & now.words)):
        # "Was a nurse" and "is a nurse", "lived here" and "has a home here".
        return True
    if not now.past and now.present & BEING and then.past - now.words - BEING:
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


def _words(a: Reading, b: Reading) -> bool:
    """Whether each says something that the other does not; what it says again may stand in the place of that."""
    if _other_deed(a, b) or _other_deed(b, a) or _only_the_thing(a, b) or _only_the_thing(b, a):
        return True
    mine, theirs = a.words - b.words, b.words - a.words
    again = (b.repeated - a.repeated) & a.words if mine else (a.repeated - b.repeated) & b.words
    return bool((mine and theirs) or ((mine or theirs) and again))


def _other_deed(a: Reading, b: Reading) -> bool:
    """Whether the user only has here what they do something with there: "has two dogs", "carries two dogs"."""
    has = a.relation == "have" or (a.numbers and not GETTING.isdisjoint(a.order))
    return bool(has and a.lead == b.lead == USER and b.relation in b.words - a.words - _KEEPING)


def _only_the_thing(a: Reading, b: Reading) -> bool:
    """Whether the first likes what the other likes to do something with: "likes shops", "likes shopping"."""
    liked = next((at + 1 for word, at in a.order.items() if word in LIKING), None)
    things = {word for word in b.doing - a.doing if word in a.words and a.order[word] == liked}
    if not things or a.lesser or "to" in a.order:
        return False
    done = {entry(word).verb for word in a.order if word.endswith("ing")}
    return bool(things - done - {entry(word).verb for word in _DEEDS})
