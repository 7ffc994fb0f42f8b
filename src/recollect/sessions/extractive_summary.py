"""Sum up without a model: the sentences that tell most, word for word, marked as what they are.

No sentence is made here. What was picked earlier can be picked again beside what came since, so that a running
summary keeps within its room.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from recollect.ledger.tokenizer import terms_of
from recollect.model.memory import text_hash
from recollect.model.traits import Trait, compute_traits, trait_flags
from recollect.model.turn import Role, Turn
from recollect.write.instructions import find_instruction
from recollect.write.quoted_text import ELIDED
from recollect.write.redact import redact
from recollect.write.sentences import split_sentences

BY_USER = "The user said:"
BY_ASSISTANT = "The assistant said:"

# What tells least beside the best is left out, whatever room there is.
_MIN_WEIGHT_SHARE = 0.3
# A sentence whose words are so far among those picked tells nothing more.
_MAX_OVERLAP = 0.8
_MAX_SENTENCES = 8
# With fewer words a sentence that is about nothing in particular is a filler.
_MIN_TERMS = 4
# So much is read of all turns together; of each at least so much.
_MAX_READ_CHARS = 100_000
_MIN_READ_CHARS = 400
_BONUS = {
    Trait.COUNTS: 2.0,
    Trait.INSTRUCTION: 2.0,
    Trait.PREFERS: 2.0,
    Trait.FIRST_PERSON: 1.5,
    Trait.TELLS_TIME: 1.0,
    Trait.ASKS: -2.0,
}
_QUOTED = re.compile("“([^“”]*)”")
_MARKS = str.maketrans({"“": "'", "”": "'", "\n": " "})


@dataclass(frozen=True, slots=True)
class ExtractiveSummary:
    """Picked sentences as one text; empty if there was nothing to pick."""

    text: str = ""
    by_user: bool = True


@dataclass(frozen=True, slots=True)
class _ScoredSentence:
    text: str
    terms: frozenset[str]
    bonus: float


def summarize_extractively(
    turns: Sequence[Turn], *, max_chars: int, earlier: Sequence[str] = ()
) -> ExtractiveSummary:
    """What the user said that tells most, in the order it was said; of the assistant's only if the user said nothing.

    `earlier` are sentences of the user's that were picked before.
    """
    user_sentences = [_score_sentence(text, None) for text in earlier]
    share = max(_MIN_READ_CHARS, _MAX_READ_CHARS // max(1, len(turns)))
    user_sentences += [
        _score_sentence(text, turn)
        for turn in turns
        if turn.role is Role.USER
        for text in _turn_sentences(turn, share)
    ]
    if picked := _pick(user_sentences, max_chars):
        return ExtractiveSummary(_format_quotes(BY_USER, picked))
    assistant_turns = [turn for turn in turns if turn.role is Role.ASSISTANT]
    # What an assistant says may inform, never instruct.
    assistant_sentences = [
        _score_sentence(text, turn)
        for turn in assistant_turns
        for text in _turn_sentences(turn, share)
        if not find_instruction(text)
    ]
    if picked := _pick(assistant_sentences, max_chars):
        return ExtractiveSummary(_format_quotes(BY_ASSISTANT, picked), by_user=False)
    return ExtractiveSummary()


def split_extractive_summary(text: str) -> tuple[str, list[str]]:
    """A summary as what was written about the user, and what was quoted of them."""
    prose, mark, quoted = text.rpartition(BY_USER)
    if not mark or (prose and not prose.endswith("\n")):
        return text.strip(), []
    return prose.strip(), _QUOTED.findall(quoted)


def _turn_sentences(turn: Turn, max_chars: int) -> Iterable[str]:
    """What was said in a turn, a sentence each; what is not speech is left out, if anything else is there."""
    # The log may hold secrets; what is made of it may not.
    whole = redact(turn.content).text
    text = whole
    if len(text) > max_chars:
        # No sentence may be cut: half of it could say something else.
        text = text[: 1 + max(text.rfind(end, 0, max_chars) for end in (". ", "! ", "? ", "\n"))]
    texts = [each.text for each in split_sentences(text)]
    # Of a turn that is all code or one long run, the beginning says at least what it is.
    return texts or [whole.strip()[:200]]


def _score_sentence(text: str, turn: Turn | None) -> _ScoredSentence:
    plain = " ".join(text.translate(_MARKS).split())
    bonus = 0.0
    if turn is not None:
        flags = trait_flags(compute_traits(replace(turn, content=plain, exported_record=None).as_memory()))
        bonus = sum(weight for trait, weight in _BONUS.items() if trait in flags)
    else:
        # It was picked before among many: that counts like being about the user.
        bonus = _BONUS[Trait.FIRST_PERSON] + (_BONUS[Trait.COUNTS] if any(map(str.isdigit, plain)) else 0.0)
    return _ScoredSentence(plain, frozenset(terms_of(plain)), bonus - (1.0 if ELIDED in plain else 0.0))


def _pick(candidates: Sequence[_ScoredSentence], max_chars: int) -> list[str]:
    """The best sentences that fit, in their order."""
    candidates = [each for each in candidates if each.bonus > 0 or len(each.terms) >= _MIN_TERMS] or candidates
    weights = _weights(candidates)
    best_first = sorted(range(len(candidates)), key=lambda at: -weights[at])
    min_weight = max(weights, default=0.0) * _MIN_WEIGHT_SHARE
    picked: list[int] = []
    covered_terms: set[str] = set()
    seen: set[str] = set()
    chars_left = max_chars
    for at in best_first:
        each = candidates[at]
        mark = text_hash(each.text)
        repeats = bool(each.terms) and len(each.terms & covered_terms) >= _MAX_OVERLAP * len(each.terms)
        if weights[at] < min_weight or mark in seen or (picked and repeats) or not each.text:
            continue
        if len(each.text) > chars_left:
            if picked:
                continue
            each = replace(each, text=each.text[: max(chars_left, 1)].rstrip() + "…")
            candidates = [*candidates[:at], each, *candidates[at + 1 :]]
        picked.append(at)
        covered_terms |= each.terms
        seen.add(mark)
        chars_left -= len(each.text) + 3
        if len(picked) == _MAX_SENTENCES:
            break
    return [candidates[at].text for at in sorted(picked)]


def _weights(candidates: Sequence[_ScoredSentence]) -> list[float]:
    """How much each tells: words the talk comes back to, for its length, and what it is made of."""
    often = Counter(term for each in candidates for term in each.terms)
    weights = []
    for each in candidates:
        about = sum(1.0 + math.log(often[term]) for term in each.terms) / math.sqrt(len(each.terms) or 1)
        weights.append(max(0.0, about + each.bonus))
    return weights


def _format_quotes(by: str, picked: Sequence[str]) -> str:
    return f"{by} {' '.join(f'“{text}”' for text in picked)}"
