"""When what a verb says is so: now, over, or done to someone; told by the verb and the words before it."""

from __future__ import annotations

from recollect.write.settling import small_words as small
from recollect.write.settling.lexicon import USER, WANT, Entry, entry
from recollect.write.settling.reading import Reading

_HAVE = frozenset("has have had having".split())
# What may stand between "has" and what was done: "has so far finished".
_BETWEEN = frozenset("so far since recently lately just already now also only ever never not always finally".split())
_REACH = 4
# What was done looks here as what is done: "has become", "has read".
_UNCHANGED = small.OF_BOTH_TIMES | {"become", "come", "run", "overcome"}
# Who has or gets something done need not have it done yet: "is getting the roof fixed".
_CAUSING = frozenset("get gets getting having".split())
_OBJECTS = frozenset("a an the my our his her their its user's your some 's".split())
# What comes behind these goes on beside what they tell: "started learning" is not "learned".
_ASPECTS = frozenset(
    "start begin stop quit end finish keep continue consider plan resume try like enjoy love hate mind avoid".split()
)


def date_verb(result: Reading, words: list[str], at: int, *, known: Entry, last: str) -> None:
    """Note whether what a word says is so, was so, or is done to someone; `last` is the word of weight before it."""
    word, before = words[at], words[at - 1] if at else ""
    # A firm located in Oslo is there still, but "the user made" tells of what is done.
    timeless = word in small.TIMELESS and not (word == "made" and entry(before).parts[:1] == (USER,))
    # A cat perched on a fence is perched still.
    timeless = timeless or (word in small.POSED and not result.of_user)
    # "A used car" tells of no time.
    timeless = timeless or (word == "used" and before in small.BEFORE_NOUNS)
    if word in small.OF_BOTH_TIMES or (known.past and (WANT in result.marks or timeless)):
        # "Wants it done" is not done.
        if before == "user" and word in small.OF_BOTH_TIMES:
            # The user who reads has an "s": who "read" has read.
            result.past.add(known.verb)
        elif before in ("has", "have") and word in _UNCHANGED:
            result.perfect.add(known.verb)
        return
    if not known.past:
        if word.endswith("ing") and last in small.LIKING:
            result.doing.add(known.verb)
        timeless = word.endswith(small.NOUN_ENDS) or before in small.BEFORE_NOUNS or _is_noun(words, at)
        if (before in small.FINISHED and word.endswith("ing")) or (before == "to" and result.past == {"use"}):
            # "Finished painting" is painted, and "used a knife to cut it" is cut.
            result.past.add(known.verb)
        elif not timeless and not _goes_with_what_was(result, words, at):
            result.present.add(known.verb)
    elif entry(before).is_ == "be":
        # "Is married" goes on, "was married" does not.
        result.present.add(known.past)
        result.undergone.add(known.past)
    elif before in small.WHOSE or before in small.BEFORE_NOUNS or before == "'s":
        # "The user's preferred way" is preferred still, and "a bearded man" bearded.
        result.present.add(known.past)
    elif "having" in words or _is_caused(words, at):
        # What one is having done is not done.
        result.present.add(known.past)
    elif before in small.SUFFERING:
        result.undergone.add(known.past)
        lasts = not small.SINCE.isdisjoint(words)
        if before == "been" and at > 1 and words[at - 2] in ("has", "have") and lasts:
            # "Has been married for years" goes on.
            result.present.add(known.past)
    elif not is_perfect(words, at):
        result.past.add(known.past)
    elif before in _HAVE and before != "had":
        result.perfect.add(known.past)


def is_perfect(words: list[str], at: int) -> bool:
    """Whether "is", "has" or the like stands before what was done: "has so far finished"."""
    if not small.AUXILIARY.isdisjoint(words[max(0, at - 2) : at]):
        return True
    back = at - 1
    while back > 0 and words[back] in _BETWEEN:
        back -= 1
    return words[back] in _HAVE


def _is_caused(words: list[str], at: int) -> bool:
    """Whether someone has it done, now or later: "is getting the roof fixed", not "got the roof fixed"."""
    for back in range(at - 2, max(0, at - _REACH - 1), -1):
        caused = words[back - 1] in _CAUSING or (words[back - 1] == "have" and words[back - 2] in small.MODALS)
        if words[back] in _OBJECTS and caused:
            # "Gets a letter that was opened" tells of something else.
            return small.CLAUSES.isdisjoint(words[back:at])
    return False


def _is_noun(words: list[str], at: int) -> bool:
    """Whether a word without an ending is a noun, by the article before what is said of it: "a fair price"."""
    if at < 2 or words[at].endswith(("s", "ing")):
        return False
    for back in range(at - 2, max(-1, at - _REACH - 1), -1):
        if words[back] in ("a", "an"):
            return True
        if not entry(words[back]).verb or entry(words[back]).past:
            return False
    return False


def _goes_with_what_was(result: Reading, words: list[str], at: int) -> bool:
    """Whether a form in -ing has but the time of what was done before it: "took a trip, covering ten miles"."""
    if not words[at].endswith("ing") or not (result.past or "got" in words[:at]):
        return False
    before = words[at - 1]
    led = entry(before).past or entry(before).is_ or before in small.SUFFERING or before in small.PREPOSITIONS
    return not led and entry(before).verb not in _ASPECTS and _ASPECTS.isdisjoint(result.past)


def take_being(result: Reading, words: list[str], at: int, *, known: Entry) -> None:
    """Take what is so: "has a car" and "has been ill", not "has invited"."""
    after = [*words[at + 1 : at + 4], "", "", ""]
    ahead = 1 if after[0] in small.WITHIN else 0
    been = known.is_ == "have" and after[ahead] == "been"
    if known.is_ == "have" and after[ahead] in small.STATES:
        # "Has lived here for years" goes on.
        result.present.add("be")
    done = entry(after[ahead + been]).past or (known.is_ == "have" and after[ahead + been] in _UNCHANGED)
    if known.is_ == "be" or not done:
        result.present.add("be" if been else known.is_)


def take_what_was(result: Reading, words: list[str], at: int, *, known: Entry) -> None:
    """What was so: "was a nurse" is over, "was moved" happened, and "was born" stays true."""
    after = words[at + 1] if at + 1 < len(words) else ""
    done = entry(after).past if after != "born" else ""
    if not done and after in ("told", "asked", "said"):
        return
    if done:
        result.past.add(done)
        result.undergone.update([done] if known.was == "be" else [])
    elif after != "born":
        result.past.add(known.was)
