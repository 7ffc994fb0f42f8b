"""The same with fewer turns of phrase: what is only reported, only framed or said twice is told once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recollect.write.settling.lexicon import PERSON, USER, entry, lexicon
from recollect.write.settling.small_words import CLOCK
from recollect.write.settling.tokens import Token
from recollect.write.settling.verb_forms import past_of

# Who comes to know something need not be told of: "discovered that the car is sold".
_LEARNED = frozenset("discovered found learned learnt realized realised noticed".split())
_BEFORE_LEARNED = frozenset("has have recently just also".split())
_THEY, _THEIR = frozenset(["they", "he", "she"]), frozenset(["their", "his", "her"])
# Some go somewhere to do it, and did it: "went to see a play".
_DONE_THERE = {"see": "saw", "watch": "watched", "visit": "visited", "hear": "heard"}
# One of these is told with and without its number: "1 hour", "an hour".
_SINGLE = frozenset("second minute hour day week month year mile hr".split())
# What is a pair by itself.
_PAIRED = frozenset(
    "shorts pants trousers jeans leggings tights pajamas pyjamas glasses sunglasses scissors binoculars headphones "
    "earphones pliers".split()
)
_OLD = frozenset("former previous earlier usual old".split())
_WHOSE = frozenset("the a their his her my its user's this that these last past next coming whole".split())
_HOLIDAYS = frozenset("thanksgiving christmas easter halloween hanukkah ramadan holidays holiday break".split())
_KEEPING = frozenset("keep keeps kept keeping set sets setting".split())
_PERFECT = frozenset(["has", "have"])
_LATELY = frozenset(["recently", "lately"])
_REACH = 4
_HELPERS = frozenset("are were have had will would plan want went go".split())
_SPLITS = frozenset(["and", "or", "but", "who", "that", "which"])
# What is done in company where it is said of two: "the user and a friend hiked".
_JOINT = frozenset(
    "visit attend see watch vacat reschedul eat cook hike walk play enrol enroll drive fli stay celebr bake swim run "
    "sing danc camp ski fish plant paint build host share rent exercis dine".split()
)


def plainer(tokens: list[Token]) -> list[Token]:
    """The words of a statement without what only frames them."""
    words = [token[0] for token in tokens]
    if _CUES.isdisjoint(words):
        return tokens
    for cue in sorted(_CUES.intersection(words)):
        if cue in words and (mended := _MENDS[cue](tokens, words)) is not tokens:
            tokens, words = mended, [token[0] for token in mended]
    return tokens


def _unreported(tokens: list[Token], words: list[str]) -> list[Token]:
    """What is told without who came to know it: "the user discovered that it is sold" is "it is sold"."""
    at = next(at for at, word in enumerate(words) if word in _LEARNED)
    head = [word for word in words[:at] if word not in _BEFORE_LEARNED and word != "the"]
    end = at + 2 if words[at : at + 2] == ["found", "out"] else at + 1
    if head not in (["user"], ["i"]) or (words[at] == "found" and end == at + 1) or end >= len(words):
        return tokens
    if words[end] == "that":
        end += 1
    elif words[end] not in _THEY:
        return tokens
    if any(_may_be_someone(token) for token in tokens[end:]):
        return tokens
    told = _of_the_user(tokens[end:])
    return [(told[0][0], told[0][1], True), *told[1:]] if told else tokens


def _may_be_someone(token: Token) -> bool:
    """Whether a word may tell of another, who could be the one who came to know."""
    parts = entry(token[0]).parts
    return token[1] or bool(parts and parts[0][0] == PERSON and parts[0] != USER and token[0] not in _THEY | _THEIR)


def _of_the_user(tokens: list[Token]) -> list[Token]:
    """The words with the user named where they tell of one by "they" or "their"; none if they tell of none."""
    for at, (word, capital, opens) in enumerate(tokens):
        if word in ("user", "user's", "i", "my"):
            return tokens
        if word in _THEY or word in _THEIR:
            if at and word not in ("they", "their"):
                # "That Anna sold her car."
                return []
            meant = "user" if word in _THEY else "user's"
            return [*tokens[:at], (meant, capital, opens), *tokens[at + 1 :]]
    return []


def _in_order(tokens: list[Token], words: list[str]) -> list[Token]:
    at = words.index("order")
    return tokens if words[at - 1 : at + 2] != ["in", "order", "to"] else [*tokens[: at - 1], *tokens[at + 1 :]]


def _done_there(tokens: list[Token], words: list[str]) -> list[Token]:
    """What was done where someone went to do it: "went to see a play" is "saw a play"."""
    at = words.index("went")
    done = _DONE_THERE.get(words[at + 2]) if words[at + 1 : at + 2] == ["to"] and at + 3 < len(words) else None
    return [*tokens[:at], (done, False, False), *tokens[at + 3 :]] if done else tokens


def _in_what_time(tokens: list[Token], words: list[str]) -> list[Token]:
    """What was done in some time: "it took the user two days to paint it" is "the user painted it in two days"."""
    at = words.index("took")
    if words[max(0, at - 1) : at] != ["it"] or "to" not in words[at:] or at > 1:
        return tokens
    to = words.index("to", at)
    who = at + 2 if words[at + 1] == "the" else at + 1
    if words[who : who + 1] != ["user"] or not any(entry(word).time or entry(word).unit for word in words[who:to]):
        return tokens
    verb, span = words[to + 1] if to + 1 < len(words) else "", tokens[who + 1 : to]
    if verb not in lexicon().becomes and not entry(verb).verb:
        return tokens
    return [tokens[who], (past_of(verb), False, False), *tokens[to + 2 :], ("in", False, False), *span]


def _single(tokens: list[Token], words: list[str]) -> list[Token]:
    """One of something told as such: "1 hour" is "one hour"."""
    return [
        ("one", *token[1:]) if word == "1" and words[at + 1 : at + 2] and words[at + 1] in _SINGLE else token
        for at, (token, word) in enumerate(zip(tokens, words, strict=True))
    ]


def _paired(tokens: list[Token], words: list[str]) -> list[Token]:
    """What is a pair by itself told without it: "two pairs of jeans" is "two jeans"."""
    at = next(at for at, word in enumerate(words) if word in ("pair", "pairs"))
    is_paired = words[at + 1 : at + 2] == ["of"] and not _PAIRED.isdisjoint(words[at + 2 : at + 4])
    return [*tokens[:at], *tokens[at + 2 :]] if is_paired else tokens


def _once(tokens: list[Token], words: list[str]) -> list[Token]:
    """What once was told as what was: "that once belonged to her"."""
    at = words.index("once")
    return [*tokens[:at], *tokens[at + 1 :]] if at + 1 < len(words) and entry(words[at + 1]).past else tokens


def _of_late(tokens: list[Token], words: list[str]) -> list[Token]:
    """What has been going on told without that it is so lately: "has been running lately" is "has been running"."""
    at = words.index("been")
    is_perfect = not _PERFECT.isdisjoint(words[max(0, at - 2) : at])
    goes_on = any(word.endswith("ing") for word in words[at + 1 : at + 3])
    return [token for token in tokens if token[0] not in _LATELY] if is_perfect and goes_on else tokens


def _during(tokens: list[Token], words: list[str]) -> list[Token]:
    """What is over a time told as during it: "over the summer"; "over 50" and "tea over coffee" stay."""
    at = words.index("over")
    if words[at + 1 : at + 4] == ["the", "course", "of"]:
        return [*tokens[:at], ("during", False, tokens[at][2]), *tokens[at + 4 :]]
    end = at + 1
    while end < len(words) and words[end] in _WHOSE:
        end += 1
    first = words[end] if end < len(words) else ""
    counted = end > at + 1 and entry(first).number and end + 1 < len(words)
    if counted:
        first = words[end + 1]
    is_time = bool(entry(first).time or entry(first).unit) and first not in CLOCK
    if first in _HOLIDAYS or (is_time and not entry(first).number):
        return [*tokens[:at], ("during", False, tokens[at][2]), *tokens[at + 1 :]]
    return tokens


def _apart(tokens: list[Token], words: list[str]) -> list[Token]:
    """What is kept apart told as separate: "keeps cats apart from dogs"; "apart from tea" stays."""
    at = words.index("apart")
    near = [each for each in range(max(0, at - _REACH), at) if words[each] in _KEEPING]
    if words[at + 1 : at + 2] != ["from"] or not near:
        return tokens
    return [*tokens[: near[-1]], ("separate", False, False), *tokens[near[-1] + 1 : at], *tokens[at + 1 :]]


def _unlike_before(tokens: list[Token], words: list[str]) -> list[Token]:
    """What something is done instead of told without that it was so: "instead of the usual nine"."""
    at = words.index("instead") + 2
    end = at
    while end < len(words) and words[end] in _WHOSE | _OLD:
        end += 1
    is_amount = end > at and end < len(words) and entry(words[end]).number
    return [*tokens[:at], *tokens[end:]] if is_amount else tokens


def _with_someone(tokens: list[Token], words: list[str]) -> list[Token]:
    """What two do told of the user: "the user and a friend cook together" is "the user cooks with a friend"."""
    joined = next((each for each in (1, 2) if words[each - 1 : each + 1] == ["user", "and"]), 0)
    if not joined:
        return tokens
    start = joined + 1
    end = next((at for at in range(start + 1, min(start + _REACH + 1, len(words))) if _acts(words[at])), 0)
    someone = any(_may_be_someone(token) for token in tokens[start:end])
    if not end or not someone or not _SPLITS.isdisjoint(words[start:end]):
        return tokens
    if "together" not in words and not any(entry(word).verb in _JOINT for word in words[end : end + 3]):
        # Two who like tea need not like it with each other.
        return tokens
    rest = [token for token in tokens[end:] if token[0] != "together"]
    return [*tokens[:joined], *rest, ("with", False, False), *tokens[start:end]]


def _acts(word: str) -> bool:
    """Whether a word tells what two do: a verb of what is done jointly, or what goes before one."""
    return word in _HELPERS or entry(word).verb in _JOINT or bool(entry(word).past)


_MENDS: Mapping[str, Callable[[list[Token], list[str]], list[Token]]] = {
    **dict.fromkeys(_LEARNED, _unreported),
    "order": _in_order,
    "went": _done_there,
    "took": _in_what_time,
    "1": _single,
    "pair": _paired,
    "pairs": _paired,
    "once": _once,
    "been": _of_late,
    "over": _during,
    "apart": _apart,
    "instead": _unlike_before,
    "and": _with_someone,
}
_CUES = frozenset(_MENDS)
