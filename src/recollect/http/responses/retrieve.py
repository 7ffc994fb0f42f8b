"""Stored responses: read one, list its input, delete or cancel it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from urllib.parse import quote

from recollect.errors import NotFound, RecollectError
from recollect.http.proxy.asgi_io import headers_for_upstream
from recollect.http.responses.asgi import AsgiRequest
from recollect.http.responses.request import BadRequest, Json
from recollect.http.upstream.protocol import UpstreamRequest
from recollect.model.response import Plain, StoredResponse
from recollect.model.scope import Scope

_log = logging.getLogger("recollect")
_MAX_PAGE = 100


async def retrieve(request: AsgiRequest) -> Json:
    """GET /v1/responses/{id}"""
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


async def delete(request: AsgiRequest) -> Json:
    """DELETE /v1/responses/{id}"""
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


async def cancel(request: AsgiRequest) -> Json:
    """POST /v1/responses/{id}/cancel"""
    stored = await _load_response(request, request.query_scope(), request.path_param("response_id"))
    raise BadRequest(
        f"response {stored.id} is {stored.body.get('status')}: only background responses, which are not supported, "
        "can be cancelled; close the connection to stop an answer",
        code="invalid_state",
    )


async def input_items(request: AsgiRequest) -> Json:
    """GET /v1/responses/{id}/input_items"""
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
