"""Routes for export and import as JSON lines, streamed both ways."""

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
from recollect.http.api.responses import json_response
from recollect.http.routing import AuthorDep, ScopeDep, ServiceDep, UserDep, create_api_router
from recollect.transfer.import_ import ImportCounts

transfer_router = create_api_router("export and import")
NDJSON = "application/x-ndjson"
_BATCH_LINES = 500
_BATCH_BYTES = 4 << 20
_MAX_LINE_BYTES = 4 << 20
_CHUNK_BYTES = 1 << 16
_NDJSON_CONTENT = {
    NDJSON: {
        "schema": {
            "type": "string",
            "description": "A memory per line as JSON, then the sessions, a line each with `kind` `session`.",
        },
        "example": '{"memory": "The budget for the Hawaii trip is $10,000", "tags": ["travel"]}',
    }
}


class ImportResponse(BaseModel):
    """The result of an import."""

    lines: int
    added: int
    present: int = Field(description="Memories that existed already.")
    kept: int = Field(description="Facts whose existing value is more certain and was kept.")
    redacted: int = Field(description="Memories from which secrets were removed.")


@transfer_router.get(
    "/export",
    response_class=StreamingResponse,
    responses={200: {"description": "JSON lines.", "content": _NDJSON_CONTENT}},
)
async def export(
    scope: ScopeDep,
    service: ServiceDep,
    sessions: Annotated[bool, Query(description="Whether to export the state of sessions as well.")] = True,
) -> StreamingResponse:
    """Export every memory and turn of the scope in any status, a line each, oldest first; then its sessions.

    History, jobs, responses, usage and keys are not exported; backups have them. A stream that fails is cut off
    without a proper end, so that the client notices.
    """
    lines = service.transfer.export(scope, sessions=sessions)
    # An error of the first page can still be answered with an error status.
    first = await anext(lines, None)
    return StreamingResponse(_chunks(first, lines), media_type=NDJSON)


async def _chunks(first: dict[str, Any] | None, lines: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
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
    dependencies=[reject_idempotency_key("a memory that was imported before is skipped")],
    openapi_extra={
        "requestBody": {
            "description": "The lines of an export. All of them become memories of this user.",
            "required": True,
            "content": _NDJSON_CONTENT,
        }
    },
)
async def import_memories(request: Request, user: UserDep, author: AuthorDep, service: ServiceDep) -> JSONResponse:
    """Add the memories that do not exist yet, a line each; importing twice changes nothing.

    Turns count as learned from, unless their session says otherwise. History is not imported. An invalid line is
    reported with its number; the lines before it are imported, so correct it and send everything again.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != NDJSON:
        raise InvalidInput(f"Content-Type must be {NDJSON}")
    total, done = ImportCounts(), 0
    async for batch in _batches(request):
        total += await service.transfer.import_lines(batch, user=user, done=done, by=author)
        done += len(batch)
    counts = {"added": total.added, "present": total.present, "kept": total.kept, "redacted": total.redacted}
    return json_response({"lines": done, **counts})


async def _batches(request: Request) -> AsyncIterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    size = done = 0
    async for line in read_lines(request):
        if not line.strip():
            continue
        try:
            batch.append(json.loads(line))
        except (ValueError, RecursionError):
            number = done + len(batch) + 1
            raise InvalidInput(f"Line {number} is not valid JSON; the first {done} lines are imported") from None
        size += len(line)
        if len(batch) >= _BATCH_LINES or size >= _BATCH_BYTES:
            yield batch
            done += len(batch)
            batch, size = [], 0
    if batch:
        yield batch


async def read_lines(request: Request) -> AsyncIterator[bytes]:
    """Yield the lines of a request body as they arrive."""
    partial = b""
    try:
        async for chunk in request.stream():
            *complete, partial = (partial + chunk).split(b"\n")
            for line in complete:
                yield line
            if len(partial) > _MAX_LINE_BYTES:
                raise HTTPException(413, f"A line is larger than the limit of {_MAX_LINE_BYTES >> 20} MiB")
    except ClientDisconnect:
        raise InvalidInput("The stream was cut off; the complete batches before that are imported") from None
    if partial:
        yield partial
