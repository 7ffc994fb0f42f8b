"""Keeping a response: in the ledger, in its conversation, and what it says in memory."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime

from recollect.errors import RecollectError
from recollect.http.proxy.memory import ChatContext
from recollect.http.responses.asked import Json, ResponseParams
from recollect.http.responses.before import History
from recollect.http.responses.ids import make_id, with_id
from recollect.http.responses.parts import ResponsesContext
from recollect.http.responses.shape import output_text
from recollect.model.response import StoredResponse, ThreadItems

_log = logging.getLogger("recollect")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseWriter:
    """Keeps what comes of one request; nothing that goes wrong with it reaches the client."""

    context: ResponsesContext
    params: ResponseParams
    history: History
    chat: ChatContext
    started_at: datetime

    def start(self, response: Json, *, upstream: str = "") -> asyncio.Task[None] | None:
        """Begin to keep a response as it stands; None if too much waits for the ledger already."""
        if self.context.tasks.is_full:
            _log.warning("response %s is not kept: too many wait for the ledger", response.get("id"))
            return None
        task = self.context.tasks.start(self._store_answer_and_response(response, upstream))
        self.context.track_write(self.history.scope.user, (response.get("id", ""), self.params.thread_id), task)
        return task

    async def store(self, response: Json, *, upstream: str = "") -> None:
        """Keep a response; `upstream` is who can go on from it by itself. What takes long goes on without us.

        A client may go on from a response as soon as it has heard of its end, so this comes before. While memory is
        in trouble nobody waits for it.
        """
        task = self.start(response, upstream=upstream)
        if task is not None and not self.chat.status.startswith("degraded"):
            await asyncio.wait({task}, timeout=self.context.store_timeout_s)

    async def _store_answer_and_response(self, response: Json, upstream: str) -> None:
        text = output_text(response)
        names = [self.chat.turn_id] if self.chat.turn_id else []
        if text:
            turn = await self.context.memory.store_answer(self.chat, text)
            names += [turn] if turn else []
        if not (self.params.store or self.params.thread_id):
            return
        try:
            await self._store_response(response, tuple(names), upstream)
        except RecollectError as error:
            _log.warning("response %s is not kept: %s", response.get("id"), error)

    async def _store_response(self, response: Json, names: tuple[str, ...], upstream: str) -> None:
        responses, scope = self.context.storage.responses, self.history.scope
        input_items = [with_id(item) for item in self.params.items if item.get("type") != "item_reference"]
        expires_at = self.started_at + self.context.retention
        items = None
        if self.params.thread_id:
            existing_ids = {item.get("id") for item in self.history.items}
            # Who says again what the conversation has says something new by it.
            input_items = [
                {**item, "id": make_id(item["type"])} if item["id"] in existing_ids else item for item in input_items
            ]
            thread_items = [*input_items, *(with_id(item) for item in response.get("output") or ())]
            items = ThreadItems(self.params.thread_id, thread_items, names, expires_at)
        if not self.params.store and items is not None:
            await responses.add_items(scope, items)
            return
        stored = StoredResponse(
            id=response["id"],
            scope=scope,
            root_id=self.history.root_id,
            previous_id=self.params.previous_id,
            thread_id=self.params.thread_id,
            upstream=upstream,
            epoch=await self.history.epoch,
            created_at=self.started_at,
            expires_at=expires_at,
            names=names,
            body=self._stored_body(response),
            input_items=input_items,
        )
        await responses.save_response(scope, stored, items=items, started_at=self.started_at)

    def _stored_body(self, response: Json) -> Json:
        """The response; an upstream that was sent what came before does not know where that is kept."""
        thread = {"conversation": {"id": self.params.thread_id}} if self.params.thread_id else {}
        previous = {"previous_response_id": self.params.previous_id} if self.params.previous_id else {}
        return {**response, **thread, **previous}
