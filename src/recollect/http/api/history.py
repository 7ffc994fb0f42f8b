"""What happened, and taking it back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Header, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from recollect.errors import RecollectError
from recollect.http.api.idempotency import idempotent
from recollect.http.api.responses import (
    WRITE_ERRORS,
    decode_cursor,
    encode_cursor,
    error_responses,
    json_response,
    page_response,
)
from recollect.http.api.routing import AuthorDep, MemoryScopeDep, ScopeDep, ServiceDep, UserDep, create_router
from recollect.http.api.schemas import ChangedList, Cursor, IntegralFloat, JsonObject, Limit, NextCursor, StrictBody
from recollect.model.change import ChangeKind
from recollect.model.erasure import user_digest
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.service.service import Service

history_router = create_router("history and undo")
EXAMPLE_ENTRY: dict[str, Any] = {
    "id": 42,
    "memory_id": "0199c3a1-7b5e-7c1d-9e1f-2a8d6f0c4b11",
    "verb": "update",
    "at": "2026-03-15T10:00:00+00:00",
    "who": "dana",
    "why": "asked by mail",
    "version": 2,
    "before": {"importance": 0.5},
    "after": {"importance": 0.9},
    "undoes": None,
    "batch": "0199c3a1-7b5e-7c1d-9e1f-2a8d6f0c4b14",
}


class HistoryEntryResponse(BaseModel):
    """One line of history: what was done to which memory, by whom, when, why, and what was before."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE_ENTRY})

    id: int = Field(description="Rises with every change of the user's.")
    memory_id: str
    verb: Literal["add", "update", "supersede", "forget", "restore", "undo"]
    at: str = Field(json_schema_extra={"format": "date-time"})
    who: str
    why: str
    version: int
    before: JsonObject | None
    after: JsonObject
    undoes: int | None = Field(description="The line that this one takes back.")
    batch: str = Field(description="The same for all lines of one change.")


class EntryPage(BaseModel):
    """Some lines of history, newest first."""

    results: list[HistoryEntryResponse]
    cursor: NextCursor


class Undo(StrictBody):
    """What to take back."""

    model_config = ConfigDict(json_schema_extra={"example": {"change_id": 42}})

    change_id: Annotated[int, Field(ge=1, le=2**53 - 1), IntegralFloat] | None = Field(
        default=None, description="A line of history; without one, the last thing that someone did or said, whole."
    )
    anyones: bool = Field(default=False, description="Whether what was learned or put in order behind counts, too.")


@history_router.get("/history", response_model=EntryPage)
async def list_history(
    place: ScopeDep, service: ServiceDep, limit: Limit = 100, cursor: Cursor = None
) -> JSONResponse:
    """What happened to all memories of the scope, newest first."""
    lines = await service.history(place, limit=limit + 1, before=_decode_before(cursor))
    return page_response(lines, limit, lambda line: encode_cursor(line.id))


@history_router.get("/memories/{memory_id}/history", response_model=EntryPage, responses=error_responses(404))
async def list_memory_history(
    memory_id: str, place: MemoryScopeDep, service: ServiceDep, limit: Limit = 100, cursor: Cursor = None
) -> JSONResponse:
    """What happened to one memory, newest first."""
    lines = await service.history(place, memory_id=memory_id, limit=limit + 1, before=_decode_before(cursor))
    return page_response(lines, limit, lambda line: encode_cursor(line.id))


def _decode_before(cursor: str | None) -> int | None:
    last = decode_cursor(cursor, int)
    return last[0] if last else None


@history_router.post("/undo", response_model=ChangedList, responses={**WRITE_ERRORS, **error_responses(404, 409)})
@idempotent(redo=False)
async def undo(user: UserDep, by: AuthorDep, service: ServiceDep, wanted: Undo | None = None) -> JSONResponse:
    """Take back a change; that is a change as well, and can be undone.

    What was said goes with what was learned from it alone.
    """
    wanted = wanted or Undo()
    outcomes = await service.undo(Scope(user), wanted.change_id, by=by, anyones=wanted.anyones)
    return json_response({"results": [outcome.to_dict() for outcome in outcomes]})


changes_router = create_router("changes")
EVENTS = "text/event-stream"
# What this process changes is told at once; what others do is looked for, but for a Redis that tells of it.
POLL_INTERVAL_S = 0.5
SHARED_POLL_INTERVAL_S = 5.0
HEARTBEAT_S = 15.0
_PAGE_SIZE = 100
# The number of a line, and how often something had been erased when it was told.
_POSITION_PATTERN = "^[0-9]{1,15}(-[0-9]{1,15})?$"
_EVENT_SCHEMA = {
    "type": "object",
    "description": "An event.",
    "properties": {
        "id": {"type": "string", "description": "For Last-Event-ID: the line's number, and the erasures until then."},
        "event": {"type": "string", "enum": [*map(str, ChangeKind), "erased"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["event", "data"],
}
_EVENT_EXAMPLE = f"retry: 1000\n\nid: 42-0\nevent: update\ndata: {json.dumps(EXAMPLE_ENTRY)}\n\n: still here\n\n"


@changes_router.get(
    "/changes",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": (
                "An event for each line of history: its id, the verb as the event's name, the line as its data. "
                "`erased` says that something was removed for good, also to who was away meanwhile: `erasures` are "
                "what was asked for, with the ids that went or the project or session they went with, and nothing of "
                "what they said. Drop what they name that is older than their `at`; if `fetch_anew` is true more has "
                "gone than they name, so read everything anew."
            ),
            "content": {EVENTS: {"schema": _EVENT_SCHEMA, "example": _EVENT_EXAMPLE}},
        },
    },
)
async def follow_changes(
    request: Request,
    user: UserDep,
    service: ServiceDep,
    last_event_id: Annotated[
        str | None,
        Header(pattern=_POSITION_PATTERN, description="Goes on after this event, as browsers ask by themselves."),
    ] = None,
    after: Annotated[
        str | None,
        Query(
            pattern=_POSITION_PATTERN,
            description="The same, or a line's number, where no header can be set; 0 begins with the first.",
            examples=["42-0"],
        ),
    ] = None,
    within_s: Annotated[
        float | None, Query(ge=0, le=86400, description="Ends the stream after so long; by default it goes on.")
    ] = None,
) -> StreamingResponse:
    """Follow what happens to the user's memories, from now on or from an event on, whichever process does it."""
    position = after if last_event_id is None else last_event_id
    start = _Position.parse(position) if position is not None else await _latest_position(service, user)
    # A stream without an end outlives a service that another takes the place of.
    stream = _ChangeStream(
        request.app.state.service_provider.get, user, start, is_stopping=request.app.state.stopping.is_set
    )
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(stream.events(within_s), media_type=EVENTS, headers=headers)


@dataclass(frozen=True, slots=True)
class _Position:
    """How far a client has come: the last line it saw, and the user's epoch then, if it says."""

    line: int
    epoch: int | None = None

    @classmethod
    def parse(cls, text: str) -> _Position:
        line, _, epoch = text.partition("-")
        return cls(int(line), int(epoch) if epoch else None)


async def _latest_position(service: Service, user: str) -> _Position:
    epoch = await service.epoch(user)
    newest = await service.history(Scope(user), limit=1)
    return _Position(newest[0].id if newest else 0, epoch)


class _ChangeStream:
    """One client's place in the history of a user."""

    def __init__(self, service: Callable[[], Service], user: str, start: _Position, *, is_stopping: Any) -> None:
        self._service = service
        self._user = user
        self._after = start.line
        self._epoch = start.epoch
        # When everything that had happened was told; before that, only the last line says how far the client is.
        self._sent_until: datetime | None = None
        self._is_stopping = is_stopping

    async def events(self, within_s: float | None) -> AsyncIterator[bytes]:
        """Events as they come about, and a sign of life where none do, until the time is over or the server stops."""
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
                # The ledger is away; whoever follows waits as others do, and misses nothing.
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
        while lines := await self._service().history(Scope(self._user), after=self._after, limit=_PAGE_SIZE):
            for line in lines:
                # JSON has no line breaks of its own, so an event's data is one line.
                data = json.dumps(line.to_dict(), ensure_ascii=False)
                yield f"id: {line.id}-{self._epoch}\nevent: {line.verb}\ndata: {data}\n\n".encode()
                self._after = line.id

    async def _next_erasure_event(self, epoch: int) -> bytes | None:
        """The event that tells what was erased since the client last heard of anything, if something was."""
        previous = self._epoch
        event = None
        # Who begins with the first line, or knows of this very epoch, has nothing to drop.
        if epoch != previous and not (previous is None and (not epoch or not self._after)):
            event = await self._build_erasure_event(epoch)
        self._epoch = epoch
        return event

    async def _build_erasure_event(self, epoch: int) -> bytes | None:
        service, since, line_exists = self._service(), self._sent_until, True
        if since is None:
            last = await service.history(Scope(self._user), before=self._after + 1, limit=1)
            since, line_exists = (last[0].at if last else None), bool(last) and last[0].id == self._after
        digest = user_digest(self._user)
        missed = [each for each in await service.erasure.list(since) if each.user == digest]
        if self._epoch is None and line_exists and not missed:
            return None
        plain = [each.to_dict() for each in missed]
        erasures = [
            {name: each[name] for name in ("id", "at", "target", "project", "session", "ids")} for each in plain
        ]
        # Where they are not as many as there were, something went of which nothing is kept.
        must_refetch = self._epoch is None or len(missed) != epoch - self._epoch
        data = json.dumps({"erasures": erasures, "fetch_anew": must_refetch}, ensure_ascii=False)
        return f"id: {self._after}-{epoch}\nevent: erased\ndata: {data}\n\n".encode()
