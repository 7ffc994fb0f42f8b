"""Requests and answers as ASGI has them, without a framework in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from starlette.types import Message, Receive, Scope, Send

from recollect.errors import RecollectError
from recollect.http.auth.caller import STATE_CALLER, Caller
from recollect.http.proxy import asgi_io
from recollect.http.proxy.memory_options import MemoryOptions
from recollect.http.responses.context import ResponsesContext
from recollect.http.responses.errors import RequestTooLarge, error_response
from recollect.http.upstream.protocol import Header
from recollect.model.scope import Scope as Whose

_JSON: Header = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class AsgiRequest:
    """A request, and the way to answer it."""

    scope: Scope
    receive: Receive
    send: Send
    context: ResponsesContext

    @property
    def headers(self) -> Sequence[Header]:
        return self.scope["headers"]  # type: ignore[no-any-return]

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def caller(self) -> Caller:
        return self.scope["state"][STATE_CALLER]  # type: ignore[no-any-return]

    def memory_options(self, fields: Mapping[str, Any]) -> MemoryOptions:
        """What the request asks of memory."""
        return self.context.parse_memory_options(fields, self.headers, self.caller)

    def scope_for(self, fields: Mapping[str, Any]) -> Whose:
        """Whose responses and conversations the request is about."""
        return self.memory_options(fields).scope

    @property
    def query_pairs(self) -> list[tuple[str, str]]:
        """The parameters of the address, as they come."""
        return parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)

    @property
    def query(self) -> dict[str, str]:
        return dict(self.query_pairs)

    def path_param(self, name: str) -> str:
        """A part of the path."""
        return str(self.scope["path_params"][name])

    async def body(self) -> bytes:
        """The whole body."""
        max_bytes = self.context.max_body_bytes
        try:
            return await asgi_io.receive_body(self.receive, max_bytes)
        except asgi_io.BodyTooLarge:
            raise RequestTooLarge(f"the body is larger than {max_bytes:,} bytes; send less at a time") from None

    async def start(self, status: int, headers: Sequence[Header]) -> None:
        """Send the head of an answer."""
        await self.send(asgi_io.response_start(status, list(headers)))

    async def write(self, body: bytes, *, more: bool = True) -> None:
        """Send a piece of the body; the last one says that no more comes."""
        await self.send(asgi_io.response_body(body, more=more))

    async def answer(self, status: int, body: bytes, headers: Sequence[Header] = ()) -> None:
        """Send an answer in one piece."""
        await self.start(status, [*headers, (b"content-length", str(len(body)).encode())])
        await self.write(body, more=False)

    async def answer_json(
        self, value: Mapping[str, Any], headers: Sequence[Header] = (), *, status: int = 200
    ) -> None:
        """Send an answer in JSON."""
        await self.answer(status, json.dumps(value, separators=(",", ":")).encode(), [_JSON, *headers])

    async def run_until_disconnect(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work, and drop it where it is as soon as the client is gone."""
        working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(self._wait_for_disconnect())
        try:
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise asgi_io.ClientDisconnected
            await working
        finally:
            working.cancel()
            leaving.cancel()
            await asyncio.gather(working, leaving, return_exceptions=True)

    async def _wait_for_disconnect(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass


Handler: TypeAlias = Callable[[AsgiRequest], Awaitable[None]]


class AsgiEndpoint:
    """An ASGI application that answers one kind of request, errors included."""

    def __init__(self, context_of: Callable[[Scope], ResponsesContext], handler: Handler) -> None:
        self._context_of = context_of
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_started = False

        async def send_and_note(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        request = AsgiRequest(scope, receive, send_and_note, self._context_of(scope))
        try:
            await self._handler(request)
        except asgi_io.ClientDisconnected:
            return
        except RecollectError as error:
            if is_started:
                # The head is gone: all that is left is to break the connection off.
                raise
            status, body = error_response(error)
            retry = [(b"retry-after", b"1")] if error.retryable else []
            await request.answer(status, body, [_JSON, *retry])
