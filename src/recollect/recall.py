"""The read flow: from a question to the memories that answer it, best first, with the reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from recollect.errors import RecollectError
from recollect.index.protocol import Index
from recollect.ledger.protocol import Ledger, Numbered
from recollect.model.filters import where
from recollect.model.query import EVERYTHING, Filter, Not, Op, both
from recollect.model.result import Hit, SearchResult
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.models.embedding import Embedder
from recollect.read.explain import explain
from recollect.read.fuse import fuse
from recollect.read.gather import Candidates, gather

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.model.change import Vector

# How many rows each way of finding may offer for one hit asked for.
_POOL_FACTOR = 8
_MIN_POOL = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is asked for."""

    query: str
    limit: int
    filter: Filter = EVERYTHING
    min_score: float = 0.0
    vector: Vector | None = None
    explain: bool = False


@dataclass(slots=True)
class _Clock:
    """How long each step took, in microseconds."""

    steps_us: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=perf_counter)

    def mark(self, step: str) -> None:
        now = perf_counter()
        self.steps_us[step], self._last = (now - self._last) * 1e6, now


async def search(scope: Scope, asked: Search, *, ledger: Ledger, index: Index, embedder: Embedder) -> SearchResult:
    """Embed, gather, fuse, take the best that may be seen, explain."""
    clock = _Clock()
    vector, notes = await _embed(asked, embedder)
    clock.mark("embed")
    pool = max(_MIN_POOL, asked.limit * _POOL_FACTOR)
    found = await gather(scope, asked.query, vector, ledger=ledger, index=index, filter=asked.filter, pool=pool)
    clock.mark("gather")
    scores = fuse(found)
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] >= asked.min_score]
    clock.mark("fuse")
    best = await _take(scope, found.rows, order, asked, ledger=ledger)
    clock.mark("fetch")
    hits = tuple(_hit(asked, found, scores, at, record) for at, record in best)
    clock.mark("explain")
    return SearchResult(hits, clock.steps_us, notes)


async def _embed(asked: Search, embedder: Embedder) -> tuple[Vector, tuple[str, ...]]:
    """The vector of the query; while the embedder is away or refuses, one that is like nothing, and a note."""
    if asked.vector is not None:
        return asked.vector, ()
    try:
        [vector] = await embedder.embed([asked.query], role="query")
    except RecollectError as error:
        return np.zeros(embedder.model.dimensions, np.float32), (f"found by words alone: {error}",)
    return vector, ()


async def _take(
    scope: Scope, rows: NDArray[np.int64], order: Sequence[int] | NDArray[np.int64], asked: Search, *, ledger: Ledger
) -> list[tuple[int, Numbered]]:
    """The first `limit` candidates that the ledger says may be seen; what has expired may not."""
    unexpired = both(asked.filter, Not(where("expires_at", Op.LTE, now())))
    taken: list[tuple[int, Numbered]] = []
    step = asked.limit
    for start in range(0, len(order), step):
        places = {int(rows[at]): int(at) for at in order[start : start + step]}
        seen = {each.row: each for each in await ledger.fetch(scope, list(places), filter=unexpired)}
        taken += [(at, seen[row]) for row, at in places.items() if row in seen]
        if len(taken) >= asked.limit:
            break
    return taken[: asked.limit]


def _hit(asked: Search, found: Candidates, scores: NDArray[np.float32], at: int, memory: Numbered) -> Hit:
    dense, lexical = float(found.dense[at]), float(found.lexical[at])
    why = explain(asked.query, memory.record.content, dense=dense, lexical=lexical) if asked.explain else ""
    return Hit(memory.record, float(scores[at]), {"dense": dense, "lexical": lexical}, why)
