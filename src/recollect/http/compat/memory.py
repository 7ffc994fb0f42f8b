"""The shapes of /v1/memory: a memory, lists of them, what is asked, and how it is refused."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from recollect.http.compat.routing import CallerDep, CompatRouter, ServiceDep, SettingsDep
from recollect.http.compat.search import (
    EXCLUDE_TURNS,
    build_search_request,
    fetch_memory,
    matches_any,
    merge_into_existing,
)
from recollect.http.errors import ErrorInfo
from recollect.http.params import IntegralFloat, Name, StrictModel, Text, UnitFloat, require_one_of
from recollect.http.proxy.memory_options import InvalidField
from recollect.model.memory import MemoryRecord, MemoryType
from recollect.model.query import Filter, Listing, both
from recollect.model.result import Hit
from recollect.remember import MemoryInput

Type = Literal["semantic", "procedural", "episodic", "reflective"]
_ID = "0198c6f1-5d2a-7c31-9a44-8f5a2f6b1c90"
_BUDGET = "User's budget for Hawaii is $10,000"
_EXAMPLE: dict[str, JsonValue] = {
    "id": _ID,
    "type": "semantic",
    "content": _BUDGET,
    "user_id": "user_123",
    "project_id": "project_abc",
    "source": "conversation",
    "created_at": "2026-03-15T10:00:00Z",
    "access_count": 3,
    "importance": 0.8,
}
# What each of our errors is called here.
_CODES = {
    "MissingUser": "MISSING_USER_ID",
    "Unauthenticated": "UNAUTHENTICATED",
    "NotAllowed": "FORBIDDEN",
    "NotFound": "NOT_FOUND",
    "InvalidText": "INVALID_TEXT",
}
# What is told by its status alone, whoever refuses.
_BY_STATUS = {
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


class StoredMemory(BaseModel):
    """A memory."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    id: str
    type: Type
    content: str
    user_id: str
    project_id: str | None = None
    source: str | None = None
    created_at: datetime
    access_count: int = Field(ge=0)
    importance: UnitFloat


class StoredMemories(BaseModel):
    """Some memories, newest first; `cursor` goes on from there, if there are more."""

    memories: list[StoredMemory]
    total: int = Field(ge=0, description="How many there are in all.", examples=[1])
    limit: int = Field(examples=[20])
    cursor: str | None = None


class ScoredMemory(BaseModel):
    """A memory and how well it fits, from 0 to 1."""

    memory: StoredMemory
    score: UnitFloat = Field(examples=[0.91])


class Retrieved(BaseModel):
    """What fits a query, best first."""

    results: list[ScoredMemory]


class Deleted(BaseModel):
    """What was deleted."""

    success: bool = Field(default=True, examples=[True])
    message: str = Field(examples=["deleted 1 memory"])
    deleted: int = Field(ge=0, examples=[1])


class _UserBody(StrictModel):
    user_id: Name | None = Field(default=None, description="Whose memory it is, unless a gateway says so.")


class NewMemory(_UserBody):
    """A memory to keep, word for word."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"type": "semantic", "content": _BUDGET, "user_id": "user_123"}]}
    )

    content: Text
    type: Type = "semantic"
    project_id: Name | None = None
    source: Name | None = None
    importance: UnitFloat | None = None


class ChangedMemory(_UserBody):
    """What is to be different; what is left out stays."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [*require_one_of("content", "type", "source"), *require_one_of("importance", kind="number")],
            "examples": [{"content": "Final Hawaii budget is $12,000"}],
        }
    )

    content: Text | None = None
    type: Type | None = None
    source: Name | None = None
    importance: UnitFloat | None = None


class MemoryQuery(_UserBody):
    """What is looked for, and whose it is."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "What's my budget for the trip?", "user_id": "user_123"}]}
    )

    query: Text
    project_id: Name | None = None
    types: list[Type] = Field(default_factory=list, description="Only these types; without any, all.")
    limit: Annotated[int, Field(ge=1, le=100), IntegralFloat] | None = None
    threshold: UnitFloat | None = Field(default=None, description="Least score; without one, what is set up.")


class ErrorBody(BaseModel):
    """What went wrong, as a code and in words."""

    code: str = Field(examples=["NOT_FOUND"])
    message: str = Field(examples=[f"no memory {_ID}"])


class MemoryRefused(BaseModel):
    """A refusal."""

    error: ErrorBody


def render_memory_error(error: ErrorInfo) -> tuple[int, dict[str, Any]]:
    """A refusal with its code; what does not answer is told as memory that is not there."""
    default = "INTERNAL_ERROR" if error.status >= 500 else "INVALID_INPUT"
    code = _CODES.get(error.kind) or _BY_STATUS.get(error.status, default)
    if error.field:
        code = f"INVALID_{error.field.upper()}"
    return error.status, {"error": {"code": code, "message": error.message}}


def to_stored_memory(record: MemoryRecord) -> StoredMemory:
    """A memory as this door shows it."""
    return StoredMemory(
        id=record.id,
        type=record.type.value,
        content=record.content,
        user_id=record.scope.user,
        project_id=record.scope.project or None,
        source=record.source or None,
        created_at=record.created_at,
        access_count=record.access_count,
        importance=record.importance,
    )


def to_scored_memory(hit: Hit) -> ScoredMemory:
    """A hit as this door shows it."""
    return ScoredMemory(memory=to_stored_memory(hit.record), score=round(hit.score, 6))


router = CompatRouter(
    operation_prefix="memory",
    prefix="/v1/memory",
    tags=["memory"],
    render_error=render_memory_error,
    read_only=["search_memories"],
    write_only=["create_memory"],
    error_model=MemoryRefused,
)

_TYPE_PATTERN = "|".join(MemoryType)
UserId = Annotated[Name | None, Query(description="Whose memories, unless a gateway says so.", examples=["user_123"])]
ProjectId = Annotated[Name | None, Query(description="Only those of this project.", examples=["project_abc"])]
Types = Annotated[
    str | None,
    Query(
        alias="type",
        description="Only this type, or these with commas between them.",
        examples=["semantic"],
        json_schema_extra={"pattern": f"^(?:{_TYPE_PATTERN})(?:,(?:{_TYPE_PATTERN}))*$"},
    ),
]
Limit = Annotated[int, Query(ge=1, le=100, description="How many at most.")]
Cursor = Annotated[str | None, Query(max_length=4000, description="Where to go on: the cursor of the page before.")]
MemoryId = Annotated[str, Path(description="The id of a memory.", examples=["0198c6f1-5d2a-7c31-9a44-8f5a2f6b1c90"])]


def _type_filter(types: str | None) -> Filter:
    names = [each.strip() for each in types.split(",") if each.strip()] if types is not None else []
    if types is not None and (not names or not set(names) <= set(MemoryType)):
        raise InvalidField("type", f"is one of {', '.join(MemoryType)}, or several with commas between them")
    return matches_any("type", names)


@router.get("", response_model_exclude_none=True)
async def list_memories(
    caller: CallerDep,
    service: ServiceDep,
    user_id: UserId = None,
    project_id: ProjectId = None,
    types: Types = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> StoredMemories:
    """The memories of a user, or of one of their projects, newest first."""
    scope = caller.scope(user_id, project_id)
    listing = Listing(filter=both(_type_filter(types), EXCLUDE_TURNS), limit=limit, cursor=cursor)
    page = await service.find(scope, listing)
    memories = [to_stored_memory(record) for record in page]
    total = await service.count(scope, listing)
    return StoredMemories(memories=memories, total=total, limit=limit, cursor=page.cursor)


@router.post(
    "",
    status_code=201,
    response_model_exclude_none=True,
    responses={200: {"model": StoredMemory, "description": "It was there already; this is the one."}},
)
async def create_memory(caller: CallerDep, service: ServiceDep, new: NewMemory, response: Response) -> StoredMemory:
    """Keep a memory, word for word but for secrets.

    One that says the same as another is not kept twice (200): that one takes on the type, source and importance.
    """
    fields = new.model_dump(include={"type", "source", "importance"}, exclude_none=True)
    scope = caller.scope(new.user_id, new.project_id)
    outcome = caller.check_outcome_visible(
        await service.add(scope, MemoryInput(content=new.content, fields=fields), by=caller.author())
    )
    response.status_code = 201 if outcome.changed else 200
    changes = {name: each for name, each in fields.items() if name in new.model_fields_set}
    return to_stored_memory((await merge_into_existing(service, scope, outcome, changes, by=caller.author())).record)


@router.post("/search", response_model_exclude_none=True)
async def search_memories(
    caller: CallerDep, service: ServiceDep, settings: SettingsDep, asked: MemoryQuery
) -> Retrieved:
    """The memories that fit a query, best first.

    Of a project that is named: its own and the user's; without one, those of all projects of the user.
    """
    search = build_search_request(
        asked.query,
        settings,
        limit=asked.limit,
        min_score=asked.threshold,
        filter=matches_any("type", asked.types),
        everywhere=True,
    )
    hits = await service.search(caller.scope(asked.user_id, asked.project_id), search)
    return Retrieved(results=[to_scored_memory(hit) for hit in hits])


@router.get("/{memory_id}", response_model_exclude_none=True)
async def get_memory(
    caller: CallerDep, service: ServiceDep, memory_id: MemoryId, user_id: UserId = None
) -> StoredMemory:
    """One memory. Another user's answers like one that there is not."""
    return to_stored_memory(await fetch_memory(service, caller.scope(user_id), memory_id))


@router.patch("/{memory_id}", response_model_exclude_none=True, operation_id="memory_change_memory")
@router.put("/{memory_id}", response_model_exclude_none=True)
async def update_memory(
    caller: CallerDep, service: ServiceDep, memory_id: MemoryId, changed: ChangedMemory, user_id: UserId = None
) -> StoredMemory:
    """Change a memory; what it was stays in its history."""
    scope = caller.with_user(user_id).scope(changed.user_id)
    record = caller.ensure_editable(await fetch_memory(service, scope, memory_id))
    fields = changed.model_dump(exclude={"user_id"}, exclude_none=True)
    if not fields:
        raise InvalidField("body", "changes nothing; give content, type, source or importance")
    return to_stored_memory((await service.update(scope, record.id, fields, by=caller.author())).record)


@router.delete("/{memory_id}")
async def delete_memory(
    caller: CallerDep, service: ServiceDep, memory_id: MemoryId, user_id: UserId = None
) -> Deleted:
    """Forget one memory, with the turns it was learned from; it is not found any more, and can be undone."""
    scope = caller.scope(user_id)
    record = caller.ensure_editable(await fetch_memory(service, scope, memory_id))
    await service.forget(scope, record.id, by=caller.author())
    return Deleted(message="deleted 1 memory", deleted=1)


@router.delete("")
async def delete_memories(
    caller: CallerDep, service: ServiceDep, user_id: UserId = None, project_id: ProjectId = None, types: Types = None
) -> Deleted:
    """Forget all memories of a user or of one of their projects, of one type or of all, with what was said there."""
    listing = Listing(filter=_type_filter(types))
    deleted = await service.forget_all(caller.scope(user_id, project_id), listing, by=caller.author())
    message = f"deleted {deleted} {'memory' if deleted == 1 else 'memories'}"
    return Deleted(message=message, deleted=deleted)
