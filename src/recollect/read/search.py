"""Search: from a question to the memories that answer it, best first, with the reasons.

gather -> fuse -> rerank -> rank -> freshen -> threshold -> select -> explain; each step has a file of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from recollect.errors import RecollectError
from recollect.index.protocol import Index
from recollect.ledger.protocol import Ledger
from recollect.model.filters import where
from recollect.model.query import EVERYTHING, Filter, Not, Op, both
from recollect.model.result import Hit, SearchResult
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.models.embedding import Embedder
from recollect.models.rerank import Reranker
from recollect.read.candidate import Candidate
from recollect.read.explain import explain
from recollect.read.freshen import freshen
from recollect.read.fuse import Fusion, fuse
from recollect.read.gather import Gathered, Wanted, gather
from recollect.read.question import look_at
from recollect.read.rank import Weights, rank
from recollect.read.rerank import rerank
from recollect.read.ruler import BUNDLED, RulerOf
from recollect.read.select import Choice, above, select
from recollect.read.signals import SIGNALS, signals
from recollect.read.trace import Clock, traced
from recollect.read.when import Period

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.model.change import Vector

    Floats = NDArray[np.float32]

# How many rows each way of finding may offer for one hit asked for.
_POOL_FACTOR = 6
_MIN_POOL = 64
# How many candidates are read beyond those asked for, so that steps which leave some out have others to offer: a few
# for repetitions, more where variety is wanted.
_SPARE, _SPARE_FOR_VARIETY = 8, 20
# What a second look counts for beside the first, in log-odds, and which of its log-odds change nothing.
_SECOND_LOOK, _UNDECIDED = 0.25, -2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is asked for."""

    query: str
    limit: int
    meaning: str = ""
    filter: Filter = EVERYTHING
    min_score: float = 0.0
    vector: Vector | None = None
    as_of: datetime | None = None
    periods: tuple[Period, ...] = ()
    explain: bool = False
    trace: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Taste:
    """What makes one memory better than another."""

    fusion: Fusion = "learned"
    weights: Weights = field(default_factory=Weights)
    diversity: float = 1.0
    per_source: int = 2
    elbow: bool = False
    rerank_candidates: int = 30
    rerank_timeout_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Finders:
    """What a search asks: the ledger for words and records, the index for meaning, models for the rest."""

    ledger: Ledger
    index: Index
    embedder: Embedder
    ruler: RulerOf
    reranker: Reranker | None = None


async def search(scope: Scope, asked: Search, taste: Taste, finders: Finders) -> SearchResult:
    """The memories that fit the question."""
    clock, question = Clock(), look_at(asked.query)
    vector, notes = await _embed(asked, finders.embedder)
    clock.mark("embed")
    wanted = Wanted(
        question=question,
        words=asked.query,
        vector=vector,
        filter=asked.filter,
        as_of=asked.as_of,
        periods=asked.periods,
        pool=max(_MIN_POOL, asked.limit * _POOL_FACTOR),
    )
    # Nothing is measured by it while the embedder is away, and asking it again would be waiting twice.
    ruler = BUNDLED if notes else await finders.ruler.get()
    found = await gather(scope, wanted, ledger=finders.ledger, index=finders.index, ruler=ruler)
    clock.mark("gather")
    table = signals(found.pool, found.outlook)
    relevance = fuse(table, found.outlook.count, taste.fusion)
    clock.mark("fuse")
    closer = _closer(asked, taste, second_look=finders.reranker is not None)
    read = await _read(scope, found, table, relevance, asked, closer, ledger=finders.ledger)
    read, left = _parted(read, closer)
    clock.mark("fetch")
    second = await rerank(
        asked.query,
        [each.text for each in read],
        reranker=finders.reranker,
        limit=taste.rerank_candidates,
        timeout_s=taste.rerank_timeout_s,
    )
    _take_opinion(read, second.scores)
    clock.mark("rerank")
    ranked = rank(read, taste.weights, now=asked.as_of or now())
    if not asked.periods:
        # What was said of a time that is asked about is not replaced by what holds now.
        ranked = freshen(ranked, _vectors(found, ranked), question)
    clock.mark("rank")
    good = above(ranked, asked.min_score)
    choice = Choice(limit=asked.limit, diversity=taste.diversity, per_source=taste.per_source, elbow=taste.elbow)
    kept = select(good, _vectors(found, good), choice)
    clock.mark("select")
    hits = tuple(_hit(asked, each, table) for each in kept)
    clock.mark("explain")
    ranked += rank(left, taste.weights, now=asked.as_of or now())
    steps = traced(ranked, _shown(table, ranked)) if asked.trace else ()
    return SearchResult(hits, clock.steps_us, (*notes, *filter(None, [second.note])), steps)


@dataclass(frozen=True, slots=True)
class _Closer:
    """How many candidates get a closer look, and how relevant they are at least."""

    count: int
    least: float


def _closer(asked: Search, taste: Taste, *, second_look: bool) -> _Closer:
    count = asked.limit + (_SPARE if taste.diversity >= 1 else _SPARE_FOR_VARIETY)
    if second_look:
        count = max(count, taste.rerank_candidates)
    # The threshold is for what a second look makes of them.
    return _Closer(count, 0.0 if second_look else asked.min_score)


def _parted(read: list[Candidate], closer: _Closer) -> tuple[list[Candidate], list[Candidate]]:
    """Those that get a closer look, and those that do not, which only a trace shows."""
    good = above(read, closer.least)
    for late in good[closer.count :]:
        late.fate = f"it is not among the {closer.count} most relevant"
    return good[: closer.count], [each for each in read if each.fate]


async def _embed(asked: Search, embedder: Embedder) -> tuple[Vector, tuple[str, ...]]:
    """The vector of the query; while the embedder is away or refuses, one that is like nothing, and a note."""
    if asked.vector is not None:
        return asked.vector, ()
    try:
        [vector] = await embedder.embed([asked.meaning or asked.query], role="query")
    except RecollectError as error:
        return np.zeros(embedder.model.dimensions, np.float32), (f"found by words alone: {error}",)
    return vector, ()


async def _read(
    scope: Scope, found: Gathered, table: Floats, relevance: Floats, asked: Search, closer: _Closer, *, ledger: Ledger
) -> list[Candidate]:
    """The most relevant candidates that the ledger says may be seen; what has expired may not. A trace reads all."""
    order = np.argsort(-relevance, kind="stable")
    if asked.trace:
        enough = len(order)
    else:
        order, enough = order[relevance[order] >= closer.least], closer.count
    # What has expired since is still part of what held at another moment; the ledger knows what had by then.
    unexpired = Not(where("expires_at", Op.LTE, now())) if asked.as_of is None else EVERYTHING
    taken: list[Candidate] = []
    for start in range(0, len(order), enough or 1):
        places = {int(found.pool.rows[at]): int(at) for at in order[start : start + enough]}
        seen = await ledger.fetch(scope, list(places), filter=both(asked.filter, unexpired), as_of=asked.as_of)
        records = {each.row: each.record for each in seen}
        taken += [
            Candidate(at, row, records[row], float(relevance[at]), parts=parts_of(found, table, at))
            for row, at in places.items()
            if row in records
        ]
        if len(taken) >= enough:
            break
    return taken


def parts_of(found: Gathered, table: Floats, at: int) -> dict[str, float]:
    """The scores of a candidate that are shown, and that later steps look at."""
    pool = found.pool
    return {
        "dense": float(pool.dense[at]),
        "lexical": float(pool.lexical[at]),
        "coverage": float(pool.coverage[at]),
        "meaning": float(table[at, 0]),
    }


def _take_opinion(read: list[Candidate], scores: Sequence[float]) -> None:
    """Blend the second look into the relevance of those that got one; the others stay behind them."""
    for each, score in zip(read, scores, strict=False):
        each.parts["rerank"] = score
        odds = _logit(each.relevance) + _SECOND_LOOK * (_logit(score) - _UNDECIDED)
        each.relevance = 1 / (1 + math.exp(-odds))
    worst = min((each.relevance for each in read[: len(scores)]), default=1.0)
    for each in read[len(scores) :] if scores else ():
        each.relevance = min(each.relevance, worst)


def _logit(chance: float) -> float:
    chance = min(max(chance, 1e-6), 1 - 1e-6)
    return math.log(chance / (1 - chance))


def _vectors(found: Gathered, candidates: Sequence[Candidate]) -> Floats:
    return found.view.vectors(np.array([each.row for each in candidates], np.int64))


def _shown(table: Floats, candidates: Sequence[Candidate]) -> dict[int, dict[str, float]]:
    return {each.at: dict(zip(SIGNALS, map(float, table[each.at]), strict=True)) for each in candidates}


def _hit(asked: Search, candidate: Candidate, table: Floats) -> Hit:
    parts = candidate.parts
    why = ""
    if asked.explain:
        signals = _shown(table, [candidate])[candidate.at]
        why = explain(asked.query, candidate.record.content, scores=parts, signals=signals)
    return Hit(candidate.record, candidate.score, {"relevance": candidate.relevance, **parts}, why)
