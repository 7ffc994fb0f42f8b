"""Full-text search by BM25, with caches of the lengths of a user's memories and of posting lists."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.sql.tx import Postings, Tx, fetch_one
from recollect.ledger.sql.user_cache import MAX_CACHE_BYTES, USER_BYTES, PerUserCache
from recollect.ledger.tokenizer import K1, B, query_terms, spelling_terms, terms_of
from recollect.ledger.types import LexicalMatches, Revision
from recollect.model.scope import Scope

# What a word costs besides its rows.
_WORD_BYTES = 512
# With more new rows or characters than this, posting lists are read again instead of being extended.
_MAX_NEW_ROWS = 64
_MAX_NEW_CHARS = 16_000


@frozen_dataclass
class DocLengths:
    """Rows in ascending order and their numbers of terms, as of a revision; immutable."""

    revision: Revision = field(default_factory=Revision)
    rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    counts: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    total: int = 0

    @property
    def average(self) -> float:
        """The average length of a memory."""
        return self.total / len(self.rows) if self.total else 1.0

    @property
    def size(self) -> int:
        """The bytes it takes."""
        return self.rows.nbytes + self.counts.nbytes + USER_BYTES

    def updated(self, revision: Revision, rows: NDArray[np.int64], counts: NDArray[np.int32]) -> DocLengths:
        """Return the lengths with changed rows replaced and new ones appended."""
        last = self.rows[-1] if len(self.rows) else -1
        new = rows > last
        at = np.searchsorted(self.rows, rows[~new])
        total = self.total - int(self.counts[at].sum()) + int(counts.sum())
        merged = self.counts.copy()
        merged[at] = counts[~new]
        return DocLengths(
            revision, np.concatenate([self.rows, rows[new]]), np.concatenate([merged, counts[new]]), total
        )


class DocLengthCache(PerUserCache[DocLengths]):
    """The lengths of the memories of the users searched last; those of the last one stay, however large."""

    def __init__(self, max_bytes: int = MAX_CACHE_BYTES) -> None:
        super().__init__(max_bytes, min_users=1)

    def term_count(self, user: str) -> int | None:
        """Return how many terms the user's memories had at the last search, if it is cached."""
        with self._lock:
            cached = self._users.get(user)
        return None if cached is None else cached.total

    async def get(self, tx: Tx, user: str, current: Revision) -> DocLengths:
        """Return the user's lengths at the revision that this transaction sees."""
        with self._lock:
            cached = self._users.get(user, DocLengths())
            if user in self._users:
                self._users.move_to_end(user)
        if cached.revision == current:
            return cached
        # Rows were erased, or another reader is ahead of this transaction's view: start over.
        if cached.revision.epoch != current.epoch or cached.revision.number > current.number:
            cached = DocLengths()
        changed = await tx.rows(
            "SELECT row, term_count FROM memories WHERE user_id = :user AND revision > :after ORDER BY row",
            {"user": user, "after": cached.revision.number},
        )
        rows = np.fromiter((row[0] for row in changed), np.int64, len(changed))
        counts = np.fromiter((row[1] for row in changed), np.int32, len(changed))
        cached = cached.updated(current, rows, counts)
        with self._lock:
            self._put(user, cached)
        return cached


def index_word(number: int, term: str) -> str:
    """Return a term as it is indexed: prefixed by its user's number, so that each list is of one user."""
    return f"{number}x{term}"


@frozen_dataclass(kw_only=True)
class PostingQuery:
    """The terms of a search, and the state of the user's memories that the transaction sees."""

    user: str
    number: int
    terms: Sequence[str]
    revision: Revision
    last_row: int


@dataclass(slots=True)
class _UserPostings:
    """The posting lists of one user as of a revision, and the terms of rows that were added since."""

    revision: Revision
    last_row: int = 0
    words: dict[str, Postings] = field(default_factory=dict)
    # The last row that existed when the list of a word was read.
    upto: dict[str, int] = field(default_factory=dict)
    new: dict[int, Counter[str]] = field(default_factory=dict)
    size: int = 0

    def add(self, term: str, postings: Postings) -> None:
        """Add the list of a word."""
        self.words[term], self.upto[term] = postings, self.last_row
        self.size += _WORD_BYTES + postings[0].nbytes + postings[1].nbytes

    def for_term(self, term: str) -> Postings:
        rows, times = self.words[term]
        upto = self.upto[term]
        late = [(row, counts[term]) for row, counts in self.new.items() if row > upto and term in counts]
        if not late:
            return rows, times
        more = np.array(late, np.int64)
        return np.concatenate((rows, more[:, 0])), np.concatenate((times, more[:, 1]))


class PostingCache(PerUserCache[_UserPostings]):
    """The posting lists of the terms searched last."""

    async def get(self, tx: Tx, query: PostingQuery) -> list[Postings]:
        """Return, for each term, the rows it occurs in, ascending, and how often, as this transaction sees them."""
        # Taken out while it is extended: another reader of the same user starts over meanwhile.
        with self._lock:
            cached, drops = self._pop(query.user), self._drops
        if cached is None or not await _extend(tx, cached, query):
            cached = _UserPostings(query.revision, query.last_row)
        unknown = [term for term in query.terms if term not in cached.words]
        if unknown:
            read = await tx.dialect.terms.postings(tx, [index_word(query.number, term) for term in unknown])
            for term, postings in zip(unknown, read, strict=True):
                cached.add(term, postings)
        result = [cached.for_term(term) for term in query.terms]
        with self._lock:
            # Not put back if anyone was erased while it was read.
            if drops == self._drops:
                self._put(query.user, cached)
        return result


async def _extend(tx: Tx, cached: _UserPostings, query: PostingQuery) -> bool:
    """Add the rows that came since; return False if more than that has changed."""
    revision = query.revision
    if cached.revision == revision:
        return True
    if cached.revision.epoch != revision.epoch or cached.revision.number > revision.number:
        return False
    changed = await tx.rows(
        "SELECT row, content FROM memories WHERE user_id = :user AND revision > :after ORDER BY row LIMIT :most",
        {"user": query.user, "after": cached.revision.number, "most": _MAX_NEW_ROWS + 1},
    )
    # The text of an old row may have changed.
    if len(cached.new) + len(changed) > _MAX_NEW_ROWS or (changed and changed[0][0] <= cached.last_row):
        return False
    if sum(len(content) for _, content in changed) > _MAX_NEW_CHARS:
        return False
    cached.new |= {row: Counter(terms_of(content)) for row, content in changed}
    cached.revision, cached.last_row = revision, query.last_row
    return True


def index_words(number: int, content: str) -> str:
    """Return the words under which a text is indexed, separated by spaces."""
    return " ".join(map(f"{number}x".__add__, terms_of(content)))


def count_words(words: str) -> int:
    """Return the number of words that `index_words` returned."""
    return words.count(" ") + 1 if words else 0


async def lexical(
    tx: Tx, length_cache: DocLengthCache, posting_cache: PostingCache, scope: Scope, text: str
) -> LexicalMatches:
    """Return every row of the user that shares a term with the text, scored by BM25 over the user's memories."""
    terms = query_terms(text)
    user = await fetch_one(
        tx, "SELECT number, revision, epoch FROM users WHERE user_id = :user", {"user": scope.user}
    )
    if user is None or not terms:
        empty = np.empty(0, np.float32)
        return LexicalMatches(np.empty(0, np.int64), empty, empty, frozenset(terms), 1.0 if terms else 0.0)
    number, revision = user[0], Revision(*user[1:])
    doc_lengths = await length_cache.get(tx, scope.user, revision)
    last_row = int(doc_lengths.rows[-1]) if len(doc_lengths.rows) else 0
    query = PostingQuery(user=scope.user, number=number, terms=terms, revision=revision, last_row=last_row)
    return bm25(terms, doc_lengths, await posting_cache.get(tx, query), optional=spelling_terms(text))


def bm25(
    terms: Sequence[str], doc_lengths: DocLengths, postings: Sequence[Postings], *, optional: Collection[str] = ()
) -> LexicalMatches:
    """Score the rows that have one of the terms, given the posting list of each term.

    An optional term that no row has is left out.
    """
    count = len(doc_lengths.rows)
    total, missing, missing_weight = 0.0, set[str](), 0.0
    matching: list[Postings] = []
    rarities: list[float] = []
    for term, (rows, times) in zip(terms, postings, strict=True):
        if not len(rows) and term in optional:
            continue
        rarity = math.log(1 + (count - len(rows) + 0.5) / (len(rows) + 0.5))
        total += rarity
        if len(rows):
            matching.append((rows, times))
            rarities.append(rarity)
        else:
            missing.add(term)
            missing_weight += rarity
    total = total or 1.0
    if not matching:
        empty = np.empty(0, np.float32)
        return LexicalMatches(np.empty(0, np.int64), empty, empty, frozenset(missing), missing_weight / total)
    # All lists at once: for each of them apart it takes several times as long.
    at = np.searchsorted(doc_lengths.rows, np.concatenate([rows for rows, _ in matching]))
    all_times = np.concatenate([times for _, times in matching])
    weights = np.repeat(rarities, [len(rows) for rows, _ in matching])
    norms = K1 * (1 - B + B / doc_lengths.average * doc_lengths.counts[at])
    scores = np.bincount(at, weights * all_times / (all_times + norms), count)
    covered = np.bincount(at, weights, count)
    matched = np.flatnonzero(scores)
    return LexicalMatches(
        doc_lengths.rows[matched],
        np.minimum(scores[matched] / total, 1.0).astype(np.float32),
        np.minimum(covered[matched] / total, 1.0).astype(np.float32),
        frozenset(missing),
        missing_weight / total,
    )
