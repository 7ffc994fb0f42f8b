"""Decide whether a newer statement replaces an older one: same subject and attribute, another value or state.

A logistic model over the words of the pair (hashed, by whether the older, the newer or both have them) and some
thirty named signals of the pair, the question and the other candidates. `evals/train_newest.py` trains it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from recollect.ledger.terms import query_terms, terms_of
from recollect.model.at_hand import at_hand
from recollect.model.memory import Category
from recollect.models.linear_text import LinearTextModel, load_model, tokenize
from recollect.read.candidate import Candidate
from recollect.read.fuse import logit
from recollect.read.question import Question

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

MODEL_FILE = Path(__file__).with_name("prefer_newest.npz")

# Signals of the two texts alone come first: they are also trained on pairs without a question.
TEXT_SIGNALS = (
    "alike", "shared_of_shorter", "shared_of_all", "shared", "older_only", "newer_only", "other_number",
    "number_gone", "older_asks", "newer_asks", "older_length", "newer_length",
)  # fmt: skip
PAIR_SIGNALS = (
    *TEXT_SIGNALS,
    "relevance_gap", "asked_in_older", "asked_in_newer", "asked_in_both", "coverage", "coverage_kept",
    "meaning", "meaning_gained", "value_asked", "value_asked_other", "present_asked", "older_by_assistant", "places",
    "older_is_turn", "newer_is_turn", "closer", "similar_short", "parallel_short", "rare_in_older", "rare_in_newer",
    "rare_in_both", "name_gained", "short", "long_other_number",
    "new_words_short", "number_and_words", "number_alone", "subject_replaced",
)  # fmt: skip

MAX_CHARS = 400
# A wrong move puts a wrong answer first, a missed one leaves the order as relevance has it.
MIN_ODDS = 0.65
# The words of a pair add or take away at most this.
MAX_WORD_ODDS = 2.0
# Statements longer than this come with other matter.
_SHORT_CHARS = 110
# On the scale of `Ruler`: texts less alike than the first are about different things.
MIN_ALIKE, _SIMILAR = 0.6, 1.4
# A statement that ranks so much lower is hardly ever a newer version.
MAX_PLACES = 4
_MIN_GRAM, _MAX_GRAM = 3, 5
# Each role of a word has its own buckets, from one hash of the word.
_ROLE_STEP = 1_361
BUCKETS = 4_096
_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Statement:
    """One text as the pair model sees it."""

    words: frozenset[str]
    terms: frozenset[str]
    numbers: frozenset[str]
    length: float
    is_short: bool
    asks: bool


@dataclass(frozen=True, slots=True)
class StatementPair:
    """Places of an older and a newer candidate, how alike they are, and the signals of the pair."""

    older: int
    newer: int
    signals: tuple[float, ...]


def read_statement(text: str) -> Statement:
    """Return the words and terms of the first part of a text."""
    return _read_statement(text[:MAX_CHARS], len(text) < _SHORT_CHARS)


@at_hand(4_096)
def _read_statement(text: str, is_short: bool) -> Statement:
    terms = frozenset(terms_of(text)) - {"user"}
    words = [word for word in tokenize(text) if _WORD.match(word)]
    return Statement(
        words=frozenset(words),
        terms=terms,
        numbers=frozenset(term for term in terms if term[0].isdigit()),
        length=math.log1p(len(words)) - 2.0,
        is_short=is_short,
        asks="?" in text or "？" in text,
    )


def text_signals(older: Statement, newer: Statement, alike: float) -> tuple[float, ...]:
    """Return the signals in the order of TEXT_SIGNALS."""
    shared = len(older.terms & newer.terms)
    smaller = min(len(older.terms), len(newer.terms))
    return (
        alike,
        shared / max(smaller, 1),
        shared / max(len(older.terms) + len(newer.terms) - shared, 1),
        min(shared, 4) / 4,
        min(len(older.terms) - shared, 8) / 8,
        min(len(newer.terms) - shared, 8) / 8,
        bool(older.numbers) and bool(newer.numbers) and older.numbers.isdisjoint(newer.numbers),
        bool(older.numbers) and not newer.numbers,
        older.asks,
        newer.asks,
        older.length,
        newer.length,
    )


def find_pairs(candidates: Sequence[Candidate], alike: Floats, question: Question) -> list[StatementPair]:
    """Return the pairs in which a newer statement ranks below an older one that it might replace.

    `alike` holds the cosines of all candidates on the scale of `Ruler`. Pairs come in the order of the newer, so that
    of three statements the newest ends up first.
    """
    above = np.triu(alike >= MIN_ALIKE, 1)
    close = np.argwhere(np.tril(above, MAX_PLACES)).tolist()
    ages = [age_of(each) for each in candidates] if close else []
    close = [pair for pair in close if ages[pair[0]] < ages[pair[1]] and _may_compete(candidates, *pair)]
    if not close:
        return []
    pool = _Pool(candidates, alike, question)
    close.sort(key=lambda pair: (ages[pair[1]], pair[0]))
    return [StatementPair(older, newer, pool.signals(older, newer)) for older, newer in close]


def age_of(candidate: Candidate) -> tuple[object, bool, int]:
    """Return a key that sorts by when it was stated, which need not be when what it states happens.

    A learned statement is as old as the turn it was learned from and sorts before that turn.
    """
    record = candidate.record
    return (record.created_at, record.category is Category.TURN, candidate.row)


def _may_compete(candidates: Sequence[Candidate], older: int, newer: int) -> bool:
    """Return False for summaries, for a turn and what was learned from it, and for what another speaker says.

    An assistant never replaces a user's words; a user may correct an assistant.
    """
    first, second = candidates[older].record, candidates[newer].record
    if any(each.category in (Category.EPISODE, Category.SUMMARY) for each in (first, second)):
        return False
    if second.detail.get("role") == "assistant" or first.detail.get("name") != second.detail.get("name"):
        return False
    return second.id not in first.evidence and first.id not in second.evidence


class _Pool:
    """The candidates of one question, and which of its terms each of them has."""

    def __init__(self, candidates: Sequence[Candidate], alike: Floats, question: Question) -> None:
        self._candidates = candidates
        self._alike: list[list[float]] = alike.tolist()
        self._question = question
        self._statements = [read_statement(each.record.content) for each in candidates]
        self._asked = frozenset(query_terms(question.text))
        self._names = frozenset(term for name in question.names for term in terms_of(name))
        counts = {term: sum(term in each.terms for each in self._statements) for term in sorted(self._asked)}
        present = [term for term in counts if counts[term]]
        # The question's term that fewest candidates have tells look-alikes apart.
        self._rare = min(present, key=counts.__getitem__, default="")

    def signals(self, older: int, newer: int) -> tuple[float, ...]:
        """Return the signals of a pair in the order of PAIR_SIGNALS."""
        a, b = self._candidates[older], self._candidates[newer]
        first, second = self._statements[older], self._statements[newer]
        question, asked = self._question, max(len(self._asked), 1)
        in_older, in_newer = self._asked & first.terms, self._asked & second.terms
        both = len(in_older & in_newer)
        alike = self._alike[older]
        others = [at for at in range(len(self._candidates)) if at != older and at != newer]
        shared = first.terms & second.terms
        is_short = first.is_short and second.is_short
        asks_value = question.asks_when or question.asks_count
        other_number = bool(first.numbers) and bool(second.numbers - first.numbers)
        changes_number = other_number and first.numbers.isdisjoint(second.numbers)
        new_words = second.terms - first.terms - second.numbers - self._asked
        rare = (self._rare in first.terms, self._rare in second.terms)
        return (
            *text_signals(first, second, alike[newer]),
            logit(a.relevance) - logit(b.relevance),
            (len(in_older) - both) / asked,
            (len(in_newer) - both) / asked,
            both / asked,
            b.parts["coverage"],
            min(b.parts["coverage"] / max(a.parts["coverage"], 0.05), 1.5),
            b.parts["meaning"],
            b.parts["meaning"] - a.parts["meaning"],
            asks_value,
            asks_value and other_number,
            question.of_the_present,
            a.record.detail.get("role") == "assistant",
            newer - older,
            a.record.category is Category.TURN,
            b.record.category is Category.TURN,
            sum(alike[at] > alike[newer] for at in others) / 4,
            is_short and min(sum(alike[at] >= _SIMILAR for at in others), 4) / 4,
            is_short and min(sum(shared <= self._statements[at].terms for at in others), 4) / 4,
            rare == (True, False),
            rare == (False, True),
            rare == (True, True),
            len(self._names & second.terms) - len(self._names & first.terms),
            is_short,
            other_number and not is_short,
            is_short and min(len(new_words), 6) / 6,
            is_short and changes_number and min(len(new_words), 3) / 3,
            is_short and changes_number and not new_words,
            is_short and len(in_older) > both and bool(new_words),
        )


def replacing_pairs(candidates: Sequence[Candidate], alike: Floats, question: Question) -> list[tuple[int, int]]:
    """Return the places (older, newer) of the pairs whose newer statement replaces the older one."""
    pairs = find_pairs(candidates, alike, question)
    if not pairs:
        return []
    model = _model()
    odds = np.array([pair.signals for pair in pairs], np.float32) @ model.dense[:, 0] + model.bias[0]
    return [
        (pair.older, pair.newer)
        for value, pair in zip(odds.tolist(), pairs, strict=True)
        # Most pairs are decided before their words are looked at.
        if value > MIN_ODDS - MAX_WORD_ODDS
        and value + _word_odds(candidates[pair.older], candidates[pair.newer]) > MIN_ODDS
    ]


def _word_odds(older: Candidate, newer: Candidate) -> float:
    first = read_statement(older.record.content).words
    second = read_statement(newer.record.content).words
    total, count = 0.0, 0
    for role, words in enumerate((first - second, second - first, first & second)):
        for word in words:
            weights, grams = _word_weights(word)
            total += weights[role]
            count += grams
    return max(-MAX_WORD_ODDS, min(total / math.sqrt(count), MAX_WORD_ODDS)) if count else 0.0


@at_hand(16_384)
def _word_weights(word: str) -> tuple[tuple[float, ...], int]:
    """Return what a word adds for each role, and of how many n-grams that is the sum."""
    buckets = word_buckets(word)
    sparse = _model().sparse[:, 0]
    return tuple(float(sparse[(buckets + role * _ROLE_STEP) % BUCKETS].sum()) for role in range(3)), len(buckets)


def pair_buckets(older: Statement, newer: Statement) -> list[int]:
    """Return the buckets of a pair's words, as often as they occur: what training counts and `_word_odds` adds up."""
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


@cache
def _model() -> LinearTextModel:
    return load_model(MODEL_FILE)
