"""Tell a statement that is true to what the user said from one that turns it round.

Four ways to turn it are looked for: no for yes, the opposite liking, somebody else's for the user's, and a question
or a supposition for a fact. It is turned only if every part of what was said that it can come from says otherwise: a
model may put things freely.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from recollect.write.settling.lexicon import ENDED, PERSON, USER, WANT
from recollect.write.settling.reader import read
from recollect.write.settling.reading import Reading
from recollect.write.settling.relation import turned_round
from recollect.write.settling.small_words import MY

OPPOSITE = "the turns it cites say the opposite"
OF_OTHERS = "the turns it cites say it of somebody else"
ASKED = "the turns it cites only ask or suppose it"

# What is longer was pasted, and is not looked at.
_MOST_CHARS = 8_000
_MOST_PARTS = 200
_STEM = 5
# Before the name of a thing that words of all kinds tell of.
_TOPIC = "="
_EXCEPT = "@except"
# A point within a number or a name ends nothing.
_SENTENCE = re.compile(r"(?:[^.!?;\n]|[.](?=[^\s.!?;]))+[.!?]*")
_FIRST = re.compile(r"\W*([^\W_]+)\s*([,.!–—-]*)\s*(?=\w)")
# "If I get a headache I take", "if I don't answer, call me".
_AFTER_CONDITION = re.compile(r"\s*\S+\s+\S+\s[^,]*?(?:,|(?=\s(?:I|I'm|I'd|I'll|we)\s))")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_SAYING_LITTLE = frozenset(["like", "want", "go", "try", "tri", "hope", "so", "now"])
_HAVE = frozenset("have has had own owns owned got get gets bought buy buys hat habe haben tiene".split())
_POINTING = frozenset("it them that this there one these those es das dort ça y lo la los".split())


@dataclass(frozen=True, slots=True)
class _Words:
    """What of languages is data; see faithful.toml."""

    affirming: re.Pattern[str]
    doubting: re.Pattern[str]
    likewise: re.Pattern[str]
    supposing: re.Pattern[str]
    recalling: re.Pattern[str]
    joint: re.Pattern[str]
    opening: frozenset[str]
    denying: frozenset[str]
    keeping_off: frozenset[str]
    contrasting: frozenset[str]
    speaking: frozenset[str]
    together: frozenset[str]
    asking: frozenset[str]
    asked: frozenset[str]
    telling: frozenset[str]
    thinking: frozenset[str]
    adverse: frozenset[str]
    adverse_words: frozenset[str]
    turned_subjects: frozenset[str]
    conditions: frozenset[str]
    former: frozenset[str]
    deeds: dict[str, str]
    topics: dict[str, tuple[str, bool]]


@dataclass(frozen=True, slots=True)
class Part:
    """One thing the user says: what it is about, what of that is denied, and of whom and how it is said."""

    reading: Reading
    words: frozenset[str]
    negated: frozenset[str]
    plain: tuple[str, ...]
    asks: bool = False
    presumed: frozenset[str] = frozenset()
    topics: Mapping[str, set[bool]] = field(default_factory=dict)
    of_other: bool = False


def parts_of(text: str) -> list[Part]:
    """The parts of what the user says in which one thing is told."""
    if len(text) > _MOST_CHARS:
        return []
    text = text.replace("’", "'")
    likewise = _words().likewise.search(text.casefold()) is not None
    parts: list[Part] = []
    for sentence in _SENTENCE.findall(text):
        said = list(_cut(sentence))
        before: Part | None = None
        for at, each in enumerate(said):
            before = _part(each, before, last=at == len(said) - 1 and "?" in sentence, likewise=likewise)
            parts.append(before)
            if len(parts) > _MOST_PARTS:
                return []
    return parts


def turned(content: str, parts: Sequence[Part]) -> str:
    """Why the statement is not what the parts say; empty if it is, or if none of them tells of it."""
    claim = _part(content.replace("’", "'"), None, last=False, likewise=False)
    nearest = _nearest(claim, parts)
    wrong = [_turned(claim, part) for part in nearest]
    if not wrong or not all(wrong):
        return ""
    # What the rest of it comes from may bear it out: "Should I take the job? They offered me 80k".
    told = frozenset().union(*(_shared(claim, part) for part in nearest))
    rest = (part for part in parts if part not in nearest and not _shared(claim, part) <= told)
    return wrong[0] if all(_turned(claim, part) for part in rest) else ""


def _turned(claim: Part, part: Part) -> str:
    """How the statement turns round what the part says; empty if it does not."""
    if _denies(claim, part) or turned_round(claim.reading, part.reading):
        return OPPOSITE
    if claim.reading.of_user and part.of_other and _says_it_of_other(claim, part):
        return OF_OTHERS
    if part.asks and not _is_presumed(claim, part) and _words().thinking.isdisjoint(claim.plain):
        return ASKED
    return ""


def topics_of(text: str) -> dict[str, set[bool]]:
    """The things that the words of a text tell of, each with whether a word of it says no to it."""
    known = _words().topics
    found: dict[str, set[bool]] = {}
    for word in _plain(text):
        if word in known:
            topic, denied = known[word]
            found.setdefault(topic, set()).add(denied)
    return found


def _cut(sentence: str) -> Iterator[str]:
    """The sentence cut where a new subject, a question or a contrast begins, and behind a condition."""
    start = 0
    for joint in _words().joint.finditer(sentence):
        yield from _behind_condition(sentence[start : joint.start()])
        start = joint.end()
    yield from _behind_condition(sentence[start:])


def _behind_condition(said: str) -> Iterator[str]:
    first = _FIRST.match(said)
    cut = None
    if first is not None and first[1].casefold() in _words().conditions:
        cut = _AFTER_CONDITION.match(said)
    for piece in (said[: cut.end()], said[cut.end() :]) if cut is not None else (said,):
        if piece.strip():
            yield piece


def _part(text: str, before: Part | None, *, last: bool, likewise: bool) -> Part:
    known = _words()
    text = _without_opening(text)
    plain = _plain(text)
    stated, affirmed = known.affirming.subn(" ", text)
    stated, doubted = known.doubting.subn(" ", stated)
    reading = read(stated if stated.strip() else text)
    words = frozenset(reading.words | reading.people)
    negated = words if doubted or "" in reading.negated else frozenset(reading.negated)
    if ENDED in reading.marks and not negated:
        negated = words
    if affirmed:
        negated = frozenset()
    if before is not None:
        words, negated = _with_before(plain, reading, words, negated, before)
    topics = topics_of(text)
    words |= {f"{_TOPIC}{topic}" for topic in topics}
    asks = _asks(plain, " ".join(plain), last=last)
    return Part(
        reading=reading,
        words=words,
        negated=negated,
        plain=tuple(plain),
        asks=asks,
        presumed=_presumed(plain) if asks else frozenset(),
        topics=topics,
        of_other=not likewise and _is_of_other(plain, reading),
    )


def _without_opening(text: str) -> str:
    """The text without words that only lead in; "no" does so before a comma."""
    known = _words()
    while (first := _FIRST.match(text)) is not None:
        word = first[1].casefold()
        if word not in known.opening and not (word in known.denying and first[2]):
            break
        text = text[first.end() :]
    return text


def _with_before(
    plain: Sequence[str], reading: Reading, words: frozenset[str], negated: frozenset[str], before: Part
) -> tuple[frozenset[str], frozenset[str]]:
    """What a part tells that leans on the one before: "but not meat", "just to milk", "but I'd love to go"."""
    said = before.reading
    if plain and plain[0] in _words().contrasting:
        # It has the verb of the part before it, and says itself whether it denies.
        if reading.negated:
            whole = words | before.words
            return whole, whole
        return words | (before.negated & said.words) | ({said.relation} & said.words), frozenset()
    own = words - reading.people - reading.idle - _SAYING_LITTLE
    if not reading.names and (not own or not _POINTING.isdisjoint(plain)):
        # Of what it leans on it says what it says itself: yes or no.
        whole = words | before.words
        return whole, whole if reading.negated else frozenset()
    return words, negated


def _asks(plain: Sequence[str], text: str, *, last: bool) -> bool:
    """Whether it asks or supposes something of the one who speaks, rather than telling it."""
    known = _words()
    if known.supposing.match(text) and not known.recalling.match(text):
        return True
    if not last or len(plain) < 3 or not known.telling.isdisjoint(plain):
        return False
    return plain[1] in known.turned_subjects or (plain[0] in known.asking and plain[1] in known.asked)


def _presumed(plain: Sequence[str]) -> frozenset[str]:
    """What a question takes for known: "my diabetes", "my dog Rex"."""
    found: set[str] = set()
    for at, word in enumerate(plain):
        if word in MY:
            follows = read(" ".join(plain[at + 1 : at + 4]))
            found |= follows.words | follows.people
    return frozenset(found)


def _is_presumed(claim: Part, part: Part) -> bool:
    return _shared(claim, part) <= part.presumed


def _is_of_other(plain: Sequence[str], reading: Reading) -> bool:
    """Whether somebody else than the user is the one it tells of."""
    known = _words()
    if not known.speaking.isdisjoint(plain):
        return False
    lead = reading.lead
    if lead[:1] == PERSON:
        if lead in known.together:
            return False
        return plain[0] in MY or MY.isdisjoint(plain)
    return lead == reading.may_name != "" and MY.isdisjoint(plain)


def _says_it_of_other(claim: Part, part: Part) -> bool:
    """Whether all that is said of the user was said of the other, whom the statement does not even name."""
    mine, theirs = claim.reading, part.reading
    if mine.undergone or theirs.lead in mine.people | mine.words or mine.people & theirs.people:
        return False
    if mine.names & theirs.names & {theirs.lead} or not mine.words:
        return False
    # "My dog is a labrador": the user has one.
    if not _HAVE.isdisjoint(claim.plain) and _HAVE.isdisjoint(part.plain):
        return False
    deeds = _words().deeds
    said = {deeds.get(word, word) for word in part.words}
    own = {deeds.get(word, word) for word in mine.words}
    return all(word == "have" or _has(word, said) for word in own)


def _denies(claim: Part, part: Part) -> bool:
    """Whether one of the two says no to what the other says yes to."""
    if not claim.reading.people <= part.words:
        return False
    if _denies_topic(claim, part):
        return True
    if bool(claim.negated) == bool(part.negated):
        return False
    no, yes = (claim, part) if claim.negated else (part, claim)
    if _is_adverse(yes, no) or _count(no) > 1 or _EXCEPT in no.reading.marks:
        return False
    denied = {word for word in no.negated if word and _has(word, yes.words)}
    if WANT in claim.reading.marks - part.reading.marks or denied <= yes.reading.lesser:
        # Who has never been there may want to go; who would rather not fly prefers trains to flying.
        return False
    return ENDED not in no.reading.marks or _words().former.isdisjoint(yes.plain)


def _denies_topic(claim: Part, part: Part) -> bool:
    """Whether they tell of one thing in different words, and one says no to it: "eats meat" and "vegan"."""
    alike = bool(claim.negated) == bool(part.negated)
    for topic in claim.topics.keys() & part.topics.keys():
        if claim.topics[topic].isdisjoint(part.topics[topic]):
            if alike:
                return True
        elif (
            not alike
            and claim.topics[topic] == part.topics[topic]
            and claim.negated | part.negated <= _words().keeping_off
        ):
            return True
    return False


def _is_adverse(yes: Part, no: Part) -> bool:
    """Whether it says no in a word of its own, which the other has not: "allergic" beside "can't have"."""
    if _words().adverse_words & set(yes.plain) - set(no.plain):
        return True
    return any(word in _words().adverse and not _has(word, no.words) for word in yes.reading.words)


def _count(part: Part) -> int:
    """How often it says no; what is denied twice is not looked into. French says it in two words."""
    return len([word for word in part.reading.negated if word]) - ("ne" in part.plain) - ("n" in part.plain)


def _nearest(claim: Part, parts: Sequence[Part]) -> list[Part]:
    """The parts that tell most of what the statement tells; none if no part tells any of it."""
    shared = [len(_shared(claim, part)) for part in parts]
    most = max(shared, default=0)
    return [part for part, count in zip(parts, shared, strict=True) if count == most] if most else []


def _shared(claim: Part, part: Part) -> frozenset[str]:
    return frozenset(word for word in claim.words if _has(word, part.words) and word != USER)


def _has(word: str, words: frozenset[str] | set[str]) -> bool:
    """Whether it is among the words, or one of the same stem is."""
    if word in words:
        return True
    return len(word) >= _STEM and any(len(each) >= _STEM and each[:_STEM] == word[:_STEM] for each in words)


def _plain(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


@cache
def _words() -> _Words:
    told: dict[str, Any] = tomllib.loads((files(__package__) / "faithful.toml").read_text(encoding="utf-8"))
    some = {name: frozenset(listed.split()) for name, listed in told.items() if isinstance(listed, str)}
    starting = _either(told["starting"])
    contrasting = "|".join(sorted(some["contrasting"]))
    joining = "|".join(sorted(some["joining"]))
    return _Words(
        affirming=re.compile(rf"\b{_either(told['affirming'])}\b", re.IGNORECASE),
        doubting=re.compile(rf"\b{_either(told['doubting'])}\b", re.IGNORECASE),
        likewise=re.compile(rf"\b{_either(told['likewise'])}(?=\W*$|[.,!?]| too\b| as well\b)"),
        supposing=re.compile(rf"{_either(told['supposing'])}\b"),
        recalling=re.compile(rf"{_either(told['recalling'])}\b"),
        joint=re.compile(
            rf"\s*[,:–—]\s*(?:(?:{joining})\s+)?(?={starting}\b|(?:{contrasting})\b)"
            rf"|\s+(?:{joining})\s+(?={starting}\b|(?:{contrasting})\b)|\s*,?\s+(?:but|aber|mais|pero|ma)\s+",
            re.IGNORECASE,
        ),
        deeds={word: deed for deed, listed in told["deeds"].items() for word in listed.split()},
        topics={
            word.lstrip("-"): (topic, word.startswith("-"))
            for topic, listed in told["topics"].items()
            for word in listed.split()
        },
        **{name: some[name] for name in _Words.__dataclass_fields__ if name in some and name not in _PATTERNS},
    )


_PATTERNS = ("affirming", "doubting", "likewise", "supposing", "recalling")


def _either(listed: str) -> str:
    return "(?:" + "|".join(re.escape(phrase.strip()).replace("_", " ") for phrase in listed.split("|")) + ")"
