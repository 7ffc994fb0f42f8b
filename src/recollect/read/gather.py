"""Gather candidates by vector (index) and by words (ledger), with neighbouring turns, and fetch the best of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from recollect.index.protocol import Index, Nearest, View
from recollect.ledger.ledger import Ledger
from recollect.ledger.tokenizer import query_terms, terms_of
from recollect.ledger.types import LexicalMatches
from recollect.model.query import EVERYTHING, Filter
from recollect.model.scope import Scope
from recollect.models.traits import Trait
from recollect.read.calibration import Calibration
from recollect.read.features import CandidateTable, QueryStats
from recollect.read.late_interaction import LateInteraction
from recollect.read.multilingual_stopwords import split_words, stop_words_for
from recollect.read.question import QuestionAnalysis, bare_words, find_mentioned, without_names
from recollect.read.rank import SearchCandidate
from recollect.read.select import filter_relevant
from recollect.text.stopwords import drop_conversation_words
from recollect.text.time_expressions import Period

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.model.change import Vector

    Rows = NDArray[np.int64]
    Floats = NDArray[np.float32]


# Unrelated rows that are added to the statistics of the cosines: those of a few memories would be unreliable.
_PRIOR_ROWS = 20
ASSISTANT_INSTRUCTION = int(Trait.ASSISTANT | Trait.INSTRUCTION)
# Estimated cosine of a memory that has all words of the question, in deviations above the mean.
_DEVIATIONS_BY_COVERAGE = np.float32(3)
# A linear fit of the late-interaction score, for candidates that have no token vectors yet.
_LATE_BASE, _LATE_BY_SEMANTIC, _LATE_BY_COVERAGE = 0.40, 0.10, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateQuery:
    """The question in the forms that the stores search by, and the conditions on candidates.

    `text` is the query with `inferred_terms`, which the rewrite took from earlier messages. `pool_size` limits the
    candidates by vector, and those by words.
    """

    question: QuestionAnalysis
    text: str
    vector: Vector
    inferred_terms: tuple[str, ...] = ()
    filter: Filter = EVERYTHING
    as_of: datetime | None = None
    periods: tuple[Period, ...] = ()
    pool_size: int = 64
    turns: bool = True
    for_prompt: bool = False
    # Rows that a trace is to contain, found or not.
    traced_rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GatheredCandidates:
    """The candidates, the statistics of the question, and the view of the index they come from.

    `forced` are the rows that are candidates only because a trace is to contain them.
    """

    table: CandidateTable
    stats: QueryStats
    view: View
    forced: frozenset[int] = frozenset()


async def gather(
    scope: Scope,
    query: CandidateQuery,
    *,
    ledger: Ledger,
    index: Index,
    calibration: Calibration,
    late: LateInteraction | None = None,
) -> GatheredCandidates:
    """Return the best rows by vector and by words and their neighbouring turns, each with all scores."""
    view = await index.view(scope, query.filter, as_of=query.as_of, turns=query.turns)
    speakers = view.speakers_called(bare_words(query.question.text))
    named = find_mentioned(query.question.text, speakers)
    # Turns are matched with the named speakers by a feature; as search terms the names would be noise.
    words = drop_conversation_words(without_names(query.text, named) if named else query.text)
    lexical, nearest = await _search_words_and_vectors(scope, words, query, ledger=ledger, view=view)
    if narrowed := _drop_unknown_terms(words, query, lexical.missing):
        words, lexical = narrowed, await ledger.lexical(scope, narrowed)
    # The lexical search covers all memories of the user: drop those outside the view before the best are chosen.
    is_visible = view.is_visible(lexical.rows)
    lexical = LexicalMatches(
        lexical.rows[is_visible],
        lexical.scores[is_visible],
        lexical.coverage[is_visible],
        lexical.missing,
        lexical.missing_share,
    )
    stats = _query_stats(query, words, view, {name: speakers[name] for name in named}, nearest, lexical, calibration)
    rows = _candidate_rows(view, nearest, lexical, query.pool_size)
    flags = view.traits(rows).flags
    # Answers that quote memories repeat what may have changed since; the exact index leaves them out already.
    is_allowed = (flags & int(Trait.QUOTES_MEMORY)) == 0
    if query.for_prompt:
        # Instructions that an assistant wrote are not the user's: keep them out of prompts.
        is_allowed &= (flags & ASSISTANT_INSTRUCTION) != ASSISTANT_INSTRUCTION
    rows = rows[is_allowed]
    forced = frozenset[int]()
    if query.traced_rows:
        traced = np.array(query.traced_rows, np.int64)
        forced = frozenset(np.setdiff1d(traced[view.is_visible(traced)], rows).tolist())
        rows = np.union1d(rows, np.array(sorted(forced), np.int64))
    table = await _candidate_table(view, query.vector, rows, lexical, stats)
    if late is not None:
        matches = await late.best_matches(scope.user, query.text, rows)
        table = replace(table, late=_late_scores(matches, table, calibration))
    return GatheredCandidates(table, stats, view, forced)


def _late_scores(matches: Floats, table: CandidateTable, calibration: Calibration) -> Floats:
    """Return the mean match of each candidate; an estimate where no token vectors are stored."""
    scores = matches.mean(axis=1)
    semantic = calibration.scale_all(table.dense)
    estimate = _LATE_BASE + _LATE_BY_SEMANTIC * semantic + _LATE_BY_COVERAGE * table.coverage
    return np.where(np.isnan(scores), estimate, scores).astype(np.float32)


async def _search_words_and_vectors(
    scope: Scope, words: str, query: CandidateQuery, *, ledger: Ledger, view: View
) -> tuple[LexicalMatches, Nearest]:
    if view.is_quick:
        # Creating two tasks would take longer than the searches.
        return await ledger.lexical(scope, words), await view.nearest(query.vector, limit=query.pool_size)
    # Words first: the ledger may search them in another thread while the vectors are compared in this one.
    return await asyncio.gather(ledger.lexical(scope, words), view.nearest(query.vector, limit=query.pool_size))


def _drop_unknown_terms(words: str, query: CandidateQuery, missing: frozenset[str]) -> str:
    """Return the words without inferred terms that no memory has and without stop words; empty for no change.

    Missing terms lower the relevance of all candidates. If the best inferred term is a name that memories have, the
    topic is clear, and other inferred terms that are missing must not count against the candidates.
    """
    if not query.inferred_terms:
        return ""
    stop_words = stop_words_for(split_words(words))
    unknown = {word for word in query.inferred_terms if missing.issuperset(terms_of(word))}
    best = next(iter(query.inferred_terms), "")
    if not best[:1].isupper() or stop_words.nouns_are_capital or best in unknown:
        return ""
    return " ".join(word for word in split_words(words) if word not in unknown and word not in stop_words)


def _candidate_rows(view: View, nearest: Nearest, lexical: LexicalMatches, limit: int) -> Rows:
    top = lexical.rows
    if len(top) > limit:
        top = top[np.argpartition(lexical.scores, len(top) - limit)[-limit:]]
    rows = np.concatenate((nearest.rows, top))
    before, after = view.neighbors(rows)
    rows = np.sort(np.concatenate((rows, before, after)))
    # Each once, without -1. Not np.unique, which imports numpy.ma: 20 ms of the first search.
    return rows[np.diff(rows, prepend=-1) > 0]


async def _candidate_table(
    view: View, vector: Vector, rows: Rows, lexical: LexicalMatches, stats: QueryStats
) -> CandidateTable:
    traits = view.traits(rows)
    before, after = view.neighbors(rows)
    at, is_present = _find_rows(lexical.rows, rows)
    coverage = _values_at(lexical.coverage, at, is_present)
    # Without a vector of the memory or of the question the cosine is estimated from the shared words: with 0 the
    # memory would never be found.
    estimate = np.float32(stats.mean) + _DEVIATIONS_BY_COVERAGE * np.float32(stats.spread) * coverage
    has_dense = traits.embedded & bool(vector.any())
    return CandidateTable(
        rows=rows,
        dense=np.where(has_dense, await view.similarity(vector, rows), estimate),
        has_dense=has_dense,
        lexical=_values_at(lexical.scores, at, is_present),
        coverage=coverage,
        before=_indexes_or_missing(rows, before),
        after=_indexes_or_missing(rows, after),
        traits=traits,
    )


def _find_rows(rows: Rows, targets: Rows) -> tuple[Rows, NDArray[np.bool_]]:
    """Return the index of each target in the sorted `rows`, and whether it is there."""
    if not len(rows):
        return np.zeros(len(targets), np.int64), np.zeros(len(targets), np.bool_)
    at = np.minimum(np.searchsorted(rows, targets), len(rows) - 1)
    return at, rows[at] == targets


def _values_at(values: NDArray[np.float32], at: Rows, is_present: NDArray[np.bool_]) -> NDArray[np.float32]:
    return np.where(is_present, values[at], np.float32(0)) if len(values) else np.zeros(len(at), np.float32)


def _indexes_or_missing(rows: Rows, targets: Rows) -> Rows:
    at, is_present = _find_rows(rows, targets)
    return np.where(is_present, at, -1)


def _query_stats(
    query: CandidateQuery,
    words: str,
    view: View,
    named: Mapping[str, int],
    nearest: Nearest,
    lexical: LexicalMatches,
    calibration: Calibration,
) -> QueryStats:
    count = nearest.count + _PRIOR_ROWS
    mean = (nearest.mean * nearest.count + calibration.mean * _PRIOR_ROWS) / count
    variance = (
        nearest.count * (nearest.deviation**2 + (nearest.mean - mean) ** 2)
        + _PRIOR_ROWS * (calibration.deviation**2 + (calibration.mean - mean) ** 2)
    ) / count
    return QueryStats(
        question=query.question,
        terms=len(query_terms(words)),
        count=view.count,
        missing=lexical.missing_share,
        unknown_names=any(_is_unknown(name, lexical, named) for name in _question_names(query)),
        named=tuple(named.values()),
        mean=mean,
        spread=max(variance, 1e-6) ** 0.5,
        calibration=calibration,
        periods=query.periods,
    )


def _question_names(query: CandidateQuery) -> list[str]:
    """Return the names in the question, without months and weekdays."""
    times = " ".join(period.phrase for period in query.periods).casefold()
    return [name for name in query.question.names if name.casefold() not in times]


def _is_unknown(name: str, lexical: LexicalMatches, named: Collection[str]) -> bool:
    """Return whether no memory contains this name and no speaker has it."""
    terms = terms_of(name)
    return bool(terms) and lexical.missing.issuperset(terms) and not find_mentioned(name, named)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimit:
    """The maximum number and minimum relevance of the candidates to fetch.

    `extra` are pool indexes that are fetched in any case. `fetch_all` fetches the others too, for a trace.
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
    """Return the candidates within the limit, best first, and those that were fetched but dropped."""
    fetched = await _fetch_records(scope, gathered, query, relevance, limit, ledger=ledger)
    extra = [each for each in fetched if each.pool_index in limit.extra]
    relevant = filter_relevant([each for each in fetched if each.pool_index not in limit.extra], limit.min_relevance)
    for each in relevant[limit.count :]:
        each.decision = f"it is not among the {limit.count} most relevant"
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
        batch = order[start : start + batch_size].tolist()
        # The extra ones come with the first batch.
        chosen = [each for each in batch if each not in limit.extra] if start else [*batch, *limit.extra]
        index_by_row = {gathered.table.rows.item(at): at for at in chosen}
        visible = await ledger.fetch(scope, list(index_by_row), filter=query.filter, as_of=query.as_of)
        records = {each.row: each.record for each in visible}
        candidates += [
            SearchCandidate(at, row, records[row], relevance.item(at), parts=score_parts(gathered, at))
            for row, at in index_by_row.items()
            if row in records
        ]
        if sum(each.pool_index not in limit.extra for each in candidates) >= batch_size:
            break
    return candidates


def score_parts(gathered: GatheredCandidates, at: int) -> dict[str, float]:
    """Return the scores of a candidate that hits report and later steps use."""
    table, dense = gathered.table, gathered.table.dense.item(at)
    parts = {
        "dense": dense if table.has_dense.item(at) else 0.0,
        "lexical": table.lexical.item(at),
        "coverage": table.coverage.item(at),
        "semantic": gathered.stats.calibration.scale(dense),
    }
    if table.late is not None:
        parts["late"] = table.late.item(at)
    return parts
