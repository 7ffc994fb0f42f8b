"""Fetch the candidates worth a closer look, as far as the ledger says they may be seen."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recollect.ledger.protocol import Ledger
from recollect.model.scope import Scope
from recollect.read.candidate import SearchCandidate
from recollect.read.gather import CandidateQuery, GatheredCandidates
from recollect.read.select import filter_relevant

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimit:
    """How many candidates get a closer look, how relevant they are at least, and whether the others are told too.

    Those at the places `also` get one however relevant they are.
    """

    count: int
    min_relevance: float
    fetch_all: bool = False
    extra: Collection[int] = ()


async def fetch_candidates(
    scope: Scope,
    gathered: GatheredCandidates,
    query: CandidateQuery,
    relevance: Floats,
    limit: FetchLimit,
    *,
    ledger: Ledger,
) -> tuple[list[SearchCandidate], list[SearchCandidate]]:
    """The candidates that get a closer look, best first; and, if asked for, those that do not."""
    fetched = await _fetch_records(scope, gathered, query, relevance, limit, ledger=ledger)
    extra = [each for each in fetched if each.pool_index in limit.extra]
    relevant = filter_relevant([each for each in fetched if each.pool_index not in limit.extra], limit.min_relevance)
    for late in relevant[limit.count :]:
        late.decision = f"it is not among the {limit.count} most relevant"
    return relevant[: limit.count] + extra, [each for each in fetched if each.decision]


async def _fetch_records(
    scope: Scope,
    gathered: GatheredCandidates,
    query: CandidateQuery,
    relevance: Floats,
    limit: FetchLimit,
    *,
    ledger: Ledger,
) -> list[SearchCandidate]:
    order = np.argsort(-relevance, kind="stable")
    batch_size = len(order) if limit.fetch_all else limit.count
    if not limit.fetch_all:
        order = order[relevance[order] >= limit.min_relevance]
    candidates: list[SearchCandidate] = []
    for start in range(0, len(order), batch_size or 1):
        chosen = [*order[start : start + batch_size].tolist(), *(limit.extra if start == 0 else ())]
        index_by_row = {int(gathered.table.rows[at]): at for at in chosen}
        visible = await ledger.fetch(scope, list(index_by_row), filter=query.filter, as_of=query.as_of)
        records = {each.row: each.record for each in visible}
        candidates += [
            SearchCandidate(at, row, records[row], float(relevance[at]), parts=score_parts(gathered, at))
            for row, at in index_by_row.items()
            if row in records
        ]
        if sum(each.pool_index not in limit.extra for each in candidates) >= batch_size:
            break
    return candidates


def score_parts(gathered: GatheredCandidates, at: int) -> dict[str, float]:
    """The scores of a candidate that are shown, and that later steps look at."""
    pool, dense = gathered.table, float(gathered.table.dense[at])
    return {
        "dense": dense if pool.has_dense[at] else 0.0,
        "lexical": float(pool.lexical[at]),
        "coverage": float(pool.coverage[at]),
        "meaning": gathered.stats.calibration.scale(dense),
    }
