"""What happens to a user's memories, as it happens: Server-Sent Events.

They are read from the ledger, so that it does not matter which process a change was made in: a number that is cheap
to ask for tells whether anything happened at all.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

from fastapi import Header, Query, Request
from fastapi.responses import StreamingResponse

from recollect.errors import RecollectError
from recollect.http.doors.own.asking import User
from recollect.http.doors.own.past import ENTRY
from recollect.http.doors.own.routing import Serving, router
from recollect.model.change import Verb
from recollect.model.scope import Scope
from recollect.service import Service

changes = router("changes")
EVENTS = "text/event-stream"
# What this process changes is told at once; what others do is looked for, but for a Redis that tells of it.
LOOK_EVERY_S = 0.5
LOOK_RARELY_S = 5.0
HEARTBEAT_S = 15.0
_PAGE = 100
# As far as every client can count.
_NUMBER = {"ge": 0, "le": 2**53 - 1}
_SCHEMA = {
    "type": "object",
    "description": "An event.",
    "properties": {
        "id": {"type": "string", "description": "The line's number, for Last-Event-ID."},
        "event": {"type": "string", "enum": [*map(str, Verb), "erased"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["event", "data"],
}
_EXAMPLE = f"retry: 1000\n\nid: 42\nevent: update\ndata: {json.dumps(ENTRY)}\n\n: still here\n\n"


@changes.get(
    "/changes",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": (
                "An event for each line of history: its id, the verb as the event's name, the line as its data. "
                "`erased` says that something was removed for good; it tells nothing of what it was."
            ),
            "content": {EVENTS: {"schema": _SCHEMA, "example": _EXAMPLE}},
        },
    },
)
async def follow_changes(
    request: Request,
    user: User,
    service: Serving,
    last_event_id: Annotated[
        str | None,
        Header(pattern="^[0-9]{1,15}$", description="Goes on after this event, as browsers ask by themselves."),
    ] = None,
    after: Annotated[
        int | None, Query(**_NUMBER, description="The same, where no header can be set; 0 begins with the first.")
    ] = None,
    within_s: Annotated[
        float | None, Query(ge=0, le=86400, description="Ends the stream after so long; by default it goes on.")
    ] = None,
) -> StreamingResponse:
    """Follow what happens to the user's memories, from now on or from an event on, whichever process does it."""
    begun_at = after if last_event_id is None else int(last_event_id)
    if begun_at is None:
        newest = await service.history(Scope(user), limit=1)
        begun_at = newest[0].id if newest else 0
    # A stream without an end outlives a service that another takes the place of.
    following = _Following(request.app.state.late.get, user, begun_at, stopping=request.app.state.stopping.is_set)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(following.events(within_s), media_type=EVENTS, headers=headers)


class _Following:
    """One client's place in the history of a user."""

    def __init__(self, service: Callable[[], Service], user: str, after: int, *, stopping: Any) -> None:
        self._service = service
        self._user = user
        self._after = after
        self._stopping = stopping

    async def events(self, within_s: float | None) -> AsyncIterator[bytes]:
        """Events as they come about, and a sign of life where none do, until the time is over or the server stops."""
        clock = asyncio.get_running_loop().time
        ends_at = None if within_s is None else clock() + within_s
        yield b"retry: 1000\n\n"
        seen = epoch = None
        told_at = clock()
        while True:
            try:
                revision = await self._service().revision(self._user)
                if epoch is not None and revision.epoch != epoch:
                    yield b"event: erased\ndata: {}\n\n"
                epoch = revision.epoch
                if revision != seen:
                    async for event in self._new():
                        yield event
                        told_at = clock()
                seen = revision
            except RecollectError:
                # The ledger is away; whoever follows waits as others do, and misses nothing.
                pass
            if clock() - told_at >= HEARTBEAT_S:
                yield b": still here\n\n"
                told_at = clock()
            if self._stopping() or (ends_at is not None and clock() >= ends_at):
                return
            news = self._service().news
            wait_s = LOOK_RARELY_S if news.is_shared else LOOK_EVERY_S
            await news.wait(self._user, wait_s if ends_at is None else min(wait_s, max(0, ends_at - clock())))

    async def _new(self) -> AsyncIterator[bytes]:
        while lines := await self._service().history(Scope(self._user), after=self._after, limit=_PAGE):
            for line in lines:
                # JSON has no line breaks of its own, so an event's data is one line.
                data = json.dumps(line.to_dict(), ensure_ascii=False)
                yield f"id: {line.id}\nevent: {line.verb}\ndata: {data}\n\n".encode()
                self._after = line.id
