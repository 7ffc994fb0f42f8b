"""Memories of a user and their projects by REST: /v1/memory."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Response

from recollect.http.doors import memory_shapes as shapes
from recollect.http.doors.asking import Asking, Serving, Set
from recollect.http.doors.door import Door
from recollect.http.doors.finding import NO_TURNS, among, held, looked_for, taken_on
from recollect.http.doors.given import Name
from recollect.http.proxy.steering import InvalidField
from recollect.model.memory import MemoryType
from recollect.model.query import Filter, Listing, both
from recollect.remember import NewMemory

router = Door(
    called="memory",
    prefix="/v1/memory",
    tags=["memory"],
    shape=shapes.refused,
    reading=["search_memories"],
    adding=["create_memory"],
    refused=shapes.MemoryRefused,
)

_TYPE = "|".join(MemoryType)
UserId = Annotated[Name | None, Query(description="Whose memories, unless a gateway says so.", examples=["user_123"])]
ProjectId = Annotated[Name | None, Query(description="Only those of this project.", examples=["project_abc"])]
Types = Annotated[
    str | None,
    Query(
        alias="type",
        description="Only this type, or these with commas between them.",
        examples=["semantic"],
        json_schema_extra={"pattern": f"^(?:{_TYPE})(?:,(?:{_TYPE}))*$"},
    ),
]
Limit = Annotated[int, Query(ge=1, le=100, description="How many at most.")]
Cursor = Annotated[str | None, Query(max_length=4000, description="Where to go on: the cursor of the page before.")]
MemoryId = Annotated[str, Path(description="The id of a memory.", examples=["0198c6f1-5d2a-7c31-9a44-8f5a2f6b1c90"])]


def _of_types(types: str | None) -> Filter:
    wanted = [each.strip() for each in types.split(",") if each.strip()] if types is not None else []
    if types is not None and (not wanted or not set(wanted) <= set(MemoryType)):
        raise InvalidField("type", f"is one of {', '.join(MemoryType)}, or several with commas between them")
    return among("type", wanted)


@router.get("", response_model_exclude_none=True)
async def list_memories(
    caller: Asking,
    service: Serving,
    user_id: UserId = None,
    project_id: ProjectId = None,
    types: Types = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> shapes.StoredMemories:
    """The memories of a user, or of one of their projects, newest first."""
    scope = caller.scope(user_id, project_id)
    listing = Listing(filter=both(_of_types(types), NO_TURNS), limit=limit, cursor=cursor)
    page = await service.find(scope, listing)
    memories = [shapes.shaped(record) for record in page]
    total = await service.count(scope, listing)
    return shapes.StoredMemories(memories=memories, total=total, limit=limit, cursor=page.cursor)


@router.post(
    "",
    status_code=201,
    response_model_exclude_none=True,
    responses={200: {"model": shapes.StoredMemory, "description": "It was there already; this is the one."}},
)
async def create_memory(
    caller: Asking, service: Serving, new: shapes.NewMemory, response: Response
) -> shapes.StoredMemory:
    """Keep a memory, word for word but for secrets.

    One that says the same as another is not kept twice (200): that one takes on the type, source and importance.
    """
    fields = new.model_dump(include={"type", "source", "importance"}, exclude_none=True)
    scope = caller.scope(new.user_id, new.project_id)
    outcome = caller.check_told(
        await service.add(scope, NewMemory(content=new.content, fields=fields), by=caller.by())
    )
    response.status_code = 201 if outcome.changed else 200
    said = {name: each for name, each in fields.items() if name in new.model_fields_set}
    return shapes.shaped((await taken_on(service, scope, outcome, said, by=caller.by())).record)


@router.post("/search", response_model_exclude_none=True)
async def search_memories(caller: Asking, service: Serving, settings: Set, asked: shapes.Query) -> shapes.Retrieved:
    """The memories that fit a query, best first.

    Of a project that is named: its own and the user's; without one, those of all projects of the user.
    """
    search = looked_for(
        asked.query,
        settings,
        limit=asked.limit,
        min_score=asked.threshold,
        filter=among("type", asked.types),
        everywhere=True,
    )
    hits = await service.search(caller.scope(asked.user_id, asked.project_id), search)
    return shapes.Retrieved(results=[shapes.found(hit) for hit in hits])


@router.get("/{memory_id}", response_model_exclude_none=True)
async def get_memory(
    caller: Asking, service: Serving, memory_id: MemoryId, user_id: UserId = None
) -> shapes.StoredMemory:
    """One memory. Another user's answers like one that there is not."""
    return shapes.shaped(await held(service, caller.scope(user_id), memory_id))


@router.patch("/{memory_id}", response_model_exclude_none=True, operation_id="memory_change_memory")
@router.put("/{memory_id}", response_model_exclude_none=True)
async def update_memory(
    caller: Asking, service: Serving, memory_id: MemoryId, changed: shapes.ChangedMemory, user_id: UserId = None
) -> shapes.StoredMemory:
    """Change a memory; what it was stays in its history."""
    scope = caller.named_by(user_id).scope(changed.user_id)
    record = caller.to_change(await held(service, scope, memory_id))
    fields = changed.model_dump(exclude={"user_id"}, exclude_none=True)
    if not fields:
        raise InvalidField("body", "changes nothing; give content, type, source or importance")
    return shapes.shaped((await service.update(scope, record.id, fields, by=caller.by())).record)


@router.delete("/{memory_id}")
async def delete_memory(
    caller: Asking, service: Serving, memory_id: MemoryId, user_id: UserId = None
) -> shapes.Deleted:
    """Forget one memory, with the turns it was learned from; it is not found any more, and can be undone."""
    scope = caller.scope(user_id)
    record = caller.to_change(await held(service, scope, memory_id))
    await service.forget(scope, record.id, by=caller.by())
    return shapes.Deleted(message="deleted 1 memory", deleted=1)


@router.delete("")
async def delete_memories(
    caller: Asking, service: Serving, user_id: UserId = None, project_id: ProjectId = None, types: Types = None
) -> shapes.Deleted:
    """Forget all memories of a user or of one of their projects, of one type or of all, with what was said there."""
    listing = Listing(filter=_of_types(types))
    deleted = await service.forget_all(caller.scope(user_id, project_id), listing, by=caller.by())
    told = f"deleted {deleted} {'memory' if deleted == 1 else 'memories'}"
    return shapes.Deleted(message=told, deleted=deleted)
