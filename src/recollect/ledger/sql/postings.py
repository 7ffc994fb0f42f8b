"""Which rows of a user say a word: read from the full text once, kept at hand, and continued by what is new."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from recollect.ledger.protocol import Revision
from recollect.ledger.sql.tx import Postings, SqlEngine, Tx
from recollect.ledger.terms import terms_of

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
