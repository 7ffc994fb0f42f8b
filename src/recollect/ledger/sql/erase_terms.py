"""Taking what is erased out of the full text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator

from recollect.ledger.sql.changes import Owner, WriteContext
from recollect.ledger.sql.terms import index_words
from recollect.ledger.sql.tx import Tx

_PAGE = 1000
# Up to here it is cheaper to take rows out one by one.
_MAX_SINGLE_DROPS = 500


def id_pages(ids: Collection[str]) -> Iterator[list[str]]:
    """The ids in lists that a statement can take."""
    ordered = sorted(ids)
    for start in range(0, len(ordered), _PAGE):
        yield ordered[start : start + _PAGE]


async def drop_terms(tx: Tx, context: WriteContext, owner: Owner, ids: Collection[str] | None) -> None:
    """Take memories of these ids, or all of the user's, out of the full text."""
    is_small = ids is not None and len(ids) <= _MAX_SINGLE_DROPS
    words = _indexed_words(tx, owner, ids)
    if not is_small:
        await context.engine.terms.drop_many(tx, words)
        return
    async for rows in words:
        await context.engine.terms.drop(tx, rows)


async def _indexed_words(tx: Tx, owner: Owner, ids: Collection[str] | None) -> AsyncIterator[dict[int, str]]:
    """The words that rows are under in the full text, page by page."""
    if ids is None:
        id_rows = await tx.rows("SELECT id FROM memories WHERE user_id = :user", {"user": owner.name})
        ids = [id for (id,) in id_rows]
    for page in id_pages(ids):
        rows = await tx.rows(
            f"SELECT row, content FROM memories WHERE user_id = :user AND {tx.dialect.among('id', 'ids')}",
            {"user": owner.name, "ids": page},
        )
        yield {row: index_words(owner.number, content) for row, content in rows}
