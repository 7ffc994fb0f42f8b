"""The memory API under /v1/memory: memories of a user and their projects."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Response
from pydantic import Field

from recollect.http.auth.caller import Caller
from recollect.http.compat.context import (
    EXCLUDE_TURNS,
    SEPARATOR,
    Context,
    ContextDep,
    ExpiringModel,
    matches_any,
    parse_public_id,
    public_id,
)
from recollect.http.errors import ErrorInfo
from recollect.http.params import IntegralFloat, Name, ResponseModel, StrictModel, Text, UnitFloat, example
from recollect.http.proxy.memory_options import InvalidField
from recollect.http.routing import Router
from recollect.model.memory import MemoryRecord, MemoryType
from recollect.model.query import Filter, Listing, both
from recollect.model.scope import Scope
from recollect.remember import MemoryInput

_ID_PREFIX = "mem_"
Type = Literal["semantic", "procedural", "episodic", "reflective"]
# Error codes of this API, by the code of the error or else by its status.
_CODES: dict[str | int, str] = {
    "MissingUser": "MISSING_USER_ID",
    "InvalidText": "INVALID_TEXT",
    401: "UNAUTHENTICATED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    409: "CONFLICT",
    413: "TOO_LARGE",
    421: "FOREIGN_HOST",
    429: "TOO_MANY_REQUESTS",
    503: "MEMORY_NOT_AVAILABLE",
    507: "MEMORY_NOT_AVAILABLE",
}


class StoredMemory(ResponseModel):
    """A memory."""

    id: str
    type: Type
    content: str
    user_id: str
    project_id: str | None = None
    source: str | None = None
    created_at: datetime
    access_count: int = Field(ge=0)
    importance: UnitFloat
    expires_at: datetime | None = None


class StoredMemories(ResponseModel):
    """A page of memories, newest first."""

    memories: list[StoredMemory]
    total: int = Field(ge=0, description="The number of memories on all pages.")
    limit: int
    cursor: str | None = Field(default=None, description="Requests the next page, if there is one.")


class ScoredMemory(ResponseModel):
    """A memory and its score."""

    memory: StoredMemory
    score: UnitFloat


class Retrieved(ResponseModel):
    """The memories that match a query, best first."""

    results: list[ScoredMemory]


class Deleted(ResponseModel):
    """The number of memories that were deleted."""

    success: bool = True
    message: str
    deleted: int = Field(ge=0)


class _UserBody(StrictModel):
    user_id: Name | None = Field(default=None, description="The user, unless the credentials name one.")


class NewMemory(_UserBody, ExpiringModel):
    """A memory to store verbatim."""

    model_config = example(type="semantic", content="User's budget for Hawaii is $10,000", user_id="user_123")

    content: Text
    type: Type = "semantic"
    project_id: Name | None = None
    source: Name | None = None
    importance: UnitFloat | None = None


class ChangedMemory(_UserBody, ExpiringModel):
    """New values for some fields of a memory."""

    model_config = example(content="Final Hawaii budget is $12,000")

    content: Text | None = None
    type: Type | None = None
    source: Name | None = None
    importance: UnitFloat | None = None


class MemoryQuery(_UserBody):
    """A search."""

    model_config = example(query="What's my budget for the trip?", user_id="user_123")

    query: Text
    project_id: Name | None = None
    types: list[Type] = Field(default_factory=list, description="Any of these; by default all.")
    limit: Annotated[int, Field(ge=1, le=100), IntegralFloat] | None = None
    threshold: UnitFloat | None = Field(default=None, description="The minimum score; by default `search_min_score`.")


class MemoryErrorDetail(ResponseModel):
    """A code for programs and a message for people."""

    code: str
    message: str


class MemoryApiError(ResponseModel):
    """An error."""

    error: MemoryErrorDetail


def _format_error(error: ErrorInfo) -> dict[str, Any]:
    default = "INTERNAL_ERROR" if error.status >= 500 else "INVALID_INPUT"
    code = _CODES.get(error.code) or _CODES.get(error.status, default)
    if error.parameter:
        code = f"INVALID_{error.parameter.upper()}"
    return {"error": {"code": code, "message": error.message}}


def _to_stored_memory(record: MemoryRecord, caller: Caller) -> StoredMemory:
    return StoredMemory(
        id=f"{_ID_PREFIX}{public_id(record, caller)}",
        type=record.type.value,
        content=record.content,
        user_id=record.scope.user,
        project_id=record.scope.project or None,
        source=record.source or None,
        created_at=record.created_at,
        access_count=record.access_count,
        importance=record.importance,
        expires_at=record.expires_at,
    )


def _parse_id(ctx: Context, memory_id: str, *users: str | None) -> tuple[Scope, str]:
    """Return the scope and record id; the user is in the id, or named besides it."""
    caller = ctx.caller
    for user in users:
        caller = caller.with_user(user)
    id = memory_id.removeprefix(_ID_PREFIX)
    return parse_public_id(id, caller) if SEPARATOR in id else (caller.scope(), id)


router = Router(
    "memory",
    prefix="/v1/memory",
    operation_prefix="memory_",
    error_format=_format_error,
    error_model=MemoryApiError,
    read_only=["search_memories"],
    write_only=["create_memory"],
)

_TYPE_PATTERN = "|".join(MemoryType)
UserId = Annotated[Name | None, Query(description="The user, unless the key names one.", examples=["user_123"])]
ProjectId = Annotated[Name | None, Query(description="Only memories of this project.", examples=["project_abc"])]
Types = Annotated[
    str | None,
    Query(
        alias="type",
        description="Only this type, or several separated by commas.",
        json_schema_extra={"pattern": f"^(?:{_TYPE_PATTERN})(?:,(?:{_TYPE_PATTERN}))*$"},
    ),
]
Limit = Annotated[int, Query(ge=1, le=100, description="The maximum number of memories.")]
Cursor = Annotated[str | None, Query(max_length=4000, description="The cursor of the previous page.")]
MemoryId = Annotated[str, Path(description="The id of a memory, as this API shows it.")]


def _type_filter(types: str | None) -> Filter:
    names = [each.strip() for each in types.split(",") if each.strip()] if types is not None else []
    if types is not None and (not names or not set(names) <= set(MemoryType)):
        raise InvalidField("type", f"must be one of {', '.join(MemoryType)}, or several separated by commas")
    return matches_any("type", names)


@router.get("", response_model_exclude_none=True)
async def list_memories(
    ctx: ContextDep,
    user_id: UserId = None,
    project_id: ProjectId = None,
    types: Types = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> StoredMemories:
    """List the memories of a user or project, newest first."""
    scope = ctx.caller.scope(user_id, project_id)
    listing = Listing(filter=both(_type_filter(types), EXCLUDE_TURNS), limit=limit, cursor=cursor)
    page = await ctx.service.find(scope, listing)
    memories = [_to_stored_memory(record, ctx.caller) for record in page]
    total = await ctx.service.count(scope, listing)
    return StoredMemories(memories=memories, total=total, limit=limit, cursor=page.cursor)


@router.post(
    "",
    status_code=201,
    response_model_exclude_none=True,
    responses={200: {"model": StoredMemory, "description": "The memory existed already."}},
)
async def create_memory(ctx: ContextDep, new: NewMemory, response: Response) -> StoredMemory:
    """Store a memory verbatim, without secrets.

    If a memory says the same (200) it takes over the type, source, importance and expiry.
    """
    expiry = new.expiry()
    fields = new.model_dump(include={"type", "source", "importance"}, exclude_none=True) | expiry
    merged = {name: each for name, each in fields.items() if name in new.model_fields_set} | expiry
    scope, draft = ctx.caller.scope(new.user_id, new.project_id), MemoryInput(content=new.content, fields=fields)
    added, result = await ctx.add(scope, draft, merged, is_shown=True)
    response.status_code = 201 if added.changed else 200
    return _to_stored_memory(result.record, ctx.caller)


@router.post("/search", response_model_exclude_none=True)
async def search_memories(ctx: ContextDep, body: MemoryQuery) -> Retrieved:
    """Return the memories that match a query, best first.

    With a project: its own memories and the user's; without one, those of all projects of the user.
    """
    hits = await ctx.search(
        ctx.caller.scope(body.user_id, body.project_id),
        body.query,
        limit=body.limit,
        min_score=body.threshold,
        filter=matches_any("type", body.types),
        everywhere=True,
    )
    return Retrieved(
        results=[
            ScoredMemory(memory=_to_stored_memory(hit.record, ctx.caller), score=round(hit.score, 6)) for hit in hits
        ]
    )


@router.get("/{memory_id}", response_model_exclude_none=True)
async def get_memory(ctx: ContextDep, memory_id: MemoryId, user_id: UserId = None) -> StoredMemory:
    """Return a memory. One of another user answers as if it did not exist."""
    return _to_stored_memory(await ctx.fetch(*_parse_id(ctx, memory_id, user_id)), ctx.caller)


@router.patch("/{memory_id}", response_model_exclude_none=True, operation_id="memory_change_memory")
@router.put("/{memory_id}", response_model_exclude_none=True)
async def update_memory(
    ctx: ContextDep, memory_id: MemoryId, body: ChangedMemory, user_id: UserId = None
) -> StoredMemory:
    """Change a memory; the history has the previous version."""
    scope, id = _parse_id(ctx, memory_id, user_id, body.user_id)
    record = await ctx.fetch_editable(scope, id)
    fields = body.model_dump(include={"content", "type", "source", "importance"}, exclude_none=True)
    fields |= body.expiry()
    if not fields:
        raise InvalidField("body", "changes nothing; send content, type, source, importance, ttl or expires_at")
    return _to_stored_memory(await ctx.update(scope, record.id, fields), ctx.caller)


@router.delete("/{memory_id}")
async def delete_memory(ctx: ContextDep, memory_id: MemoryId, user_id: UserId = None) -> Deleted:
    """Forget a memory and the turns it was learned from; this can be undone."""
    scope, id = _parse_id(ctx, memory_id, user_id)
    await ctx.forget(scope, (await ctx.fetch_editable(scope, id)).id)
    return Deleted(message="deleted 1 memory", deleted=1)


@router.delete("")
async def delete_memories(
    ctx: ContextDep, user_id: UserId = None, project_id: ProjectId = None, types: Types = None
) -> Deleted:
    """Forget all memories and turns of a user or project, of all types or some."""
    deleted = await ctx.forget_all(ctx.caller.scope(user_id, project_id), _type_filter(types))
    return Deleted(message=f"deleted {deleted} {'memory' if deleted == 1 else 'memories'}", deleted=deleted)
