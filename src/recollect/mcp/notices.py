"""Notices that resources changed, from the changes of the user's memories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

from recollect.errors import RecollectError
from recollect.frozen_dataclass import frozen_dataclass
from recollect.mcp.access import McpAccess
from recollect.model.scope import Scope
from recollect.service.service import Revision

PROFILE_URI, RECENT_URI, MEMORY_PREFIX = "memory://profile", "memory://recent", "memory://"
# Changes of this process are noticed at once; those of others are polled for, more rarely if they are announced.
_POLL_INTERVAL_S = 0.5
_SHARED_POLL_INTERVAL_S = 5.0
_PAGE_SIZE = 100


@frozen_dataclass
class Position:
    """The last change before a subscription."""

    entry: int
    revision: Revision


async def current_position(access: McpAccess) -> Position:
    """Return the position from which a subscription that begins now follows the changes."""
    user = access.memory.scope.user
    revision = await access.service().revision(user)
    newest = await access.service().history(Scope(user), limit=1)
    return Position(newest[0].id if newest else 0, revision)


async def changed_resources(access: McpAccess, subscribed: Collection[str], start: Position) -> AsyncIterator[str]:
    """Yield the URIs of subscribed resources after each change, until the server stops.

    A memory that the scope does not see causes no notice. After an erasure all resources may differ.
    """
    user, position, last = access.memory.scope.user, start.entry, start.revision
    while not access.is_stopping():
        try:
            notifier = access.service().change_notifier
            await notifier.wait(user, _SHARED_POLL_INTERVAL_S if notifier.is_shared else _POLL_INTERVAL_S)
            revision = await access.service().revision(user)
            if revision == last:
                continue
            uris: set[str] = set(subscribed) if revision.epoch != last.epoch else set()
            while entries := await access.service().history(Scope(user), after=position, limit=_PAGE_SIZE):
                position = entries[-1].id
                uris |= await _affected(access, {entry.memory_id for entry in entries})
            last = revision
        except RecollectError:
            # The ledger is unavailable; what changed is found later.
            await asyncio.sleep(_POLL_INTERVAL_S)
            continue
        for uri in sorted(uris & set(subscribed)):
            yield uri


async def _affected(access: McpAccess, ids: set[str]) -> set[str]:
    scope = access.memory.scope
    records = await access.service().get_many(scope.user, sorted(ids))
    visible = {record.id for record in records if scope.can_see(record.visibility_key)}
    return {f"{MEMORY_PREFIX}{id}" for id in visible} | ({PROFILE_URI, RECENT_URI} if visible else set())
