"""The routes of the Responses and Conversations APIs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from recollect.errors import RecollectError
from recollect.http.proxy.asgi_io import ClientDisconnected
from recollect.http.responses import conversations, create, retrieve
from recollect.http.responses.asgi import AsgiRequest, ResponsesContext
from recollect.http.responses.request import Json, error_response

# Returns the JSON to answer with, or None if it has answered itself.
Handler: TypeAlias = Callable[[AsgiRequest], Awaitable[Json | None]]
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
        Route(path, _Endpoint(context_of, handler, checks_write=handler is not create.create), methods=[method])
        for method, path, handler in ROUTES
    ]


class _Endpoint:
    """An ASGI application that runs a handler and answers its errors."""

    def __init__(self, context_of: Callable[[], ResponsesContext], handler: Handler, *, checks_write: bool) -> None:
        self._context_of = context_of
        self._handler = handler
        self._checks_write = checks_write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_started = False

        async def send_and_note(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        request = AsgiRequest(scope, receive, send_and_note, self._context_of())
        try:
            if scope["method"] in ("GET", "HEAD"):
                request.caller.check_can_read()
            elif self._checks_write:
                request.caller.check_can_write()
            answer = await self._handler(request)
            if answer is not None:
                await request.answer_json(answer)
        except ClientDisconnected:
            return
        except RecollectError as error:
            if is_started:
                # The status is sent already: raising closes the connection.
                raise
            status, body = error_response(error)
            retry = [(b"retry-after", b"1")] if error.retryable else []
            await request.answer_json(body, retry, status=status)
