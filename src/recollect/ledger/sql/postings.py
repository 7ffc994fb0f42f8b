"""Which rows of a user say a word: read from the full text once, kept at hand, and continued by what is new."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from recollect.ledger.protocol import Revision
from recollect.ledger.sql.tx import Engine, Postings, Tx
from recollect.ledger.terms import terms_of

MAX_BYTES = 64 << 20
# What a word costs besides its rows.
_WORD_BYTES = 512
# More new rows than this are not worth looking into one by one: the full text knows them.
_MOST_NEW = 64


def word(number: int, term: str) -> str:
    """A term as it stands in the index: led by its user's number, so that lists are one user's own."""
    return f"{number}x{term}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Terms of one user, and the state of the user's memories that the transaction sees."""

    user: str
    number: int
    terms: Sequence[str]
    revision: Revision
    last_row: int


@dataclass(slots=True)
class _Held:
    """What is known of one user as of a revision: rows under words, and the words of rows that came since."""

    revision: Revision
    last_row: int = 0
    words: dict[str, Postings] = field(default_factory=dict)
    # The last row that was there when the word was read.
    upto: dict[str, int] = field(default_factory=dict)
    new: dict[int, Counter[str]] = field(default_factory=dict)
    size: int = 0

    def keep(self, term: str, found: Postings) -> None:
        """Remember what the full text says of a word."""
        self.words[term], self.upto[term] = found, self.last_row
        self.size += _WORD_BYTES + found[0].nbytes + found[1].nbytes

    def of(self, term: str) -> Postings:
        rows, times = self.words[term]
        upto = self.upto[term]
        late = [(row, said[term]) for row, said in self.new.items() if row > upto and term in said]
        if not late:
            return rows, times
        more = np.array(late, np.int64)
        return np.concatenate((rows, more[:, 0])), np.concatenate((times, more[:, 1]))


class PostingCache:
    """The words asked for last, within a budget; readers in several threads share it."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._users: OrderedDict[str, _Held] = OrderedDict()
        self._drops = 0
        self._lock = threading.Lock()

    async def get(self, tx: Tx, engine: Engine, asked: Asked) -> list[Postings]:
        """For each term the rows that say it, rising, and how often, as this transaction sees them."""
        (held, drops), terms = self._taken(asked.user), asked.terms
        if held is None or not await _continued(tx, held, asked):
            held = _Held(asked.revision, asked.last_row)
        unknown = [term for term in terms if term not in held.words]
        if unknown:
            read = await engine.terms.postings(tx, [word(asked.number, term) for term in unknown])
            for term, postings in zip(unknown, read, strict=True):
                held.keep(term, postings)
        found = [held.of(term) for term in terms]
        self._put_back(asked.user, held, drops)
        return found

    def drop(self, user: str) -> int:
        """Let go of a user of whom something was erased; gives how many words were held."""
        with self._lock:
            self._drops += 1
            held = self._users.pop(user, None)
            self._bytes -= held.size if held else 0
            return len(held.words) if held else 0

    def _taken(self, user: str) -> tuple[_Held | None, int]:
        """Whoever works on what is held has it alone; another reader of the same user begins anew meanwhile."""
        with self._lock:
            held = self._users.pop(user, None)
            self._bytes -= held.size if held else 0
            return held, self._drops

    def _put_back(self, user: str, held: _Held, drops: int) -> None:
        with self._lock:
            if drops != self._drops:
                # Someone was erased while we read; who that was is not worth remembering.
                return
            if user in self._users:
                self._bytes -= self._users.pop(user).size
            self._users[user] = held
            self._bytes += held.size
            while self._bytes > self._max_bytes and self._users:
                self._bytes -= self._users.popitem(last=False)[1].size


async def _continued(tx: Tx, held: _Held, asked: Asked) -> bool:
    """Take up the rows that came since; False if more happened than that."""
    revision = asked.revision
    if held.revision == revision:
        return True
    if held.revision.epoch != revision.epoch or held.revision.number > revision.number:
        return False
    changed = await tx.rows(
        "SELECT row, content FROM memories WHERE user_id = :user AND revision > :after ORDER BY row LIMIT :most",
        {"user": asked.user, "after": held.revision.number, "most": _MOST_NEW + 1},
    )
    # An old row may say something else now.
    if len(held.new) + len(changed) > _MOST_NEW or (changed and changed[0][0] <= held.last_row):
        return False
    held.new |= {row: Counter(terms_of(content)) for row, content in changed}
    held.revision, held.last_row = revision, asked.last_row
    return True
