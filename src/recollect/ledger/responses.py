"""What a ledger promises of OpenAI's Responses and Conversations.

They are kept for their user: an id of someone else's is a NotFound like one that never was, and so is one that has
expired.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from recollect.model.response import Plain, StoredResponse, Thread, ThreadItems
from recollect.model.scope import Scope

# A response cannot be gone on from natively once something before it is gone.
NEVER_NATIVE = -1
# Clocks of two machines can be apart by this much.
SKEW = timedelta(minutes=1)


class ResponseStore(Protocol):
    """The part of a ledger that the Responses API needs."""

    async def save_response(
        self, scope: Scope, response: StoredResponse, *, items: ThreadItems | None = None, started_at: datetime
    ) -> None:
        """Keep a response, in the place of one of its id, and add items to a thread: both or neither.

        A Conflict if anything of the user was erased since it was begun, at the epoch it has: it could come back
        with it.
        """
        ...

    async def response(self, scope: Scope, id: str) -> StoredResponse:
        """One response of the user."""
        ...

    async def response_chain(self, scope: Scope, id: str) -> list[StoredResponse]:
        """A response and all it went on from, the first one first; those may have expired."""
        ...

    async def drop_response(self, scope: Scope, id: str) -> None:
        """Remove a response; what went on from it goes on from what was before it."""
        ...

    async def save_thread(self, scope: Scope, thread: Thread) -> None:
        """Keep a thread, or what has changed of it."""
        ...

    async def thread(self, scope: Scope, id: str) -> Thread:
        """One thread of the user."""
        ...

    async def drop_thread(self, scope: Scope, id: str) -> None:
        """Remove a thread with its items."""
        ...

    async def add_items(self, scope: Scope, items: ThreadItems) -> None:
        """Add items to the end of a thread; a Conflict if one of an id is there."""
        ...

    async def thread_items(
        self, scope: Scope, thread_id: str, *, after: str = "", newest_first: bool = False, limit: int | None = None
    ) -> list[Plain]:
        """The items of a thread in order, those after one of them, all of them without a limit."""
        ...

    async def thread_item(self, scope: Scope, thread_id: str, id: str) -> Plain:
        """One item of a thread."""
        ...

    async def drop_item(self, scope: Scope, thread_id: str, id: str) -> None:
        """Remove one item of a thread."""
        ...

    async def prune_responses(self, before: datetime) -> int:
        """Remove what expired before a time; gives how many responses and threads. A chain goes as a whole."""
        ...


def paginate_items(ids: Sequence[str], after: str, *, newest_first: bool, limit: int | None) -> list[str]:
    """Which of the ids, given in order, a page has; an `after` that is none of them gives an empty page."""
    ordered = list(reversed(ids)) if newest_first else list(ids)
    if after:
        ordered = ordered[ordered.index(after) + 1 :] if after in ordered else []
    return ordered[:limit]
