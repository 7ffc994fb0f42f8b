"""Select: from ranked candidates to a few that say different things, not too many of one source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recollect.model.memory import Category
from recollect.read.rank import SearchCandidate

if TYPE_CHECKING:
    from numpy.typing import NDArray


# A fall of the score below this part of the one before it is an elbow.
_ELBOW = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionConfig:
    """How many hits, how varied, how many of one source at most, and whether to stop where scores fall.

    What is `said` already, in the words of `same_words`, is left out.
    """

    limit: int
    diversity: float = 0.7
    per_source: int = 2
    elbow: bool = False
    exclude_texts: frozenset[str] = frozenset()

    @property
    def is_varied(self) -> bool:
        """Whether hits are to differ from each other, which their vectors tell."""
        return self.diversity < 1


def normalize_words(text: str) -> str:
    """The text as it is compared: neither case nor spaces matter."""
    return " ".join(text.casefold().split())


def filter_relevant(candidates: Sequence[SearchCandidate], min_score: float) -> list[SearchCandidate]:
    """Those relevant enough; the threshold is on relevance, so that being recent cannot lift noise over it."""
    selected = []
    for each in candidates:
        if each.relevance >= min_score:
            selected.append(each)
        else:
            each.decision = f"relevance {each.relevance:.2f} is below {min_score:g}"
    return selected


def select(
    candidates: Sequence[SearchCandidate], vectors: NDArray[np.float32] | None, config: SelectionConfig
) -> list[SearchCandidate]:
    """At most `limit` of the candidates, which come best first; the others are told why not.

    `vectors` are those of the candidates, in their order; only a varied choice needs them.
    """
    allowed = _dedupe(candidates, config)
    if config.elbow:
        allowed = _cut_at_elbow(candidates, allowed)
    selected = _diversify(candidates, allowed, vectors, config)
    for at in allowed:
        if at not in selected:
            candidates[at].decision = f"the limit of {config.limit} was reached"
    return [candidates[at] for at in selected]


def _dedupe(candidates: Sequence[SearchCandidate], config: SelectionConfig) -> list[int]:
    """Without what says the same words again, and without too many that stem from one turn."""
    seen: dict[str, int] = {}
    sources: dict[str, int] = {}
    selected: list[int] = []
    for at, each in enumerate(candidates):
        words = normalize_words(each.record.content)
        turns = _source_turns(each)
        if words in config.exclude_texts and each.record.category is Category.TURN:
            each.decision = "it stands in the messages already"
        elif words in seen:
            # What was learned is worth more than the turn that says it in the same words.
            first = candidates[seen[words]]
            if first.record.category is Category.TURN and each.record.category is not Category.TURN:
                selected[selected.index(seen[words])] = at
                seen[words] = at
                first, each = each, first
            each.decision = "it says what another hit says"
        elif any(sources.get(turn, 0) >= config.per_source for turn in turns):
            each.decision = f"there are {config.per_source} hits of the same turn already"
        else:
            seen[words] = at
            for turn in turns:
                sources[turn] = sources.get(turn, 0) + 1
            selected.append(at)
    return selected


def _source_turns(candidate: SearchCandidate) -> set[str]:
    """The turns it stems from; a turn is its own. What sums up many of them stems from no single one."""
    record = candidate.record
    if record.category in (Category.EPISODE, Category.SUMMARY):
        return set()
    return {record.id} if record.category is Category.TURN else set(record.evidence)


def _cut_at_elbow(candidates: Sequence[SearchCandidate], selected: Sequence[int]) -> list[int]:
    for number in range(1, len(selected)):
        here, before = candidates[selected[number]], candidates[selected[number - 1]]
        if here.relevance < before.relevance * _ELBOW:
            for late in selected[number:]:
                candidates[late].decision = "the scores fall steeply before it"
            return list(selected[:number])
    return list(selected)


def _diversify(
    candidates: Sequence[SearchCandidate],
    allowed: Sequence[int],
    vectors: NDArray[np.float32] | None,
    config: SelectionConfig,
) -> list[int]:
    """Maximal marginal relevance: each next one is good, and unlike those already taken."""
    if vectors is None or not config.is_varied or len(allowed) <= 1:
        return list(allowed[: config.limit])
    rows = vectors[np.asarray(allowed)]
    # So few that plain loops are done before arrays are set up.
    similarity = (rows @ rows.T).tolist()
    max_similarity: list[float] = []
    remaining = list(range(len(allowed)))
    chosen: list[int] = []

    def marginal_relevance(at: int) -> float:
        repeats = max_similarity[at] if max_similarity else 0.0
        return config.diversity * candidates[allowed[at]].score - (1 - config.diversity) * repeats

    while remaining and len(chosen) < config.limit:
        best = max(remaining, key=marginal_relevance)
        remaining.remove(best)
        chosen.append(allowed[best])
        # To be unlike the first is worth something as well: a cosine below 0 is not raised to it.
        max_similarity = (
            [max(pair) for pair in zip(max_similarity, similarity[best], strict=True)]
            if max_similarity
            else similarity[best]
        )
    return chosen
