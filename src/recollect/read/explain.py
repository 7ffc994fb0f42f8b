"""Say in a few words why a memory was found, and in numbers what its relevance is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from recollect.ledger.tokenizer import query_terms, terms_of
from recollect.read.features import FEATURE_NAMES, FEW_MEMORIES
from recollect.read.fuse import adjust_for_count, has_evidence, learned_blend
from recollect.read.late_interaction import describe_matches

_MAX_WORDS = 6
_MAX_REASONS = 3
# Of a share of the best words, or of a plain yes.
_STRONG = 0.5
# Deviations above what is usual for the user's memories.
_STRONG_DEVIATIONS = 2.5
# What is the same for every candidate of a question.
_QUESTION_PREFIX = "q_"


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one signal adds to the log-odds that a candidate answers."""

    feature: str
    value: float
    weight: float

    @property
    def odds(self) -> float:
        """Its part of the sum."""
        return self.value * self.weight


@dataclass(frozen=True, slots=True)
class ScoreBreakdown:
    """How the learned blend came to a relevance: the sum of these, as log-odds, before later steps changed it."""

    base: float
    question: float
    own: tuple[Contribution, ...]
    memories: int
    evidence: bool

    @property
    def odds(self) -> float:
        """The sum, as it stands among so many memories."""
        total = self.base + self.question + sum(each.odds for each in self.own)
        return float(adjust_for_count(np.array([total], np.float32), self.memories, np.array([self.evidence]))[0])

    def strongest(self, limit: int) -> list[Contribution]:
        """The signals of its own that did most, for it or against it."""
        significant = [each for each in self.own if abs(each.odds) >= 0.005]
        return sorted(significant, key=lambda each: -abs(each.odds))[:limit]


def break_down_score(features: Mapping[str, float]) -> ScoreBreakdown:
    """What each signal of a traced candidate did; those of the question alone are one sum."""
    blend = learned_blend(has_late=bool(features.get("q_late")))
    contributions = [
        Contribution(name, features.get(name, 0.0), float(weight))
        for name, weight in zip(FEATURE_NAMES, blend.weights, strict=True)
    ]
    return ScoreBreakdown(
        base=blend.base,
        question=sum(each.odds for each in contributions if each.feature.startswith(_QUESTION_PREFIX)),
        own=tuple(each for each in contributions if not each.feature.startswith(_QUESTION_PREFIX)),
        memories=round(FEW_MEMORIES / features["q_few"] - FEW_MEMORIES) if features.get("q_few") else 0,
        evidence=bool(has_evidence(np.array([[each.value for each in contributions]], np.float32))[0]),
    )


def explain(query: str, content: str, *, scores: Mapping[str, float], features: Mapping[str, float]) -> str:
    """One line: the words it shares with the query, how near it is in meaning, and what else speaks for it."""
    content_terms = set(terms_of(content))
    shared = [term for term in query_terms(query) if term in content_terms]
    dense = scores.get("dense", 0.0)
    parts = []
    if shared:
        parts.append(f"shares {', '.join(shared[:_MAX_WORDS])} (words {scores.get('lexical', 0.0):.2f})")
    if dense > 0:
        parts.append(f"{_describe_similarity(dense)} in meaning ({dense:.2f})")
    if features.get("q_late"):
        parts += describe_matches(query, content)
    parts += list(_reasons(scores, features))[:_MAX_REASONS]
    return "; ".join(parts) or "no closer than anything else"


def _describe_similarity(cosine: float) -> str:
    return "very near" if cosine >= 0.7 else "near" if cosine >= 0.45 else "distant"


def _reasons(scores: Mapping[str, float], features: Mapping[str, float]) -> Iterator[str]:
    """What speaks for it beside its own words, the most telling first."""
    if scores.get("newest"):
        yield "newer than what it replaces"
    if "rerank" in scores:
        yield f"{scores['rerank']:.2f} at a second look"
    if features.get("speaker_asked", 0.0) >= _STRONG:
        yield "said by the one asked about"
    if features.get("in_period", 0.0) >= _STRONG:
        yield "from the time asked about"
    if _neighbor_matches("answers", features):
        yield "it answers a question that matches"
    elif _neighbor_matches("before", features):
        yield "the turn before it matches"
    if _neighbor_matches("after", features):
        yield "the turn after it matches"
    for feature, description in _DESCRIPTIONS.items():
        if features.get(feature, 0.0) >= _STRONG:
            yield description


_DESCRIPTIONS = {
    "time_asked": "it tells when, as asked",
    "preference_wanted": "a preference, where advice is wanted",
    "standing_near": "a standing wish near in meaning",
    "standing_said": "a standing wish in the same words",
    "standing_wanted": "a standing wish, where advice is wanted",
    "assistant_asked": "said by the assistant, who is asked",
}


def _neighbor_matches(neighbor: str, features: Mapping[str, float]) -> bool:
    """Whether the turn beside it fits the question, by its words or by its meaning."""
    return (
        features.get(f"{neighbor}_words", 0.0) >= _STRONG
        or features.get(f"{neighbor}_meaning", 0.0) >= _STRONG_DEVIATIONS
    )
