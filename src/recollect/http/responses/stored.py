"""Stored responses and conversations: read, list, change and delete them and their items."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from recollect.errors import Conflict, NotFound, RecollectError
from recollect.http.proxy.asgi_io import BadRequest, headers_for_upstream
from recollect.http.responses.items import make_id, with_id
from recollect.http.responses.persistence import load_thread
from recollect.http.responses.request import AsgiRequest, Json, parse_json_object, validate_items
from recollect.http.upstream.router import UpstreamRequest
from recollect.model.response import Plain, StoredResponse, Thread, ThreadItems
from recollect.model.scope import Scope
from recollect.model.times import now

_log = logging.getLogger("recollect")
_MAX_PAGE = 100


async def retrieve_response(request: AsgiRequest) -> Json:
    """Return a stored response."""
    if dict(request.query).get("stream", "").lower() in ("true", "1"):
        raise BadRequest(
            "a response that was answered cannot be streamed again: leave stream out to get it whole",
            param="stream",
            code="unsupported_value",
        )
    scope, id = request.query_scope(), request.path_param("response_id")
    return dict((await _load_response(request, scope, id)).body)


async def _load_response(request: AsgiRequest, scope: Scope, id: str) -> StoredResponse:
    await request.context.wait_for_write(scope.user, id)
    try:
        stored = await request.context.service().responses.response(scope, id)
    except NotFound:
        stored = None
    if stored is None or not request.caller.owns(stored.scope):
        raise NotFound(f"Response with id '{id}' not found.")
    return stored


async def delete_response(request: AsgiRequest) -> Json:
    """Delete a response."""
    scope, id = request.query_scope(), request.path_param("response_id")
    stored = await _load_response(request, scope, id)
    await request.context.service().responses.drop_response(scope, id)
    request.context.tasks.start(_delete_upstream(request, stored))
    return {"id": id, "object": "response", "deleted": True}


async def _delete_upstream(request: AsgiRequest, stored: StoredResponse) -> None:
    """Delete the response at the upstream that made it, if that can be reached."""
    upstream = request.context.upstream_of(stored.body.get("model"))
    if not stored.upstream or upstream.name != stored.upstream:
        return
    headers = [each for each in headers_for_upstream(request.headers) if not each[0].lower().startswith(b"content-")]
    path = f"/responses/{quote(stored.id, safe='')}"
    try:
        reply = await upstream.send(UpstreamRequest(method="DELETE", path=path, headers=headers))
        await reply.close()
    except RecollectError as error:
        _log.warning("response %s is not deleted at %s: %s", stored.id, stored.upstream, error)


async def cancel_response(request: AsgiRequest) -> Json:
    """Refuse to cancel a response."""
    stored = await _load_response(request, request.query_scope(), request.path_param("response_id"))
    raise BadRequest(
        f"response {stored.id} is {stored.body.get('status')}: only background responses, which are not supported, "
        "can be cancelled; close the connection to stop an answer",
        code="invalid_state",
    )


async def list_input_items(request: AsgiRequest) -> Json:
    """List the input of a response."""
    stored = await _load_response(request, request.query_scope(), request.path_param("response_id"))
    after, newest_first, limit = parse_page(request)
    items = list(reversed(stored.input_items)) if newest_first else list(stored.input_items)
    ids = [item["id"] for item in items]
    if after:
        items = items[ids.index(after) + 1 :] if after in ids else []
    return to_page(items[: limit + 1], limit)


def parse_page(request: AsgiRequest) -> tuple[str, bool, int]:
    """Return the item that a page starts after, whether the newest come first, and how many items it has."""
    query = dict(request.query)
    order, limit = query.get("order", "desc"), query.get("limit", "20")
    if order not in ("asc", "desc"):
        raise BadRequest(f"`order` must be asc or desc, got {order!r:.40}", param="order", code="invalid_value")
    if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit[:9]) <= _MAX_PAGE:
        problem = f"`limit` must be between 1 and {_MAX_PAGE}, got {limit!r:.40}"
        raise BadRequest(problem, param="limit", code="invalid_value")
    return query.get("after", ""), order == "desc", int(limit)


def to_page(items: Sequence[Plain], limit: int) -> Json:
    """Return a page of items; one item more than `limit` shows that there is another page."""
    page = [dict(item) for item in items[:limit]]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(items) > limit,
    }


_MAX_ITEMS = 20


async def create_conversation(request: AsgiRequest) -> Json:
    """Create a conversation."""
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


async def retrieve_conversation(request: AsgiRequest) -> Json:
    """Return a conversation."""
    return _to_conversation(await _load_thread(request, request.query_scope()))


async def update_conversation(request: AsgiRequest) -> Json:
    """Change the metadata."""
    fields = (await parse_json_object(await request.body())).fields
    scope = request.memory_options(fields).scope
    if "metadata" not in fields:
        raise BadRequest("Missing required parameter: 'metadata'.", param="metadata")
    thread = replace(await _load_thread(request, scope), metadata=_parse_metadata(fields))
    await request.context.service().responses.save_thread(scope, thread)
    return _to_conversation(thread)


async def delete_conversation(request: AsgiRequest) -> Json:
    """Delete a conversation."""
    scope = request.query_scope()
    thread = await _load_thread(request, scope)
    await request.context.service().responses.drop_thread(scope, thread.id)
    return {"id": thread.id, "object": "conversation.deleted", "deleted": True}


async def list_items(request: AsgiRequest) -> Json:
    """List the items of a conversation."""
    scope = request.query_scope()
    thread = await _load_thread(request, scope)
    after, newest_first, limit = parse_page(request)
    items = await request.context.service().responses.thread_items(
        scope, thread.id, after=after, newest_first=newest_first, limit=limit + 1
    )
    return to_page(items, limit)


async def create_items(request: AsgiRequest) -> Json:
    """Add items to a conversation."""
    fields = (await parse_json_object(await request.body())).fields
    items = _parse_items(fields)
    scope = request.memory_options(fields).scope
    thread = await _load_thread(request, scope)
    added = await _add_items(request, scope, thread.id, items)
    return to_page(added, len(added))


async def retrieve_item(request: AsgiRequest) -> Json:
    """Return one item."""
    scope = request.query_scope()
    return await _load_item(request, scope, await _load_thread(request, scope))


async def delete_item(request: AsgiRequest) -> Json:
    """Delete an item of a conversation."""
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
