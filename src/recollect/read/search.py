"""Search: from a question to the memories that answer it, best first, with the reasons.

gather -> fuse -> fetch -> current -> rerank -> rank -> threshold -> prefer newest -> select -> explain, a file for
each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from recollect.errors import RecollectError
from recollect.index.protocol import Index
from recollect.language.when import Period
from recollect.ledger.protocol import Ledger
from recollect.model.query import EVERYTHING, Filter
from recollect.model.result import Hit, SearchResult, Traced
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turns import Turns
from recollect.models.embedding import Embedder
from recollect.models.rerank import Reranker
from recollect.read.candidate import Candidate
from recollect.read.current import replace_stale_turns
from recollect.read.dictated import apart
from recollect.read.explain import explain
from recollect.read.fetch import Closer, fetch
from recollect.read.fuse import Fusion, fuse
from recollect.read.gather import Gathered, Wanted, gather
from recollect.read.prefer_newest import MAX_CANDIDATES, later_places, prefer_newest
from recollect.read.question import look_at
from recollect.read.rank import Weights, rank
from recollect.read.rerank import reconsider, rerank
from recollect.read.ruler import BUNDLED, RulerOf
from recollect.read.select import Choice, above, select
from recollect.read.signals import SIGNALS, signals
from recollect.read.trace import Clock, traced

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.model.change import Vector

    Floats = NDArray[np.float32]

# How many rows each way of finding may offer for one hit asked for.
_POOL_FACTOR = 5
_MIN_POOL = 40
# How many candidates are read beyond those asked for, so that steps which leave some out have others to offer: a few
# for repetitions, more where variety is wanted.
_SPARE, _SPARE_FOR_VARIETY = 8, 12
# A question is seen from its beginning and its end; what was pasted between them is not looked for.
_MOST_CHARS = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is asked for."""

    query: str
    limit: int
    meaning: str = ""
    guessed: tuple[str, ...] = ()
    filter: Filter = EVERYTHING
    min_score: float = 0.0
    vector: Vector | None = None
    as_of: datetime | None = None
    periods: tuple[Period, ...] = ()
    explain: bool = False
    trace: bool = False
    turns: bool = True
    for_prompt: bool = False
    said: frozenset[str] = frozenset()
    # Without a project, in all of them and outside.
    everywhere: bool = False


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
    turns: Turns = field(default_factory=Turns)


async def search(scope: Scope, asked: Search, taste: Taste, finders: Finders) -> SearchResult:
    """The memories that fit the question."""
    await finders.turns.take()
    clock = Clock()
    asked = _bounded(asked)
    if asked.everywhere and not scope.project:
        scope = replace(scope, everywhere=True)
    question = look_at(asked.query)
    vector, failure = await _embed(asked, finders.embedder)
    clock.mark("embed")
    wanted = Wanted(
        question=question,
        words=asked.query,
        guessed=asked.guessed,
        vector=vector,
        filter=asked.filter,
        as_of=asked.as_of,
        periods=asked.periods,
        pool=max(_MIN_POOL, asked.limit * _POOL_FACTOR),
        turns=asked.turns,
        for_prompt=asked.for_prompt,
    )
    # Nothing is measured by it while the embedder is away, and asking it again would be waiting twice.
    ruler = BUNDLED if failure else await finders.ruler.get()
    found = await gather(scope, wanted, ledger=finders.ledger, index=finders.index, ruler=ruler)
    clock.mark("gather")
    table = signals(found.pool, found.outlook)
    relevance = fuse(table, found.outlook.count, taste.fusion)
    clock.mark("fuse")
    moment = asked.as_of or now()
    is_over = any(each.end is not None and each.end <= moment for each in asked.periods)
    is_about_now = not is_over and asked.as_of is None and not question.of_the_past
    closer = _closer(asked, taste, second_look=finders.reranker is not None)
    if is_about_now and finders.reranker is None:
        also = await later_places(found, relevance, min_relevance=asked.min_score, limit=asked.limit)
        closer = replace(closer, also=also)
    read, left = await fetch(scope, found, wanted, relevance, closer, ledger=finders.ledger)
    if asked.for_prompt:
        read, dictated = await apart(read)
        left = [*left, *dictated]
    clock.mark("fetch")
    read, stale = await replace_stale_turns(scope, read, found, wanted, ledger=finders.ledger)
    left = [*left, *stale]
    clock.mark("current")
    second = await rerank(
        asked.query,
        [each.text for each in read],
        reranker=finders.reranker,
        limit=taste.rerank_candidates,
        timeout_s=taste.rerank_timeout_s,
    )
    reconsider(read, second.scores)
    clock.mark("rerank")
    # Of a time that is asked about, what is recent is not wanted more than the rest.
    weights = replace(taste.weights, recency=0.0) if asked.periods else taste.weights
    ranked = rank(read, weights, now=moment)
    good = above(ranked, asked.min_score)
    if is_about_now:
        first = good[: min(asked.limit, MAX_CANDIDATES)]
        in_first = {each.row for each in first}
        later = [each for each in ranked if each.at in closer.also and each.row not in in_first]
        vectors = await _vectors(found, [*first, *later])
        first = prefer_newest(
            first, later, vectors, question, ruler=found.outlook.ruler, min_relevance=asked.min_score
        )
        in_first = {each.row for each in first}
        good = first + [each for each in good if each.row not in in_first]
    clock.mark("rank")
    choice = Choice(
        limit=asked.limit,
        diversity=taste.diversity,
        per_source=taste.per_source,
        elbow=taste.elbow,
        said=asked.said,
    )
    kept = select(good, await _vectors(found, good) if choice.is_varied else None, choice)
    clock.mark("select")
    hits = tuple(_hit(asked, each, table) for each in sorted(kept, key=lambda each: -each.score))
    clock.mark("explain")
    steps: tuple[Traced, ...] = ()
    if asked.trace:
        in_result = {each.row for each in good}
        fallen = [each for each in ranked if each.row not in in_result]
        everyone = good + rank([*fallen, *left], weights, now=moment)
        steps = traced(everyone, _shown(table, everyone))
    notes = (f"found by words alone: {failure}" if failure else "", second.note)
    return SearchResult(hits, clock.steps_us, tuple(filter(None, notes)), steps, failure)


def _bounded(asked: Search) -> Search:
    if len(asked.query) <= _MOST_CHARS:
        return asked
    half = _MOST_CHARS // 2
    return replace(asked, query=f"{asked.query[:half]} {asked.query[-half:]}")


def _closer(asked: Search, taste: Taste, *, second_look: bool) -> Closer:
    count = asked.limit + (_SPARE if taste.diversity >= 1 else _SPARE_FOR_VARIETY)
    if second_look:
        count = max(count, taste.rerank_candidates)
    # The threshold is for what a second look makes of them.
    return Closer(count=count, least=0.0 if second_look else asked.min_score, all=asked.trace)


async def _embed(asked: Search, embedder: Embedder) -> tuple[Vector, RecollectError | None]:
    """The vector of the query; while the embedder is away or refuses, one that is like nothing, and its error."""
    if asked.vector is not None:
        return asked.vector, None
    try:
        [vector] = await embedder.embed([asked.meaning or asked.query], role="query")
    except RecollectError as error:
        return np.zeros(embedder.model.dimensions, np.float32), error
    return vector, None


async def _vectors(found: Gathered, candidates: Sequence[Candidate]) -> Floats:
    return await found.view.vectors(np.array([each.row for each in candidates], np.int64))


def _shown(table: Floats, candidates: Sequence[Candidate]) -> dict[int, dict[str, float]]:
    return {each.at: dict(zip(SIGNALS, map(float, table[each.at]), strict=True)) for each in candidates}


def _hit(asked: Search, candidate: Candidate, table: Floats) -> Hit:
    parts = candidate.parts
    why = ""
    if asked.explain:
        signals = _shown(table, [candidate])[candidate.at]
        why = explain(asked.query, candidate.record.content, scores=parts, signals=signals)
    return Hit(candidate.record, candidate.score, {"relevance": candidate.relevance, **parts}, why)
