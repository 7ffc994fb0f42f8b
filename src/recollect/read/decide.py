"""Decide whether a message is worth a search of memory.

A few rules are certain: no words, small talk, a message that says "my", a long message, the caller's own knowledge.
Everything else is up to a small model (`decide_model.py`) that estimates how likely the message needs memory. A
needless search costs milliseconds, a missed one the answer: only what the model is sure about is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from recollect.language.small_talk import WORD, fold_text, head_and_tail, load_small_talk
from recollect.model.at_hand import erasable_cache
from recollect.read.decide_model import estimate
from recollect.read.small_words import split_words, stop_words_for

# Skip messages that are less likely than this to need memory; 99 % of those that need it are searched under
# cross-validation (docs/evaluation.md).
MIN_LIKELIHOOD = 0.035
# A message with a hint of the caller's is personal if it is more likely than not to need memory.
_PERSONAL_LIKELIHOOD = 0.5
# Longer messages are always searched: what needs no memory is asked for in few words.
MAX_WORDS = 40

_OWN = frozenset(
    "my mine our ours myself ourselves mein meine meinen meinem meiner meines unser unsere unseren unserem "
    "unserer mon ma mes notre nos mi mis nuestro nuestra nuestros nuestras mio mia miei mie nostro nostra "
    "nostri nostre meu minha meus minhas nosso nossa mijn onze moj moja moje moim nasz nasza мои моя мое "
    "моего моеи моих наш наша наше benim bizim मेरा मेरी मेरे हमारा".split()
)
_OWN_PAST = re.compile(
    r"\b(?:(?:did|have|had|was|were) (?:i|we)|(?:take|took) (?:me|us)"
    r"|(?:i|we) (?:was|had|said|told|asked|mentioned|prefer))\b"
)
_OWN_PARTS = ("我的", "我们的", "我家", "给我", "私の", "僕の", "俺の", "うちの", "내 ", "제 ", "나의", "우리 ")
# A capitalised word after one of these is more often a place or a language than a person.
_BEFORE_PLACES = frozenset("in near of into to from at".split())
_CAPITALISED = re.compile(r"[^\W\d_a-z][^\W\d_A-Z]+")
_SPEAKERS = frozenset(
    "i me we us you your im ive ich mich mir wir uns je moi nous yo nosotros io noi eu ik wij ja mnie я меня "
    "мне мы нас ben".split()
)
_SPEAKER_PARTS = ("我", "私", "僕", "俺", "나", "저", "내", "你")


class DecisionRule(StrEnum):
    """The rule that decided."""

    NO_WORDS = "nothing_said"
    SMALL_TALK = "small_talk"
    PERSONAL = "personal"
    CALLER_FACT = "caller_fact"
    CALLER_TOOL = "caller_tool"
    GENERAL_KNOWLEDGE = "general_knowledge"
    LONG = "long"
    DOUBT = "doubt"


@dataclass(frozen=True, slots=True)
class SearchDecision:
    """Whether to search, and why; `score` is the likelihood that memory is needed, 0 or 1 where a rule is certain."""

    search: bool
    rule: DecisionRule
    reason: str
    score: float = 0.0


def decide(text: str, *, is_fact: bool | None = None, requires_tool: bool | None = None) -> SearchDecision:
    """Decide whether memory should be searched for this message.

    `is_fact` and `requires_tool` are the caller's knowledge of it: True skips the message unless it is personal,
    False on either rules out that it is skipped as general knowledge or as a command.
    """
    return _decide(head_and_tail(text), is_fact, requires_tool)


# A recall decides, and the search that it starts decides once more.
@erasable_cache(64)
def _decide(text: str, is_fact: bool | None, requires_tool: bool | None) -> SearchDecision:
    return apply_rules(text, estimate, is_fact=is_fact, requires_tool=requires_tool)


def apply_rules(
    text: str,
    likelihood: Callable[[str], float],
    *,
    is_fact: bool | None = None,
    requires_tool: bool | None = None,
) -> SearchDecision:
    """Decide with any estimate of the likelihood; the training script passes models under cross-validation."""
    folded = fold_text(text)
    words = WORD.findall(folded)
    if not words:
        return SearchDecision(False, DecisionRule.NO_WORDS, "there are no words in it")
    if load_small_talk().is_all_of(words):
        return SearchDecision(
            False, DecisionRule.SMALL_TALK, "it is a greeting, thanks, a goodbye or a bare yes or no"
        )
    if not _OWN.isdisjoint(words) or _OWN_PAST.search(folded) or _contains_part(folded, _OWN_PARTS):
        return SearchDecision(
            True, DecisionRule.PERSONAL, "it is personal: it says 'my' or tells of the user's past", 1.0
        )
    is_long = len(words) > MAX_WORDS
    if is_long and not (is_fact or requires_tool):
        return SearchDecision(True, DecisionRule.LONG, f"it is {len(words)} words long", 1.0)
    score = likelihood(text)
    if is_fact or requires_tool:
        return _apply_hint(text, folded, words, score, is_fact=bool(is_fact))
    if score >= MIN_LIKELIHOOD:
        return SearchDecision(True, DecisionRule.DOUBT, f"{score:.2f} likely to need memory", score)
    # There are few training messages in other languages.
    if _is_foreign(text):
        return SearchDecision(True, DecisionRule.DOUBT, "it is in another language than English", score)
    if name := _lone_name(text):
        return SearchDecision(True, DecisionRule.DOUBT, f"it may be about a person: {name}", score)
    if is_fact is False or requires_tool is False:
        return SearchDecision(
            True, DecisionRule.DOUBT, "the caller says it is no general fact or needs no tool", score
        )
    reason = f"general knowledge or a command: {score:.2f} likely to need memory"
    return SearchDecision(False, DecisionRule.GENERAL_KNOWLEDGE, reason, score)


def _apply_hint(text: str, folded: str, words: list[str], score: float, *, is_fact: bool) -> SearchDecision:
    """Follow the caller, who says it is a fact or a task for a tool, unless the message is personal."""
    mentions_speaker = not _SPEAKERS.isdisjoint(words) or _contains_part(folded, _SPEAKER_PARTS)
    if score >= _PERSONAL_LIKELIHOOD and (mentions_speaker or _is_foreign(text)):
        return SearchDecision(
            True, DecisionRule.PERSONAL, f"it may be personal: {score:.2f} likely to need memory", score
        )
    if is_fact:
        reason = "the caller says it asks for a general fact, and it is not personal"
        return SearchDecision(False, DecisionRule.CALLER_FACT, reason, score)
    return SearchDecision(
        False, DecisionRule.CALLER_TOOL, "the caller says a tool will answer, and it is not personal", score
    )


def _contains_part(folded: str, parts: tuple[str, ...]) -> bool:
    """Return whether a text without spaces between words contains one of the parts."""
    return not folded.isascii() and any(part in folded for part in parts)


def _lone_name(text: str) -> str:
    """Return a capitalised word that stands alone between words that are not, as a first name does; else empty."""
    spelled = text.split()
    bare = [word.strip(".,;:!?\"'()“”").removesuffix("'s").removesuffix("’s") for word in spelled]
    is_capital = [bool(_CAPITALISED.fullmatch(word)) and word[0].isupper() for word in bare]
    if sum(is_capital) * 2 > len(bare):
        return ""
    for at in range(1, len(bare)):
        if not is_capital[at] or spelled[at - 1][-1] in ".!?:" or bare[at - 1].lower() in _BEFORE_PLACES:
            continue
        is_alone = (at == 1 or not bare[at - 1][:1].isupper()) and (
            at + 1 == len(bare) or not bare[at + 1][:1].isupper()
        )
        if is_alone:
            return bare[at]
    return ""


def _is_foreign(text: str) -> bool:
    """Return whether the small words are of another language, and none is of English alone."""
    words = split_words(text)
    language, english = stop_words_for(words), stop_words_for([])
    if language is english:
        return any(not word.isascii() for word in words) and not any(word in english for word in words)
    return not any(word in english and word not in language for word in words)
