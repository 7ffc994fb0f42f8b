"""Say in a few words why a memory was found, and in numbers what its relevance is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from recollect.ledger.terms import query_terms, terms_of
from recollect.read.fuse import learned_blend, settled, speaks_for
from recollect.read.signals import FEW, SIGNALS

_MOST_WORDS = 6
_MOST_CIRCUMSTANCES = 3
# Of a share of the best words, or of a plain yes.
_STRONG = 0.5
# Deviations above what is usual for the user's memories.
_FAR_ABOVE = 2.5
# What is the same for every candidate of a question.
_OF_THE_QUESTION = "q_"


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one signal adds to the log-odds that a candidate answers."""

    signal: str
    value: float
    weight: float

    @property
    def odds(self) -> float:
        """Its part of the sum."""
        return self.value * self.weight


@dataclass(frozen=True, slots=True)
class Account:
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
        return float(settled(np.array([total], np.float32), self.memories, np.array([self.evidence]))[0])

    def strongest(self, limit: int) -> list[Contribution]:
        """The signals of its own that did most, for it or against it."""
        telling = [each for each in self.own if abs(each.odds) >= 0.005]
        return sorted(telling, key=lambda each: -abs(each.odds))[:limit]


def account_of(signals: Mapping[str, float]) -> Account:
    """What each signal of a traced candidate did; those of the question alone are one sum."""
    blend = learned_blend()
    all_of_them = [
        Contribution(name, signals.get(name, 0.0), float(weight))
        for name, weight in zip(SIGNALS, blend.weights, strict=True)
    ]
    return Account(
        base=blend.base,
        question=sum(each.odds for each in all_of_them if each.signal.startswith(_OF_THE_QUESTION)),
        own=tuple(each for each in all_of_them if not each.signal.startswith(_OF_THE_QUESTION)),
        memories=round(FEW / signals["q_few"] - FEW) if signals.get("q_few") else 0,
        evidence=bool(speaks_for(np.array([[each.value for each in all_of_them]], np.float32))[0]),
    )


def explain(query: str, content: str, *, scores: Mapping[str, float], signals: Mapping[str, float]) -> str:
    """One line: the words it shares with the query, how near it is in meaning, and what else speaks for it."""
    said = set(terms_of(content))
    shared = [term for term in query_terms(query) if term in said]
    dense = scores.get("dense", 0.0)
    parts = []
    if shared:
        parts.append(f"shares {', '.join(shared[:_MOST_WORDS])} (words {scores.get('lexical', 0.0):.2f})")
    if dense > 0:
        parts.append(f"{_nearness(dense)} in meaning ({dense:.2f})")
    parts += list(_circumstances(scores, signals))[:_MOST_CIRCUMSTANCES]
    return "; ".join(parts) or "no closer than anything else"


def _nearness(cosine: float) -> str:
    return "very near" if cosine >= 0.7 else "near" if cosine >= 0.45 else "distant"


def _circumstances(scores: Mapping[str, float], signals: Mapping[str, float]) -> Iterator[str]:
    """What speaks for it beside its own words, the most telling first."""
    if scores.get("newest"):
        yield "newer than what it replaces"
    if "rerank" in scores:
        yield f"{scores['rerank']:.2f} at a second look"
    if signals.get("speaker_asked", 0.0) >= _STRONG:
        yield "said by the one asked about"
    if signals.get("in_period", 0.0) >= _STRONG:
        yield "from the time asked about"
    if _matches("answers", signals):
        yield "it answers a question that matches"
    elif _matches("before", signals):
        yield "the turn before it matches"
    if _matches("after", signals):
        yield "the turn after it matches"
    for signal, told in _PLAIN.items():
        if signals.get(signal, 0.0) >= _STRONG:
            yield told


_PLAIN = {
    "time_asked": "it tells when, as asked",
    "preference_wanted": "a preference, where advice is wanted",
    "standing_near": "a standing wish near in meaning",
    "standing_said": "a standing wish in the same words",
    "standing_wanted": "a standing wish, where advice is wanted",
    "assistant_asked": "said by the assistant, who is asked",
}


def _matches(beside: str, signals: Mapping[str, float]) -> bool:
    """Whether the turn beside it fits the question, by its words or by its meaning."""
    return signals.get(f"{beside}_words", 0.0) >= _STRONG or signals.get(f"{beside}_meaning", 0.0) >= _FAR_ABOVE
