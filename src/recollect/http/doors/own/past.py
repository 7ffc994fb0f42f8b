"""What happened, and taking it back."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from recollect.http.doors.own.answers import (
    WRITE_ERRORS,
    decode_cursor,
    encode_cursor,
    error_responses,
    json_response,
    page_response,
)
from recollect.http.doors.own.asking import AuthorDep, MemoryScopeDep, ScopeDep, UserDep
from recollect.http.doors.own.repeating import idempotent
from recollect.http.doors.own.routing import ServiceDep, create_router
from recollect.http.doors.own.shapes import (
    ChangedList,
    Cursor,
    IntegralFloat,
    JsonObject,
    Limit,
    NextCursor,
    StrictBody,
)
from recollect.model.scope import Scope

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
