"""Gather candidates side by side: by meaning from the index, by words from the ledger, and the turns beside them."""

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
from recollect.model.traits import Trait
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


# As many rows like any other are assumed beside the user's own: three memories say little about what is near.
_ASSUMED_ROWS = 20
ASSISTANT_INSTRUCTION = int(Trait.ASSISTANT | Trait.INSTRUCTION)
# In deviations above the mean, for a memory that has all of the question's words.
_NEAR_BY_WORDS = np.float32(3)
# A linear fit of the late-interaction score, for candidates that have no token vectors yet.
_LATE_USUAL, _LATE_BY_MEANING, _LATE_BY_COVERAGE = 0.40, 0.10, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateQuery:
    """What is looked for, and where; of its words, some may only be `guessed` to be what is spoken of."""

    question: QuestionAnalysis
    words: str
    vector: Vector
    guessed: tuple[str, ...] = ()
    filter: Filter = EVERYTHING
    as_of: datetime | None = None
    periods: tuple[Period, ...] = ()
    pool: int = 64
    turns: bool = True
    for_prompt: bool = False


@dataclass(frozen=True, slots=True)
class GatheredCandidates:
    """The candidates, what is known of the question, and the view they were found in."""

    table: CandidateTable
    stats: QueryStats
    view: View


async def gather(
    scope: Scope,
    query: CandidateQuery,
    *,
    ledger: Ledger,
    index: Index,
    calibration: Calibration,
    late: LateInteraction | None = None,
) -> GatheredCandidates:
    """The best rows of each kind and the turns beside them; every row gets all scores, however it was found."""
    view = await index.view(scope, query.filter, as_of=query.as_of, turns=query.turns)
    speakers = view.speakers_called(bare_words(query.question.text))
    named = find_mentioned(query.question.text, speakers)
    # Who said it is known of every turn: their names in the text would only blur the rest.
    words = drop_conversation_words(without_names(query.words, named) if named else query.words)
    lexical, nearest = await _search_words_and_vectors(scope, words, query, ledger=ledger, view=view)
    if narrowed := _drop_unknown_guesses(words, query, lexical.missing):
        words, lexical = narrowed, await ledger.lexical(scope, narrowed)
    # Words are looked up for all that the user has: what may not be found must not crowd out what may.
    is_visible = view.sees(lexical.rows)
    lexical = LexicalMatches(
        lexical.rows[is_visible],
        lexical.scores[is_visible],
        lexical.coverage[is_visible],
        lexical.missing,
        lexical.missing_share,
    )
    stats = _query_stats(query, words, view, {name: speakers[name] for name in named}, nearest, lexical, calibration)
    rows = _candidate_rows(view, nearest, lexical, query.pool)
    if query.for_prompt:
        # What an assistant once said someone must always do was not said by the user: no prompt is told it again.
        rows = rows[(view.traits(rows).flags & ASSISTANT_INSTRUCTION) != ASSISTANT_INSTRUCTION]
    table = await _candidate_table(view, query.vector, rows, lexical, stats)
    if late is not None:
        matches = await late.best_matches(scope.user, query.words, rows)
        table = replace(table, late=_late_scores(matches, table, calibration))
    return GatheredCandidates(table, stats, view)


def _late_scores(matches: Floats, table: CandidateTable, calibration: Calibration) -> Floats:
    """The mean match of each candidate; where no token vectors are stored, as is usual for its meaning and words."""
    scores = matches.mean(axis=1)
    usual = _LATE_USUAL + _LATE_BY_MEANING * calibration.scale_all(table.dense) + _LATE_BY_COVERAGE * table.coverage
    return np.where(np.isnan(scores), usual, scores).astype(np.float32)


async def _search_words_and_vectors(
    scope: Scope, words: str, query: CandidateQuery, *, ledger: Ledger, view: View
) -> tuple[LexicalMatches, Nearest]:
    if view.is_quick:
        # Two tasks would take longer than what they do.
        return await ledger.lexical(scope, words), await view.nearest(query.vector, limit=query.pool)
    # Words first: where they are looked up in another thread, the vectors are compared meanwhile.
    return await asyncio.gather(ledger.lexical(scope, words), view.nearest(query.vector, limit=query.pool))


def _drop_unknown_guesses(words: str, query: CandidateQuery, missing: frozenset[str]) -> str:
    """What is left of words of which some were guessed, if the best guess is a name that is known; else nothing.

    A question with words that no memory has is one they hardly answer. But where it is plain what is spoken of, other
    guesses that no memory has speak against none, nor do the small words of a question that needed guessing.
    """
    if not query.guessed:
        return ""
    stop_words = stop_words_for(split_words(words))
    unknown = {word for word in query.guessed if missing.issuperset(terms_of(word))}
    best = next(iter(query.guessed), "")
    if not best[:1].isupper() or stop_words.nouns_are_capital or best in unknown:
        return ""
    return " ".join(word for word in split_words(words) if word not in unknown and word not in stop_words)


def _candidate_rows(view: View, nearest: Nearest, lexical: LexicalMatches, limit: int) -> Rows:
    top = lexical.rows
    if len(top) > limit:
        top = top[np.argpartition(lexical.scores, len(top) - limit)[-limit:]]
    rows = np.concatenate((nearest.rows, top))
    before, after = view.neighbors(rows)
    rows = np.unique(np.concatenate((rows, before, after)))
    return rows[rows >= 0]


async def _candidate_table(
    view: View, vector: Vector, rows: Rows, lexical: LexicalMatches, stats: QueryStats
) -> CandidateTable:
    traits = view.traits(rows)
    before, after = view.neighbors(rows)
    at, is_present = _find_rows(lexical.rows, rows)
    coverage = _values_at(lexical.coverage, at, is_present)
    # How near a memory without a vector is nobody knows, nor any of them while the embedder is away. Taken for far it
    # would never be found: it is taken for as near as those are that share as many words.
    guessed = np.float32(stats.mean) + _NEAR_BY_WORDS * np.float32(stats.spread) * coverage
    has_dense = traits.embedded & bool(vector.any())
    return CandidateTable(
        rows=rows,
        dense=np.where(has_dense, await view.similarity(vector, rows), guessed),
        has_dense=has_dense,
        lexical=_values_at(lexical.scores, at, is_present),
        coverage=coverage,
        before=_indexes_or_missing(rows, before),
        after=_indexes_or_missing(rows, after),
        traits=traits,
    )


def _find_rows(rows: Rows, targets: Rows) -> tuple[Rows, NDArray[np.bool_]]:
    """Where each wanted row stands among `rows`, which rise, and whether it is there at all."""
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
    count = nearest.count + _ASSUMED_ROWS
    mean = (nearest.mean * nearest.count + calibration.mean * _ASSUMED_ROWS) / count
    variance = (
        nearest.count * (nearest.deviation**2 + (nearest.mean - mean) ** 2)
        + _ASSUMED_ROWS * (calibration.deviation**2 + (calibration.mean - mean) ** 2)
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
    """The names in the question; those of months and days are none."""
    times = " ".join(period.phrase for period in query.periods).casefold()
    return [name for name in query.question.names if name.casefold() not in times]


def _is_unknown(name: str, lexical: LexicalMatches, named: Collection[str]) -> bool:
    """Whether nobody ever spoke of this name."""
    terms = terms_of(name)
    return bool(terms) and lexical.missing.issuperset(terms) and not find_mentioned(name, named)


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
        **({} if pool.late is None else {"late": float(pool.late[at])}),
    }
