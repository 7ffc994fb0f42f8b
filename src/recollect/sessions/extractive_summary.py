"""Summarise without a model: quote the most informative sentences.

Sentences of an earlier summary compete with new ones, so that a running summary stays within its limit.
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
from recollect.text.instructions import find_instruction
from recollect.write.quoted_text import ELIDED
from recollect.write.redact import redact
from recollect.write.sentences import split_sentences

BY_USER = "The user said:"
BY_ASSISTANT = "The assistant said:"

# Sentences below this share of the best weight are dropped.
_MIN_WEIGHT_SHARE = 0.3
# A sentence with this share of its words in picked ones is redundant.
_MAX_OVERLAP = 0.8
_MAX_SENTENCES = 8
# A shorter sentence without traits is filler.
_MIN_TERMS = 4
# The characters read of all turns, and at least of each.
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
    """Quoted sentences as one text; empty if there are none."""

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
    """Quote the user's most informative sentences in order; the assistant's only if the user has none.

    `earlier` are the user's sentences of an earlier summary.
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
    # An assistant may inform, never instruct.
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
    """Split a summary into prose and quoted sentences of the user."""
    prose, mark, quoted = text.rpartition(BY_USER)
    if not mark or (prose and not prose.endswith("\n")):
        return text.strip(), []
    return prose.strip(), _QUOTED.findall(quoted)


def _turn_sentences(turn: Turn, max_chars: int) -> Iterable[str]:
    """Return the sentences of a turn, without code and the like if there is anything else."""
    # The log may contain secrets; summaries may not.
    whole = redact(turn.content).text
    text = whole
    if len(text) > max_chars:
        # Cut between sentences: half of one could say something else.
        text = text[: 1 + max(text.rfind(end, 0, max_chars) for end in (". ", "! ", "? ", "\n"))]
    texts = [each.text for each in split_sentences(text)]
    # The beginning of a turn of code at least shows its kind.
    return texts or [whole.strip()[:200]]


def _score_sentence(text: str, turn: Turn | None) -> _ScoredSentence:
    plain = " ".join(text.translate(_MARKS).split())
    bonus = 0.0
    if turn is not None:
        flags = trait_flags(compute_traits(replace(turn, content=plain, exported_record=None).as_memory()))
        bonus = sum(weight for trait, weight in _BONUS.items() if trait in flags)
    else:
        # Being picked before counts like a first-person statement.
        bonus = _BONUS[Trait.FIRST_PERSON] + (_BONUS[Trait.COUNTS] if any(map(str.isdigit, plain)) else 0.0)
    return _ScoredSentence(plain, frozenset(terms_of(plain)), bonus - (1.0 if ELIDED in plain else 0.0))


def _pick(candidates: Sequence[_ScoredSentence], max_chars: int) -> list[str]:
    """Return the best sentences that fit, in their order."""
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
    """Weigh each sentence by repeated words, normalised by length, and by its traits."""
    often = Counter(term for each in candidates for term in each.terms)
    weights = []
    for each in candidates:
        about = sum(1.0 + math.log(often[term]) for term in each.terms) / math.sqrt(len(each.terms) or 1)
        weights.append(max(0.0, about + each.bonus))
    return weights


def _format_quotes(by: str, picked: Sequence[str]) -> str:
    return f"{by} {' '.join(f'“{text}”' for text in picked)}"
