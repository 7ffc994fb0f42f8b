"""OpenAI's Conversations: create, read, change and delete them and their items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from recollect.errors import Conflict, NotFound
from recollect.http.responses.asgi import AsgiRequest
from recollect.http.responses.items import make_id, with_id
from recollect.http.responses.persistence import load_thread
from recollect.http.responses.request import BadRequest, Json, parse_json_object, validate_items
from recollect.http.responses.retrieve import parse_page, to_page
from recollect.model.response import Thread, ThreadItems
from recollect.model.scope import Scope
from recollect.model.times import now

_MAX_ITEMS = 20


async def create(request: AsgiRequest) -> Json:
    """POST /v1/conversations"""
    body = await request.body()
    fields = (await parse_json_object(body)).fields if body.strip() else {}
    items = [] if fields.get("items") is None else _parse_items(fields)
    scope, id = request.memory_options(fields).scope, make_id("conversation")
    created_at = now()
    thread = Thread(
        id=id,
        scope=replace(scope, session=scope.session or id),
        created_at=created_at,
        expires_at=created_at + request.context.retention,
        metadata=_parse_metadata(fields),
    )
    await request.context.service().responses.save_thread(scope, thread)
    if items:
        await _add_items(request, scope, id, items)
    return _to_conversation(thread)


async def retrieve(request: AsgiRequest) -> Json:
    """GET /v1/conversations/{id}"""
    return _to_conversation(await _load_thread(request, request.query_scope()))


async def update(request: AsgiRequest) -> Json:
    """POST /v1/conversations/{id}"""
    fields = (await parse_json_object(await request.body())).fields
    scope = request.memory_options(fields).scope
    if "metadata" not in fields:
        raise BadRequest("Missing required parameter: 'metadata'.", param="metadata")
    thread = replace(await _load_thread(request, scope), metadata=_parse_metadata(fields))
    await request.context.service().responses.save_thread(scope, thread)
    return _to_conversation(thread)


async def delete(request: AsgiRequest) -> Json:
    """DELETE /v1/conversations/{id}"""
    scope = request.query_scope()
    thread = await _load_thread(request, scope)
    await request.context.service().responses.drop_thread(scope, thread.id)
    return {"id": thread.id, "object": "conversation.deleted", "deleted": True}


async def list_items(request: AsgiRequest) -> Json:
    """GET /v1/conversations/{id}/items"""
    scope = request.query_scope()
    thread = await _load_thread(request, scope)
    after, newest_first, limit = parse_page(request)
    items = await request.context.service().responses.thread_items(
        scope, thread.id, after=after, newest_first=newest_first, limit=limit + 1
    )
    return to_page(items, limit)


async def create_items(request: AsgiRequest) -> Json:
    """POST /v1/conversations/{id}/items"""
    fields = (await parse_json_object(await request.body())).fields
    items = _parse_items(fields)
    scope = request.memory_options(fields).scope
    thread = await _load_thread(request, scope)
    added = await _add_items(request, scope, thread.id, items)
    return to_page(added, len(added))


async def retrieve_item(request: AsgiRequest) -> Json:
    """GET /v1/conversations/{id}/items/{item_id}"""
    scope = request.query_scope()
    return await _load_item(request, scope, await _load_thread(request, scope))


async def delete_item(request: AsgiRequest) -> Json:
    """DELETE /v1/conversations/{id}/items/{item_id}"""
    scope = request.query_scope()
    thread = await _load_thread(request, scope)
    item = await _load_item(request, scope, thread)
    await request.context.service().responses.drop_item(scope, thread.id, item["id"])
    return _to_conversation(thread)


async def _load_thread(request: AsgiRequest, scope: Scope) -> Thread:
    return await load_thread(request.path_param("conversation_id"), scope, request.context, caller=request.caller)


async def _load_item(request: AsgiRequest, scope: Scope, thread: Thread) -> Json:
    id = request.path_param("item_id")
    try:
        return dict(await request.context.service().responses.thread_item(scope, thread.id, id))
    except NotFound:
        raise NotFound(f"Item with id '{id}' not found.") from None


async def _add_items(request: AsgiRequest, scope: Scope, id: str, items: list[Json]) -> list[Json]:
    added = [with_id(item) for item in items]
    try:
        await request.context.service().responses.add_items(
            scope, ThreadItems(id, added, expires_at=now() + request.context.retention)
        )
    except Conflict as error:
        raise BadRequest(f"{error}: leave the id out", param="items", code="duplicate_item") from None
    return added


def _parse_items(fields: Mapping[str, Any]) -> list[Json]:
    items = validate_items(fields.get("items"), param="items")
    if len(items) > _MAX_ITEMS:
        raise BadRequest(f"`items` must have at most {_MAX_ITEMS} items, got {len(items)}", param="items")
    return items


def _parse_metadata(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = {} if fields.get("metadata") is None else fields["metadata"]
    if not isinstance(metadata, dict):
        raise BadRequest("metadata must be an object", param="metadata", code="invalid_type")
    return metadata


def _to_conversation(thread: Thread) -> Json:
    return {
        "id": thread.id,
        "object": "conversation",
        "created_at": int(thread.created_at.timestamp()),
        "metadata": dict(thread.metadata),
    }
