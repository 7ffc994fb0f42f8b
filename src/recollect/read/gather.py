"""Gather candidates side by side: by meaning from the index, by words from the ledger."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recollect.index.protocol import Index
from recollect.ledger.protocol import Ledger
from recollect.model.query import Filter
from recollect.model.scope import Scope

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.model.change import Vector


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows worth a look, each with how near it is in meaning and in words."""

    rows: NDArray[np.int64]
    dense: NDArray[np.float32]
    lexical: NDArray[np.float32]


async def gather(
    scope: Scope, query: str, vector: Vector, *, ledger: Ledger, index: Index, filter: Filter, pool: int
) -> Candidates:
    """The best `pool` rows of each kind; every row gets both scores, whichever way it was found."""
    view = await index.view(scope, filter)
    near, said = await asyncio.gather(view.nearest(vector, limit=pool), ledger.lexical(scope, query))
    # Words are looked up for all that the user has: what may not be found must not crowd out what may.
    seen = view.sees(said.rows)
    said_rows, said_scores = said.rows[seen], said.scores[seen]
    top = said_rows
    if len(top) > pool:
        top = top[np.argpartition(said_scores, len(top) - pool)[-pool:]]
    rows: NDArray[np.int64] = np.union1d(near.rows, top)
    return Candidates(rows, view.similarity(vector, rows), _look_up(said_rows, said_scores, rows))


def _look_up(rows: NDArray[np.int64], scores: NDArray[np.float32], wanted: NDArray[np.int64]) -> NDArray[np.float32]:
    """The score of each wanted row; 0 where there is none. `rows` rise."""
    if not len(rows):
        return np.zeros(len(wanted), np.float32)
    at = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
    return np.where(rows[at] == wanted, scores[at], np.float32(0))
