"""Details that only words side by side tell: how much of what, whose, who does what of two, what was needed once."""

from __future__ import annotations

from recollect.write.settling.governed import note_governed
from recollect.write.settling.lexicon import MARK, PERSON, SOME, USER, entry
from recollect.write.settling.linked import note_links
from recollect.write.settling.reading import Reading
from recollect.write.settling.small_words import AUXILIARY, BEFORE_NOUNS, CHILDREN, MONEY, MY, PIVOTS, PLURALS
from recollect.write.settling.tokens import Token

THEY = PERSON + "they"
_MUCH = frozenset(["@most", SOME, "@rare"])
LEAVING = frozenset("leave leaves left leaving depart departs departed departing head heads headed heading".split())
_INTO = frozenset(["into", "onto"])
_STEPS = frozenset(["by", "to", "of"])
_CHANGES = frozenset("rise raise increase hike jump gain drop fall cut decrease reduction".split())
_BETWEEN = frozenset(["and", "but", "while", "whereas"])
# Behind these "over" sets one thing above another.
_PREFERRING = frozenset("prefer like choos pick favor valu want select take put rank rate enjoy love".split())
_THAN = frozenset("than versus vs instead rather to".split())
_GROUPS = frozenset("group groups bunch herd flock pack several".split())
_WHOSE = MY | {"user's", "'s"}
_BEFORE_ACTORS = _WHOSE | {"the"}


def note_details(tokens: list[Token], reading: Reading) -> None:
    """Add to what was read what only words side by side tell."""
    words = [token[0] for token in tokens]
    if words[:1] == ["their"]:
        # Nobody was spoken of before: "their wedding" is not "our wedding".
        reading.people.add(THEY)
    seen: set[str] = set()
    for at, (word, capital, _) in enumerate(tokens):
        before = words[at - 1] if at else ""
        if word in seen:
            reading.repeated.update(entry(word).parts)
        seen.add(word)
        _note_time(reading, words, at)
        if before == "for" and capital and at > 1 and words[at - 2] in LEAVING:
            reading.follows.setdefault("to", set()).add(entry(word).verb)
        if before in _STEPS and (entry(word).number or word in MONEY):
            _note_step(reading, words, at)
        if "/" in word and word[0].isdigit():
            # "130/85" is not "85/130", nor a third of April a fourth of March.
            reading.degrees |= {"/" + part.lstrip("0"): str(place) for place, part in enumerate(word.split("/"))}
        if before in MONEY and entry(word).number:
            # Of two sums each keeps its own: "$5 and €6".
            reading.degrees["$" + word.replace(",", "")] = before
        if word in reading.names and (much := _much(words, at)):
            reading.degrees[word] = much
        if before in _WHOSE:
            _note_owner(reading, words, at)
        if word in _INTO:
            _note_ways(reading, words, at)
        if word in CHILDREN and before == "young":
            reading.idle.add(before)
        if word in _GROUPS:
            reading.grouped.update(entry(next(filter(is_plural, words[at + 1 : at + 5]), "")).parts[:1])
    reading.repeated -= reading.idle
    if not _BETWEEN.isdisjoint(words):
        reading.deeds = _deeds(words)
    if reading.lesser and not reading.of_user and _PREFERRING.isdisjoint(reading.words) and _THAN.isdisjoint(words):
        # "Tea over coffee" is a choice, but a dog just runs over the grass.
        reading.lesser = set()
    note_links(words, reading)
    note_governed(words, reading)


def is_plural(word: str) -> bool:
    """Whether a word looks like several of something; some verbs do too."""
    return word in PLURALS or (word.endswith("s") and not word.endswith(("ss", "us", "is", "'s")))


def _note_step(reading: Reading, words: list[str], at: int) -> None:
    """Note whether something came to a sum or changed by it: "rose to 900 euros", "by 900 euros", "a rise of 900"."""
    number = words[at + 1] if words[at] in MONEY and at + 1 < len(words) else words[at]
    before, far = words[at - 1], words[at - 2] if at > 1 else ""
    if before != "of" or far in _CHANGES:
        reading.degrees[number.replace(",", "")] = "to" if before == "to" else "by"


def _note_time(reading: Reading, words: list[str], at: int) -> None:
    word, before = words[at], words[at - 1] if at else ""
    known = entry(word)
    if (known.past[:1] == MARK and not _lasts(words, at)) or (word == "to" and before == "had"):
        reading.past.add("be")
    elif before == "some" and known.time and word.endswith("s"):
        # "Some Mondays" are not every Monday.
        reading.marks.add(SOME)
    elif before in PIVOTS and known.time in reading.times and words.count(word) == 1:
        # "From May to June" is not "from June to May".
        reading.follows.setdefault(before, set()).add(known.time)


def _lasts(words: list[str], at: int) -> bool:
    """Whether what looks past goes on: "is needed", "is currently needed", "the needed time", "unmarried"."""
    before = words[max(0, at - 2) : at]
    return words[at].startswith("un") or not (AUXILIARY.isdisjoint(before) and BEFORE_NOUNS.isdisjoint(before[-1:]))


def _much(words: list[str], at: int) -> str:
    """How much is said right before a name, with at most one small word between: "mostly in Rust"."""
    for before in reversed(words[max(0, at - 2) : at]):
        if found := _MUCH.intersection(entry(before).parts):
            return min(found)
    return ""


def _note_ways(reading: Reading, words: list[str], at: int) -> None:
    """Note whence and whither: "from a house into a flat" is not "from a flat into a house"."""
    start = next((each for each, word in enumerate(words[:at]) if word in ("from", "out", "off")), None)
    if start is not None:
        reading.follows["from"] = {entry(word).verb for word in words[start + 1 : at]} - {""}
        reading.follows["to"] = {entry(word).verb for word in words[at + 1 : at + 4]} - {""}


def _note_owner(reading: Reading, words: list[str], at: int) -> None:
    """Note whose the second of two nouns is: Ann's emergency contact is a contact of hers."""
    if at + 2 >= len(words) or words[at + 2] not in AUXILIARY or at < 1:
        return
    second, whose = entry(words[at + 1]).verb, words[at - 1]
    owner = (entry(words[at - 2]).parts[:1] if whose == "'s" and at > 1 else ()) or (USER,)
    if second and entry(words[at]).verb:
        reading.owners.setdefault(second, owner[0])


def _deeds(words: list[str]) -> dict[str, set[str]]:
    """What each of two does where both act: "I cook and my husband cleans"; nothing if it is not plain."""
    found: dict[str, set[str]] = {}
    actor, opens = "", True
    for word in words:
        parts = entry(word).parts
        if word in _BETWEEN:
            opens = True
        elif opens and parts[:1] and parts[0][0] == PERSON and word not in _WHOSE:
            actor, opens = parts[0], False
            found[actor] = set()
        elif word not in _BEFORE_ACTORS:
            opens = False
            if actor:
                found[actor].update(part for part in parts if part[0] not in (PERSON, MARK))
    return found if len(found) == 2 and all(found.values()) else {}
