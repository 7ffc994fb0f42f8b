"""Routes for export and import as JSON lines, and for erasing for good, with receipts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from recollect.errors import InvalidInput
from recollect.http.api.idempotency import idempotent, reject_idempotency_key
from recollect.http.api.schemas import ListOf, fields_of, json_response, list_response
from recollect.http.params import Id, Label, ResponseModel, StrictModel, Time, example
from recollect.http.routing import AuthorDep, RequireAdmin, ScopeDep, ServiceDep, UserDep, create_api_router
from recollect.model.arguments import parse_time
from recollect.model.erasure import (
    ErasureRequest,
    Receipt,
    Remade,
    StoreErasure,
    Target,
    UnreachedStore,
    parse_erasure,
    user_digest,
)
from recollect.model.scope import Scope
from recollect.transfer.import_ import ImportCounts

transfer_router = create_api_router("export and import")
NDJSON = "application/x-ndjson"
_BATCH_LINES = 500
_BATCH_BYTES = 1 << 20
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


class ImportResponse(ResponseModel):
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


erasure_router = create_api_router("erasing")
admin_erasure_router = create_api_router("admin", RequireAdmin)
Since = Annotated[Time | None, Query(description="Only erasures since this time.")]


class EraseBody(StrictModel):
    """The target of an erasure: a memory or a turn by its id, a session, a project, or the whole user."""

    model_config = example(target="session", session_id="monday")

    target: Annotated[Target, Field(strict=False)]
    id: Id | None = Field(default=None, description="The memory or turn.")
    session_id: Id | None = None
    project_id: Id | None = Field(default=None, description="The project, or the project of the session.")


@fields_of(StoreErasure)
class StoreErasureResponse(ResponseModel):
    """The result of an erasure in one store."""

    reached: bool = Field(description="Whether the bytes are gone as well.")


@fields_of(Remade, "at_end", "user_id")
class RebuiltItem(ResponseModel):
    """A derived item, such as a summary, that is rebuilt from the sources that stay."""


@fields_of(UnreachedStore)
class UnreachableStore(ResponseModel):
    """A store that the erasure cannot reach, and the remedy."""


@fields_of(Receipt, "what")
class ErasureReceiptResponse(ResponseModel):
    """The receipt of an erasure: ids and counts, and nothing of what was erased."""

    target: Target
    target_id: str | None
    reached: bool
    stores: list[StoreErasureResponse]
    remade: list[RebuiltItem]
    stays: list[str] = Field(description="The turns it was learned from, which stay; erase them separately.")
    hidden: list[str] = Field(description="The turns of `stays` that are forgotten, because they say the same.")
    out_of_reach: list[UnreachableStore]


class ErasureLogEntry(StrictModel):
    """An erasure in the log, to be replayed on an older backup; the user is a digest."""

    id: Id
    at: Time
    user: Id
    target: Annotated[Target, Field(strict=False)]
    project: Label = ""
    session: Label = ""
    ids: list[Id] = Field(default_factory=list)


class ReplayErasuresBody(StrictModel):
    """Erasures to replay on a database that was restored from an older backup."""

    model_config = example(
        erasures=[{"id": "e1", "at": "2026-03-15T10:00:00Z", "user": "3f0e1c5d2b7a4988", "target": "user"}]
    )

    erasures: list[ErasureLogEntry]


@erasure_router.post("/erase", response_model=ErasureReceiptResponse, responses=erasure_router.error_responses(404))
@idempotent(erases=True, ignores_key=lambda arguments: arguments["body"].target is Target.USER)
async def erase(body: EraseBody, user: UserDep, author: AuthorDep, service: ServiceDep) -> JSONResponse:
    """Erase a memory, a turn, a session, a project or the whole user for good, with everything derived from it.

    It cannot be undone. The receipt reports what was erased from each store, what stays and what is out of reach. The
    turns a memory was learned from are forgotten with it; erase each turn to remove it as well.
    """
    scope = Scope(user, body.project_id or "", body.session_id or "")
    request = ErasureRequest(body.target, body.id or "")
    return json_response(await service.erasure.erase(scope, request, by=author))


@erasure_router.get("/erasures", response_model=ListOf[ErasureLogEntry])
async def list_erasures(user: UserDep, service: ServiceDep, since: Since = None) -> JSONResponse:
    """List the user's erasures, oldest first."""
    erasures, digest = await service.erasure.list(parse_time(since, name="since")), user_digest(user)
    return list_response([each for each in erasures if each.user == digest])


@admin_erasure_router.get("/admin/erasures", response_model=ListOf[ErasureLogEntry])
async def list_all_erasures(service: ServiceDep, since: Since = None) -> JSONResponse:
    """List the erasures of all users, oldest first: keep them outside of the database and replay them on a backup."""
    return list_response(await service.erasure.list(parse_time(since, name="since")))


@admin_erasure_router.post(
    "/admin/erasures/replay",
    response_model=ListOf[ErasureReceiptResponse],
    dependencies=[reject_idempotency_key("an erasure that was replayed before is skipped")],
)
async def replay_erasures(body: ReplayErasuresBody, author: AuthorDep, service: ServiceDep) -> JSONResponse:
    """Erase, in a database restored from an older backup, what was erased since; returns a receipt for each erasure.

    Erasures that the database knows of, or that select nothing, are skipped. Replay before anything is written.
    """
    erasures = [parse_erasure(each.model_dump()) for each in body.erasures]
    return list_response(await service.erasure.replay(erasures, by=author))
