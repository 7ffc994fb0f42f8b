"""Select the hits from the ranked candidates: no duplicates, few from one source, diverse if configured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recollect.model.memory import Category
from recollect.read.rank import SearchCandidate
from recollect.text.statement_dates import remove_inserted_dates

if TYPE_CHECKING:
    from numpy.typing import NDArray


# The result ends where the relevance falls below this share of the previous candidate's.
_ELBOW = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionConfig:
    """Limits of the selection.

    `diversity` below 1 turns on maximal marginal relevance. `per_source` limits the hits that stem from one turn.
    `elbow` ends the result where the relevance falls steeply. Turns whose normalised text is in `exclude_texts` are
    dropped.
    """

    limit: int
    diversity: float = 0.7
    per_source: int = 2
    elbow: bool = False
    exclude_texts: frozenset[str] = frozenset()

    @property
    def is_diverse(self) -> bool:
        """Whether similar hits are avoided, which needs their vectors."""
        return self.diversity < 1


# Longer texts are compared as they are: to normalise megabytes would block others.
_MAX_NORMALIZED_CHARS = 10_000


def normalize_words(text: str) -> str:
    """Return the text for comparison, without differences in case and white space unless it is very long."""
    return text if len(text) > _MAX_NORMALIZED_CHARS else " ".join(text.casefold().split())


def statement_words(text: str) -> str:
    """Return the text for comparison as a statement: also without the dates of relative times and the final mark."""
    return normalize_words(remove_inserted_dates(text)).rstrip(" .!…。！")


def filter_relevant(candidates: Sequence[SearchCandidate], min_score: float) -> list[SearchCandidate]:
    """Return the candidates of at least this relevance; recency does not count towards the threshold."""
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
    """Return at most `limit` of the ranked candidates, and set the decision of the dropped ones.

    `vectors` are those of the candidates, in their order; only a diverse selection needs them.
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
    """Return the indexes of the candidates without duplicates and without too many from one turn."""
    seen: dict[str, int] = {}
    sources: dict[str, int] = {}
    selected: list[int] = []
    for at, each in enumerate(candidates):
        words = normalize_words(each.record.content)
        turns = _source_turns(each)
        if words in config.exclude_texts and each.record.category is Category.TURN:
            each.decision = "it repeats the request"
        elif words in seen:
            # A learned memory replaces a turn with the same words.
            first = candidates[seen[words]]
            if first.record.category is Category.TURN and each.record.category is not Category.TURN:
                selected[selected.index(seen[words])] = at
                seen[words] = at
                first, each = each, first
            each.decision = "duplicate of another hit"
        elif any(sources.get(turn, 0) >= config.per_source for turn in turns):
            each.decision = f"there are already {config.per_source} hits from the same turn"
        else:
            seen[words] = at
            for turn in turns:
                sources[turn] = sources.get(turn, 0) + 1
            selected.append(at)
    return selected


def _source_turns(candidate: SearchCandidate) -> set[str]:
    """Return the turns that a candidate stems from: itself for a turn, none for summaries and episodes."""
    record = candidate.record
    if record.category in (Category.EPISODE, Category.SUMMARY):
        return set()
    return {record.id} if record.category is Category.TURN else set(record.evidence)


def _cut_at_elbow(candidates: Sequence[SearchCandidate], selected: Sequence[int]) -> list[int]:
    for number in range(1, len(selected)):
        here, before = candidates[selected[number]], candidates[selected[number - 1]]
        if here.relevance < before.relevance * _ELBOW:
            for at in selected[number:]:
                candidates[at].decision = "the relevance falls steeply before it"
            return list(selected[:number])
    return list(selected)


def _diversify(
    candidates: Sequence[SearchCandidate],
    allowed: Sequence[int],
    vectors: NDArray[np.float32] | None,
    config: SelectionConfig,
) -> list[int]:
    """Choose by maximal marginal relevance: each next hit is relevant and unlike those already chosen."""
    if vectors is None or not config.is_diverse or len(allowed) <= 1:
        return list(allowed[: config.limit])
    rows = vectors[np.asarray(allowed)]
    penalties = (rows @ rows.T) * np.float32(1 - config.diversity)
    scores = np.array([candidates[at].score for at in allowed]) * config.diversity
    marginal, max_penalty = scores.copy(), np.full(len(allowed), -np.inf, np.float32)
    chosen: list[int] = []
    while len(chosen) < min(config.limit, len(allowed)):
        best = int(marginal.argmax())
        chosen.append(allowed[best])
        # The penalty of the first hit may be negative.
        np.maximum(max_penalty, penalties[best], out=max_penalty)
        scores[best] = -np.inf
        np.subtract(scores, max_penalty, out=marginal)
    return chosen
