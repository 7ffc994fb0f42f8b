"""The routes that mem0's platform and the server its users run have alike, but for their paths."""

from __future__ import annotations

import ast
import json
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request

from recollect.errors import InvalidInput, NotAllowed, NotFound
from recollect.http.api.schemas import FILTER_MARKER
from recollect.http.compat.mem0 import handlers as work
from recollect.http.compat.mem0 import requests as given
from recollect.http.compat.mem0 import responses as shapes
from recollect.http.compat.mem0.filters import DELETE_FILTER_SCHEMA_NAME, MAX_NAME_CHARS
from recollect.http.compat.mem0.requests import EntityName, EntityQuery, MemoryId
from recollect.http.compat.mem0.scope import FIELDS, parse_entity_ids, to_entity, user_from_filter
from recollect.http.compat.routing import CallerDep, CompatRouter, ServiceDep, SettingsDep, check_query_names
from recollect.http.compat.search import EXCLUDE_TURNS
from recollect.model.query import Listing


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


router = CompatRouter(
    operation_prefix="mem0",
    tags=["mem0 platform"],
    strict=False,
    read_only=["search", "search_before", "get_all", "get_all_before"],
    write_only=["add", "ping"],
)

_MAX_FILTER_CHARS = 4_000
# What clients add to every request of theirs; this server has no organisations.
_IGNORED_PARAMS = {"org_id", "project_id", "org_name", "project_name", "api_version", "output_format", "version"}
EntityKind = Annotated[Literal["user", "agent", "app", "run"], Path(description="What it is.", examples=["user"])]
Page = Annotated[int | None, Query(ge=1, description="Which page, from 1; without one, the first.")]
PageSize = Annotated[int, Query(ge=1, le=1000, description="How many on a page.")]
FilterParam = Annotated[
    str | None,
    Query(
        description="Which of their memories, as a filter in JSON.",
        json_schema_extra={
            "contentMediaType": "application/json",
            "contentSchema": {"type": "object", FILTER_MARKER: DELETE_FILTER_SCHEMA_NAME},
        },
    ),
]


@router.get("/v1/ping/")
async def ping() -> shapes.Mem0Pong:
    """Whether the key is good; clients ask when they are made."""
    return shapes.Mem0Pong()


router.post("/v3/memories/add/", responses=router.error_responses(404))(add)
router.post("/v1/memories/", operation_id="mem0_add_before", responses=router.error_responses(404))(add)
router.post("/v3/memories/search/")(search)


@router.post("/v1/memories/search/", operation_id="mem0_search_first")
@router.post("/v2/memories/search/")
async def search_before(
    caller: CallerDep, service: ServiceDep, settings: SettingsDep, asked: given.Mem0Search
) -> shapes.MemoryRows:
    """The memories that fit a query, best first, as earlier clients expect them: a bare list."""
    return await work.search(service, caller, settings, asked)


@router.post("/v3/memories/", responses=router.error_responses(404))
async def get_all(
    caller: CallerDep,
    service: ServiceDep,
    request: Request,
    asked: given.Mem0ListRequest,
    page: Page = None,
    page_size: PageSize = 100,
) -> shapes.Mem0Paged:
    """The memories that a filter lets through, newest first, a page at a time."""
    return await _list_page(caller, service, request, asked, page or 1, page_size)


@router.post("/v2/memories/", responses=router.error_responses(404))
async def get_all_before(
    caller: CallerDep,
    service: ServiceDep,
    request: Request,
    asked: given.Mem0ListRequest,
    page: Page = None,
    page_size: PageSize = 100,
) -> shapes.Mem0Paged | shapes.MemoryRows:
    """The same for earlier clients: a bare list unless a page is named."""
    result = await _list_page(caller, service, request, asked, page or 1, page_size)
    return result if page else result.results


@router.get("/v1/memories/", responses=router.error_responses(404))
async def get_all_first(
    caller: CallerDep,
    service: ServiceDep,
    request: Request,
    whose: EntityQuery,
    page: Page = None,
    page_size: PageSize = 100,
) -> shapes.Mem0Paged | shapes.MemoryRows:
    """The memories of those who are named, newest first, as the first clients ask for them."""
    list_request = given.Mem0ListRequest.model_validate(whose)
    result = await _list_page(caller, service, request, list_request, page or 1, page_size)
    return result if page else result.results


async def _list_page(
    caller: CallerDep,
    service: ServiceDep,
    request: Request,
    list_request: given.Mem0ListRequest,
    page: int,
    size: int,
) -> shapes.Mem0Paged:
    count, results = await work.list_memories(service, caller, list_request, page=page, size=size)
    return shapes.Mem0Paged(
        count=count,
        next=str(request.url.include_query_params(page=page + 1)) if page * size < count else None,
        previous=str(request.url.include_query_params(page=page - 1)) if page > 1 else None,
        results=results,
    )


@router.delete("/v1/memories/")
async def delete_all(
    caller: CallerDep,
    service: ServiceDep,
    request: Request,
    whose: EntityQuery,
    filters: FilterParam = None,
) -> shapes.Mem0Message:
    """Forget all memories of those who are named; it can be undone."""
    check_query_names(request, {*FIELDS, "filters", *_IGNORED_PARAMS})
    parsed = _parse_filters(filters)
    await work.delete_all(service, caller, parse_entity_ids(whose, user_from_filter(parsed)), parsed)
    return shapes.Mem0Message(message="Memories deleted successfully!")


def _parse_filters(text: str | None) -> dict[str, Any]:
    """A filter in a query string; the Python client writes it as Python does."""
    if text is None:
        return {}
    for parse in (json.loads, ast.literal_eval):
        try:
            filters = parse(text[:_MAX_FILTER_CHARS])
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(filters, dict):
            return filters
    raise InvalidInput('filters is an object in JSON, such as {"user_id": "alex"}')


router.get("/v1/memories/{memory_id}/")(get)


@router.put("/v1/memories/{memory_id}/")
async def update(
    caller: CallerDep, service: ServiceDep, memory_id: MemoryId, change: given.Mem0Change
) -> shapes.Mem0Memory:
    """Change a memory; what it was stays in its history."""
    return shapes.Mem0Memory.model_validate(await work.update(service, caller, memory_id, change))


@router.delete("/v1/memories/{memory_id}/")
async def delete(caller: CallerDep, service: ServiceDep, memory_id: MemoryId) -> shapes.Mem0Message:
    """Forget a memory; it can be undone."""
    await work.delete(service, caller, memory_id)
    return shapes.Mem0Message(message="Memory deleted successfully!")


router.get("/v1/memories/{memory_id}/history/")(history)


@router.put("/v1/batch/", responses=router.error_responses(404))
async def update_batch(caller: CallerDep, service: ServiceDep, asked: given.Mem0BatchChanges) -> shapes.Mem0Message:
    """Change several memories; none if one of them is not there."""
    count = await work.update_all(service, caller, asked.memories)
    return shapes.Mem0Message(message=f"Successfully updated {count} memories")


@router.delete("/v1/batch/", responses=router.error_responses(404))
async def delete_batch(caller: CallerDep, service: ServiceDep, asked: given.Mem0Batch) -> shapes.Mem0Message:
    """Forget several memories; none if one of them is not there."""
    count = await work.delete(service, caller, *(each.memory_id for each in asked.memories))
    return shapes.Mem0Message(message=f"Successfully deleted {count} memories")


@router.get("/v1/entities/")
async def entities(caller: CallerDep, service: ServiceDep) -> shapes.Mem0Entities:
    """Those who have memories: for a caller who is bound to a user, that user alone."""
    if caller.project is not None and caller.user is None:
        raise NotAllowed("who else there is concerns all projects, and this key is for one")
    results = []
    for user in [caller.user] if caller.user is not None else await service.users():
        kind, name = to_entity(user)
        if total := await service.count(caller.scope(user), Listing(filter=EXCLUDE_TURNS)):
            results.append(shapes.Mem0Entity(id=user, name=name, type=kind, total_memories=total))
    return shapes.Mem0Entities(count=len(results), results=results)


@router.delete("/v1/entities/{kind}/{name}/", operation_id="mem0_delete_entity_before")
@router.delete("/v2/entities/{kind}/{name}/")
async def delete_entity(
    caller: CallerDep, service: ServiceDep, kind: EntityKind, name: EntityName
) -> shapes.Mem0Message:
    """Forget all memories of a user, agent, app or run."""
    if len(name) > MAX_NAME_CHARS[f"{kind}_id"]:
        raise NotFound(f"no {kind} is called so: the name is too long for one")
    await work.delete_all(service, caller, parse_entity_ids({f"{kind}_id": name}), {})
    return shapes.Mem0Message(message="Entity deleted successfully.")
