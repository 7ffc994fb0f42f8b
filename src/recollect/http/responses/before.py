"""What came before a request: a chain of responses, the items of a conversation, or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from recollect.errors import NotFound
from recollect.http.auth.caller import Caller
from recollect.http.responses.asked import Asked, Json
from recollect.http.responses.ids import fresh_id
from recollect.http.responses.parts import Parts
from recollect.http.responses.wrong import BadRequest
from recollect.model.response import Thread
from recollect.model.scope import Scope


@dataclass(frozen=True, slots=True)
class Before:
    """What was said until now, and where that is kept.

    `upstream` can go on from the last response by itself. `epoch` is waited for by who keeps something: no chat waits
    for it.
    """

    scope: Scope
    root_id: str
    epoch: asyncio.Future[int]
    items: tuple[Json, ...] = ()
    upstream: str = ""


async def load_before(asked: Asked, scope: Scope, parts: Parts, *, caller: Caller) -> Before:
    """What came before; what is not the user's is not found."""
    epoch = parts.tasks.start(parts.kept.epoch(scope.user))
    if not asked.previous_id and not asked.thread_id:
        root = fresh_id("response")
        return Before(_within(scope, Scope(scope.user, "", root)), root, epoch)
    current = await epoch
    await parts.settled(scope.user, asked.thread_id or asked.previous_id)
    if asked.thread_id:
        thread = await held_thread(asked.thread_id, scope, parts, caller=caller)
        items = await parts.kept.responses.thread_items(scope, asked.thread_id)
        return Before(_within(scope, thread.scope), fresh_id("response"), epoch, tuple(map(dict, items)))
    try:
        chain = await parts.kept.responses.response_chain(scope, asked.previous_id)
        if not all(caller.holds(each.scope) for each in chain):
            raise NotFound(asked.previous_id)
    except NotFound:
        raise BadRequest(
            f"Previous response with id '{asked.previous_id}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        ) from None
    said = [item for each in chain for item in (*each.asked, *(each.body.get("output") or ())) if _is_whole(item)]
    last = chain[-1]
    upstream = last.upstream if last.epoch == current else ""
    return Before(_within(scope, last.scope), last.root_id, epoch, tuple(map(dict, said)), upstream)


async def held_thread(id: str, scope: Scope, parts: Parts, *, caller: Caller) -> Thread:
    """A conversation of the caller's; any other is as unknown as one that does not exist."""
    try:
        thread = await parts.kept.responses.thread(scope, id)
    except NotFound:
        thread = None
    if thread is None or not caller.holds(thread.scope):
        raise NotFound(f"Conversation with id '{id}' not found.")
    return thread


def _within(scope: Scope, before: Scope) -> Scope:
    """The scope that is asked for; where it names none, the project and session of what came before."""
    return replace(scope, project=scope.project or before.project, session=scope.session or before.session)


def _is_whole(item: Mapping[str, Any]) -> bool:
    """Whether an item can be said again: a call that was cut off cannot."""
    return item.get("status") != "incomplete" or item.get("type") == "message"
