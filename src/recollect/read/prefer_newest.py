"""Prefer the newest: of two statements that compete, the newer one comes first.

Two statements compete if one supersedes the other, if both have the same key, or if the trained model says that the
newer replaces the older (`newest_model.py`). The newer one may hardly fit the question by its own words: "my sister
works at Bosch" does, "Ines starts at Volta on Monday" does not. Such a later statement joins the result in the place
of the older one, with its score. No other score rises.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.memory import MemoryRecord
from recollect.read.calibration import Calibration
from recollect.read.gather import GatheredCandidates
from recollect.read.newest_model import age_key, compare_pairs, newest_model
from recollect.read.question import QuestionAnalysis
from recollect.read.rank import SearchCandidate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


# Beyond the first hits an order is no longer read as one.
MAX_CANDIDATES = 10
# Log-odds from which on a newer statement replaces an older one. A wrong move puts a wrong answer first, a missed one
# leaves the order as relevance has it.
MIN_ODDS = 0.4
# A reranker has read the question with each statement: only pairs it finds this close are reordered.
_RERANKED_MARGIN = 0.05
# Candidates outside the result are considered if they are this similar to the best one (scaled by `Calibration`): at
# most `_MAX_LATER` of the next `_LATER_OUT_OF` of the pool.
_MIN_LATER_SIMILARITY = 0.8
_MAX_LATER, _LATER_OUT_OF = 2, 60


@frozen_dataclass
class _Replacement:
    """Places of an older and a newer candidate, and how likely the newer replaces the older."""

    older: int
    newer: int
    probability: float


async def find_later_candidates(
    gathered: GatheredCandidates, relevance: Floats, *, min_relevance: float, limit: int
) -> list[int]:
    """Return the places in the pool of candidates that may replace the best one without being among the first.

    They came later, and are alike to the best one rather than to the question.
    """
    table, order = gathered.table, np.argsort(-relevance, kind="stable")
    result_count = min(limit, MAX_CANDIDATES, int((relevance >= min_relevance).sum()))
    rest = order[result_count : result_count + _LATER_OUT_OF]
    if not result_count or not len(rest):
        return []
    best, at_s, rows = order[0], table.traits.at_s, table.rows
    # What happens later need not be said later: only what comes first by both is left out.
    rest = rest[table.has_dense[rest] & ((at_s[rest] > at_s[best]) | (rows[rest] > rows[best]))]
    if not len(rest):
        return []
    [vector] = await gathered.view.vectors(rows[best : best + 1])
    similarity = gathered.stats.calibration.scale_all(await gathered.view.similarity(vector, rows[rest]))
    nearest = np.argsort(-similarity, kind="stable")[:_MAX_LATER]
    return sorted(int(rest[at]) for at in nearest if similarity[at] >= _MIN_LATER_SIMILARITY)


def prefer_newest(
    first: Sequence[SearchCandidate],
    later: Sequence[SearchCandidate],
    vectors: Floats,
    question: QuestionAnalysis,
    *,
    calibration: Calibration,
    min_relevance: float = 0.0,
) -> list[SearchCandidate]:
    """Return the first candidates of a result, each newer statement directly before the older one it competes with.

    Of the `later` ones only those join that replace one of the first, if the relevance of that one times the
    probability that it is replaced is at least `min_relevance`. `vectors` are those of both, in their order. A
    question about the past changes nothing.
    """
    both = [*first, *later]
    if not first or len(both) < 2 or question.is_about_past:
        return list(first)
    replacements = [
        each
        for each in _find_replacements(both, len(first), vectors, question, calibration)
        if each.newer < len(first) or both[each.older].relevance * each.probability >= min_relevance
    ]
    for each in replacements:
        older, newer = both[each.older], both[each.newer]
        older.parts["replaced"] = newer.parts["newest"] = 1.0
        if each.newer >= len(first):
            newer.relevance, newer.score = max(newer.relevance, older.relevance), max(newer.score, older.score)
            newer.decision = ""
    order = place_newer_first(len(both), [(each.older, each.newer) for each in replacements])
    joined = {each.newer for each in replacements} | set(range(len(first)))
    reordered = [both[at] for at in order if at in joined]
    _make_scores_descend(reordered)
    return reordered


def place_newer_first(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Return the places 0 to `count` - 1 reordered: for each (older, newer) the newer directly before the older."""
    order = list(range(count))
    for older, newer in pairs:
        if order.index(older) < order.index(newer):
            order.remove(newer)
            order.insert(order.index(older), newer)
    return order


def _find_replacements(
    candidates: Sequence[SearchCandidate],
    result_count: int,
    vectors: Floats,
    question: QuestionAnalysis,
    calibration: Calibration,
) -> list[_Replacement]:
    """Return the competing pairs, those with the newest statement last."""
    table = compare_pairs(candidates, calibration.scale_all(vectors @ vectors.T), question, result_count=result_count)
    odds = newest_model().odds(table.features).tolist() if table.pairs else []
    probabilities = {
        pair: 1 / (1 + math.exp(-value)) for pair, value in zip(table.pairs, odds, strict=True) if value > MIN_ODDS
    }
    ages = [age_key(each) for each in candidates]
    for older in range(result_count):
        record = candidates[older].record
        if record.key is None and record.superseded_by is None:
            continue
        for newer in range(older + 1, result_count):
            if ages[older] < ages[newer] and _is_linked(record, candidates[newer].record):
                probabilities[older, newer] = 1.0
    allowed = [pair for pair in probabilities if _reranker_allows(candidates[pair[0]], candidates[pair[1]])]
    allowed.sort(key=lambda pair: (ages[pair[1]], pair[0]))
    return [_Replacement(*pair, probabilities[pair]) for pair in allowed]


def _is_linked(older: MemoryRecord, newer: MemoryRecord) -> bool:
    """Return whether the newer supersedes the older, or both state the same key in the same place."""
    if older.superseded_by == newer.id:
        return True
    return older.key is not None and older.key == newer.key and older.visibility_key == newer.visibility_key


def _reranker_allows(older: SearchCandidate, newer: SearchCandidate) -> bool:
    if "rerank" not in older.parts and "rerank" not in newer.parts:
        return True
    return older.relevance - newer.relevance <= _RERANKED_MARGIN


def _make_scores_descend(candidates: Sequence[SearchCandidate]) -> None:
    """Lower scores so that none is above one before it: later steps sort by them."""
    lowest = candidates[0].score
    for each in candidates:
        lowest = each.score = min(each.score, lowest)
