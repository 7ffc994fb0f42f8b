"""OpenAI's Conversations: made, read, changed and deleted, with their items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from recollect.errors import Conflict, NotFound
from recollect.http.responses.asgi import Request
from recollect.http.responses.asked import Json, checked_items, read_object
from recollect.http.responses.before import held_thread
from recollect.http.responses.ids import fresh_id, with_id
from recollect.http.responses.reading import listed, page_asked, scope_of
from recollect.http.responses.wrong import BadRequest
from recollect.model.response import Thread, ThreadItems
from recollect.model.scope import Scope
from recollect.model.times import now

_MOST_ITEMS = 20


async def create(request: Request) -> None:
    """POST /v1/conversations"""
    body = await request.body()
    fields = read_object(body)[1] if body.strip() else {}
    items = _items(fields, may_be_missing=True)
    scope, id = request.whose(fields), fresh_id("conversation")
    made_at = now()
    thread = Thread(
        id=id,
        scope=replace(scope, session=scope.session or id),
        created_at=made_at,
        expires_at=made_at + request.parts.kept_for,
        metadata=_metadata(fields),
    )
    await request.parts.kept.responses.keep_thread(scope, thread)
    if items:
        await _add(request, scope, id, items)
    await request.answer_json(_told(thread))


async def retrieve(request: Request) -> None:
    """GET /v1/conversations/{id}"""
    scope = scope_of(request)
    await request.answer_json(_told(await _thread(request, scope)))


async def update(request: Request) -> None:
    """POST /v1/conversations/{id}"""
    fields = read_object(await request.body())[1]
    scope = request.whose(fields)
    if "metadata" not in fields:
        raise BadRequest("Missing required parameter: 'metadata'.", param="metadata")
    thread = replace(await _thread(request, scope), metadata=_metadata(fields))
    await request.parts.kept.responses.keep_thread(scope, thread)
    await request.answer_json(_told(thread))


async def delete(request: Request) -> None:
    """DELETE /v1/conversations/{id}"""
    scope = scope_of(request)
    thread = await _thread(request, scope)
    await request.parts.kept.responses.drop_thread(scope, thread.id)
    await request.answer_json({"id": thread.id, "object": "conversation.deleted", "deleted": True})


async def list_items(request: Request) -> None:
    """GET /v1/conversations/{id}/items"""
    scope = scope_of(request)
    thread = await _thread(request, scope)
    after, newest_first, limit = page_asked(request.query)
    items = await request.parts.kept.responses.thread_items(
        scope, thread.id, after=after, newest_first=newest_first, limit=limit + 1
    )
    await request.answer_json(listed(items, limit))


async def create_items(request: Request) -> None:
    """POST /v1/conversations/{id}/items"""
    fields = read_object(await request.body())[1]
    items = _items(fields, may_be_missing=False)
    scope = request.whose(fields)
    thread = await _thread(request, scope)
    added = await _add(request, scope, thread.id, items)
    await request.answer_json(listed(added, len(added)))


async def retrieve_item(request: Request) -> None:
    """GET /v1/conversations/{id}/items/{item_id}"""
    scope = scope_of(request)
    thread = await _thread(request, scope)
    await request.answer_json(dict(await _item(request, scope, thread)))


async def delete_item(request: Request) -> None:
    """DELETE /v1/conversations/{id}/items/{item_id}"""
    scope = scope_of(request)
    thread = await _thread(request, scope)
    item = await _item(request, scope, thread)
    await request.parts.kept.responses.drop_item(scope, thread.id, item["id"])
    await request.answer_json(_told(thread))


async def _thread(request: Request, scope: Scope) -> Thread:
    return await held_thread(request.named("conversation_id"), scope, request.parts, caller=request.caller)


async def _item(request: Request, scope: Scope, thread: Thread) -> Mapping[str, Any]:
    id = request.named("item_id")
    try:
        return await request.parts.kept.responses.thread_item(scope, thread.id, id)
    except NotFound:
        raise NotFound(f"Item with id '{id}' not found.") from None


async def _add(request: Request, scope: Scope, id: str, items: list[Json]) -> list[Json]:
    added = [with_id(item) for item in items]
    try:
        await request.parts.kept.responses.add_items(
            scope, ThreadItems(id, added, expires_at=now() + request.parts.kept_for)
        )
    except Conflict as error:
        raise BadRequest(f"{error}: leave the id out", param="items", code="duplicate_item") from None
    return added


def _items(fields: Mapping[str, Any], *, may_be_missing: bool) -> list[Json]:
    if fields.get("items") is None and may_be_missing:
        return []
    items = checked_items(fields.get("items"), param="items")
    if len(items) > _MOST_ITEMS:
        raise BadRequest(f"at most {_MOST_ITEMS} items can be added at a time", param="items")
    return items


def _metadata(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    given = {} if fields.get("metadata") is None else fields["metadata"]
    if not isinstance(given, dict):
        raise BadRequest("metadata must be an object", param="metadata", code="invalid_type")
    return given


def _told(thread: Thread) -> Json:
    return {
        "id": thread.id,
        "object": "conversation",
        "created_at": int(thread.created_at.timestamp()),
        "metadata": dict(thread.metadata),
    }
