"""Requests of the Responses API as ASGI delivers them, and the context of the server that answers them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope, Send

from recollect.aio.background import TaskSet
from recollect.config.server_fields import ResponsesMode
from recollect.errors import NotAllowed
from recollect.frozen_dataclass import frozen_dataclass
from recollect.http.auth.caller import STATE_CALLER, Caller
from recollect.http.proxy import asgi_io
from recollect.http.proxy.chat_memory import ChatMemory
from recollect.http.proxy.memory_options import MemoryDefaults, MemoryOptions, parse_memory_options
from recollect.http.responses.request import BadRequest
from recollect.http.upstream.learning import UpstreamModels
from recollect.http.upstream.protocol import Header, Upstream
from recollect.model.scope import Scope as MemoryScope
from recollect.service.service import Service

_JSON: Header = (b"content-type", b"application/json")
_PENDING_WRITE_TIMEOUT_S = 5.0


@frozen_dataclass(kw_only=True)
class ResponsesContext:
    """The dependencies and state of one server; `service` raises Unavailable until the ledger is open.

    `modes` says which upstreams have a Responses API; for those that are not listed it is detected.
    """

    service: Callable[[], Service]
    memory: ChatMemory
    upstream_of: Callable[[object], Upstream]
    defaults: MemoryDefaults = field(default_factory=MemoryDefaults)
    modes: dict[str, ResponsesMode] = field(default_factory=dict)
    retention: timedelta = timedelta(days=30)
    store_timeout_s: float = 0.3
    max_body_bytes: int = 50_000_000
    models: UpstreamModels | None = None
    tasks: TaskSet = field(default_factory=TaskSet)
    # By user and id.
    pending_writes: dict[tuple[str, str], asyncio.Task[None]] = field(default_factory=dict)

    async def epoch(self, user: str) -> int:
        """Return the number of the user's erasures; raises Unavailable when it is awaited, not before."""
        return await self.service().epoch(user)

    def track_write(self, user: str, ids: Iterable[str], task: asyncio.Task[None]) -> None:
        """Note that a task stores these ids, until it is done."""
        keys = [(user, id) for id in ids if id]
        self.pending_writes.update(dict.fromkeys(keys, task))

        def done(task: asyncio.Task[None]) -> None:
            for key in keys:
                if self.pending_writes.get(key) is task:
                    del self.pending_writes[key]

        task.add_done_callback(done)

    async def wait_for_write(self, user: str, id: str) -> None:
        """Wait for a response or conversation that is being stored."""
        if task := self.pending_writes.get((user, id)):
            await asyncio.wait({task}, timeout=_PENDING_WRITE_TIMEOUT_S)


@frozen_dataclass
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
            raise BadRequest(f"`user` must occur once, got {len(users)} values", param="user", code="invalid_value")
        named = {"user": users[0]} if users and users[0] else {}
        scope = self.memory_options(named).scope
        if named and scope.user != named["user"]:
            raise NotAllowed("a header and the query name two users; name one")
        return scope

    async def body(self) -> bytes:
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
