"""Requests of the Responses API: as ASGI delivers them, parsed and checked, and the errors of bad ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from starlette.types import Message, Receive, Scope, Send

from recollect.aio.background import TaskSet
from recollect.config.server_fields import ResponsesMode
from recollect.config.settings import Settings
from recollect.errors import InvalidInput, NotAllowed, RecollectError
from recollect.http.auth.caller import STATE_CALLER, Caller
from recollect.http.errors import send_openai_error
from recollect.http.proxy import asgi_io
from recollect.http.proxy.asgi_io import BadRequest, ClientDisconnected
from recollect.http.proxy.body import JsonBody, parse_body
from recollect.http.proxy.chat_memory import ChatMemory
from recollect.http.proxy.memory_options import MemoryOptions, parse_memory_options
from recollect.http.upstream.learning import UpstreamModels
from recollect.http.upstream.router import Header, Upstream
from recollect.model.scope import Scope as MemoryScope
from recollect.service.service import Service

_JSON: Header = (b"content-type", b"application/json")
_PENDING_WRITE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesContext:
    """The dependencies and state of one server; `service` raises Unavailable until the ledger is open.

    `modes` says which upstreams have a Responses API; for those that are not listed it is detected.
    """

    service: Callable[[], Service]
    memory: ChatMemory
    upstream_of: Callable[[object], Upstream]
    settings: Settings = field(default_factory=Settings)
    modes: dict[str, ResponsesMode] = field(default_factory=dict)
    store_timeout_s: float = 0.3
    models: UpstreamModels | None = None
    tasks: TaskSet = field(default_factory=TaskSet)
    # By user and id.
    pending_writes: dict[tuple[str, str], asyncio.Task[None]] = field(default_factory=dict)

    @property
    def retention(self) -> timedelta:
        return timedelta(days=self.settings.responses_days)

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
        if task := self.pending_writes.get((user, id)):
            await asyncio.wait({task}, timeout=_PENDING_WRITE_TIMEOUT_S)


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
        return parse_memory_options(fields, headers, self.context.settings, caller=self.caller)

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
        return await asgi_io.receive_body(self.receive, self.context.settings.max_body_mb << 20)

    async def start(self, status: int, headers: Sequence[Header]) -> None:
        await self.send(asgi_io.response_start(status, headers))

    async def write(self, body: bytes, *, more: bool = True) -> None:
        await self.send(asgi_io.response_body(body, more=more))

    async def answer(self, status: int, body: bytes, headers: Sequence[Header] = ()) -> None:
        await self.start(status, [*headers, (b"content-length", str(len(body)).encode())])
        await self.write(body, more=False)

    async def answer_json(
        self, value: Mapping[str, Any], headers: Sequence[Header] = (), *, status: int = 200
    ) -> None:
        await self.answer(status, json.dumps(value, separators=(",", ":")).encode(), [_JSON, *headers])


Json: TypeAlias = dict[str, Any]
MAX_INPUT_ITEMS = 20_000


def unsupported_error(what: str, *, param: str, instead: str) -> BadRequest:
    """Return the error for something that an upstream with chat completions only cannot do."""
    message = f"{what} cannot be sent to an upstream that has only chat completions: {instead}"
    return BadRequest(message, param=param, code="unsupported_value")


@dataclass(frozen=True, slots=True)
class ResponseParams:
    """A request for a response; `items` are the elements of `input`, or one user message for a text."""

    body: JsonBody
    fields: Mapping[str, Any]
    items: Sequence[Json]
    model: str
    stream: bool
    store: bool
    previous_id: str
    thread_id: str


async def parse_json_object(raw: bytes) -> JsonBody:
    """Parse a body; raises BadRequest if it is not a JSON object."""
    try:
        return await parse_body(raw, strict=True)
    except InvalidInput as error:
        raise BadRequest(str(error), code="invalid_json") from None


async def parse_response_params(raw: bytes) -> ResponseParams:
    """Parse a request; raises a BadRequest that names the invalid field."""
    body = await parse_json_object(raw)
    fields = body.fields
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise _missing("model")
    thread = fields.get("conversation")
    if isinstance(thread, dict):
        thread = thread.get("id", "")
    previous_id = _parse_id(fields.get("previous_response_id"), "previous_response_id")
    thread_id = _parse_id(thread, "conversation")
    if previous_id and thread_id:
        raise BadRequest(
            "give either previous_response_id or conversation, not both",
            param="conversation",
            code="mutually_exclusive_parameters",
        )
    if _parse_flag(fields, "background", default=False):
        raise BadRequest(
            "background responses are not supported: leave background out, and use stream for long answers",
            param="background",
            code="unsupported_value",
        )
    if not isinstance(fields.get("metadata"), dict | None):
        raise BadRequest("metadata must be an object", param="metadata", code="invalid_type")
    return ResponseParams(
        body=body,
        fields=fields,
        items=_parse_input(fields.get("input"), may_be_missing=bool(previous_id or thread_id)),
        model=model,
        stream=_parse_flag(fields, "stream", default=False),
        store=_parse_flag(fields, "store", default=True),
        previous_id=previous_id,
        thread_id=thread_id,
    )


def _missing(name: str) -> BadRequest:
    return BadRequest(f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")


def _parse_input(value: object, *, may_be_missing: bool) -> list[Json]:
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    if value is None and may_be_missing:
        return []
    if value is None:
        raise _missing("input")
    return validate_items(value, param="input")


def validate_items(value: object, *, param: str) -> list[Json]:
    """Return a list of items; raises a BadRequest that names the first invalid one."""
    if not isinstance(value, list):
        raise BadRequest(f"{param} must be a list of items", param=param, code="invalid_type")
    if len(value) > MAX_INPUT_ITEMS:
        raise BadRequest(f"{param} has {len(value)} items; the limit is {MAX_INPUT_ITEMS}", param=param)
    for at, item in enumerate(value):
        where = f"{param}[{at}]"
        if not isinstance(item, dict):
            raise BadRequest(f"{where} must be an object", param=where, code="invalid_type")
        kind = item.get("type", "message" if "role" in item else None)
        if not isinstance(kind, str):
            raise BadRequest(f"{where} must have a type or a role", param=f"{where}.type", code="invalid_value")
        if kind == "message":
            _check_message(item, where)
    return value


def _check_message(item: Mapping[str, Any], where: str) -> None:
    if item.get("role") not in ("user", "assistant", "system", "developer"):
        problem = f"{where}.role must be user, assistant, system or developer"
        raise BadRequest(problem, param=f"{where}.role", code="invalid_value")
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    if not isinstance(content, str | list) or not all(isinstance(part, dict) for part in parts):
        problem = f"{where}.content must be a string or a list of parts"
        raise BadRequest(problem, param=f"{where}.content", code="invalid_type")


def _parse_id(value: object, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{name} must be an id", param=name, code="invalid_type")
    return value


def _parse_flag(fields: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false", param=name, code="invalid_type")
    return value


# Returns the JSON to answer with, or None if it has answered itself.
Handler: TypeAlias = Callable[[AsgiRequest], Awaitable[Json | None]]


async def answer(
    context_of: Callable[[], ResponsesContext],
    handler: Handler,
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    checks_write: bool,
) -> None:
    is_started = False

    async def send_and_note(message: Message) -> None:
        nonlocal is_started
        is_started = True
        await send(message)

    request = AsgiRequest(scope, receive, send_and_note, context_of())
    try:
        if scope["method"] in ("GET", "HEAD"):
            request.caller.check_can_read()
        elif checks_write:
            request.caller.check_can_write()
        if (body := await handler(request)) is not None:
            await request.answer_json(body)
    except ClientDisconnected:
        return
    except RecollectError as error:
        if is_started:
            # The status is sent already: raising closes the connection.
            raise
        await send_openai_error(send, error)
