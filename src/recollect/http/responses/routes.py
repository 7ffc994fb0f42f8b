"""The routes of the Responses and Conversations APIs."""

from __future__ import annotations

from collections.abc import Callable

from starlette.routing import BaseRoute, Route

from recollect.http.responses import conversations, create, retrieve
from recollect.http.responses.asgi import AsgiEndpoint, Handler
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


def responses_routes(context_of: Callable[[], ResponsesContext]) -> list[BaseRoute]:
    """Return the routes; creating a response checks the caller's rights itself."""
    return [
        Route(path, AsgiEndpoint(context_of, handler, checks_write=handler is not create.create), methods=[method])
        for method, path, handler in ROUTES
    ]
