"""The routes of the server that mem0 users run themselves."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, HTTPException, Query, Request

from recollect.http.doors import mem0_alike as alike
from recollect.http.doors import mem0_given as given
from recollect.http.doors import mem0_shapes as shapes
from recollect.http.doors import mem0_work as work
from recollect.http.doors.asking import Asking, Serving
from recollect.http.doors.door import Door, check_known
from recollect.http.doors.mem0_names import FIELDS, read_names
from recollect.http.doors.mem0_parameters import MemoryId, Whose

router = Door(
    called="mem0_server",
    tags=["mem0 server"],
    strict=False,
    reading=["search"],
    adding=["add"],
)

_MOST = 1000


router.post("/memories", responses=router.failing(404))(alike.add)


@router.get("/memories")
async def get_all(
    caller: Asking,
    service: Serving,
    whose: Whose,
    limit: Annotated[int, Query(ge=1, le=_MOST, description="How many at most.")] = 100,
) -> shapes.Mem0Results:
    """The memories of those who are named, newest first."""
    asked = given.Mem0Wanted.model_validate(whose)
    return shapes.Mem0Results(results=(await work.listed(service, caller, asked, page=1, size=limit))[1])


@router.delete("/memories")
async def delete_all(
    caller: Asking,
    service: Serving,
    request: Request,
    whose: Whose,
) -> shapes.Mem0Told:
    """Forget all memories of those who are named; it can be undone."""
    check_known(request, set(FIELDS))
    await work.delete_all(service, caller, read_names(whose), {})
    return shapes.Mem0Told(message="All relevant memories deleted")


router.post("/search")(alike.search)
router.get("/memories/{memory_id}")(alike.get)


@router.put("/memories/{memory_id}")
async def update(caller: Asking, service: Serving, memory_id: MemoryId, change: given.Mem0Change) -> shapes.Mem0Told:
    """Change a memory; what it was stays in its history."""
    await work.update(service, caller, memory_id, change)
    return shapes.Mem0Told(message="Memory updated successfully!")


@router.delete("/memories/{memory_id}")
async def delete(caller: Asking, service: Serving, memory_id: MemoryId) -> shapes.Mem0Told:
    """Forget a memory; it can be undone."""
    await work.delete(service, caller, memory_id)
    return shapes.Mem0Told(message="Memory deleted successfully")


router.get("/memories/{memory_id}/history")(alike.history)


@router.post("/reset")
async def reset(caller: Asking, service: Serving) -> shapes.Mem0Told:
    """Forget all memories of everybody; only for an administrator."""
    await work.forget_everyone(service, caller)
    return shapes.Mem0Told(message="All memories reset")


@router.post("/configure")
async def configure(
    config: Annotated[dict[str, Any], Body(examples=[{"llm": {"provider": "openai"}}])],
) -> shapes.Mem0Told:
    """Refused: this server is set up by its operator, in its settings."""
    raise HTTPException(403, "this server is set up by its operator: `recollect config show` tells how")
