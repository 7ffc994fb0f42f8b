"""Prefer the newest: of two statements that compete, the newer one comes first.

Two statements compete if one supersedes the other, if both have the same key, or if the pair model says that the
newer replaces the older (`statement_pairs.py`). This step only reorders: no score rises, nothing leaves the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from recollect.model.memory import MemoryRecord
from recollect.read.candidate import Candidate
from recollect.read.question import Question
from recollect.read.ruler import Ruler
from recollect.read.statement_pairs import age_of, replacing_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

# Beyond the first hits an order is no longer read as one.
MAX_CANDIDATES = 10
# A reranker has read the question with each statement: only pairs it finds this close are reordered.
_RERANKED_MARGIN = 0.05


def prefer_newest(
    candidates: Sequence[Candidate], vectors: Floats, question: Question, *, ruler: Ruler, limit: int = MAX_CANDIDATES
) -> list[Candidate]:
    """Return the candidates, best first, each newer statement directly before the older one it competes with.

    `vectors` are those of the candidates, in their order. Only the first `limit` are reordered, so that none is
    pushed out of a result of that size. A question about the past changes nothing.
    """
    count = min(limit, MAX_CANDIDATES, len(candidates))
    if count < 2 or question.of_the_past:
        return list(candidates)
    first = list(candidates[:count])
    competing = _competing(first, vectors[:count], question, ruler)
    for _, newer in competing:
        first[newer].parts["newest"] = 1.0
    reordered = [first[at] for at in place_newer_first(count, competing)]
    _let_scores_fall(reordered)
    return reordered + list(candidates[count:])


def place_newer_first(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Return the places 0 to `count` - 1 reordered: for each (older, newer) the newer directly before the older."""
    order = list(range(count))
    for older, newer in pairs:
        if order.index(older) < order.index(newer):
            order.remove(newer)
            order.insert(order.index(older), newer)
    return order


def _competing(
    first: Sequence[Candidate], vectors: Floats, question: Question, ruler: Ruler
) -> list[tuple[int, int]]:
    """Return the places (older, newer) of competing statements, the pairs with the newest statement last."""
    competing = set(replacing_pairs(first, ruler.scaled(vectors @ vectors.T), question))
    ages = [age_of(each) for each in first]
    for older in range(len(first)):
        competing |= {
            (older, newer)
            for newer in range(older + 1, len(first))
            if ages[older] < ages[newer] and _is_linked(first[older].record, first[newer].record)
        }
    allowed = [pair for pair in competing if _reranker_allows(first[pair[0]], first[pair[1]])]
    return sorted(allowed, key=lambda pair: (ages[pair[1]], pair[0]))


def _is_linked(older: MemoryRecord, newer: MemoryRecord) -> bool:
    """Return whether the newer supersedes the older, or both state the same key in the same place."""
    if older.superseded_by == newer.id:
        return True
    return older.key is not None and older.key == newer.key and older.place == newer.place


def _reranker_allows(older: Candidate, newer: Candidate) -> bool:
    if "rerank" not in older.parts and "rerank" not in newer.parts:
        return True
    return older.relevance - newer.relevance <= _RERANKED_MARGIN


def _let_scores_fall(candidates: Sequence[Candidate]) -> None:
    """Lower scores so that none is above one before it: later steps sort by them."""
    lowest = candidates[0].score
    for each in candidates:
        lowest = each.score = min(each.score, lowest)
