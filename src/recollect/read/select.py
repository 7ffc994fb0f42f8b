"""Select: from ranked candidates to a few that say different things, not too many of one source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recollect.model.memory import Category
from recollect.read.candidate import Candidate

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A fall of the score below this part of the one before it is an elbow.
_ELBOW = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How many hits, how varied, how many of one source at most, and whether to stop where scores fall.

    What is `said` already, in the words of `same_words`, is left out.
    """

    limit: int
    diversity: float = 0.7
    per_source: int = 2
    elbow: bool = False
    said: frozenset[str] = frozenset()

    @property
    def is_varied(self) -> bool:
        """Whether hits are to differ from each other, which their vectors tell."""
        return self.diversity < 1


def same_words(text: str) -> str:
    """The text as it is compared: neither case nor spaces matter."""
    return " ".join(text.casefold().split())


def above(candidates: Sequence[Candidate], min_score: float) -> list[Candidate]:
    """Those relevant enough; the threshold is on relevance, so that being recent cannot lift noise over it."""
    kept = []
    for each in candidates:
        if each.relevance >= min_score:
            kept.append(each)
        else:
            each.fate = f"relevance {each.relevance:.2f} is below {min_score:g}"
    return kept


def select(candidates: Sequence[Candidate], vectors: NDArray[np.float32] | None, choice: Choice) -> list[Candidate]:
    """At most `limit` of the candidates, which come best first; the others are told why not.

    `vectors` are those of the candidates, in their order; only a varied choice needs them.
    """
    allowed = _apart(candidates, choice)
    if choice.elbow:
        allowed = _before_elbow(candidates, allowed)
    kept = _varied(candidates, allowed, vectors, choice)
    for at in allowed:
        if at not in kept:
            candidates[at].fate = f"the limit of {choice.limit} was reached"
    return [candidates[at] for at in kept]


def _apart(candidates: Sequence[Candidate], choice: Choice) -> list[int]:
    """Without what says the same words again, and without too many that stem from one turn."""
    said: dict[str, int] = {}
    sources: dict[str, int] = {}
    kept: list[int] = []
    for at, each in enumerate(candidates):
        words = same_words(each.record.content)
        turns = _turns(each)
        if words in choice.said and each.record.category is Category.TURN:
            each.fate = "it stands in the messages already"
        elif words in said:
            # What was learned is worth more than the turn that says it in the same words.
            first = candidates[said[words]]
            if first.record.category is Category.TURN and each.record.category is not Category.TURN:
                kept[kept.index(said[words])] = at
                said[words] = at
                first, each = each, first
            each.fate = "it says what another hit says"
        elif any(sources.get(turn, 0) >= choice.per_source for turn in turns):
            each.fate = f"there are {choice.per_source} hits of the same turn already"
        else:
            said[words] = at
            for turn in turns:
                sources[turn] = sources.get(turn, 0) + 1
            kept.append(at)
    return kept


def _turns(candidate: Candidate) -> set[str]:
    """The turns it stems from; a turn is its own. What sums up many of them stems from no single one."""
    record = candidate.record
    if record.category in (Category.EPISODE, Category.SUMMARY):
        return set()
    return {record.id} if record.category is Category.TURN else set(record.evidence)


def _before_elbow(candidates: Sequence[Candidate], kept: Sequence[int]) -> list[int]:
    for number in range(1, len(kept)):
        here, before = candidates[kept[number]], candidates[kept[number - 1]]
        if here.relevance < before.relevance * _ELBOW:
            for late in kept[number:]:
                candidates[late].fate = "the scores fall steeply before it"
            return list(kept[:number])
    return list(kept)


def _varied(
    candidates: Sequence[Candidate], allowed: Sequence[int], vectors: NDArray[np.float32] | None, choice: Choice
) -> list[int]:
    """Maximal marginal relevance: each next one is good, and unlike those already taken."""
    if vectors is None or not choice.is_varied or len(allowed) <= 1:
        return list(allowed[: choice.limit])
    near = vectors[np.asarray(allowed)]
    # So few that plain loops are done before arrays are set up.
    likeness = (near @ near.T).tolist()
    alike: list[float] = []
    left = list(range(len(allowed)))
    taken: list[int] = []

    def worth(at: int) -> float:
        repeats = alike[at] if alike else 0.0
        return choice.diversity * candidates[allowed[at]].score - (1 - choice.diversity) * repeats

    while left and len(taken) < choice.limit:
        best = max(left, key=worth)
        left.remove(best)
        taken.append(allowed[best])
        # To be unlike the first is worth something as well: a cosine below 0 is not raised to it.
        alike = [max(pair) for pair in zip(alike, likeness[best], strict=True)] if alike else likeness[best]
    return taken
