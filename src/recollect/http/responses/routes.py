"""Where the Responses and Conversations APIs are served."""

from __future__ import annotations

from collections.abc import Callable

from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from recollect.http.responses import conversations, create, retrieve
from recollect.http.responses.asgi import AsgiEndpoint, AsgiRequest, Handler
from recollect.http.responses.context import ResponsesContext

_CONVERSATION = "/v1/conversations/{conversation_id}"
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("POST", "/v1/responses", create.create),
    ("GET", "/v1/responses/{response_id}", retrieve.retrieve),
    ("DELETE", "/v1/responses/{response_id}", retrieve.delete),
    ("POST", "/v1/responses/{response_id}/cancel", retrieve.cancel),
    ("GET", "/v1/responses/{response_id}/input_items", retrieve.input_items),
    ("POST", "/v1/conversations", conversations.create),
    ("GET", _CONVERSATION, conversations.retrieve),
    ("POST", _CONVERSATION, conversations.update),
    ("DELETE", _CONVERSATION, conversations.delete),
    ("GET", f"{_CONVERSATION}/items", conversations.list_items),
    ("POST", f"{_CONVERSATION}/items", conversations.create_items),
    ("GET", f"{_CONVERSATION}/items/{{item_id}}", conversations.retrieve_item),
    ("DELETE", f"{_CONVERSATION}/items/{{item_id}}", conversations.delete_item),
)


def responses_routes(context_of: Callable[[Scope], ResponsesContext]) -> list[BaseRoute]:
    """The routes, for an application that can tell for a request what they are to work with."""
    return [
        Route(path, AsgiEndpoint(context_of, _authorize(handler)), methods=[method])
        for method, path, handler in ROUTES
    ]


def _authorize(handler: Handler) -> Handler:
    """The same for callers who may read or write what it reads or writes; who creates a response is told by that."""

    async def allowed(request: AsgiRequest) -> None:
        if request.method in ("GET", "HEAD"):
            request.caller.check_can_read()
        elif handler is not create.create:
            request.caller.check_can_write()
        await handler(request)

    return allowed
