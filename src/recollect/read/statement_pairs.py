"""Signals of two statements, of which the newer may replace the older: same subject and attribute, another value.

Everything is computed for all pairs of a few candidates at once: a table of each candidate's own signals, matrices of
what two candidates share, and the words of a pair, weighted by whether the older, the newer or both have them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np

from recollect.ledger.terms import query_terms, terms_of
from recollect.model.at_hand import at_hand
from recollect.model.memory import Category
from recollect.models.linear_text import tokenize
from recollect.read.candidate import Candidate
from recollect.read.fuse import logit
from recollect.read.newest_model import newest_model
from recollect.read.question import Question

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Places = NDArray[np.int64]

# Signals of one candidate, once for the older and once for the newer of a pair.
OWN_SIGNALS = (
    "relevance", "coverage", "meaning", "length", "asks", "is_turn", "by_assistant", "place", "asked",
    "has_rare", "names", "numbers", "newer_shown",
)  # fmt: skip
QUESTION_SIGNALS = ("asks_value", "of_the_present", "personal", "shown", "asked_terms")
SHARED_SIGNALS = (
    "alike", "closer", "older_alike", "newer_alike", "shared", "shared_of_shorter", "shared_of_all", "older_only",
    "newer_only", "asked_in_both", "new_terms", "numbers_in_both", "days", "next_turn", "words",
)  # fmt: skip
PAIR_SIGNALS = (
    *(f"older_{name}" for name in OWN_SIGNALS), *(f"newer_{name}" for name in OWN_SIGNALS),
    *QUESTION_SIGNALS, *SHARED_SIGNALS,
)  # fmt: skip
WORD_ODDS = PAIR_SIGNALS.index("words")

MAX_CHARS = 400
# On the scale of `Ruler`: texts less alike than this are about different things.
MIN_ALIKE = 0.3
# Only what stands among the first hits is worth replacing.
MAX_OLDER = 4
BUCKETS = 4_096
_MIN_GRAM, _MAX_GRAM = 3, 5
# Each role of a word has its own buckets, from one hash of the word.
_ROLE_STEP = 1_361
_NEXT_TURNS = 2
_DAY_S, _SHORTEST_DAYS = 86_400.0, 1e-4
_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Statement:
    """One text as pairs are compared: its words, its search terms, those that are numbers, whether it asks something."""

    words: frozenset[str]
    terms: frozenset[str]
    numbers: frozenset[str]
    length: float
    asks: bool
    # What its words add as the older and as the newer of a pair, and how many n-grams they have.
    as_older: float
    as_newer: float
    grams: int


@dataclass(frozen=True, slots=True)
class PairTable:
    """The pairs of candidates to compare, oldest newer statement first, and one row of signals for each."""

    older: Places
    newer: Places
    signals: Floats


def read_statement(text: str) -> Statement:
    """Return the words and terms of the first part of a text."""
    return _read_statement(text[:MAX_CHARS])


@at_hand(4_096)
def _read_statement(text: str) -> Statement:
    terms = frozenset(terms_of(text)) - {"user"}
    all_words = [word for word in tokenize(text) if _WORD.match(word)]
    words = frozenset(all_words)
    return Statement(
        words=words,
        terms=terms,
        numbers=frozenset(term for term in terms if term[0].isdigit()),
        length=math.log1p(len(all_words)) - 2.0,
        asks="?" in text or "？" in text,
        as_older=sum(_word_weights(word).older for word in words),
        as_newer=sum(_word_weights(word).newer for word in words),
        grams=sum(_word_weights(word).grams for word in words),
    )


def age_of(candidate: Candidate) -> tuple[float, bool, int]:
    """Return a key that sorts by when it was stated, which need not be when what it states happens.

    A learned statement is as old as the turn it was learned from and sorts before that turn.
    """
    record = candidate.record
    return (record.created_at.timestamp(), record.category is Category.TURN, candidate.row)


def compare(candidates: Sequence[Candidate], alike: Floats, question: Question, *, shown: int) -> PairTable:
    """Return the pairs in which a newer statement comes after an older one that it might replace.

    `alike` holds the cosines of all candidates on the scale of `Ruler`. The first `shown` candidates are those of the
    result; the others can only be the newer of a pair.
    """
    ages = [age_of(each) for each in candidates]
    order = np.argsort([rank for _, rank in sorted((age, at) for at, age in enumerate(ages))])
    may_pair = np.triu(alike >= MIN_ALIKE, 1) & (order[:, None] < order[None, :])
    may_pair[min(shown, MAX_OLDER) :] = False
    may_pair &= _may_compete(candidates)
    older, newer = np.nonzero(may_pair)
    if not len(older):
        return PairTable(older, newer, np.empty((0, len(PAIR_SIGNALS)), np.float32))
    by_age = np.lexsort((older, order[newer]))
    older, newer = older[by_age], newer[by_age]
    statements = [read_statement(each.record.content) for each in candidates]
    asked = frozenset(query_terms(question.text))
    own = _own_signals(candidates, statements, question, asked, order, shown)
    shared = _shared_signals(candidates, statements, alike, asked, older, newer)
    about = np.broadcast_to(_question_signals(question, asked, shown), (len(older), len(QUESTION_SIGNALS)))
    return PairTable(older, newer, np.concatenate((own[older], own[newer], about, shared), axis=1))


def _may_compete(candidates: Sequence[Candidate]) -> NDArray[np.bool_]:
    """Return False for summaries, for a turn and what was learned from it, and for what another speaker says.

    An assistant never replaces a user's words; a user may correct an assistant.
    """
    records = [each.record for each in candidates]
    place = {record.id: at for at, record in enumerate(records)}
    states = np.array([record.category not in (Category.EPISODE, Category.SUMMARY) for record in records])
    by_assistant = np.array([record.detail.get("role") == "assistant" for record in records])
    may = states[:, None] & (states & ~by_assistant)[None, :]
    names = [record.detail.get("name") for record in records]
    if any(names):
        may &= np.array([[one == other for other in names] for one in names])
    for at, record in enumerate(records):
        for source in record.evidence:
            if (other := place.get(source)) is not None:
                may[at, other] = may[other, at] = False
    return may


def _own_signals(
    candidates: Sequence[Candidate],
    statements: Sequence[Statement],
    question: Question,
    asked: frozenset[str],
    order: Places,
    shown: int,
) -> Floats:
    counts = {term: sum(term in each.terms for each in statements) for term in sorted(asked)}
    # The question's term that fewest candidates have tells look-alikes apart.
    rare = min((term for term in counts if counts[term]), key=counts.__getitem__, default="")
    names = frozenset(term for name in question.names for term in terms_of(name))
    share = 1 / max(len(asked), 1)
    rows = []
    for at, (each, statement) in enumerate(zip(candidates, statements, strict=True)):
        parts, record = each.parts, each.record
        rows.append(
            (
                logit(each.relevance), parts["coverage"], parts["meaning"], statement.length,
                statement.asks, record.category is Category.TURN,
                record.detail.get("role") == "assistant", at, len(asked & statement.terms) * share,
                rare in statement.terms, len(names & statement.terms), len(statement.numbers), 0.0,
            )
        )  # fmt: skip
    table = np.array(rows, np.float32)
    table[:, -1] = (order[None, :shown] > order[:, None]).sum(1)
    return table


def _question_signals(question: Question, asked: frozenset[str], shown: int) -> Floats:
    asks_value = question.asks_when or question.asks_count
    return np.array((asks_value, question.of_the_present, question.personal, shown, len(asked)), np.float32)


def _shared_signals(
    candidates: Sequence[Candidate],
    statements: Sequence[Statement],
    alike: Floats,
    asked: frozenset[str],
    older: Places,
    newer: Places,
) -> Floats:
    """Return the signals of two candidates together, one row a pair, in the order of SHARED_SIGNALS."""
    counts = np.array(
        [_count_shared(statements[one], statements[other], asked) for one, other in zip(older, newer, strict=True)],
        np.float32,
    )
    shared, asked_both, numbers_both, new, words = counts.T
    sizes = np.array([len(each.terms) for each in statements], np.float32)
    size, new_size = sizes[older], sizes[newer]
    pair_alike = alike[older, newer]
    apart = alike - np.eye(len(candidates), dtype=np.float32) * 9
    nearest = apart.max(1)
    at = np.array([each.record.created_at.timestamp() for each in candidates])
    days = (at[newer] - at[older]) / _DAY_S
    return np.stack(
        (
            pair_alike,
            (apart[older] > pair_alike[:, None]).sum(1),
            nearest[older] - pair_alike,
            nearest[newer] - pair_alike,
            shared,
            shared / np.maximum(np.minimum(size, new_size), 1),
            shared / np.maximum(size + new_size - shared, 1),
            size - shared,
            new_size - shared,
            asked_both,
            new,
            numbers_both,
            # Of the same moment: when they were said is not known.
            np.where(days == 0, 0, np.log10(np.maximum(days, _SHORTEST_DAYS))),
            [_is_next_turn(candidates[one], candidates[other]) for one, other in zip(older, newer, strict=True)],
            words,
        ),
        axis=1,
        dtype=np.float32,
    )


def _count_shared(older: Statement, newer: Statement, asked: frozenset[str]) -> tuple[float, ...]:
    """Return how many terms both have, asked terms, numbers and new terms, and what the words of the pair add."""
    shared, words = older.terms & newer.terms, older.words & newer.words
    odds, grams = older.as_older + newer.as_newer, older.grams + newer.grams
    for word in words:
        weights = _word_weights(word)
        odds += weights.both - weights.older - weights.newer
        grams -= weights.grams
    return (
        len(shared),
        len(shared & asked),
        len(older.numbers & newer.numbers),
        len(newer.terms - shared - asked),
        odds / math.sqrt(grams or 1),
    )


def _is_next_turn(older: Candidate, newer: Candidate) -> bool:
    """Return whether the second was said right after the first, in the same session."""
    one, other = older.record, newer.record
    if one.scope.session is None or one.scope.session != other.scope.session:
        return False
    before, after = one.detail.get("position"), other.detail.get("position")
    return isinstance(before, int) and isinstance(after, int) and 0 < after - before <= _NEXT_TURNS


class WordWeights(NamedTuple):
    """What a word adds where the older, the newer or both statements of a pair have it; its number of n-grams."""

    older: float
    newer: float
    both: float
    grams: int


@at_hand(16_384)
def _word_weights(word: str) -> WordWeights:
    buckets, weights = word_buckets(word), newest_model().words
    older, newer, both = (float(weights[(buckets + role * _ROLE_STEP) % BUCKETS].sum()) for role in range(3))
    return WordWeights(older, newer, both, len(buckets))


def pair_buckets(older: Statement, newer: Statement) -> list[int]:
    """Return the buckets of a pair's words, as often as they occur: what training counts and `_count_shared` adds up."""
    roles = (older.words - newer.words, newer.words - older.words, older.words & newer.words)
    return [
        int(bucket)
        for role, words in enumerate(roles)
        for word in sorted(words)
        for bucket in (word_buckets(word) + role * _ROLE_STEP) % BUCKETS
    ]


def word_buckets(word: str) -> NDArray[np.int64]:
    """Return the buckets of a word and its character n-grams."""
    padded = f"\x02{word}\x03"
    grams = [
        padded[start : start + size]
        for size in range(_MIN_GRAM, _MAX_GRAM + 1)
        for start in range(len(padded) - size + 1)
    ]
    return np.array([crc32(gram.encode("utf-8", "replace")) % BUCKETS for gram in (word, *grams)], np.int64)
