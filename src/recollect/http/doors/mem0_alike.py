"""The routes that mem0's platform and the server its users run have alike, but for their paths."""

from __future__ import annotations

from recollect.http.doors import mem0_given as given
from recollect.http.doors import mem0_shapes as shapes
from recollect.http.doors import mem0_work as work
from recollect.http.doors.asking import CallerDep, ServiceDep, SettingsDep
from recollect.http.doors.mem0_parameters import MemoryId


async def add(caller: CallerDep, service: ServiceDep, asked: given.Mem0Add) -> shapes.Mem0Added:
    """Learn from messages, or keep them word for word; gives what was added."""
    return await work.add(service, caller, asked)


async def search(
    caller: CallerDep, service: ServiceDep, settings: SettingsDep, asked: given.Mem0Search
) -> shapes.Mem0Results:
    """The memories that fit a query, best first."""
    return shapes.Mem0Results(results=await work.search(service, caller, settings, asked))


async def get(caller: CallerDep, service: ServiceDep, memory_id: MemoryId) -> shapes.Mem0Memory:
    """One memory."""
    return shapes.Mem0Memory.model_validate(await work.get(service, caller, memory_id))


async def history(caller: CallerDep, service: ServiceDep, memory_id: MemoryId) -> list[shapes.Mem0Happened]:
    """What happened to a memory, oldest first."""
    return await work.history(service, caller, memory_id)
