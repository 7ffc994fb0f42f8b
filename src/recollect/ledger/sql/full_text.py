"""How long each memory of a user is, in terms: BM25 asks it of every row, so it is kept at hand."""

from __future__ import annotations

import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from recollect.ledger.protocol import LexicalMatches, Revision
from recollect.ledger.sql.tx import Postings, SqlEngine, Tx, fetch_one
from recollect.ledger.tokenizer import K1, B, query_terms, terms_of
from recollect.model.scope import Scope

if TYPE_CHECKING:
    from numpy.typing import NDArray


MAX_LENGTH_BYTES = 64 << 20
# What a user costs besides the arrays; generous, so that many with few memories are not taken for free.
_USER_BYTES = 1024


@dataclass(frozen=True, slots=True)
class DocLengths:
    """Rows in rising order and their lengths, as of a revision; never changed, only replaced."""

    revision: Revision = field(default_factory=Revision)
    rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    counts: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    total: int = 0

    @property
    def average(self) -> float:
        """The length of a memory like the others."""
        return self.total / len(self.rows) if self.total else 1.0

    @property
    def size(self) -> int:
        """Bytes it takes."""
        return self.rows.nbytes + self.counts.nbytes + _USER_BYTES

    def updated(self, revision: Revision, rows: NDArray[np.int64], counts: NDArray[np.int32]) -> DocLengths:
        """With what changed since: new rows at the end, others in place."""
        last = self.rows[-1] if len(self.rows) else -1
        new = rows > last
        at = np.searchsorted(self.rows, rows[~new])
        total = self.total - int(self.counts[at].sum()) + int(counts.sum())
        merged = self.counts.copy()
        merged[at] = counts[~new]
        return DocLengths(
            revision, np.concatenate([self.rows, rows[new]]), np.concatenate([merged, counts[new]]), total
        )


class DocLengthCache:
    """The lengths of the users searched last, within a budget; readers in several threads share it."""

    def __init__(self, max_bytes: int = MAX_LENGTH_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._users: OrderedDict[str, DocLengths] = OrderedDict()
        self._lock = threading.Lock()

    def count(self, user: str) -> int | None:
        """How many rows the user had when last looked at."""
        with self._lock:
            cached = self._users.get(user)
        return None if cached is None else len(cached.rows)

    async def get(self, tx: Tx, user: str, current: Revision) -> DocLengths:
        """The user's lengths as this transaction sees them, at the revision it sees."""
        cached = self._cached(user)
        if cached.revision == current:
            return cached
        # Rows were erased, or another reader is ahead of this transaction's view: begin anew.
        if cached.revision.epoch != current.epoch or cached.revision.number > current.number:
            cached = DocLengths()
        changed = await tx.rows(
            "SELECT row, term_count FROM memories WHERE user_id = :user AND revision > :after ORDER BY row",
            {"user": user, "after": cached.revision.number},
        )
        rows = np.fromiter((row[0] for row in changed), np.int64, len(changed))
        counts = np.fromiter((row[1] for row in changed), np.int32, len(changed))
        cached = cached.updated(current, rows, counts)
        self._store(user, cached)
        return cached

    def drop(self, user: str) -> None:
        """Let go of a user of whom something was erased."""
        with self._lock:
            if user in self._users:
                self._bytes -= self._users.pop(user).size

    def _cached(self, user: str) -> DocLengths:
        with self._lock:
            if user not in self._users:
                return DocLengths()
            self._users.move_to_end(user)
            return self._users[user]

    def _store(self, user: str, lengths: DocLengths) -> None:
        """Keep it, at the cost of those asked for longest ago; the newest stays, however large."""
        with self._lock:
            if user in self._users:
                self._bytes -= self._users.pop(user).size
            self._users[user] = lengths
            self._bytes += lengths.size
            while self._bytes > self._max_bytes and len(self._users) > 1:
                self._bytes -= self._users.popitem(last=False)[1].size


MAX_POSTING_BYTES = 64 << 20
# What a word costs besides its rows.
_WORD_BYTES = 512
# More new rows than this are not worth looking into one by one: the full text knows them.
_MAX_NEW_ROWS = 64


def index_word(number: int, term: str) -> str:
    """A term as it stands in the index: led by its user's number, so that lists are one user's own."""
    return f"{number}x{term}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostingQuery:
    """Terms of one user, and the state of the user's memories that the transaction sees."""

    user: str
    number: int
    terms: Sequence[str]
    revision: Revision
    last_row: int


@dataclass(slots=True)
class _UserPostings:
    """What is known of one user as of a revision: rows under words, and the words of rows that came since."""

    revision: Revision
    last_row: int = 0
    words: dict[str, Postings] = field(default_factory=dict)
    # The last row that was there when the word was read.
    upto: dict[str, int] = field(default_factory=dict)
    new: dict[int, Counter[str]] = field(default_factory=dict)
    size: int = 0

    def add(self, term: str, postings: Postings) -> None:
        """Remember what the full text says of a word."""
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


class PostingCache:
    """The words asked for last, within a budget; readers in several threads share it."""

    def __init__(self, max_bytes: int = MAX_POSTING_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._users: OrderedDict[str, _UserPostings] = OrderedDict()
        self._drops = 0
        self._lock = threading.Lock()

    async def get(self, tx: Tx, engine: SqlEngine, query: PostingQuery) -> list[Postings]:
        """For each term the rows that say it, rising, and how often, as this transaction sees them."""
        (cached, drops), terms = self._take(query.user), query.terms
        if cached is None or not await _extend(tx, cached, query):
            cached = _UserPostings(query.revision, query.last_row)
        unknown = [term for term in terms if term not in cached.words]
        if unknown:
            read = await engine.terms.postings(tx, [index_word(query.number, term) for term in unknown])
            for term, postings in zip(unknown, read, strict=True):
                cached.add(term, postings)
        result = [cached.for_term(term) for term in terms]
        self._put_back(query.user, cached, drops)
        return result

    def drop(self, user: str) -> int:
        """Let go of a user of whom something was erased; gives how many words were held."""
        with self._lock:
            self._drops += 1
            cached = self._users.pop(user, None)
            self._bytes -= cached.size if cached else 0
            return len(cached.words) if cached else 0

    def _take(self, user: str) -> tuple[_UserPostings | None, int]:
        """Whoever works on what is held has it alone; another reader of the same user begins anew meanwhile."""
        with self._lock:
            cached = self._users.pop(user, None)
            self._bytes -= cached.size if cached else 0
            return cached, self._drops

    def _put_back(self, user: str, cached: _UserPostings, drops: int) -> None:
        with self._lock:
            if drops != self._drops:
                # Someone was erased while we read; who that was is not worth remembering.
                return
            if user in self._users:
                self._bytes -= self._users.pop(user).size
            self._users[user] = cached
            self._bytes += cached.size
            while self._bytes > self._max_bytes and self._users:
                self._bytes -= self._users.popitem(last=False)[1].size


async def _extend(tx: Tx, cached: _UserPostings, query: PostingQuery) -> bool:
    """Take up the rows that came since; False if more happened than that."""
    revision = query.revision
    if cached.revision == revision:
        return True
    if cached.revision.epoch != revision.epoch or cached.revision.number > revision.number:
        return False
    changed = await tx.rows(
        "SELECT row, content FROM memories WHERE user_id = :user AND revision > :after ORDER BY row LIMIT :most",
        {"user": query.user, "after": cached.revision.number, "most": _MAX_NEW_ROWS + 1},
    )
    # An old row may say something else now.
    if len(cached.new) + len(changed) > _MAX_NEW_ROWS or (changed and changed[0][0] <= cached.last_row):
        return False
    cached.new |= {row: Counter(terms_of(content)) for row, content in changed}
    cached.revision, cached.last_row = revision, query.last_row
    return True


def index_words(number: int, content: str) -> str:
    """All that is indexed of a text."""
    return " ".join(index_word(number, term) for term in terms_of(content))


def count_words(words: str) -> int:
    """How many terms there are in what words_of gave."""
    return words.count(" ") + 1 if words else 0


async def lexical(
    tx: Tx, engine: SqlEngine, length_cache: DocLengthCache, posting_cache: PostingCache, scope: Scope, text: str
) -> LexicalMatches:
    """Every row of the user that shares a term with the text, by BM25 over the user's own memories."""
    terms = query_terms(text)
    user = await fetch_one(
        tx, "SELECT number, revision, epoch FROM users WHERE user_id = :user", {"user": scope.user}
    )
    if user is None or not terms:
        empty = np.empty(0, np.float32)
        return LexicalMatches(np.empty(0, np.int64), empty, empty, frozenset(terms), 1.0 if terms else 0.0)
    number, revision = user[0], Revision(*user[1:])
    doc_lengths = await length_cache.get(tx, scope.user, revision)
    scores, covered = np.zeros(len(doc_lengths.rows)), np.zeros(len(doc_lengths.rows))
    total, missing, missing_weight = 0.0, set[str](), 0.0
    last_row = int(doc_lengths.rows[-1]) if len(doc_lengths.rows) else 0
    query = PostingQuery(user=scope.user, number=number, terms=terms, revision=revision, last_row=last_row)
    postings = await posting_cache.get(tx, engine, query)
    for term, (rows, times) in zip(terms, postings, strict=True):
        rarity = math.log(1 + (len(doc_lengths.rows) - len(rows) + 0.5) / (len(rows) + 0.5))
        total += rarity
        if not len(rows):
            missing.add(term)
            missing_weight += rarity
            continue
        at = np.searchsorted(doc_lengths.rows, rows)
        norm = K1 * (1 - B + B / doc_lengths.average * doc_lengths.counts[at])
        scores[at] += rarity * times / (times + norm)
        covered[at] += rarity
    matched, total = np.flatnonzero(scores), total or 1.0
    return LexicalMatches(
        doc_lengths.rows[matched],
        np.minimum(scores[matched] / total, 1.0).astype(np.float32),
        np.minimum(covered[matched] / total, 1.0).astype(np.float32),
        frozenset(missing),
        missing_weight / total,
    )
