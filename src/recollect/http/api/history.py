"""Routes for the history of memories, undo, and the stream of changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Header, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field

from recollect.errors import RecollectError
from recollect.http.api.idempotency import idempotent
from recollect.http.api.schemas import (
    Cursor,
    Limit,
    ListOf,
    MemoryChangeResponse,
    PageOf,
    decode_position,
    encode_cursor,
    fields_of,
    list_response,
    page_response,
)
from recollect.http.params import POSITION_PATTERN, IntegralFloat, ResponseModel, StrictModel, example
from recollect.http.proxy.sse import EVENT_STREAM, EVENT_STREAM_HEADERS, encode_event, event_schema
from recollect.http.routing import AuthorDep, MemoryScopeDep, ScopeDep, ServiceDep, UserDep, create_api_router
from recollect.model.change import Actor, ChangeKind, HistoryEntry
from recollect.model.erasure import user_digest
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.service.service import Service

history_router = create_api_router("history and undo")
changes_router = create_api_router("changes")
# Changes of this process are sent at once; those of others are polled for, more rarely if Redis announces them.
POLL_INTERVAL_S = 0.5
SHARED_POLL_INTERVAL_S = 5.0
HEARTBEAT_S = 15.0
_PAGE_SIZE = 100
_EVENT_SCHEMA = event_schema(
    [*map(str, ChangeKind), "erased"],
    id={"type": "string", "description": "For Last-Event-ID: the entry's number and the erasures so far."},
)


@fields_of(HistoryEntry, "by")
class HistoryEntryResponse(ResponseModel):
    """A change of a memory."""

    id: int = Field(description="Grows with every change of the user's memories.")
    who: str
    why: str
    actor: Actor = Field(description="Whether a person or a program made the change; `agent` if it is not recorded.")
    undoes: int | None = Field(description="The entry that this one undoes.")
    batch: str = Field(description="The same for all entries of one change.")


class UndoBody(StrictModel):
    """Which change to undo."""

    model_config = example(change_id=42)

    change_id: Annotated[int, Field(ge=1, le=2**53 - 1), IntegralFloat] | None = Field(
        default=None, description="A history entry; by default the whole last change of a caller."
    )
    anyones: bool = Field(default=False, description="Whether changes of background jobs count as well.")


@history_router.get("/history", response_model=PageOf[HistoryEntryResponse])
async def list_history(
    scope: ScopeDep, service: ServiceDep, limit: Limit = 100, cursor: Cursor = None
) -> JSONResponse:
    """List the changes of all memories of the scope, newest first."""
    entries = await service.history(scope, limit=limit + 1, before=decode_position(cursor, int))
    return page_response(entries, limit, lambda entry: encode_cursor(entry.id))


@history_router.get("/memories/{memory_id}/history", response_model=PageOf[HistoryEntryResponse])
async def list_memory_history(
    memory_id: str, scope: MemoryScopeDep, service: ServiceDep, limit: Limit = 100, cursor: Cursor = None
) -> JSONResponse:
    """List the changes of one memory, newest first."""
    before = decode_position(cursor, int)
    entries = await service.history(scope, memory_id=memory_id, limit=limit + 1, before=before)
    return page_response(entries, limit, lambda entry: encode_cursor(entry.id))


@history_router.post(
    "/undo", response_model=ListOf[MemoryChangeResponse], responses=history_router.error_responses(404)
)
@idempotent(redo=False)
async def undo(user: UserDep, author: AuthorDep, service: ServiceDep, body: UndoBody | None = None) -> JSONResponse:
    """Undo a change; that is a change as well, and can be undone.

    Turns are forgotten with the memories that were learned from them alone.
    """
    body = body or UndoBody()
    return list_response(await service.undo(Scope(user), body.change_id, by=author, anyones=body.anyones))


@changes_router.get(
    "/changes",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": (
                "An event for each history entry: the change as the event's name, the entry as its data. An event "
                "`erased` reports erasures, also those during a lost connection: drop what they name that is older "
                "than their `at`; if `fetch_anew` is true more was erased than they name, so fetch everything."
            ),
            "content": {EVENT_STREAM: {"schema": _EVENT_SCHEMA}},
        }
    },
)
async def follow_changes(
    request: Request,
    user: UserDep,
    service: ServiceDep,
    last_event_id: Annotated[
        str | None, Header(alias="Last-Event-ID", pattern=POSITION_PATTERN, description="Resume after this event.")
    ] = None,
    after: Annotated[
        str | None,
        Query(
            pattern=POSITION_PATTERN,
            description="The same for clients without headers: an event id or an entry's number, 0 for all.",
            examples=["42-0"],
        ),
    ] = None,
    within_s: Annotated[float | None, Query(ge=0, le=86400, description="End the stream after this time.")] = None,
) -> StreamingResponse:
    """Stream the changes of the user's memories, from now on or after an event, whichever process makes them."""
    position = after if last_event_id is None else last_event_id
    if position is not None:
        start = _Position.parse(position)
    else:
        epoch, newest = await service.epoch(user), await service.history(Scope(user), limit=1)
        start = _Position(newest[0].id if newest else 0, epoch)
    # The handle, because the stream can outlive the service of this request.
    stream = _ChangeStream(
        request.app.state.service_handle.get, user, start, is_stopping=request.app.state.stopping.is_set
    )
    return StreamingResponse(stream.events(within_s), media_type=EVENT_STREAM, headers=EVENT_STREAM_HEADERS)


@dataclass(frozen=True, slots=True)
class _Position:
    """The last entry that a client received, and the user's erasure epoch at that time, if known."""

    entry: int
    epoch: int | None = None

    @classmethod
    def parse(cls, text: str) -> _Position:
        entry, _, epoch = text.partition("-")
        return cls(int(entry), int(epoch) if epoch else None)


class _ChangeStream:
    """The stream of one client."""

    def __init__(
        self, service: Callable[[], Service], user: str, start: _Position, *, is_stopping: Callable[[], bool]
    ) -> None:
        self._service, self._user, self._is_stopping = service, user, is_stopping
        self._after, self._epoch = start.entry, start.epoch
        # When the stream was last up to date; until then only the last entry says how far the client is.
        self._sent_until: datetime | None = None

    async def events(self, within_s: float | None) -> AsyncIterator[bytes]:
        """Yield events as they happen, and heartbeats, until the time is over or the server stops."""
        clock = asyncio.get_running_loop().time
        ends_at = None if within_s is None else clock() + within_s
        yield b"retry: 1000\n\n"
        last_revision = None
        sent_at = clock()
        while True:
            try:
                checked_at, revision = now(), await self._service().revision(self._user)
                if event := await self._next_erasure_event(revision.epoch):
                    yield event
                    sent_at = clock()
                self._sent_until = checked_at
                if revision != last_revision:
                    async for event in self._new_events():
                        yield event
                        sent_at = clock()
                last_revision = revision
            except RecollectError:
                # The ledger is unavailable; the client misses nothing.
                pass
            if clock() - sent_at >= HEARTBEAT_S:
                yield b": still here\n\n"
                sent_at = clock()
            if self._is_stopping() or (ends_at is not None and clock() >= ends_at):
                return
            notifier = self._service().change_notifier
            wait_s = SHARED_POLL_INTERVAL_S if notifier.is_shared else POLL_INTERVAL_S
            await notifier.wait(self._user, wait_s if ends_at is None else min(wait_s, max(0, ends_at - clock())))

    async def _new_events(self) -> AsyncIterator[bytes]:
        while entries := await self._service().history(Scope(self._user), after=self._after, limit=_PAGE_SIZE):
            for entry in entries:
                yield encode_event(entry.verb, entry.to_dict(), id=f"{entry.id}-{self._epoch}")
                self._after = entry.id

    async def _next_erasure_event(self, epoch: int) -> bytes | None:
        """Return an event about erasures since the last event, if there were any."""
        previous, event = self._epoch, None
        # A client that starts with the first entry, or knows this epoch, has nothing to drop.
        if epoch != previous and not (previous is None and (not epoch or not self._after)):
            event = await self._build_erasure_event(epoch)
        self._epoch = epoch
        return event

    async def _build_erasure_event(self, epoch: int) -> bytes | None:
        service, since, entry_exists = self._service(), self._sent_until, True
        if since is None:
            last = await service.history(Scope(self._user), before=self._after + 1, limit=1)
            since, entry_exists = (last[0].at if last else None), bool(last) and last[0].id == self._after
        digest = user_digest(self._user)
        missed = [each.to_dict() for each in await service.erasure.list(since) if each.user == digest]
        if self._epoch is None and entry_exists and not missed:
            return None
        for each in missed:
            del each["user"]
        # If there are fewer than the epoch says, the log does not have all erasures.
        must_refetch = self._epoch is None or len(missed) != epoch - self._epoch
        data = {"erasures": missed, "fetch_anew": must_refetch}
        return encode_event("erased", data, id=f"{self._after}-{epoch}")
