"""Decide whether a message is worth a search of memory at all.

Manners, commands and questions about the world at large need no memory; whatever touches the user's own life, or
what was said before, does. In doubt, search: a needless search costs milliseconds, a missed one the answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from recollect.language.cues import WORD, Cue, Cues, Side, cues, examined, plain, small_talk
from recollect.model.at_hand import at_hand
from recollect.read.small_words import small_words_of, words_of

_MONTHS = frozenset(
    "january february march april may june july august september october november december jan feb mar apr jun jul"
    " aug sep sept oct nov dec".split()
)
_SUM = re.compile(r"\d ?[+*\u00d7\u00f7^] ?\d")
_CAPITAL = re.compile(r"[A-Z][a-z]+")
_BEFORE_PLACES = frozenset(["in", "near"])
_FEW = 5
# "What car?" and "Where in Italy?" go on with what was said: without a verb, they ask nothing else.
_ASKING = frozenset("what which whose who where when how why".split())
_NO_VERB = frozenset("in at on for with to from about".split())
# "the Hawaii budget", "the red car": how far from "the" its noun may stand, and what ends the search for it.
_NEAR_THE = 2
_NO_NOUN = frozenset(
    "of in on at for to from by with and or is are was were that who the a first original most".split()
)
_ONES_OWN = frozenset(["everyday", "life"])


class Rule(StrEnum):
    """Which rule decided."""

    NOTHING_SAID = "nothing_said"
    SMALL_TALK = "small_talk"
    PERSONAL = "personal"
    CALLER_FACT = "caller_fact"
    CALLER_TOOL = "caller_tool"
    GENERAL_KNOWLEDGE = "general_knowledge"
    TOOL = "tool"
    ASSISTANT = "assistant"
    LONG = "long"
    DOUBT = "doubt"


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to search, and why."""

    search: bool
    rule: Rule
    reason: str
    score: float = 0.0


def decide(text: str, *, is_fact: bool | None = None, requires_tool: bool | None = None) -> Decision:
    """Whether memory should be searched for this message.

    `is_fact` and `requires_tool` are what the caller knows of it: True skips what is not personal, False rules out
    that it is skipped as general knowledge or as something for a tool.
    """
    return _decide(examined(text), is_fact, requires_tool)


# A recall decides, and the search it begins asks again.
@at_hand(64)
def _decide(shown: str, is_fact: bool | None, requires_tool: bool | None) -> Decision:
    folded = plain(shown)
    words = WORD.findall(folded)
    if not words:
        return Decision(False, Rule.NOTHING_SAID, "there are no words in it")
    if small_talk().is_all_of(words):
        return Decision(False, Rule.SMALL_TALK, "it is a greeting, thanks, a goodbye or a bare yes or no")
    known = cues()
    found = known.found_in(words, folded)
    personal = {cue: said for cue, said in found.items() if cue.side is Side.PERSONAL}
    if any(cue.weight >= known.always for cue in personal):
        return Decision(True, Rule.PERSONAL, f"it is personal: {_told(personal)}")
    if (is_fact or requires_tool) and personal:
        return Decision(True, Rule.PERSONAL, f"it may be personal: {_told(personal)}")
    if is_fact:
        return Decision(False, Rule.CALLER_FACT, "the caller says it asks for a general fact, and it is not personal")
    if requires_tool:
        return Decision(False, Rule.CALLER_TOOL, "the caller says a tool will answer, and it is not personal")
    if len(words) > known.longest:
        return Decision(True, Rule.LONG, f"it is {len(words)} words long")
    if any(cue.weight < 0 and cue.english for cue in found) and _is_foreign(shown):
        found = {cue: said for cue, said in found.items() if cue.weight >= 0 or not cue.english}
    found |= _shapes(shown, words, known)
    if is_fact is False:
        found = {cue: said for cue, said in found.items() if cue.side is not Side.GENERAL}
    if requires_tool is False:
        found = {cue: said for cue, said in found.items() if cue.side is not Side.TOOL}
    if sum(cue.weight for cue in found) <= known.threshold and (name := _lone_capital(shown, known)):
        found[known.named["a_name"]] = name
    return _weigh(found, known.threshold)


def _weigh(found: Mapping[Cue, str], threshold: float) -> Decision:
    score = sum(cue.weight for cue in found)
    if score > threshold:
        why = f"in doubt ({score:+.1f}): {_told(found)}" if found else "nothing speaks against it"
        return Decision(True, Rule.DOUBT, why, score)
    against: dict[Side, float] = {}
    for cue in found:
        if cue.weight < 0:
            against[cue.side] = against.get(cue.side, 0.0) + cue.weight
    rule = _RULES[min(against, key=against.__getitem__)]
    return Decision(False, rule, f"{_SKIPPED[rule]} ({score:+.1f}): {_told(found)}", score)


_RULES = {
    Side.MANNERS: Rule.SMALL_TALK,
    Side.TOOL: Rule.TOOL,
    Side.ASSISTANT: Rule.ASSISTANT,
    Side.GENERAL: Rule.GENERAL_KNOWLEDGE,
}
_SKIPPED = {
    Rule.SMALL_TALK: "it is good manners",
    Rule.TOOL: "a tool or the assistant does it on the spot",
    Rule.ASSISTANT: "it is about the assistant",
    Rule.GENERAL_KNOWLEDGE: "it is about the world at large",
}


def _told(found: Mapping[Cue, str]) -> str:
    """The heaviest cues with the words that gave them."""
    heaviest = sorted(found, key=lambda cue: -abs(cue.weight))[:4]
    return ", ".join(f"{cue.name} '{found[cue]}' {cue.weight:+.1f}" for cue in heaviest if cue.weight)


def _shapes(shown: str, words: Sequence[str], known: Cues) -> dict[Cue, str]:
    """The cues that lie in the shape of a message: dates, years, sums, brevity, "the" before a thing of one's own."""
    found: dict[Cue, str] = {}
    numbers = [word for word in words if word.isdecimal()]
    if numbers:
        for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
            if word in _MONTHS and (_is_day(before) or _is_day(after)):
                found[known.named["a_day"]] = word
            elif len(word) == 4 and word.isdecimal() and "1000" <= word < "2010":
                found[known.named["a_past_year"]] = word
        if len(numbers) > 1:
            found[known.named["two_numbers"]] = " ".join(numbers[:2])
        if total := _SUM.search(shown):
            found[known.named["a_sum"]] = total.group()
    if len(words) <= _FEW:
        found[known.named["few_words"]] = str(len(words))
    if words[0] in _ASKING and (len(words) == 2 or (len(words) == 3 and words[1] in _NO_VERB)):
        found[known.named["bare_question"]] = " ".join(words)
    if known_one := _known_one(words, known):
        found[known.named["the_known_one"]] = known_one
    return found


def _known_one(words: Sequence[str], known: Cues) -> str:
    """The thing of everyday life that "the" speaks of ("the dog", "the Hawaii budget"); else empty."""
    for at, word in enumerate(words):
        if word != "the":
            continue
        for end in range(at + 1, min(at + 1 + _NEAR_THE, len(words))):
            if words[end] in _NO_NOUN:
                break
            if known.names_a(words[end], _ONES_OWN):
                return " ".join(words[at : end + 1])
    return ""


def _is_foreign(shown: str) -> bool:
    """Whether the small words are of another language, and none is of English alone."""
    words = words_of(shown)
    language, english = small_words_of(words), small_words_of([])
    return language is not english and not any(word in english and word not in language for word in words)


def _is_day(word: str) -> bool:
    number = word.removesuffix("st").removesuffix("nd").removesuffix("rd").removesuffix("th")
    return number.isdecimal() and len(number) <= 2


def _lone_capital(shown: str, known: Cues) -> str:
    """A capitalised word between words that are not, as a first name stands in a sentence; else empty."""
    spoken = shown.split()
    bare = [word.strip(".,;:!?\"'()").removesuffix("'s").removesuffix("\u2019s") for word in spoken]
    capital = [bool(_CAPITAL.fullmatch(word)) for word in bare]
    if sum(capital) * 2 > len(bare):
        return ""
    for at in range(1, len(bare)):
        if not capital[at] or known.knows(bare[at].lower()) or spoken[at - 1][-1] in ".!?":
            continue
        if bare[at - 1].lower() in _BEFORE_PLACES:
            continue
        lone_left = at == 1 or not bare[at - 1][:1].isupper()
        lone_right = at + 1 == len(bare) or not bare[at + 1][:1].isupper()
        if lone_left and lone_right:
            return bare[at]
    return ""
