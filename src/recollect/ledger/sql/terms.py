"""Full text on any database: what goes in, and how rows are scored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from recollect.ledger.protocol import Scored
from recollect.ledger.sql.tx import Engine, Tx, one
from recollect.ledger.terms import query_terms, terms_of
from recollect.model.scope import Scope

if TYPE_CHECKING:
    from recollect.ledger.sql.changes import Owner

# BM25's constants, as FTS5 has them.
K1 = 1.2
B = 0.75


def word(number: int, term: str) -> str:
    """A term as it stands in the index: led by its user's number, so that lists are one user's own."""
    return f"{number}x{term}"


def words_of(number: int, content: str) -> str:
    """All that is indexed of a text."""
    return " ".join(word(number, term) for term in terms_of(content))


async def put_terms(tx: Tx, engine: Engine, owner: Owner, contents: Mapping[int, str]) -> None:
    """Index the texts of new rows."""
    if not contents:
        return
    words = {row: words_of(owner.number, content) for row, content in contents.items()}
    await engine.terms.put(tx, words)
    await _count(tx, owner, rows=len(words), total=sum(map(length_of, words.values())))


async def swap_terms(tx: Tx, engine: Engine, owner: Owner, contents: Mapping[int, tuple[str, str]]) -> None:
    """Index rows whose text changed, from the old to the new."""
    if not contents:
        return
    old = {row: words_of(owner.number, before) for row, (before, _) in contents.items()}
    new = {row: words_of(owner.number, after) for row, (_, after) in contents.items()}
    await engine.terms.drop(tx, old)
    await engine.terms.put(tx, new)
    await _count(tx, owner, rows=0, total=sum(map(length_of, new.values())) - sum(map(length_of, old.values())))


def length_of(words: str) -> int:
    """How many terms there are in what words_of gave."""
    return words.count(" ") + 1 if words else 0


async def _count(tx: Tx, owner: Owner, *, rows: int, total: int) -> None:
    await tx.run(
        "UPDATE users SET term_rows = term_rows + :rows, term_total = term_total + :total WHERE number = :number",
        {"rows": rows, "total": total, "number": owner.number},
    )


async def lexical(tx: Tx, engine: Engine, scope: Scope, text: str) -> Scored:
    """Every row of the user that shares a term with the text, by BM25 over the user's own memories.

    A score of 1 would mean: all terms of the question, said over and over.
    """
    import numpy as np

    terms = query_terms(text)
    user = await one(tx, "SELECT number, term_rows FROM users WHERE user_id = :user", {"user": scope.user})
    rows: list[int] = []
    parts: list[np.ndarray] = []
    best = 0.0
    for term in terms if user else ():
        found, weights = await engine.terms.weights(tx, word(user[0], term))  # type: ignore[index]
        rarity = math.log(1 + max(0.0, user[1] - len(found) + 0.5) / (len(found) + 0.5))  # type: ignore[index]
        best += rarity * (K1 + 1)
        rows += found
        parts.append(np.asarray(weights, dtype=np.float64) * rarity)
    if not rows:
        return Scored(np.empty(0, np.int64), np.empty(0, np.float32))
    distinct, where = np.unique(np.asarray(rows, dtype=np.int64), return_inverse=True)
    scores = np.bincount(where, weights=np.concatenate(parts)) / (best or 1.0)
    return Scored(distinct, np.clip(scores, 0.0, 1.0).astype(np.float32))
