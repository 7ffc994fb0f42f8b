"""The routes of the server that mem0 users run themselves."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, HTTPException, Query, Request

from recollect.http.compat.mem0 import handlers as work
from recollect.http.compat.mem0 import platform as alike
from recollect.http.compat.mem0 import requests as given
from recollect.http.compat.mem0 import responses as shapes
from recollect.http.compat.mem0.requests import EntityQuery, MemoryId
from recollect.http.compat.mem0.scope import FIELDS, parse_entity_ids
from recollect.http.compat.routing import CallerDep, CompatRouter, ServiceDep, check_query_names

router = CompatRouter(
    operation_prefix="mem0_server",
    tags=["mem0 server"],
    strict=False,
    read_only=["search"],
    write_only=["add"],
)

_MAX_LIMIT = 1000


router.post("/memories", responses=router.error_responses(404))(alike.add)


@router.get("/memories")
async def get_all(
    caller: CallerDep,
    service: ServiceDep,
    whose: EntityQuery,
    limit: Annotated[int, Query(ge=1, le=_MAX_LIMIT, description="How many at most.")] = 100,
) -> shapes.Mem0Results:
    """The memories of those who are named, newest first."""
    list_request = given.Mem0ListRequest.model_validate(whose)
    return shapes.Mem0Results(
        results=(await work.list_memories(service, caller, list_request, page=1, size=limit))[1]
    )


@router.delete("/memories")
async def delete_all(
    caller: CallerDep,
    service: ServiceDep,
    request: Request,
    whose: EntityQuery,
) -> shapes.Mem0Message:
    """Forget all memories of those who are named; it can be undone."""
    check_query_names(request, set(FIELDS))
    await work.delete_all(service, caller, parse_entity_ids(whose), {})
    return shapes.Mem0Message(message="All relevant memories deleted")


router.post("/search")(alike.search)
router.get("/memories/{memory_id}")(alike.get)


@router.put("/memories/{memory_id}")
async def update(
    caller: CallerDep, service: ServiceDep, memory_id: MemoryId, change: given.Mem0Change
) -> shapes.Mem0Message:
    """Change a memory; what it was stays in its history."""
    await work.update(service, caller, memory_id, change)
    return shapes.Mem0Message(message="Memory updated successfully!")


@router.delete("/memories/{memory_id}")
async def delete(caller: CallerDep, service: ServiceDep, memory_id: MemoryId) -> shapes.Mem0Message:
    """Forget a memory; it can be undone."""
    await work.delete(service, caller, memory_id)
    return shapes.Mem0Message(message="Memory deleted successfully")


router.get("/memories/{memory_id}/history")(alike.history)


@router.post("/reset")
async def reset(caller: CallerDep, service: ServiceDep) -> shapes.Mem0Message:
    """Forget all memories of everybody; only for an administrator."""
    await work.forget_all_users(service, caller)
    return shapes.Mem0Message(message="All memories reset")


@router.post("/configure")
async def configure(
    config: Annotated[dict[str, Any], Body(examples=[{"llm": {"provider": "openai"}}])],
) -> shapes.Mem0Message:
    """Refused: this server is set up by its operator, in its settings."""
    raise HTTPException(403, "this server is set up by its operator: `recollect config show` tells how")
