"""The routes of the server that mem0 users run themselves."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, HTTPException, Query, Request

from recollect.http.doors import mem0_given as given
from recollect.http.doors import mem0_shapes as shapes
from recollect.http.doors import mem0_work as work
from recollect.http.doors.asking import Asking, Serving, Set
from recollect.http.doors.door import Door, check_known
from recollect.http.doors.mem0_names import FIELDS, read_names
from recollect.http.doors.mem0_parameters import AgentName, AppName, MemoryId, RunName, UserName

router = Door(
    called="mem0_server",
    tags=["mem0 server"],
    strict=False,
    reading=["search"],
    adding=["add"],
)

_MOST = 1000


@router.post("/memories", responses=router.failing(404))
async def add(caller: Asking, service: Serving, asked: given.Mem0Add) -> shapes.Mem0Added:
    """Learn from messages, or keep them word for word; gives what was added."""
    return await work.add(service, caller, asked)


@router.get("/memories")
async def get_all(
    caller: Asking,
    service: Serving,
    user_id: UserName = None,
    agent_id: AgentName = None,
    app_id: AppName = None,
    run_id: RunName = None,
    limit: Annotated[int, Query(ge=1, le=_MOST, description="How many at most.")] = 100,
) -> shapes.Mem0Results:
    """The memories of those who are named, newest first."""
    asked = given.Mem0Wanted(user_id=user_id, agent_id=agent_id, app_id=app_id, run_id=run_id)
    return shapes.Mem0Results(results=(await work.listed(service, caller, asked, page=1, size=limit))[1])


@router.delete("/memories")
async def delete_all(
    caller: Asking,
    service: Serving,
    request: Request,
    user_id: UserName = None,
    agent_id: AgentName = None,
    app_id: AppName = None,
    run_id: RunName = None,
) -> shapes.Mem0Told:
    """Forget all memories of those who are named; it can be undone."""
    check_known(request, set(FIELDS))
    names = read_names({"user_id": user_id, "agent_id": agent_id, "app_id": app_id, "run_id": run_id})
    await work.delete_all(service, caller, names, {})
    return shapes.Mem0Told(message="All relevant memories deleted")


@router.post("/search")
async def search(caller: Asking, service: Serving, settings: Set, asked: given.Mem0Search) -> shapes.Mem0Results:
    """The memories that fit a query, best first."""
    return shapes.Mem0Results(results=await work.search(service, caller, settings, asked))


@router.get("/memories/{memory_id}")
async def get(caller: Asking, service: Serving, memory_id: MemoryId) -> shapes.Mem0Memory:
    """One memory."""
    return shapes.Mem0Memory.model_validate(await work.get(service, caller, memory_id))


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


@router.get("/memories/{memory_id}/history")
async def history(caller: Asking, service: Serving, memory_id: MemoryId) -> list[shapes.Mem0Happened]:
    """What happened to a memory, oldest first."""
    return await work.history(service, caller, memory_id)


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
