"""OpenAI's Conversations: made, read, changed and deleted, with their items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from recollect.errors import Conflict, NotFound
from recollect.http.responses.asgi import AsgiRequest
from recollect.http.responses.errors import BadRequest
from recollect.http.responses.items import make_id, with_id
from recollect.http.responses.persistence import load_thread
from recollect.http.responses.request import Json, parse_json_object, validate_items
from recollect.http.responses.retrieve import parse_page, request_scope, to_page
from recollect.model.response import Thread, ThreadItems
from recollect.model.scope import Scope
from recollect.model.times import now

_MAX_ITEMS = 20


async def create(request: AsgiRequest) -> None:
    """POST /v1/conversations"""
    body = await request.body()
    fields = parse_json_object(body)[1] if body.strip() else {}
    items = _parse_items(fields, may_be_missing=True)
    scope, id = request.scope_for(fields), make_id("conversation")
    created_at = now()
    thread = Thread(
        id=id,
        scope=replace(scope, session=scope.session or id),
        created_at=created_at,
        expires_at=created_at + request.context.retention,
        metadata=_parse_metadata(fields),
    )
    await request.context.storage.responses.save_thread(scope, thread)
    if items:
        await _add_items(request, scope, id, items)
    await request.answer_json(_to_conversation(thread))


async def retrieve(request: AsgiRequest) -> None:
    """GET /v1/conversations/{id}"""
    scope = request_scope(request)
    await request.answer_json(_to_conversation(await _load_thread(request, scope)))


async def update(request: AsgiRequest) -> None:
    """POST /v1/conversations/{id}"""
    fields = parse_json_object(await request.body())[1]
    scope = request.scope_for(fields)
    if "metadata" not in fields:
        raise BadRequest("Missing required parameter: 'metadata'.", param="metadata")
    thread = replace(await _load_thread(request, scope), metadata=_parse_metadata(fields))
    await request.context.storage.responses.save_thread(scope, thread)
    await request.answer_json(_to_conversation(thread))


async def delete(request: AsgiRequest) -> None:
    """DELETE /v1/conversations/{id}"""
    scope = request_scope(request)
    thread = await _load_thread(request, scope)
    await request.context.storage.responses.drop_thread(scope, thread.id)
    await request.answer_json({"id": thread.id, "object": "conversation.deleted", "deleted": True})


async def list_items(request: AsgiRequest) -> None:
    """GET /v1/conversations/{id}/items"""
    scope = request_scope(request)
    thread = await _load_thread(request, scope)
    after, newest_first, limit = parse_page(request.query)
    items = await request.context.storage.responses.thread_items(
        scope, thread.id, after=after, newest_first=newest_first, limit=limit + 1
    )
    await request.answer_json(to_page(items, limit))


async def create_items(request: AsgiRequest) -> None:
    """POST /v1/conversations/{id}/items"""
    fields = parse_json_object(await request.body())[1]
    items = _parse_items(fields, may_be_missing=False)
    scope = request.scope_for(fields)
    thread = await _load_thread(request, scope)
    added = await _add_items(request, scope, thread.id, items)
    await request.answer_json(to_page(added, len(added)))


async def retrieve_item(request: AsgiRequest) -> None:
    """GET /v1/conversations/{id}/items/{item_id}"""
    scope = request_scope(request)
    thread = await _load_thread(request, scope)
    await request.answer_json(dict(await _load_item(request, scope, thread)))


async def delete_item(request: AsgiRequest) -> None:
    """DELETE /v1/conversations/{id}/items/{item_id}"""
    scope = request_scope(request)
    thread = await _load_thread(request, scope)
    item = await _load_item(request, scope, thread)
    await request.context.storage.responses.drop_item(scope, thread.id, item["id"])
    await request.answer_json(_to_conversation(thread))


async def _load_thread(request: AsgiRequest, scope: Scope) -> Thread:
    return await load_thread(request.path_param("conversation_id"), scope, request.context, caller=request.caller)


async def _load_item(request: AsgiRequest, scope: Scope, thread: Thread) -> Mapping[str, Any]:
    id = request.path_param("item_id")
    try:
        return await request.context.storage.responses.thread_item(scope, thread.id, id)
    except NotFound:
        raise NotFound(f"Item with id '{id}' not found.") from None


async def _add_items(request: AsgiRequest, scope: Scope, id: str, items: list[Json]) -> list[Json]:
    added = [with_id(item) for item in items]
    try:
        await request.context.storage.responses.add_items(
            scope, ThreadItems(id, added, expires_at=now() + request.context.retention)
        )
    except Conflict as error:
        raise BadRequest(f"{error}: leave the id out", param="items", code="duplicate_item") from None
    return added


def _parse_items(fields: Mapping[str, Any], *, may_be_missing: bool) -> list[Json]:
    if fields.get("items") is None and may_be_missing:
        return []
    items = validate_items(fields.get("items"), param="items")
    if len(items) > _MAX_ITEMS:
        raise BadRequest(f"at most {_MAX_ITEMS} items can be added at a time", param="items")
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
