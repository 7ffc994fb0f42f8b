"""The routes of the server that mem0 users run themselves."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import HTTPException, Query, Request

from recollect.http.doors import mem0_shapes as shapes
from recollect.http.doors import mem0_work as work
from recollect.http.doors.asking import Asking, Serving, Set
from recollect.http.doors.door import Door, Refused, check_known, refusals
from recollect.http.doors.mem0_names import FIELDS, read_names

router = Door(
    tags=["mem0 server"],
    strict=False,
    reading=["search"],
    adding=["add"],
    responses=refusals(Refused, 400, 403, 404, 503),
)

_MOST = 1000
Name = Annotated[str | None, Query()]


@router.post("/memories")
async def add(caller: Asking, service: Serving, asked: shapes.Add) -> shapes.Added:
    """Learn from messages, or keep them word for word; gives what was added."""
    return await work.add(service, caller, asked)


@router.get("/memories")
async def get_all(
    caller: Asking,
    service: Serving,
    user_id: Name = None,
    agent_id: Name = None,
    app_id: Name = None,
    run_id: Name = None,
    limit: Annotated[int, Query(ge=1, le=_MOST)] = 100,
) -> shapes.Results:
    """The memories of those who are named, newest first."""
    asked = shapes.Wanted(user_id=user_id, agent_id=agent_id, app_id=app_id, run_id=run_id)
    return shapes.Results(results=(await work.listed(service, caller, asked, page=1, size=limit))[1])


@router.delete("/memories")
async def delete_all(
    caller: Asking,
    service: Serving,
    request: Request,
    user_id: Name = None,
    agent_id: Name = None,
    app_id: Name = None,
    run_id: Name = None,
) -> shapes.Told:
    """Forget all memories of those who are named; it can be undone."""
    check_known(request, set(FIELDS))
    names = read_names({"user_id": user_id, "agent_id": agent_id, "app_id": app_id, "run_id": run_id})
    await work.delete_all(service, caller, names, {})
    return shapes.Told(message="All relevant memories deleted")


@router.post("/search")
async def search(caller: Asking, service: Serving, settings: Set, asked: shapes.Search) -> shapes.Results:
    """The memories that fit a query, best first."""
    return shapes.Results(results=await work.search(service, caller, settings, asked))


@router.get("/memories/{memory_id}")
async def get(caller: Asking, service: Serving, memory_id: str) -> shapes.Memory:
    """One memory."""
    return shapes.Memory.model_validate(await work.get(service, caller, memory_id))


@router.put("/memories/{memory_id}")
async def update(caller: Asking, service: Serving, memory_id: str, change: shapes.Change) -> shapes.Told:
    """Change a memory; what it was stays in its history."""
    await work.update(service, caller, memory_id, change)
    return shapes.Told(message="Memory updated successfully!")


@router.delete("/memories/{memory_id}")
async def delete(caller: Asking, service: Serving, memory_id: str) -> shapes.Told:
    """Forget a memory; it can be undone."""
    await work.delete(service, caller, memory_id)
    return shapes.Told(message="Memory deleted successfully")


@router.get("/memories/{memory_id}/history")
async def history(caller: Asking, service: Serving, memory_id: str) -> list[shapes.Happened]:
    """What happened to a memory, oldest first."""
    return await work.history(service, caller, memory_id)


@router.post("/reset")
async def reset(caller: Asking, service: Serving) -> shapes.Told:
    """Forget all memories of everybody; only for an administrator."""
    await work.forget_everyone(service, caller)
    return shapes.Told(message="All memories reset")


@router.post("/configure")
async def configure(config: dict[str, Any]) -> shapes.Told:
    """Refused: this server is set up by its operator, in its settings."""
    raise HTTPException(403, "this server is set up by its operator: `recollect config show` tells how")
