"""What can be done with a response that is kept: read it, list what it was asked, delete or cancel it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from recollect.errors import NotAllowed, NotFound, RecollectError
from recollect.http.responses.asgi import Request
from recollect.http.responses.loose import a_text
from recollect.http.responses.parts import UnderWay
from recollect.http.responses.sending import bare_headers
from recollect.http.responses.wrong import BadRequest
from recollect.http.upstream.protocol import Ask
from recollect.model.response import KeptResponse, Plain
from recollect.model.scope import Scope

_log = logging.getLogger("recollect")
_MOST = 100


def scope_of(request: Request) -> Scope:
    """Whose things the request is about: said by a header, or by `user` in the query; not two users at once."""
    users = [value for name, value in request.asked if name == "user"]
    if len(users) > 1:
        raise BadRequest("user is given more than once, and one is meant", param="user", code="invalid_value")
    named = {"user": users[0]} if users and users[0] else {}
    scope = request.whose(named)
    # There is nothing of an endpoint's in the query: whoever names another user here than in a header means both.
    if named and scope.user != named["user"]:
        raise NotAllowed("a header and the query name two users; a request is about one")
    return scope


async def retrieve(request: Request) -> None:
    """GET /v1/responses/{id}"""
    if request.query.get("stream", "").lower() in ("true", "1"):
        raise BadRequest(
            "a response that was answered cannot be streamed again: leave stream out to get it whole",
            param="stream",
            code="unsupported_value",
        )
    scope, id = scope_of(request), request.named("response_id")
    if under_way := _under_way(request, scope, id):
        await request.answer_json(under_way.response())
        return
    await request.answer_json((await _kept(request, scope, id)).body)


def _under_way(request: Request, scope: Scope, id: str) -> UnderWay | None:
    """The response if it is still being answered, and the caller's."""
    found = request.parts.under_way.get((scope.user, id))
    return found if found is not None and request.caller.holds(found.scope) else None


async def _kept(request: Request, scope: Scope, id: str) -> KeptResponse:
    await request.parts.settled(scope.user, id)
    try:
        kept = await request.parts.kept.responses.response(scope, id)
    except NotFound:
        kept = None
    if kept is None or not request.caller.holds(kept.scope):
        raise NotFound(f"Response with id '{id}' not found.")
    return kept


async def delete(request: Request) -> None:
    """DELETE /v1/responses/{id}"""
    scope, id = scope_of(request), request.named("response_id")
    kept = await _kept(request, scope, id)
    await request.parts.kept.responses.drop_response(scope, id)
    request.parts.tasks.start(_deleted_upstream(request, kept))
    await request.answer_json({"id": id, "object": "response", "deleted": True})


async def _deleted_upstream(request: Request, kept: KeptResponse) -> None:
    """Have who made the response delete it, too, if they can be reached; here it is gone in any case."""
    if not kept.upstream:
        return
    path = f"/responses/{quote(kept.id, safe='')}"
    try:
        upstream = request.parts.upstream_of(a_text(kept.body.get("model")))
        if upstream.name != kept.upstream:
            return
        reply = await upstream.send(Ask(method="DELETE", path=path, headers=bare_headers(request.headers)))
        await reply.close()
    except RecollectError as error:
        _log.warning("response %s is not deleted at %s: %s", kept.id, kept.upstream, error)


async def cancel(request: Request) -> None:
    """POST /v1/responses/{id}/cancel"""
    scope, id = scope_of(request), request.named("response_id")
    under_way = _under_way(request, scope, id)
    if under_way is None:
        kept = await _kept(request, scope, id)
        raise BadRequest(
            f"response {id} is {kept.body.get('status')}: only one that is still being answered can be cancelled",
            code="invalid_state",
        )
    under_way.is_cancelled = True
    under_way.task.cancel()
    await under_way.over.wait()
    await request.answer_json(under_way.response())


async def input_items(request: Request) -> None:
    """GET /v1/responses/{id}/input_items"""
    kept = await _kept(request, scope_of(request), request.named("response_id"))
    after, newest_first, limit = page_asked(request.query)
    items = list(reversed(kept.asked)) if newest_first else list(kept.asked)
    ids = [item["id"] for item in items]
    if after:
        items = items[ids.index(after) + 1 :] if after in ids else []
    await request.answer_json(listed(items[: limit + 1], limit))


def page_asked(query: Mapping[str, str]) -> tuple[str, bool, int]:
    """Which page is asked for: after which item, whether the newest come first, and how many."""
    order, limit = query.get("order", "desc"), query.get("limit", "20")
    if order not in ("asc", "desc"):
        raise BadRequest("order must be asc or desc", param="order", code="invalid_value")
    if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit[:9]) <= _MOST:
        raise BadRequest(f"limit must be a number from 1 to {_MOST}", param="limit", code="invalid_value")
    return query.get("after", ""), order == "desc", int(limit)


def listed(items: Sequence[Plain], limit: int) -> dict[str, Any]:
    """A page of items; one more than asked for says that there is another page."""
    page = [dict(item) for item in items[:limit]]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(items) > limit,
    }
