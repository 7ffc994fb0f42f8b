"""Keeping a response: in the ledger, in its conversation, and what it says in memory."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime

from recollect.errors import RecollectError
from recollect.http.proxy.memory import Exchange
from recollect.http.responses.asked import Asked, Json
from recollect.http.responses.before import Before
from recollect.http.responses.ids import fresh_id, with_id
from recollect.http.responses.parts import Parts
from recollect.http.responses.shape import text_of
from recollect.model.response import KeptResponse, ThreadItems

_log = logging.getLogger("recollect")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """Keeps what comes of one request; nothing that goes wrong with it reaches the client."""

    parts: Parts
    asked: Asked
    before: Before
    exchange: Exchange
    begun_at: datetime

    def start(self, response: Json, *, upstream: str = "") -> asyncio.Task[None] | None:
        """Begin to keep a response as it stands; None if too much waits for the ledger already."""
        if self.parts.tasks.is_full:
            _log.warning("response %s is not kept: too many wait for the ledger", response.get("id"))
            return None
        task = self.parts.tasks.start(self._keep_all(response, upstream))
        self.parts.note_keeping(self.before.scope.user, (response.get("id", ""), self.asked.thread_id), task)
        return task

    async def keep(self, response: Json, *, upstream: str = "") -> None:
        """Keep a response; `upstream` is who can go on from it by itself. What takes long goes on without us.

        A client may go on from a response as soon as it has heard of its end, so this comes before. While memory is
        in trouble nobody waits for it.
        """
        task = self.start(response, upstream=upstream)
        if task is not None and not self.exchange.status.startswith("degraded"):
            await asyncio.wait({task}, timeout=self.parts.patience_s)

    async def _keep_all(self, response: Json, upstream: str) -> None:
        text = text_of(response)
        names = [self.exchange.turn_id] if self.exchange.turn_id else []
        if text:
            turn = await self.parts.memory.keep_answer(self.exchange, text)
            names += [turn] if turn else []
        if not (self.asked.store or self.asked.thread_id):
            return
        try:
            await self._keep(response, tuple(names), upstream)
        except RecollectError as error:
            _log.warning("response %s is not kept: %s", response.get("id"), error)

    async def _keep(self, response: Json, names: tuple[str, ...], upstream: str) -> None:
        responses, scope = self.parts.kept.responses, self.before.scope
        asked = [with_id(item) for item in self.asked.items if item.get("type") != "item_reference"]
        expires_at = self.begun_at + self.parts.kept_for
        items = None
        if self.asked.thread_id:
            there = {item.get("id") for item in self.before.items}
            # Who says again what the conversation has says something new by it.
            asked = [{**item, "id": fresh_id(item["type"])} if item["id"] in there else item for item in asked]
            said = [*asked, *(with_id(item) for item in response.get("output") or ())]
            items = ThreadItems(self.asked.thread_id, said, names, expires_at)
        if not self.asked.store and items is not None:
            await responses.add_items(scope, items)
            return
        kept = KeptResponse(
            id=response["id"],
            scope=scope,
            root_id=self.before.root_id,
            previous_id=self.asked.previous_id,
            thread_id=self.asked.thread_id,
            upstream=upstream,
            epoch=await self.before.epoch,
            created_at=self.begun_at,
            expires_at=expires_at,
            names=names,
            body=self._body(response),
            asked=asked,
        )
        await responses.keep_response(scope, kept, items=items, begun_at=self.begun_at)

    def _body(self, response: Json) -> Json:
        """The response; an upstream that was sent what came before does not know where that is kept."""
        thread = {"conversation": {"id": self.asked.thread_id}} if self.asked.thread_id else {}
        previous = {"previous_response_id": self.asked.previous_id} if self.asked.previous_id else {}
        return {**response, **thread, **previous}
