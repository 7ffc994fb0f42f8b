"""The routes of mem0's platform, as its own clients call them (versions 1, 2 and 3 side by side)."""

from __future__ import annotations

import ast
import json
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request

from recollect.errors import InvalidInput, NotAllowed, NotFound
from recollect.http.doors import mem0_alike as alike
from recollect.http.doors import mem0_given as given
from recollect.http.doors import mem0_shapes as shapes
from recollect.http.doors import mem0_work as work
from recollect.http.doors.asking import Asking, Serving, Set
from recollect.http.doors.door import Door, check_known
from recollect.http.doors.finding import NO_TURNS
from recollect.http.doors.mem0_filter_schema import FILTER_TO_DELETE, MOST_CHARS
from recollect.http.doors.mem0_names import FIELDS, entity, read_names, user_in
from recollect.http.doors.mem0_parameters import EntityName, MemoryId, Whose
from recollect.http.doors.own.filter_schema import MARK
from recollect.model.query import Listing

router = Door(
    called="mem0",
    tags=["mem0 platform"],
    strict=False,
    reading=["search", "search_before", "get_all", "get_all_before"],
    adding=["add", "ping"],
)

_MOST_FILTER_CHARS = 4_000
# What clients add to every request of theirs; this server has no organisations.
_THEIRS = {"org_id", "project_id", "org_name", "project_name", "api_version", "output_format", "version"}
Kind = Annotated[Literal["user", "agent", "app", "run"], Path(description="What it is.", examples=["user"])]
Page = Annotated[int | None, Query(ge=1, description="Which page, from 1; without one, the first.")]
PageSize = Annotated[int, Query(ge=1, le=1000, description="How many on a page.")]
Whole = Annotated[
    str | None,
    Query(
        description="Which of their memories, as a filter in JSON.",
        json_schema_extra={
            "contentMediaType": "application/json",
            "contentSchema": {"type": "object", MARK: FILTER_TO_DELETE},
        },
    ),
]


@router.get("/v1/ping/")
async def ping() -> shapes.Mem0Pong:
    """Whether the key is good; clients ask when they are made."""
    return shapes.Mem0Pong()


router.post("/v3/memories/add/", responses=router.failing(404))(alike.add)
router.post("/v1/memories/", operation_id="mem0_add_before", responses=router.failing(404))(alike.add)
router.post("/v3/memories/search/")(alike.search)


@router.post("/v1/memories/search/", operation_id="mem0_search_first")
@router.post("/v2/memories/search/")
async def search_before(caller: Asking, service: Serving, settings: Set, asked: given.Mem0Search) -> shapes.Rows:
    """The memories that fit a query, best first, as earlier clients expect them: a bare list."""
    return await work.search(service, caller, settings, asked)


@router.post("/v3/memories/", responses=router.failing(404))
async def get_all(
    caller: Asking,
    service: Serving,
    request: Request,
    asked: given.Mem0Wanted,
    page: Page = None,
    page_size: PageSize = 100,
) -> shapes.Mem0Paged:
    """The memories that a filter lets through, newest first, a page at a time."""
    return await _paged(caller, service, request, asked, page or 1, page_size)


@router.post("/v2/memories/", responses=router.failing(404))
async def get_all_before(
    caller: Asking,
    service: Serving,
    request: Request,
    asked: given.Mem0Wanted,
    page: Page = None,
    page_size: PageSize = 100,
) -> shapes.Mem0Paged | shapes.Rows:
    """The same for earlier clients: a bare list unless a page is named."""
    told = await _paged(caller, service, request, asked, page or 1, page_size)
    return told if page else told.results


@router.get("/v1/memories/", responses=router.failing(404))
async def get_all_first(
    caller: Asking,
    service: Serving,
    request: Request,
    whose: Whose,
    page: Page = None,
    page_size: PageSize = 100,
) -> shapes.Mem0Paged | shapes.Rows:
    """The memories of those who are named, newest first, as the first clients ask for them."""
    asked = given.Mem0Wanted.model_validate(whose)
    told = await _paged(caller, service, request, asked, page or 1, page_size)
    return told if page else told.results


async def _paged(
    caller: Asking, service: Serving, request: Request, asked: given.Mem0Wanted, page: int, size: int
) -> shapes.Mem0Paged:
    count, results = await work.listed(service, caller, asked, page=page, size=size)
    return shapes.Mem0Paged(
        count=count,
        next=str(request.url.include_query_params(page=page + 1)) if page * size < count else None,
        previous=str(request.url.include_query_params(page=page - 1)) if page > 1 else None,
        results=results,
    )


@router.delete("/v1/memories/")
async def delete_all(
    caller: Asking,
    service: Serving,
    request: Request,
    whose: Whose,
    filters: Whole = None,
) -> shapes.Mem0Told:
    """Forget all memories of those who are named; it can be undone."""
    check_known(request, {*FIELDS, "filters", *_THEIRS})
    chosen = _read_filters(filters)
    await work.delete_all(service, caller, read_names(whose, user_in(chosen)), chosen)
    return shapes.Mem0Told(message="Memories deleted successfully!")


def _read_filters(text: str | None) -> dict[str, Any]:
    """A filter in a query string; the Python client writes it as Python does."""
    if text is None:
        return {}
    for read in (json.loads, ast.literal_eval):
        try:
            filters = read(text[:_MOST_FILTER_CHARS])
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(filters, dict):
            return filters
    raise InvalidInput('filters is an object in JSON, such as {"user_id": "alex"}')


router.get("/v1/memories/{memory_id}/")(alike.get)


@router.put("/v1/memories/{memory_id}/")
async def update(
    caller: Asking, service: Serving, memory_id: MemoryId, change: given.Mem0Change
) -> shapes.Mem0Memory:
    """Change a memory; what it was stays in its history."""
    return shapes.Mem0Memory.model_validate(await work.update(service, caller, memory_id, change))


@router.delete("/v1/memories/{memory_id}/")
async def delete(caller: Asking, service: Serving, memory_id: MemoryId) -> shapes.Mem0Told:
    """Forget a memory; it can be undone."""
    await work.delete(service, caller, memory_id)
    return shapes.Mem0Told(message="Memory deleted successfully!")


router.get("/v1/memories/{memory_id}/history/")(alike.history)


@router.put("/v1/batch/", responses=router.failing(404))
async def update_batch(caller: Asking, service: Serving, asked: given.Mem0BatchChanges) -> shapes.Mem0Told:
    """Change several memories; none if one of them is not there."""
    count = await work.update_all(service, caller, asked.memories)
    return shapes.Mem0Told(message=f"Successfully updated {count} memories")


@router.delete("/v1/batch/", responses=router.failing(404))
async def delete_batch(caller: Asking, service: Serving, asked: given.Mem0Batch) -> shapes.Mem0Told:
    """Forget several memories; none if one of them is not there."""
    count = await work.delete(service, caller, *(each.memory_id for each in asked.memories))
    return shapes.Mem0Told(message=f"Successfully deleted {count} memories")


@router.get("/v1/entities/")
async def entities(caller: Asking, service: Serving) -> shapes.Mem0Entities:
    """Those who have memories: for a caller who is bound to a user, that user alone."""
    if caller.project is not None and caller.user is None:
        raise NotAllowed("who else there is concerns all projects, and this key is for one")
    results = []
    for user in [caller.user] if caller.user is not None else await service.users():
        kind, name = entity(user)
        if total := await service.count(caller.scope(user), Listing(filter=NO_TURNS)):
            results.append(shapes.Mem0Entity(id=user, name=name, type=kind, total_memories=total))
    return shapes.Mem0Entities(count=len(results), results=results)


@router.delete("/v1/entities/{kind}/{name}/", operation_id="mem0_delete_entity_before")
@router.delete("/v2/entities/{kind}/{name}/")
async def delete_entity(caller: Asking, service: Serving, kind: Kind, name: EntityName) -> shapes.Mem0Told:
    """Forget all memories of a user, agent, app or run."""
    if len(name) > MOST_CHARS[f"{kind}_id"]:
        raise NotFound(f"no {kind} is called so: the name is too long for one")
    await work.delete_all(service, caller, read_names({f"{kind}_id": name}), {})
    return shapes.Mem0Told(message="Entity deleted successfully.")
