"""What came before a request: a chain of responses, the items of a conversation, or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from recollect.errors import NotFound
from recollect.http.auth.caller import Caller
from recollect.http.responses.asked import Json, ResponseParams
from recollect.http.responses.ids import make_id
from recollect.http.responses.parts import ResponsesContext
from recollect.http.responses.wrong import BadRequest
from recollect.model.response import Thread
from recollect.model.scope import Scope


@dataclass(frozen=True, slots=True)
class History:
    """What was said until now, and where that is kept.

    `upstream` can go on from the last response by itself. `epoch` is waited for by who keeps something: no chat waits
    for it.
    """

    scope: Scope
    root_id: str
    epoch: asyncio.Future[int]
    items: tuple[Json, ...] = ()
    upstream: str = ""


async def load_history(params: ResponseParams, scope: Scope, context: ResponsesContext, *, caller: Caller) -> History:
    """What came before; what is not the user's is not found."""
    epoch = context.tasks.start(context.storage.epoch(scope.user))
    if not params.previous_id and not params.thread_id:
        root = make_id("response")
        return History(_inherit_scope(scope, Scope(scope.user, "", root)), root, epoch)
    current = await epoch
    await context.wait_for_write(scope.user, params.thread_id or params.previous_id)
    if params.thread_id:
        thread = await load_thread(params.thread_id, scope, context, caller=caller)
        items = await context.storage.responses.thread_items(scope, params.thread_id)
        return History(_inherit_scope(scope, thread.scope), make_id("response"), epoch, tuple(map(dict, items)))
    try:
        chain = await context.storage.responses.response_chain(scope, params.previous_id)
        if not all(caller.owns(each.scope) for each in chain):
            raise NotFound(params.previous_id)
    except NotFound:
        raise BadRequest(
            f"Previous response with id '{params.previous_id}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        ) from None
    chain_items = [
        item for each in chain for item in (*each.input_items, *(each.body.get("output") or ())) if _is_complete(item)
    ]
    last = chain[-1]
    upstream = last.upstream if last.epoch == current else ""
    return History(_inherit_scope(scope, last.scope), last.root_id, epoch, tuple(map(dict, chain_items)), upstream)


async def load_thread(id: str, scope: Scope, context: ResponsesContext, *, caller: Caller) -> Thread:
    """A conversation of the caller's; any other is as unknown as one that does not exist."""
    try:
        thread = await context.storage.responses.thread(scope, id)
    except NotFound:
        thread = None
    if thread is None or not caller.owns(thread.scope):
        raise NotFound(f"Conversation with id '{id}' not found.")
    return thread


def _inherit_scope(scope: Scope, previous: Scope) -> Scope:
    """The scope that is asked for; where it names none, the project and session of what came before."""
    return replace(scope, project=scope.project or previous.project, session=scope.session or previous.session)


def _is_complete(item: Mapping[str, Any]) -> bool:
    """Whether an item can be said again: a call that was cut off cannot."""
    return item.get("status") != "incomplete" or item.get("type") == "message"
