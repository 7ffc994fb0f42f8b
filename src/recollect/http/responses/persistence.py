"""The history of a request, and storing its response."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from recollect.errors import NotFound, RecollectError
from recollect.http.auth.caller import Caller
from recollect.http.proxy.asgi_io import BadRequest
from recollect.http.proxy.chat_memory import ChatContext
from recollect.http.responses.items import ResponseState, make_id, output_text, with_id
from recollect.http.responses.request import Json, ResponseParams, ResponsesContext
from recollect.http.upstream.extractive import MODEL as BUILT_IN
from recollect.model.response import StoredResponse, Thread, ThreadItems
from recollect.model.scope import Scope

_log = logging.getLogger("recollect")
# More running tasks than this mean that the ledger is stuck.
_MAX_TASKS = 10_000


@dataclass(frozen=True, slots=True)
class History:
    """The history of a request: a chain of responses, the items of a conversation, or nothing.

    `upstream` can continue from the last response by itself. `epoch` is awaited only to store the response, so that
    no chat waits for it.
    """

    scope: Scope
    root_id: str
    epoch: asyncio.Future[int]
    items: tuple[Json, ...] = ()
    upstream: str = ""


async def load_history(params: ResponseParams, scope: Scope, context: ResponsesContext, *, caller: Caller) -> History:
    """Load the history of a request; what belongs to another user is not found."""
    epoch = context.tasks.start(context.epoch(scope.user))
    if not params.previous_id and not params.thread_id:
        root = make_id("response")
        return History(_inherit_scope(scope, Scope(scope.user, "", root)), root, epoch)
    current = await epoch
    await context.wait_for_write(scope.user, params.thread_id or params.previous_id)
    if params.thread_id:
        thread = await load_thread(params.thread_id, scope, context, caller=caller)
        items = await context.service().responses.thread_items(scope, params.thread_id)
        return History(_inherit_scope(scope, thread.scope), make_id("response"), epoch, tuple(map(dict, items)))
    try:
        chain = await context.service().responses.response_chain(scope, params.previous_id)
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
    """Load a conversation of the caller; any other raises NotFound."""
    try:
        thread = await context.service().responses.thread(scope, id)
    except NotFound:
        thread = None
    if thread is None or not caller.owns(thread.scope):
        raise NotFound(f"Conversation with id '{id}' not found.")
    return thread


def _inherit_scope(scope: Scope, previous: Scope) -> Scope:
    """Return the requested scope, with the project and session of the history where it names none."""
    return replace(scope, project=scope.project or previous.project, session=scope.session or previous.session)


def _is_complete(item: Mapping[str, Any]) -> bool:
    """Return whether an item can be sent again: a call that was cut off cannot."""
    return item.get("status") != "incomplete" or item.get("type") == "message"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseWriter:
    """Stores the response to one request; failures never reach the client."""

    context: ResponsesContext
    params: ResponseParams
    history: History
    chat: ChatContext
    started_at: datetime

    def start(self, response: Json, *, upstream: str = "") -> asyncio.Task[None] | None:
        """Start to store a response as it is now; returns None if too many wait for the ledger."""
        if len(self.context.tasks) >= _MAX_TASKS:
            _log.warning("response %s is not stored: too many wait for the ledger", response.get("id"))
            return None
        task = self.context.tasks.start(self._store_answer_and_response(response, upstream))
        self.context.track_write(self.history.scope.user, (response.get("id", ""), self.params.thread_id), task)
        return task

    async def store(self, response: Json, *, upstream: str = "") -> None:
        """Store a response before its end is sent, since the client may continue from it at once.

        `upstream` names the one that can continue from it. A slow write goes on in the background, and while memory
        is degraded nobody waits for it.
        """
        task = self.start(response, upstream=upstream)
        if task is not None and not self.chat.status.startswith("degraded"):
            await asyncio.wait({task}, timeout=self.context.store_timeout_s)

    async def _store_answer_and_response(self, response: Json, upstream: str) -> None:
        text = output_text(response)
        quotes_memory = response.get("model") == BUILT_IN
        turn_id = await self.context.memory.store_answer(self.chat, text, quotes_memory=quotes_memory) if text else ""
        if not (self.params.store or self.params.thread_id):
            return
        try:
            names = tuple(filter(None, (self.chat.turn_id, turn_id)))
            await self._store_response(response, names, upstream)
        except RecollectError as error:
            _log.warning("response %s is not stored: %s", response.get("id"), error)

    async def _store_response(self, response: Json, names: tuple[str, ...], upstream: str) -> None:
        params, scope = self.params, self.history.scope
        input_items = [with_id(item) for item in params.items if item.get("type") != "item_reference"]
        expires_at = self.started_at + self.context.retention
        items = None
        body = dict(response)
        # An upstream that was sent the history does not know where it is stored.
        if params.previous_id:
            body["previous_response_id"] = params.previous_id
        if params.thread_id:
            body["conversation"] = {"id": params.thread_id}
            existing_ids = {item.get("id") for item in self.history.items}
            # An item that is sent again is a new item of the conversation.
            input_items = [
                {**item, "id": make_id(item["type"])} if item["id"] in existing_ids else item for item in input_items
            ]
            thread_items = [*input_items, *(with_id(item) for item in response.get("output") or ())]
            items = ThreadItems(params.thread_id, thread_items, names, expires_at)
            if not params.store:
                await self.context.service().responses.add_items(scope, items)
                return
        stored = StoredResponse(
            id=response["id"],
            scope=scope,
            root_id=self.history.root_id,
            previous_id=params.previous_id,
            thread_id=params.thread_id,
            upstream=upstream,
            epoch=await self.history.epoch,
            created_at=self.started_at,
            expires_at=expires_at,
            names=names,
            body=body,
            input_items=input_items,
        )
        await self.context.service().responses.save_response(scope, stored, items=items, started_at=self.started_at)


class ResponseTracker:
    """Stores a streamed response once: at its end, or as far as it was answered if the stream breaks off."""

    def __init__(self, writer: ResponseWriter, state: ResponseState) -> None:
        self._writer, self._state, self._is_stored = writer, state, False

    async def __aenter__(self) -> ResponseTracker:
        return self

    async def store(self, *, upstream: str = "") -> None:
        if not self._is_stored:
            self._is_stored = True
            await self._writer.store(self._state.response, upstream=upstream)

    async def __aexit__(self, *_: object) -> None:
        if not self._is_stored and self._state.id:
            self._state.stop("incomplete")
            self._writer.start(self._state.response)
