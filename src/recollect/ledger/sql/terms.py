"""Full text on any database: what goes in, and how rows are scored."""

from __future__ import annotations

import math

import numpy as np

from recollect.ledger.protocol import Revision, Said
from recollect.ledger.sql.lengths import LengthCache
from recollect.ledger.sql.postings import Asked, PostingCache, word
from recollect.ledger.sql.tx import Engine, Tx, one
from recollect.ledger.terms import K1, B, query_terms, terms_of
from recollect.model.scope import Scope


def words_of(number: int, content: str) -> str:
    """All that is indexed of a text."""
    return " ".join(word(number, term) for term in terms_of(content))


def length_of(words: str) -> int:
    """How many terms there are in what words_of gave."""
    return words.count(" ") + 1 if words else 0


async def lexical(tx: Tx, engine: Engine, lengths: LengthCache, held: PostingCache, scope: Scope, text: str) -> Said:
    """Every row of the user that shares a term with the text, by BM25 over the user's own memories."""
    terms = query_terms(text)
    user = await one(tx, "SELECT number, revision, epoch FROM users WHERE user_id = :user", {"user": scope.user})
    if user is None or not terms:
        nothing = np.empty(0, np.float32)
        return Said(np.empty(0, np.int64), nothing, nothing, frozenset(terms), 1.0 if terms else 0.0)
    number, revision = user[0], Revision(*user[1:])
    known = await lengths.get(tx, scope.user, revision)
    scores, covered = np.zeros(len(known.rows)), np.zeros(len(known.rows))
    total, missing, missed = 0.0, set[str](), 0.0
    last_row = int(known.rows[-1]) if len(known.rows) else 0
    asked = Asked(user=scope.user, number=number, terms=terms, revision=revision, last_row=last_row)
    postings = await held.get(tx, engine, asked)
    for term, (rows, times) in zip(terms, postings, strict=True):
        rarity = math.log(1 + (len(known.rows) - len(rows) + 0.5) / (len(rows) + 0.5))
        total += rarity
        if not len(rows):
            missing.add(term)
            missed += rarity
            continue
        at = np.searchsorted(known.rows, rows)
        norm = K1 * (1 - B + B / known.average * known.counts[at])
        scores[at] += rarity * times / (times + norm)
        covered[at] += rarity
    found, total = np.flatnonzero(scores), total or 1.0
    return Said(
        known.rows[found],
        np.minimum(scores[found] / total, 1.0).astype(np.float32),
        np.minimum(covered[found] / total, 1.0).astype(np.float32),
        frozenset(missing),
        missed / total,
    )
