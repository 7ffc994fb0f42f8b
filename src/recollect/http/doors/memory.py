"""Memories of a user and their projects by REST: /v1/memory."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Response

from recollect.http.doors import memory_shapes as shapes
from recollect.http.doors.asking import CallerDep, ServiceDep, SettingsDep
from recollect.http.doors.door import CompatRouter
from recollect.http.doors.finding import (
    EXCLUDE_TURNS,
    build_search_request,
    fetch_memory,
    matches_any,
    merge_into_existing,
)
from recollect.http.doors.given import Name
from recollect.http.proxy.steering import InvalidField
from recollect.model.memory import MemoryType
from recollect.model.query import Filter, Listing, both
from recollect.remember import MemoryInput

router = CompatRouter(
    operation_prefix="memory",
    prefix="/v1/memory",
    tags=["memory"],
    render_error=shapes.render_memory_error,
    read_only=["search_memories"],
    write_only=["create_memory"],
    error_model=shapes.MemoryRefused,
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
) -> shapes.StoredMemories:
    """The memories of a user, or of one of their projects, newest first."""
    scope = caller.scope(user_id, project_id)
    listing = Listing(filter=both(_type_filter(types), EXCLUDE_TURNS), limit=limit, cursor=cursor)
    page = await service.find(scope, listing)
    memories = [shapes.to_stored_memory(record) for record in page]
    total = await service.count(scope, listing)
    return shapes.StoredMemories(memories=memories, total=total, limit=limit, cursor=page.cursor)


@router.post(
    "",
    status_code=201,
    response_model_exclude_none=True,
    responses={200: {"model": shapes.StoredMemory, "description": "It was there already; this is the one."}},
)
async def create_memory(
    caller: CallerDep, service: ServiceDep, new: shapes.NewMemory, response: Response
) -> shapes.StoredMemory:
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
    return shapes.to_stored_memory(
        (await merge_into_existing(service, scope, outcome, changes, by=caller.author())).record
    )


@router.post("/search", response_model_exclude_none=True)
async def search_memories(
    caller: CallerDep, service: ServiceDep, settings: SettingsDep, asked: shapes.MemoryQuery
) -> shapes.Retrieved:
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
    return shapes.Retrieved(results=[shapes.to_scored_memory(hit) for hit in hits])


@router.get("/{memory_id}", response_model_exclude_none=True)
async def get_memory(
    caller: CallerDep, service: ServiceDep, memory_id: MemoryId, user_id: UserId = None
) -> shapes.StoredMemory:
    """One memory. Another user's answers like one that there is not."""
    return shapes.to_stored_memory(await fetch_memory(service, caller.scope(user_id), memory_id))


@router.patch("/{memory_id}", response_model_exclude_none=True, operation_id="memory_change_memory")
@router.put("/{memory_id}", response_model_exclude_none=True)
async def update_memory(
    caller: CallerDep, service: ServiceDep, memory_id: MemoryId, changed: shapes.ChangedMemory, user_id: UserId = None
) -> shapes.StoredMemory:
    """Change a memory; what it was stays in its history."""
    scope = caller.with_user(user_id).scope(changed.user_id)
    record = caller.ensure_editable(await fetch_memory(service, scope, memory_id))
    fields = changed.model_dump(exclude={"user_id"}, exclude_none=True)
    if not fields:
        raise InvalidField("body", "changes nothing; give content, type, source or importance")
    return shapes.to_stored_memory((await service.update(scope, record.id, fields, by=caller.author())).record)


@router.delete("/{memory_id}")
async def delete_memory(
    caller: CallerDep, service: ServiceDep, memory_id: MemoryId, user_id: UserId = None
) -> shapes.Deleted:
    """Forget one memory, with the turns it was learned from; it is not found any more, and can be undone."""
    scope = caller.scope(user_id)
    record = caller.ensure_editable(await fetch_memory(service, scope, memory_id))
    await service.forget(scope, record.id, by=caller.author())
    return shapes.Deleted(message="deleted 1 memory", deleted=1)


@router.delete("")
async def delete_memories(
    caller: CallerDep, service: ServiceDep, user_id: UserId = None, project_id: ProjectId = None, types: Types = None
) -> shapes.Deleted:
    """Forget all memories of a user or of one of their projects, of one type or of all, with what was said there."""
    listing = Listing(filter=_type_filter(types))
    deleted = await service.forget_all(caller.scope(user_id, project_id), listing, by=caller.author())
    message = f"deleted {deleted} {'memory' if deleted == 1 else 'memories'}"
    return shapes.Deleted(message=message, deleted=deleted)
