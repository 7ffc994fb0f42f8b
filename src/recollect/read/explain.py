"""Explain a hit: a short reason in words, and the contribution of each feature to the relevance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.tokenizer import query_terms, terms_of
from recollect.read.features import FEATURE_NAMES, FEW_MEMORIES
from recollect.read.fuse import adjust_for_count, has_evidence, learned_blend
from recollect.read.late_interaction import describe_matches

_MAX_WORDS = 6
_MAX_REASONS = 3
# Minimum of a feature from 0 to 1 that is worth mentioning.
_STRONG = 0.5
# Minimum of a semantic feature, in deviations above the mean of the user's memories.
_STRONG_DEVIATIONS = 2.5
# Features that are the same for every candidate.
_QUESTION_PREFIX = "q_"


@frozen_dataclass
class Contribution:
    """The contribution of one feature to the log-odds that a candidate answers."""

    feature: str
    value: float
    weight: float

    @property
    def odds(self) -> float:
        """The log-odds that it adds."""
        return self.value * self.weight


@frozen_dataclass
class ScoreBreakdown:
    """The log-odds of a relevance by the learned blend, before later steps changed it.

    `question` is the sum of the features of the question, `own` are those of the candidate.
    """

    base: float
    question: float
    own: tuple[Contribution, ...]
    memories: int
    evidence: bool

    @property
    def odds(self) -> float:
        """The sum, adjusted for the number of memories."""
        total = self.base + self.question + sum(each.odds for each in self.own)
        return float(adjust_for_count(np.array([total], np.float32), self.memories, np.array([self.evidence]))[0])

    def strongest(self, limit: int) -> list[Contribution]:
        """Return the candidate's features with the largest contributions, positive or negative."""
        significant = [each for each in self.own if abs(each.odds) >= 0.005]
        return sorted(significant, key=lambda each: -abs(each.odds))[:limit]


def break_down_score(features: Mapping[str, float]) -> ScoreBreakdown:
    """Return the contribution of each feature of a traced candidate."""
    blend = learned_blend(has_late=bool(features.get("q_has_late")))
    contributions = [
        Contribution(name, features.get(name, 0.0), float(weight))
        for name, weight in zip(FEATURE_NAMES, blend.weights, strict=True)
    ]
    return ScoreBreakdown(
        base=blend.base,
        question=sum(each.odds for each in contributions if each.feature.startswith(_QUESTION_PREFIX)),
        own=tuple(each for each in contributions if not each.feature.startswith(_QUESTION_PREFIX)),
        memories=round(FEW_MEMORIES / features["q_few_memories"] - FEW_MEMORIES)
        if features.get("q_few_memories")
        else 0,
        evidence=bool(has_evidence(np.array([[each.value for each in contributions]], np.float32))[0]),
    )


def explain(query: str, content: str, *, scores: Mapping[str, float], features: Mapping[str, float]) -> str:
    """Return one line: the terms shared with the query, the similarity, and up to three other reasons."""
    content_terms = set(terms_of(content))
    shared = [term for term in query_terms(query) if term in content_terms]
    dense = scores.get("dense", 0.0)
    parts = []
    if shared:
        parts.append(f"shares {', '.join(shared[:_MAX_WORDS])} (words {scores.get('lexical', 0.0):.2f})")
    if dense > 0:
        parts.append(f"{_describe_similarity(dense)} in meaning ({dense:.2f})")
    if features.get("q_has_late"):
        parts += describe_matches(query, content)
    parts += list(_reasons(scores, features))[:_MAX_REASONS]
    return "; ".join(parts) or "no more similar than other memories"


def _describe_similarity(cosine: float) -> str:
    return "very near" if cosine >= 0.7 else "near" if cosine >= 0.45 else "distant"


def _reasons(scores: Mapping[str, float], features: Mapping[str, float]) -> Iterator[str]:
    """Yield the reasons beyond its own words, the most important first."""
    if scores.get("newest"):
        yield "newer than the statement it replaces"
    if "rerank" in scores:
        yield f"{scores['rerank']:.2f} by the reranker"
    if features.get("speaker_named", 0.0) >= _STRONG:
        yield "said by the person in the question"
    if features.get("in_period", 0.0) >= _STRONG:
        yield "from the time in the question"
    if _neighbor_matches("reply", features):
        yield "it answers a question that matches"
    elif _neighbor_matches("previous", features):
        yield "the previous turn matches"
    if _neighbor_matches("next", features):
        yield "the next turn matches"
    for feature, description in _DESCRIPTIONS.items():
        if features.get(feature, 0.0) >= _STRONG:
            yield description


_DESCRIPTIONS = {
    "has_time_x_asks_when": "it states a time, and the question asks when",
    "preference_x_asks_advice": "a preference, and the question asks for advice",
    "instruction_x_semantic": "an instruction with similar meaning",
    "instruction_x_coverage": "an instruction with the same words",
    "instruction_x_asks_advice": "an instruction, and the question asks for advice",
    "by_assistant_x_to_assistant": "said by the assistant, whom the question addresses",
}


def _neighbor_matches(neighbor: str, features: Mapping[str, float]) -> bool:
    """Return whether a neighbouring turn matches the question by words or by meaning."""
    return (
        features.get(f"{neighbor}_lexical", 0.0) >= _STRONG
        or features.get(f"{neighbor}_semantic", 0.0) >= _STRONG_DEVIATIONS
    )
