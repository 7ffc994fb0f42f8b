"""The trained model that says how likely a newer statement replaces an older one, from features of the pair.

A small network over the features; one of them is the sum of trained weights of the pair's words. The file is made
by `evals/train_newest.py`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from recollect.aio.erasable_cache import erasable_cache
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.tokenizer import query_terms, terms_of
from recollect.model.memory import Category, MemoryRecord
from recollect.models.linear_text import tokenize
from recollect.models.static_embedder import piece_vectors, word_pieces
from recollect.read.fuse import logit
from recollect.read.question import QuestionAnalysis
from recollect.read.rank import SearchCandidate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


MODEL_FILE = Path(__file__).with_name("prefer_newest.npz")
# Features are clipped at this many deviations from their mean, so that an unusual pair is judged like a usual one.
MAX_DEVIATIONS = 4.0


@frozen_dataclass
class NewestModel:
    """Weights of word vectors in three roles, and a network with one hidden layer over standardised features."""

    words: Floats
    mean: Floats
    deviation: Floats
    hidden: Floats
    hidden_bias: Floats
    output: Floats
    output_bias: Floats

    def odds(self, features: Floats) -> Floats:
        """Return the log-odds of each row of features."""
        inputs = np.clip((features - self.mean) / self.deviation, -MAX_DEVIATIONS, MAX_DEVIATIONS)
        rows: Floats = np.maximum(inputs @ self.hidden + self.hidden_bias, 0) @ self.output + self.output_bias
        return rows


@cache
def newest_model() -> NewestModel:
    """Return the model that comes with the package."""
    return load_newest_model(MODEL_FILE)


def load_newest_model(path: Path) -> NewestModel:
    """Read a model file."""
    with np.load(path) as stored:
        return NewestModel(**{name: stored[name].astype(np.float32) for name in NewestModel.__dataclass_fields__})


def save_newest_model(path: Path, model: NewestModel) -> None:
    """Write a model file."""
    arrays = {name: getattr(model, name).astype(np.float16) for name in NewestModel.__dataclass_fields__}
    np.savez_compressed(path, **arrays)


# Features of one candidate, once for the older and once for the newer of a pair.
OWN_FEATURES = (
    "relevance", "coverage", "meaning", "length", "asks", "is_turn", "by_assistant", "place", "asked",
    "has_rare", "names", "numbers", "newer_shown",
)  # fmt: skip
QUESTION_FEATURES = ("asks_value", "of_the_present", "personal", "shown", "asked_terms")
SHARED_FEATURES = (
    "alike", "closer", "older_alike", "newer_alike", "days", "next_turn", "shared", "shared_of_shorter",
    "shared_of_all", "older_only", "newer_only", "asked_in_both", "older_words", "newer_words", "numbers_in_both",
    "words",
)  # fmt: skip
PAIR_FEATURES = (
    *(f"older_{name}" for name in OWN_FEATURES), *(f"newer_{name}" for name in OWN_FEATURES),
    *QUESTION_FEATURES, *SHARED_FEATURES,
)  # fmt: skip
WORD_ODDS_INDEX = PAIR_FEATURES.index("words")

MAX_CHARS = 400
# Scaled by `Calibration`: texts less similar than this are about different things.
MIN_SIMILARITY = 0.6
# Only the first hits are worth replacing; statements outside the result may only replace the very first.
MAX_OLDER, MAX_OLDER_OF_LATER = 2, 1
_NEXT_TURNS = 2
# More than any two texts are alike.
_ITSELF = 1_000
_DAY_S, _SHORTEST_DAYS = 86_400.0, 1e-4
_SUMMARIES = frozenset({Category.EPISODE, Category.SUMMARY})


@frozen_dataclass
class PairStatement:
    """One text as pairs are compared: its words and search terms, which are numbers, and whether it asks."""

    words: frozenset[str]
    terms: frozenset[str]
    numbers: frozenset[str]
    length: float
    asks: bool
    # What its words add as the older and as the newer of a pair.
    as_older: float
    as_newer: float


@frozen_dataclass
class PairTable:
    """Places (older, newer) of the pairs, the one with the newest statement last, and a row of features for each."""

    pairs: list[tuple[int, int]]
    features: Floats


def parse_statement(text: str) -> PairStatement:
    """Return the words and terms of the first part of a text."""
    return _parse_statement(text[:MAX_CHARS])


@erasable_cache(4_096)
def _parse_statement(text: str) -> PairStatement:
    terms = frozenset(terms_of(text)) - {"user"}
    words = frozenset(word for word in tokenize(text) if word[0].isalnum())
    as_older = as_newer = 0.0
    for word in words:
        older, newer, _ = _word_weights(word)
        as_older += older
        as_newer += newer
    return PairStatement(
        words=words,
        terms=terms,
        numbers=frozenset(term for term in terms if term[0].isdigit()),
        length=math.log1p(text.count(" ")) - 2.0,
        asks="?" in text or "？" in text,
        as_older=as_older,
        as_newer=as_newer,
    )


def age_key(candidate: SearchCandidate) -> tuple[float, bool, int]:
    """Return a key that sorts by when it was stated, which need not be when what it states happens.

    A learned statement is as old as the turn it was learned from and sorts before that turn.
    """
    record = candidate.record
    return (record.created_at.timestamp(), record.category is Category.TURN, candidate.row)


def compare_pairs(
    candidates: Sequence[SearchCandidate], similarity: Floats, question: QuestionAnalysis, *, result_count: int
) -> PairTable:
    """Return the pairs in which a newer statement comes after an older one that it might replace.

    `similarity` has the cosines of all pairs, scaled by `Calibration`. The first `result_count` candidates are those
    of the result; the others can only be the newer of a pair.
    """
    # For so few candidates plain loops are faster than arrays.
    ages = [age_key(each) for each in candidates]
    similarities: list[list[float]] = similarity.tolist()
    pairs = [
        (ages[newer], older, newer)
        for older in range(min(result_count, MAX_OLDER))
        for newer in range(older + 1, len(candidates) if older < MAX_OLDER_OF_LATER else result_count)
        if similarities[older][newer] >= MIN_SIMILARITY and ages[older] < ages[newer]
        if _may_compete(candidates[older].record, candidates[newer].record)
    ]
    if not pairs:
        return PairTable([], np.empty((0, len(PAIR_FEATURES)), np.float32))
    pairs.sort()
    question_terms = frozenset(query_terms(question.text))
    in_pairs = sorted({at for _, *pair in pairs for at in pair})
    statements = {at: parse_statement(candidates[at].record.content) for at in in_pairs}
    own = _own_features(candidates, statements, question, question_terms, ages, result_count)
    question_features = (
        question.asks_when or question.asks_count,
        question.is_about_present,
        question.is_personal,
        result_count,
        len(question_terms),
    )
    other_similarity = similarity - np.eye(len(candidates), dtype=np.float32) * _ITSELF
    nearest: list[float] = other_similarity.max(1).tolist()
    closer: list[list[int]] = (
        (other_similarity[:MAX_OLDER, None, :] > other_similarity[:MAX_OLDER, :, None]).sum(2).tolist()
    )
    rows = []
    for _, older, newer in pairs:
        value = similarities[older][newer]
        closeness = (value, closer[older][newer], nearest[older] - value, nearest[newer] - value)
        shared = _shared_features(statements[older], statements[newer], question_terms)
        days = (ages[newer][0] - ages[older][0]) / _DAY_S
        when = (
            # Of the same moment: when they were said is not known.
            math.log10(max(days, _SHORTEST_DAYS)) if days else 0.0,
            _is_next_turn(candidates[older].record, candidates[newer].record),
        )
        rows.append((*own[older], *own[newer], *question_features, *closeness, *when, *shared))
    return PairTable([(older, newer) for _, older, newer in pairs], np.array(rows, np.float32))


def _may_compete(older: MemoryRecord, newer: MemoryRecord) -> bool:
    """Return False for summaries, a turn and what was learned from it, other speakers and other projects.

    An assistant never replaces a user's words; a user may correct an assistant.
    """
    if older.category in _SUMMARIES or newer.category in _SUMMARIES:
        return False
    if newer.detail.get("role") == "assistant" or older.detail.get("name") != newer.detail.get("name"):
        return False
    if older.scope.project != newer.scope.project:
        return False
    return newer.id not in older.evidence and older.id not in newer.evidence


def _own_features(
    candidates: Sequence[SearchCandidate],
    statements: Mapping[int, PairStatement],
    question: QuestionAnalysis,
    question_terms: frozenset[str],
    ages: Sequence[tuple[float, bool, int]],
    result_count: int,
) -> dict[int, tuple[float, ...]]:
    """Return the features of each candidate in a pair, by its index, in the order of OWN_FEATURES."""
    question_terms_in = {at: question_terms & each.terms for at, each in statements.items()}
    counts = Counter(term for terms in question_terms_in.values() for term in terms)
    # The question's term that fewest candidates have tells look-alikes apart.
    rare = min(sorted(counts), key=counts.__getitem__, default="")
    names = frozenset(term for name in question.names for term in terms_of(name))
    share = 1 / max(len(question_terms), 1)
    by_age = sorted(ages[:result_count])
    rows: dict[int, tuple[float, ...]] = {}
    for at, statement in statements.items():
        each = candidates[at]
        parts, record = each.parts, each.record
        rows[at] = (
            logit(each.relevance), parts["coverage"], parts["semantic"], statement.length, statement.asks,
            record.category is Category.TURN, record.detail.get("role") == "assistant", at,
            len(question_terms_in[at]) * share, rare in statement.terms, len(names & statement.terms),
            len(statement.numbers), result_count - bisect_right(by_age, ages[at]),
        )  # fmt: skip
    return rows


def _shared_features(older: PairStatement, newer: PairStatement, question_terms: frozenset[str]) -> tuple[float, ...]:
    """Return what the terms of two statements have in common, and what the words of the pair add."""
    shared, words = older.terms & newer.terms, older.words & newer.words
    odds = older.as_older + newer.as_newer
    for word in words:
        as_older, as_newer, in_both = _word_weights(word)
        odds += in_both - as_older - as_newer
    all_words = len(older.words) + len(newer.words) - len(words)
    count, old_count, new_count = len(shared), len(older.terms), len(newer.terms)
    return (
        count,
        count / max(min(old_count, new_count), 1),
        count / max(old_count + new_count - count, 1),
        old_count - count,
        new_count - count,
        len(shared & question_terms),
        len(older.terms - shared - question_terms - older.numbers),
        len(newer.terms - shared - question_terms - newer.numbers),
        len(older.numbers & newer.numbers),
        odds / math.sqrt(all_words or 1),
    )


def _is_next_turn(older: MemoryRecord, newer: MemoryRecord) -> bool:
    """Return whether the second was said right after the first, in the same session."""
    if not older.scope.session or older.scope.session != newer.scope.session:
        return False
    before, after = older.detail.get("position"), newer.detail.get("position")
    return isinstance(before, int) and isinstance(after, int) and 0 < after - before <= _NEXT_TURNS


@erasable_cache(16_384)
def _word_weights(word: str) -> tuple[float, float, float]:
    """Return what a word adds where the older, the newer or both statements of a pair have it."""
    older, newer, both = (piece_vectors(word_pieces(word)) @ newest_model().words).mean(0).tolist()
    return older, newer, both
