"""Read a listing or the history of a memory page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from recollect.ledger.ledger import Ledger
from recollect.model.change import HistoryEntry
from recollect.model.query import Listing
from recollect.model.result import Page
from recollect.model.scope import Scope

_PAGE = 200


async def read_pages(ledger: Ledger, scope: Scope, listing: Listing) -> AsyncIterator[Page]:
    """Yield all pages of a listing; its limit is the size of a page."""
    while True:
        page = await ledger.find(scope, listing)
        yield page
        if page.cursor is None:
            return
        listing = replace(listing, cursor=page.cursor)


async def read_history(ledger: Ledger, scope: Scope, memory_id: str | None = None) -> AsyncIterator[HistoryEntry]:
    """Yield the changes of one or all memories, newest first."""
    before = None
    while lines := await ledger.history(scope, memory_id=memory_id, limit=_PAGE, before=before):
        for line in lines:
            yield line
        before = lines[-1].id
