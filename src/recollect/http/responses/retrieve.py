"""What can be done with a response that is kept: read it, list what it was asked, delete or cancel it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from recollect.errors import NotAllowed, NotFound, RecollectError
from recollect.http.responses.asgi import AsgiRequest
from recollect.http.responses.context import InProgressResponse
from recollect.http.responses.errors import BadRequest
from recollect.http.responses.items import as_text
from recollect.http.responses.upstream_io import upstream_headers_without_content
from recollect.http.upstream.protocol import UpstreamRequest
from recollect.model.response import Plain, StoredResponse
from recollect.model.scope import Scope

_log = logging.getLogger("recollect")
_MAX_PAGE = 100


def request_scope(request: AsgiRequest) -> Scope:
    """Whose things the request is about: said by a header, or by `user` in the query; not two users at once."""
    users = [value for name, value in request.query_pairs if name == "user"]
    if len(users) > 1:
        raise BadRequest("user is given more than once, and one is meant", param="user", code="invalid_value")
    named = {"user": users[0]} if users and users[0] else {}
    scope = request.scope_for(named)
    # There is nothing of an endpoint's in the query: whoever names another user here than in a header means both.
    if named and scope.user != named["user"]:
        raise NotAllowed("a header and the query name two users; a request is about one")
    return scope


async def retrieve(request: AsgiRequest) -> None:
    """GET /v1/responses/{id}"""
    if request.query.get("stream", "").lower() in ("true", "1"):
        raise BadRequest(
            "a response that was answered cannot be streamed again: leave stream out to get it whole",
            param="stream",
            code="unsupported_value",
        )
    scope, id = request_scope(request), request.path_param("response_id")
    if in_progress := _find_in_progress(request, scope, id):
        await request.answer_json(in_progress.response())
        return
    await request.answer_json((await _load_response(request, scope, id)).body)


def _find_in_progress(request: AsgiRequest, scope: Scope, id: str) -> InProgressResponse | None:
    """The response if it is still being answered, and the caller's."""
    in_progress = request.context.in_progress.get((scope.user, id))
    return in_progress if in_progress is not None and request.caller.owns(in_progress.scope) else None


async def _load_response(request: AsgiRequest, scope: Scope, id: str) -> StoredResponse:
    await request.context.wait_for_write(scope.user, id)
    try:
        stored = await request.context.storage.responses.response(scope, id)
    except NotFound:
        stored = None
    if stored is None or not request.caller.owns(stored.scope):
        raise NotFound(f"Response with id '{id}' not found.")
    return stored


async def delete(request: AsgiRequest) -> None:
    """DELETE /v1/responses/{id}"""
    scope, id = request_scope(request), request.path_param("response_id")
    stored = await _load_response(request, scope, id)
    await request.context.storage.responses.drop_response(scope, id)
    request.context.tasks.start(_delete_upstream(request, stored))
    await request.answer_json({"id": id, "object": "response", "deleted": True})


async def _delete_upstream(request: AsgiRequest, stored: StoredResponse) -> None:
    """Have who made the response delete it, too, if they can be reached; here it is gone in any case."""
    if not stored.upstream:
        return
    path = f"/responses/{quote(stored.id, safe='')}"
    try:
        upstream = request.context.upstream_of(as_text(stored.body.get("model")))
        if upstream.name != stored.upstream:
            return
        reply = await upstream.send(
            UpstreamRequest(method="DELETE", path=path, headers=upstream_headers_without_content(request.headers))
        )
        await reply.close()
    except RecollectError as error:
        _log.warning("response %s is not deleted at %s: %s", stored.id, stored.upstream, error)


async def cancel(request: AsgiRequest) -> None:
    """POST /v1/responses/{id}/cancel"""
    scope, id = request_scope(request), request.path_param("response_id")
    in_progress = _find_in_progress(request, scope, id)
    if in_progress is None:
        stored = await _load_response(request, scope, id)
        raise BadRequest(
            f"response {id} is {stored.body.get('status')}: only one that is still being answered can be cancelled",
            code="invalid_state",
        )
    in_progress.is_cancelled = True
    in_progress.task.cancel()
    await in_progress.finished.wait()
    await request.answer_json(in_progress.response())


async def input_items(request: AsgiRequest) -> None:
    """GET /v1/responses/{id}/input_items"""
    stored = await _load_response(request, request_scope(request), request.path_param("response_id"))
    after, newest_first, limit = parse_page(request.query)
    items = list(reversed(stored.input_items)) if newest_first else list(stored.input_items)
    ids = [item["id"] for item in items]
    if after:
        items = items[ids.index(after) + 1 :] if after in ids else []
    await request.answer_json(to_page(items[: limit + 1], limit))


def parse_page(query: Mapping[str, str]) -> tuple[str, bool, int]:
    """Which page is asked for: after which item, whether the newest come first, and how many."""
    order, limit = query.get("order", "desc"), query.get("limit", "20")
    if order not in ("asc", "desc"):
        raise BadRequest("order must be asc or desc", param="order", code="invalid_value")
    if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit[:9]) <= _MAX_PAGE:
        raise BadRequest(f"limit must be a number from 1 to {_MAX_PAGE}", param="limit", code="invalid_value")
    return query.get("after", ""), order == "desc", int(limit)


def to_page(items: Sequence[Plain], limit: int) -> dict[str, Any]:
    """A page of items; one more than asked for says that there is another page."""
    page = [dict(item) for item in items[:limit]]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(items) > limit,
    }
