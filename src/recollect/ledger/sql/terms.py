"""Full text on any database: what goes in, and how rows are scored."""

from __future__ import annotations

import math

import numpy as np

from recollect.ledger.protocol import Revision, Scored
from recollect.ledger.sql.lengths import LengthCache
from recollect.ledger.sql.tx import Engine, Tx, one
from recollect.ledger.terms import K1, B, query_terms, terms_of
from recollect.model.scope import Scope


def word(number: int, term: str) -> str:
    """A term as it stands in the index: led by its user's number, so that lists are one user's own."""
    return f"{number}x{term}"


def words_of(number: int, content: str) -> str:
    """All that is indexed of a text."""
    return " ".join(word(number, term) for term in terms_of(content))


def length_of(words: str) -> int:
    """How many terms there are in what words_of gave."""
    return words.count(" ") + 1 if words else 0


async def lexical(tx: Tx, engine: Engine, lengths: LengthCache, scope: Scope, text: str) -> Scored:
    """Every row of the user that shares a term with the text, by BM25 over the user's own memories.

    A score of 1 would mean: all terms of the question, said over and over.
    """
    terms = query_terms(text)
    user = await one(tx, "SELECT number, revision, epoch FROM users WHERE user_id = :user", {"user": scope.user})
    if user is None or not terms:
        return Scored(np.empty(0, np.int64), np.empty(0, np.float32))
    number, *revision = user
    known = await lengths.get(tx, scope.user, Revision(*revision))
    scores = np.zeros(len(known.rows))
    best = 0.0
    for rows, times in await engine.terms.postings(tx, [word(number, term) for term in terms]):
        rarity = math.log(1 + (len(known.rows) - len(rows) + 0.5) / (len(rows) + 0.5))
        best += rarity * (K1 + 1)
        if len(rows):
            at = np.searchsorted(known.rows, rows)
            norm = K1 * (1 - B + B / known.average * known.counts[at])
            scores[at] += rarity * (K1 + 1) * times / (times + norm)
    found = np.flatnonzero(scores)
    return Scored(known.rows[found], np.minimum(scores[found] / (best or 1.0), 1.0).astype(np.float32))
