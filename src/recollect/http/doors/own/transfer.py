"""Memories out and in as JSON lines, both ways as they flow: however many there are, few are held at a time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from recollect.errors import InvalidInput
from recollect.http.doors.own.answers import WRITING, answered, failing
from recollect.http.doors.own.asking import Acting, Place, User
from recollect.http.doors.own.repeating import keyless
from recollect.http.doors.own.routing import Serving, router
from recollect.http.doors.own.shapes import MEMORY
from recollect.upkeep.transfer import Imported

transfer = router("export and import")
LINES = "application/x-ndjson"
_BATCH_LINES = 500
_BATCH_BYTES = 4 << 20
_LONGEST_LINE = 4 << 20
_CHUNK_BYTES = 1 << 16
_EXAMPLE = json.dumps(MEMORY)
_SCHEMA = {
    "type": "string",
    "description": "One memory a line, as JSON; then the sessions, a line each with `kind` `session`.",
}


class ImportTold(BaseModel):
    """What an import came to."""

    lines: int = Field(examples=[120])
    added: int = Field(examples=[100])
    present: int = Field(description="Were there already.", examples=[19])
    kept: int = Field(description="Facts whose value here was surer, and stays.", examples=[1])
    redacted: int = Field(description="Of how many secrets were kept out.", examples=[0])


@transfer.get(
    "/export",
    response_class=StreamingResponse,
    responses={
        200: {"description": "JSON lines.", "content": {LINES: {"schema": _SCHEMA, "example": _EXAMPLE}}},
    },
)
async def export(
    place: Place,
    service: Serving,
    sessions: Annotated[
        bool,
        Query(description="Whether to tell how sessions stand: summaries, invocations, how far they are learned."),
    ] = True,
) -> StreamingResponse:
    """Every memory and turn of the scope in any state, a line each, oldest first; then how its sessions stand.

    History, jobs, responses, usage and keys stay here: they are in backups. A stream that breaks off does not end as
    streams do: the client is told by its connection.
    """
    lines = service.moving.export(place, sessions=sessions)
    # Whatever is wrong shows with the first page, while an error can still be answered as one.
    first = await anext(lines, None)
    return StreamingResponse(_chunks(first, lines), media_type=LINES)


async def _chunks(first: dict[str, Any] | None, lines: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """The lines, several to a chunk: each chunk is a step of the server's."""
    if first is None:
        return
    waiting = bytearray(_line(first))
    async for line in lines:
        waiting += _line(line)
        if len(waiting) >= _CHUNK_BYTES:
            yield bytes(waiting)
            waiting.clear()
    yield bytes(waiting)


def _line(line: dict[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


@transfer.post(
    "/import",
    response_model=ImportTold,
    responses={**WRITING, **failing(409)},
    dependencies=[keyless("what was imported before is passed over when it comes again")],
    openapi_extra={
        "requestBody": {
            "description": "What `export` gave. All of it becomes this user's, whoever's it was.",
            "required": True,
            "content": {LINES: {"schema": _SCHEMA, "example": _EXAMPLE}},
        }
    },
)
async def import_memories(request: Request, user: User, by: Acting, service: Serving) -> JSONResponse:
    """Add what is not there yet, a line each; doing it again changes nothing.

    Turns count as learned from, unless the session they came with says otherwise. History does not come along: it
    begins with the import. A line that is wrong is named, and those before it are imported: mend it, and send all of
    it again.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != LINES:
        raise InvalidInput(f"memories come in as {LINES}; say so in Content-Type")
    total, done = Imported(), 0
    async for batch in _batches(request):
        total += await service.moving.import_lines(batch, user=user, done=done, by=by)
        done += len(batch)
    told = {"added": total.added, "present": total.present, "kept": total.kept, "redacted": total.redacted}
    return answered({"lines": done, **told})


async def _batches(request: Request) -> AsyncIterator[list[dict[str, Any]]]:
    """The lines as they come in, some at a time."""
    batch: list[dict[str, Any]] = []
    size = done = 0
    async for line in _lines(request):
        if not line.strip():
            continue
        try:
            batch.append(json.loads(line))
        except (ValueError, RecursionError):
            raise InvalidInput(
                f"line {done + len(batch) + 1} is no JSON; the {done} lines before are imported"
            ) from None
        size += len(line)
        if len(batch) >= _BATCH_LINES or size >= _BATCH_BYTES:
            yield batch
            done += len(batch)
            batch, size = [], 0
    if batch:
        yield batch


async def _lines(request: Request) -> AsyncIterator[bytes]:
    begun = b""
    try:
        async for chunk in request.stream():
            *whole, begun = (begun + chunk).split(b"\n")
            for line in whole:
                yield line
            if len(begun) > _LONGEST_LINE:
                raise HTTPException(413, f"a line is larger than {_LONGEST_LINE >> 20} MiB, which is the limit")
    except ClientDisconnect:
        raise InvalidInput("the stream broke off; whole batches before that are imported") from None
    if begun:
        yield begun
