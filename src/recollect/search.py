"""Search: find the memories that answer a question, best first.

embed -> gather -> fuse -> fetch -> replace stale turns -> rerank -> rank -> prefer newest -> select -> explain.
Each step is a file in `read/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from recollect.aio.throttle import LoopThrottle
from recollect.config.fields import RankingSettings
from recollect.errors import RecollectError
from recollect.frozen_dataclass import frozen_dataclass
from recollect.index.protocol import Index
from recollect.ledger.ledger import Ledger
from recollect.model.query import EVERYTHING, Filter, Op, Where, both
from recollect.model.result import Hit, ReadTrace, SearchResult, TracedCandidate, TracedPeriod
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.models.embedding import Embedder, Reranker
from recollect.read.absence import explain_absence
from recollect.read.as_of_queries import load_past_state, merge_results, open_snapshot
from recollect.read.calibration import BUNDLED_CALIBRATION, EmbedderCalibration
from recollect.read.explain import explain
from recollect.read.features import FEATURE_NAMES, compute_features
from recollect.read.fuse import fuse
from recollect.read.gather import CandidateQuery, FetchLimit, GatheredCandidates, fetch_candidates, gather
from recollect.read.late_interaction import LateInteraction
from recollect.read.policy import separate_instructions
from recollect.read.prefer_newest import MAX_CANDIDATES, find_later_candidates, prefer_newest
from recollect.read.question import analyze_question
from recollect.read.question_model import is_question
from recollect.read.rank import RankingWeights, SearchCandidate, demote_questions, rank
from recollect.read.rerank import apply_rerank_scores, rerank
from recollect.read.select import SelectionConfig, filter_relevant, normalize_words, select
from recollect.read.stale_turns import replace_stale_turns
from recollect.read.telemetry import StepTimer, trace_absent, trace_candidates
from recollect.text.time_expressions import Period

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.model.change import Vector

    Floats = NDArray[np.float32]


# Candidates gathered by vector, and as many by words: this many for each requested hit, and a minimum.
_POOL_FACTOR = 5
_MIN_POOL = 40
# Candidates fetched beyond the requested number, to make up for dropped duplicates; more if hits must be diverse.
_SPARE, _SPARE_FOR_DIVERSITY = 8, 12
# Longer queries are cut in the middle: the question is at the beginning or at the end of a pasted text.
_MAX_QUERY_CHARS = 8_000
# A longer question is hardly asked twice in the same words.
_MAX_REPEATED_CHARS = 300


@frozen_dataclass(kw_only=True)
class SearchRequest:
    """The parameters of one search.

    `embed_text` is embedded instead of the query, for example a hypothetical answer. `inferred_terms` are the terms
    of the query that were taken from earlier messages. `periods` are the time expressions of the query. `for_prompt`
    drops instructions that were not given by the user. `exclude_texts` are normalised texts of turns that must not be
    returned. `everywhere` searches all projects if the scope names none. `traced_id` is a memory that the trace
    contains in any case, with the reason why it is not a hit.
    """

    query: str
    limit: int
    embed_text: str = ""
    inferred_terms: tuple[str, ...] = ()
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
    everywhere: bool = False
    traced_id: str = ""


@frozen_dataclass
class SearchDeps:
    """The stores and models that a search uses."""

    ledger: Ledger
    index: Index
    embedder: Embedder
    calibration: EmbedderCalibration
    reranker: Reranker | None = None
    throttle: LoopThrottle = field(default_factory=LoopThrottle)
    late: LateInteraction | None = None


async def search(scope: Scope, request: SearchRequest, ranking: RankingSettings, deps: SearchDeps) -> SearchResult:
    """Return the memories that answer the query, best first; with `as_of`, as they were at that moment.

    Memories that were changed since `as_of` are searched separately, in the state they had.
    """
    if request.everywhere and not scope.project:
        scope = replace(scope, everywhere=True)
    result = await _search_present_or_past(scope, request, ranking, deps)
    return await _complete_trace(scope, request, result, deps) if request.trace else result


async def _search_present_or_past(
    scope: Scope, request: SearchRequest, ranking: RankingSettings, deps: SearchDeps
) -> SearchResult:
    if request.as_of is None:
        return await _search(scope, request, ranking, deps)
    past = await load_past_state(scope.user, request.as_of, ledger=deps.ledger)
    if not past.changed_ids:
        return await _search(scope, request, ranking, deps)
    unchanged = replace(request, filter=both(request.filter, past.unchanged_filter))
    result = await _search(scope, unchanged, ranking, deps)
    if not past.valid_records:
        return result
    ledger, index = await open_snapshot(scope.user, past.valid_records, ledger=deps.ledger, embedder=deps.embedder)
    past_deps = replace(deps, ledger=ledger, index=index, late=None)
    return merge_results(result, await _search(scope, request, ranking, past_deps), request.limit)


async def _complete_trace(
    scope: Scope, request: SearchRequest, result: SearchResult, deps: SearchDeps
) -> SearchResult:
    """Return the result with the trace of the question, and with the candidate that the request asks about."""
    candidates = result.candidates
    if request.traced_id and all(each.id != request.traced_id for each in candidates):
        for record in await deps.ledger.get(Scope(scope.user), [request.traced_id]):
            at = request.as_of or now()
            reason = explain_absence(record, scope, request.filter, at=at, turns=request.turns)
            candidates += (trace_absent(record, reason),)
    trace = ReadTrace(
        searched=True,
        decision="a search was requested",
        question=request.query,
        query=request.query,
        periods=tuple(TracedPeriod(each.phrase, each.start, each.end) for each in request.periods),
        limit=request.limit,
        min_score=request.min_score,
        pool=len(result.candidates),
        memory_id=request.traced_id or None,
    )
    return replace(result, candidates=candidates, trace=trace)


async def _search(scope: Scope, request: SearchRequest, ranking: RankingSettings, deps: SearchDeps) -> SearchResult:
    await deps.throttle.acquire()
    clock = StepTimer()
    request = _truncate_query(request)
    vector, failure = await _embed(request, deps.embedder)
    clock.mark("embed")
    query = _candidate_query(request, vector)
    if request.trace and request.traced_id:
        named = both(request.filter, Where("id", Op.EQ, request.traced_id))
        traced_rows = await deps.ledger.matching(scope, named, as_of=request.as_of)
        query = replace(query, traced_rows=tuple(traced_rows))
    # While the embedder fails no cosine is used, and calibrating it would only wait for it a second time.
    calibration = BUNDLED_CALIBRATION if failure else await deps.calibration.get()
    late = deps.late if ranking.fusion == "learned" else None
    gathered = await gather(scope, query, ledger=deps.ledger, index=deps.index, calibration=calibration, late=late)
    clock.mark("gather")
    features = compute_features(gathered.table, gathered.stats)
    relevance = fuse(features, gathered.stats.count, ranking.fusion)
    clock.mark("fuse")
    moment = request.as_of or now()
    is_about_present = _is_about_present(query, moment)
    limit = _fetch_limit(request, ranking, has_reranker=deps.reranker is not None)
    if is_about_present and deps.reranker is None:
        later = await find_later_candidates(gathered, relevance, min_relevance=request.min_score, limit=request.limit)
        limit = replace(limit, extra=later)
    candidates, dropped = await fetch_candidates(scope, gathered, query, relevance, limit, ledger=deps.ledger)
    if gathered.forced:
        candidates, forced = _separate_forced(candidates, gathered, query)
        dropped += forced
    if request.for_prompt:
        candidates, instructions = await separate_instructions(candidates)
        dropped += instructions
    if is_question(request.query):
        demote_questions(candidates, request.query)
        candidates.sort(key=lambda each: -each.relevance)
    clock.mark("fetch")
    candidates, stale = await replace_stale_turns(scope, candidates, gathered, query, ledger=deps.ledger)
    dropped += stale
    clock.mark("current")
    reranked = await rerank(
        request.query,
        [each.text for each in candidates],
        reranker=deps.reranker,
        limit=ranking.rerank_candidates,
        timeout_s=ranking.rerank_timeout_s,
    )
    apply_rerank_scores(candidates, reranked.scores, ranking.rerank_mode)
    by_relevance = sorted(candidates, key=lambda each: -each.relevance) if request.trace and reranked.scores else []
    clock.mark("rerank")
    weights = ranking_weights(ranking, has_period=bool(request.periods))
    ranked = rank(candidates, weights, now=moment)
    relevant = filter_relevant(ranked, request.min_score)
    if is_about_present:
        later_candidates = [each for each in ranked if each.pool_index in limit.extra]
        relevant = await _prefer_newest(relevant, later_candidates, request, query, gathered)
    clock.mark("rank")
    selected = await _select(relevant, request, ranking, gathered)
    clock.mark("select")
    hits = tuple(_make_hit(request, each, features) for each in sorted(selected, key=lambda each: -each.score))
    clock.mark("explain")
    traces: tuple[TracedCandidate, ...] = ()
    if request.trace:
        rows = {each.row for each in relevant}
        below_threshold = [each for each in ranked if each.row not in rows]
        traced = relevant + rank([*below_threshold, *dropped], weights, now=moment)
        ranks = {
            "fuse": _ranks(np.argsort(-relevance, kind="stable").tolist()),
            "rerank": _ranks(each.pool_index for each in by_relevance),
            "rank": _ranks(each.pool_index for each in ranked),
            "newest": _ranks(each.pool_index for each in relevant) if is_about_present else {},
            "select": _ranks(each.pool_index for each in sorted(selected, key=lambda each: -each.score)),
        }
        traces = trace_candidates(
            traced,
            _feature_values(features, traced),
            ranks,
            forced=gathered.forced,
            is_learned=ranking.fusion == "learned",
        )
    notes = (f"found by words alone: {failure}" if failure else "", reranked.note)
    return SearchResult(hits, clock.steps_us, tuple(filter(None, notes)), traces, failure)


def _separate_forced(
    candidates: list[SearchCandidate], gathered: GatheredCandidates, query: CandidateQuery
) -> tuple[list[SearchCandidate], list[SearchCandidate]]:
    """Return the candidates that were found, and those that only the trace is to contain."""
    forced = [each for each in candidates if each.row in gathered.forced]
    for each in forced:
        each.decision = f"it is not among the {query.pool_size} best by meaning, nor among those by words"
    return [each for each in candidates if each.row not in gathered.forced], forced


def _ranks(pool_indexes: Iterable[int]) -> dict[int, int]:
    return {index: rank for rank, index in enumerate(pool_indexes, start=1)}


def _truncate_query(request: SearchRequest) -> SearchRequest:
    if len(request.query) <= _MAX_QUERY_CHARS:
        return request
    half = _MAX_QUERY_CHARS // 2
    return replace(request, query=f"{request.query[:half]} {request.query[-half:]}")


async def _embed(request: SearchRequest, embedder: Embedder) -> tuple[Vector, RecollectError | None]:
    """Return the vector of the query; if the embedder fails, a zero vector and the error."""
    if request.vector is not None:
        return request.vector, None
    try:
        [vector] = await embedder.embed([request.embed_text or request.query], role="query")
    except RecollectError as error:
        return np.zeros(embedder.model.dimensions, np.float32), error
    return vector, None


def _candidate_query(request: SearchRequest, vector: Vector) -> CandidateQuery:
    return CandidateQuery(
        question=analyze_question(request.query),
        text=request.query,
        inferred_terms=request.inferred_terms,
        vector=vector,
        filter=request.filter,
        as_of=request.as_of,
        periods=request.periods,
        pool_size=max(_MIN_POOL, request.limit * _POOL_FACTOR),
        turns=request.turns,
        for_prompt=request.for_prompt,
    )


def _is_about_present(query: CandidateQuery, moment: datetime) -> bool:
    """Return whether the newest statement is the right answer: the question names no past time."""
    if query.as_of is not None or query.question.is_about_past:
        return False
    return not any(period.end is not None and period.end <= moment for period in query.periods)


def _fetch_limit(request: SearchRequest, ranking: RankingSettings, *, has_reranker: bool) -> FetchLimit:
    count = request.limit + (_SPARE if ranking.diversity >= 1 else _SPARE_FOR_DIVERSITY)
    if has_reranker:
        # Reranking changes the relevance, so the threshold applies only afterwards.
        return FetchLimit(count=max(count, ranking.rerank_candidates), min_relevance=0.0, fetch_all=request.trace)
    return FetchLimit(count=count, min_relevance=request.min_score, fetch_all=request.trace)


async def _prefer_newest(
    relevant: list[SearchCandidate],
    later: Sequence[SearchCandidate],
    request: SearchRequest,
    query: CandidateQuery,
    gathered: GatheredCandidates,
) -> list[SearchCandidate]:
    """Return the relevant candidates, with newer statements before the older ones among the first hits."""
    first = relevant[: min(request.limit, MAX_CANDIDATES)]
    first_rows = {each.row for each in first}
    later = [each for each in later if each.row not in first_rows]
    vectors = await _vectors(gathered, [*first, *later])
    first = prefer_newest(
        first, later, vectors, query.question, calibration=gathered.stats.calibration, min_relevance=request.min_score
    )
    first_rows = {each.row for each in first}
    return first + [each for each in relevant if each.row not in first_rows]


def ranking_weights(ranking: RankingSettings, *, has_period: bool = False) -> RankingWeights:
    """Return the weights of a search; a question about a period is not about the most recent memories."""
    return RankingWeights(
        recency=0.0 if has_period else ranking.recency_weight,
        recency_days=ranking.recency_days,
        recency_adds=ranking.recency_adds,
        importance=ranking.importance_weight,
        access=ranking.access_weight,
    )


async def _select(
    candidates: Sequence[SearchCandidate],
    request: SearchRequest,
    ranking: RankingSettings,
    gathered: GatheredCandidates,
) -> list[SearchCandidate]:
    config = SelectionConfig(
        limit=request.limit,
        diversity=ranking.diversity,
        per_source=ranking.hits_per_source,
        elbow=ranking.search_elbow,
        exclude_texts=request.exclude_texts | _repetitions(request.query),
    )
    vectors = await _vectors(gathered, candidates) if config.is_diverse else None
    return select(candidates, vectors, config)


def _repetitions(query: str) -> frozenset[str]:
    """Return the normalised texts of earlier turns that ask the same, which answers nothing."""
    if len(query) > _MAX_REPEATED_CHARS or not is_question(query):
        return frozenset()
    words = normalize_words(query).rstrip("?？؟ ")
    return frozenset(words + mark for mark in ("", "?", "？", "؟", " ?"))


async def _vectors(gathered: GatheredCandidates, candidates: Sequence[SearchCandidate]) -> Floats:
    return await gathered.view.vectors(np.array([each.row for each in candidates], np.int64))


def _feature_values(features: Floats, candidates: Sequence[SearchCandidate]) -> dict[int, dict[str, float]]:
    """Return the named features of the candidates, by their index in the pool."""
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
