"""Full text on any database: what goes in, and how rows are scored."""

from __future__ import annotations

import math

import numpy as np

from recollect.ledger.protocol import LexicalMatches, Revision
from recollect.ledger.sql.lengths import DocLengthCache
from recollect.ledger.sql.postings import PostingCache, PostingQuery, index_word
from recollect.ledger.sql.tx import SqlEngine, Tx, fetch_one
from recollect.ledger.terms import K1, B, query_terms, terms_of
from recollect.model.scope import Scope


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
