"""Taking what is erased out of the full text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator

from recollect.ledger.sql.changes import Owner, Writer
from recollect.ledger.sql.terms import words_of
from recollect.ledger.sql.tx import Tx

_PAGE = 1000
# Up to here it is cheaper to take rows out one by one.
_FEW = 500


def pages(ids: Collection[str]) -> Iterator[list[str]]:
    """The ids in lists that a statement can take."""
    ordered = sorted(ids)
    for start in range(0, len(ordered), _PAGE):
        yield ordered[start : start + _PAGE]


async def drop_terms(tx: Tx, writer: Writer, owner: Owner, ids: Collection[str] | None) -> None:
    """Take memories of these ids, or all of the user's, out of the full text."""
    some = ids is not None and len(ids) <= _FEW
    words = _words(tx, owner, ids)
    if not some:
        await writer.engine.terms.drop_many(tx, words)
        return
    async for rows in words:
        await writer.engine.terms.drop(tx, rows)


async def _words(tx: Tx, owner: Owner, ids: Collection[str] | None) -> AsyncIterator[dict[int, str]]:
    """The words that rows are under in the full text, page by page."""
    if ids is None:
        found = await tx.rows("SELECT id FROM memories WHERE user_id = :user", {"user": owner.name})
        ids = [id for (id,) in found]
    for page in pages(ids):
        rows = await tx.rows(
            f"SELECT row, content FROM memories WHERE user_id = :user AND {tx.dialect.among('id', 'ids')}",
            {"user": owner.name, "ids": page},
        )
        yield {row: words_of(owner.number, content) for row, content in rows}
