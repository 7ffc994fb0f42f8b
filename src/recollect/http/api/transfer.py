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
from recollect.http.api.idempotency import reject_idempotency_key
from recollect.http.api.responses import WRITE_ERRORS, error_responses, json_response
from recollect.http.api.routing import AuthorDep, ScopeDep, ServiceDep, UserDep, create_router
from recollect.http.api.schemas import EXAMPLE_MEMORY
from recollect.transfer.import_ import ImportCounts

transfer_router = create_router("export and import")
NDJSON = "application/x-ndjson"
_BATCH_LINES = 500
_BATCH_BYTES = 4 << 20
_MAX_LINE_BYTES = 4 << 20
_CHUNK_BYTES = 1 << 16
_LINE_EXAMPLE = json.dumps(EXAMPLE_MEMORY)
_LINE_SCHEMA = {
    "type": "string",
    "description": "One memory a line, as JSON; then the sessions, a line each with `kind` `session`.",
}


class ImportResponse(BaseModel):
    """What an import came to."""

    lines: int = Field(examples=[120])
    added: int = Field(examples=[100])
    present: int = Field(description="Were there already.", examples=[19])
    kept: int = Field(description="Facts whose value here was surer, and stays.", examples=[1])
    redacted: int = Field(description="Of how many secrets were kept out.", examples=[0])


@transfer_router.get(
    "/export",
    response_class=StreamingResponse,
    responses={
        200: {"description": "JSON lines.", "content": {NDJSON: {"schema": _LINE_SCHEMA, "example": _LINE_EXAMPLE}}},
    },
)
async def export(
    place: ScopeDep,
    service: ServiceDep,
    sessions: Annotated[
        bool,
        Query(description="Whether to tell how sessions stand: summaries, invocations, how far they are learned."),
    ] = True,
) -> StreamingResponse:
    """Every memory and turn of the scope in any state, a line each, oldest first; then how its sessions stand.

    History, jobs, responses, usage and keys stay here: they are in backups. A stream that breaks off does not end as
    streams do: the client is told by its connection.
    """
    lines = service.transfer.export(place, sessions=sessions)
    # Whatever is wrong shows with the first page, while an error can still be answered as one.
    first = await anext(lines, None)
    return StreamingResponse(_chunks(first, lines), media_type=NDJSON)


async def _chunks(first: dict[str, Any] | None, lines: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """The lines, several to a chunk: each chunk is a step of the server's."""
    if first is None:
        return
    buffer = bytearray(_encode_line(first))
    async for line in lines:
        buffer += _encode_line(line)
        if len(buffer) >= _CHUNK_BYTES:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)


def _encode_line(line: dict[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


@transfer_router.post(
    "/import",
    response_model=ImportResponse,
    responses={**WRITE_ERRORS, **error_responses(409)},
    dependencies=[reject_idempotency_key("what was imported before is passed over when it comes again")],
    openapi_extra={
        "requestBody": {
            "description": "What `export` gave. All of it becomes this user's, whoever's it was.",
            "required": True,
            "content": {NDJSON: {"schema": _LINE_SCHEMA, "example": _LINE_EXAMPLE}},
        }
    },
)
async def import_memories(request: Request, user: UserDep, by: AuthorDep, service: ServiceDep) -> JSONResponse:
    """Add what is not there yet, a line each; doing it again changes nothing.

    Turns count as learned from, unless the session they came with says otherwise. History does not come along: it
    begins with the import. A line that is wrong is named, and those before it are imported: mend it, and send all of
    it again.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != NDJSON:
        raise InvalidInput(f"memories come in as {NDJSON}; say so in Content-Type")
    total, done = ImportCounts(), 0
    async for batch in _batches(request):
        total += await service.transfer.import_lines(batch, user=user, done=done, by=by)
        done += len(batch)
    counts = {"added": total.added, "present": total.present, "kept": total.kept, "redacted": total.redacted}
    return json_response({"lines": done, **counts})


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
    partial = b""
    try:
        async for chunk in request.stream():
            *complete, partial = (partial + chunk).split(b"\n")
            for line in complete:
                yield line
            if len(partial) > _MAX_LINE_BYTES:
                raise HTTPException(413, f"a line is larger than {_MAX_LINE_BYTES >> 20} MiB, which is the limit")
    except ClientDisconnect:
        raise InvalidInput("the stream broke off; whole batches before that are imported") from None
    if partial:
        yield partial
