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

from recollect.aio.throttle import LoopThrottle
from recollect.errors import RecollectError
from recollect.index.protocol import Index
from recollect.ledger.ledger import Ledger
from recollect.model.query import EVERYTHING, Filter
from recollect.model.result import Hit, SearchResult, TracedCandidate
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.models.embedding import Embedder
from recollect.models.reranking import Reranker
from recollect.read.calibration import BUNDLED_CALIBRATION, EmbedderCalibration
from recollect.read.explain import explain
from recollect.read.features import FEATURE_NAMES, compute_features
from recollect.read.fuse import Fusion, fuse
from recollect.read.gather import CandidateQuery, FetchLimit, GatheredCandidates, fetch_candidates, gather
from recollect.read.late_interaction import LateInteraction
from recollect.read.policy import separate_instructions
from recollect.read.prefer_newest import MAX_CANDIDATES, find_later_candidates, prefer_newest
from recollect.read.question import analyze_question
from recollect.read.rank import RankingWeights, SearchCandidate, rank
from recollect.read.rerank import apply_rerank_scores, rerank
from recollect.read.select import SelectionConfig, filter_relevant, select
from recollect.read.stale_turns import replace_stale_turns
from recollect.read.telemetry import StepTimer, trace_candidates
from recollect.text.time_expressions import Period

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
_MAX_CHARS = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
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
    exclude_texts: frozenset[str] = frozenset()
    # Without a project, in all of them and outside.
    everywhere: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingConfig:
    """What makes one memory better than another."""

    fusion: Fusion = "learned"
    weights: RankingWeights = field(default_factory=RankingWeights)
    diversity: float = 1.0
    per_source: int = 2
    elbow: bool = False
    rerank_candidates: int = 30
    rerank_timeout_s: float = 2.0


@dataclass(frozen=True, slots=True)
class SearchDeps:
    """What a search asks: the ledger for words and records, the index for meaning, models for the rest."""

    ledger: Ledger
    index: Index
    embedder: Embedder
    calibration: EmbedderCalibration
    reranker: Reranker | None = None
    throttle: LoopThrottle = field(default_factory=LoopThrottle)
    late: LateInteraction | None = None


async def search(scope: Scope, request: SearchRequest, ranking: RankingConfig, deps: SearchDeps) -> SearchResult:
    """The memories that fit the question."""
    await deps.throttle.acquire()
    clock = StepTimer()
    request = _truncate_query(request)
    if request.everywhere and not scope.project:
        scope = replace(scope, everywhere=True)
    question = analyze_question(request.query)
    vector, failure = await _embed(request, deps.embedder)
    clock.mark("embed")
    query = CandidateQuery(
        question=question,
        words=request.query,
        guessed=request.guessed,
        vector=vector,
        filter=request.filter,
        as_of=request.as_of,
        periods=request.periods,
        pool=max(_MIN_POOL, request.limit * _POOL_FACTOR),
        turns=request.turns,
        for_prompt=request.for_prompt,
    )
    # Nothing is measured by it while the embedder is away, and asking it again would be waiting twice.
    calibration = BUNDLED_CALIBRATION if failure else await deps.calibration.get()
    late = deps.late if ranking.fusion == "learned" else None
    gathered = await gather(scope, query, ledger=deps.ledger, index=deps.index, calibration=calibration, late=late)
    clock.mark("gather")
    features = compute_features(gathered.table, gathered.stats)
    relevance = fuse(features, gathered.stats.count, ranking.fusion)
    clock.mark("fuse")
    moment = request.as_of or now()
    is_over = any(each.end is not None and each.end <= moment for each in request.periods)
    is_about_now = not is_over and request.as_of is None and not question.of_the_past
    limit = _fetch_limit(request, ranking, has_reranker=deps.reranker is not None)
    if is_about_now and deps.reranker is None:
        later_indexes = await find_later_candidates(
            gathered, relevance, min_relevance=request.min_score, limit=request.limit
        )
        limit = replace(limit, extra=later_indexes)
    candidates, rejected = await fetch_candidates(scope, gathered, query, relevance, limit, ledger=deps.ledger)
    if request.for_prompt:
        candidates, instructions = await separate_instructions(candidates)
        rejected = [*rejected, *instructions]
    clock.mark("fetch")
    candidates, stale = await replace_stale_turns(scope, candidates, gathered, query, ledger=deps.ledger)
    rejected = [*rejected, *stale]
    clock.mark("current")
    reranked = await rerank(
        request.query,
        [each.text for each in candidates],
        reranker=deps.reranker,
        limit=ranking.rerank_candidates,
        timeout_s=ranking.rerank_timeout_s,
    )
    apply_rerank_scores(candidates, reranked.scores)
    clock.mark("rerank")
    # Of a time that is asked about, what is recent is not wanted more than the rest.
    weights = replace(ranking.weights, recency=0.0) if request.periods else ranking.weights
    ranked = rank(candidates, weights, now=moment)
    relevant = filter_relevant(ranked, request.min_score)
    if is_about_now:
        first = relevant[: min(request.limit, MAX_CANDIDATES)]
        in_first = {each.row for each in first}
        later = [each for each in ranked if each.pool_index in limit.extra and each.row not in in_first]
        vectors = await _vectors(gathered, [*first, *later])
        first = prefer_newest(
            first, later, vectors, question, calibration=gathered.stats.calibration, min_relevance=request.min_score
        )
        in_first = {each.row for each in first}
        relevant = first + [each for each in relevant if each.row not in in_first]
    clock.mark("rank")
    selection = SelectionConfig(
        limit=request.limit,
        diversity=ranking.diversity,
        per_source=ranking.per_source,
        elbow=ranking.elbow,
        exclude_texts=request.exclude_texts,
    )
    selected = select(relevant, await _vectors(gathered, relevant) if selection.is_varied else None, selection)
    clock.mark("select")
    hits = tuple(_make_hit(request, each, features) for each in sorted(selected, key=lambda each: -each.score))
    clock.mark("explain")
    traces: tuple[TracedCandidate, ...] = ()
    if request.trace:
        in_result = {each.row for each in relevant}
        below_threshold = [each for each in ranked if each.row not in in_result]
        all_candidates = relevant + rank([*below_threshold, *rejected], weights, now=moment)
        traces = trace_candidates(all_candidates, _feature_values(features, all_candidates))
    notes = (f"found by words alone: {failure}" if failure else "", reranked.note)
    return SearchResult(hits, clock.steps_us, tuple(filter(None, notes)), traces, failure)


def _truncate_query(request: SearchRequest) -> SearchRequest:
    if len(request.query) <= _MAX_CHARS:
        return request
    half = _MAX_CHARS // 2
    return replace(request, query=f"{request.query[:half]} {request.query[-half:]}")


def _fetch_limit(request: SearchRequest, ranking: RankingConfig, *, has_reranker: bool) -> FetchLimit:
    count = request.limit + (_SPARE if ranking.diversity >= 1 else _SPARE_FOR_VARIETY)
    if has_reranker:
        count = max(count, ranking.rerank_candidates)
    # The threshold is for what a second look makes of them.
    return FetchLimit(count=count, min_relevance=0.0 if has_reranker else request.min_score, fetch_all=request.trace)


async def _embed(request: SearchRequest, embedder: Embedder) -> tuple[Vector, RecollectError | None]:
    """The vector of the query; while the embedder is away or refuses, one that is like nothing, and its error."""
    if request.vector is not None:
        return request.vector, None
    try:
        [vector] = await embedder.embed([request.meaning or request.query], role="query")
    except RecollectError as error:
        return np.zeros(embedder.model.dimensions, np.float32), error
    return vector, None


async def _vectors(gathered: GatheredCandidates, candidates: Sequence[SearchCandidate]) -> Floats:
    return await gathered.view.vectors(np.array([each.row for each in candidates], np.int64))


def _feature_values(features: Floats, candidates: Sequence[SearchCandidate]) -> dict[int, dict[str, float]]:
    return {
        each.pool_index: dict(zip(FEATURE_NAMES, map(float, features[each.pool_index]), strict=True))
        for each in candidates
    }


def _make_hit(request: SearchRequest, candidate: SearchCandidate, features: Floats) -> Hit:
    parts = candidate.parts
    why = ""
    if request.explain:
        values = _feature_values(features, [candidate])[candidate.pool_index]
        why = explain(request.query, candidate.record.content, scores=parts, features=values)
    return Hit(candidate.record, candidate.score, {"relevance": candidate.relevance, **parts}, why)
