"""Requests of the Responses API as ASGI delivers them, and the endpoint that answers them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from starlette.types import Message, Receive, Scope, Send

from recollect.errors import NotAllowed, RecollectError
from recollect.http.auth.caller import STATE_CALLER, Caller
from recollect.http.proxy import asgi_io
from recollect.http.proxy.memory_options import MemoryOptions, parse_memory_options
from recollect.http.responses.context import ResponsesContext
from recollect.http.responses.request import BadRequest, Json, error_response
from recollect.http.upstream.protocol import Header
from recollect.model.scope import Scope as MemoryScope

_JSON: Header = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class AsgiRequest:
    """A request, and the means to answer it."""

    scope: Scope
    receive: Receive
    send: Send
    context: ResponsesContext

    @property
    def headers(self) -> Sequence[Header]:
        return self.scope["headers"]  # type: ignore[no-any-return]

    @property
    def caller(self) -> Caller:
        return self.scope["state"][STATE_CALLER]  # type: ignore[no-any-return]

    @property
    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)

    def path_param(self, name: str) -> str:
        return str(self.scope["path_params"][name])

    def memory_options(self, fields: Mapping[str, Any]) -> MemoryOptions:
        headers = asgi_io.headers_by_name(self.headers)
        return parse_memory_options(fields, headers, self.context.defaults, caller=self.caller)

    def query_scope(self) -> MemoryScope:
        """Return the scope of a request without a body: the user is named by a header or by `user` in the query."""
        users = [value for name, value in self.query if name == "user"]
        if len(users) > 1:
            raise BadRequest(
                f"`user` must be given once, got {len(users)} values", param="user", code="invalid_value"
            )
        named = {"user": users[0]} if users and users[0] else {}
        scope = self.memory_options(named).scope
        if named and scope.user != named["user"]:
            raise NotAllowed("a header and the query name two users; name one")
        return scope

    async def body(self) -> bytes:
        """Return the complete body."""
        return await asgi_io.receive_body(self.receive, self.context.max_body_bytes)

    async def start(self, status: int, headers: Sequence[Header]) -> None:
        """Send the head of a streamed answer."""
        await self.send(asgi_io.response_start(status, headers))

    async def write(self, body: bytes, *, more: bool = True) -> None:
        """Send a piece of the body."""
        await self.send(asgi_io.response_body(body, more=more))

    async def answer(self, status: int, body: bytes, headers: Sequence[Header] = ()) -> None:
        """Send a complete answer."""
        await self.start(status, [*headers, (b"content-length", str(len(body)).encode())])
        await self.write(body, more=False)

    async def answer_json(
        self, value: Mapping[str, Any], headers: Sequence[Header] = (), *, status: int = 200
    ) -> None:
        """Send a complete answer in JSON."""
        await self.answer(status, json.dumps(value, separators=(",", ":")).encode(), [_JSON, *headers])


# Returns the JSON to answer with, or None if it has answered itself.
Handler: TypeAlias = Callable[[AsgiRequest], Awaitable[Json | None]]


class AsgiEndpoint:
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
        except asgi_io.ClientDisconnected:
            return
        except RecollectError as error:
            if is_started:
                # The status is sent already: raising closes the connection.
                raise
            status, body = error_response(error)
            retry = [(b"retry-after", b"1")] if error.retryable else []
            await request.answer_json(body, retry, status=status)
