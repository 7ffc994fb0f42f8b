"""An OpenAI-compatible HTTP server for tests: it gives scripted replies, and fails on request."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Literal, Self, TypeAlias, assert_never

import uvicorn
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from recollect.testing import llm_replies
from recollect.testing.fake_embedder import openai_embeddings
from recollect.testing.llm_replies import (
    Cut,
    Fault,
    HttpAnswer,
    Json,
    ScriptedExchange,
    ScriptedReply,
    ToolCall,
    count_tokens,
    error_body,
    texts,
)

Kind: TypeAlias = Literal["chat", "responses", "embeddings", "models", "other"]

# How long a client has to read what was sent.
_FLUSH_S = 1.0
_KINDS: dict[tuple[str, str], Kind] = {
    ("POST", "/v1/chat/completions"): "chat",
    ("POST", "/v1/responses"): "responses",
    ("POST", "/v1/embeddings"): "embeddings",
    ("GET", "/v1/models"): "models",
    ("HEAD", "/v1/models"): "models",
}


@dataclass(frozen=True, slots=True, eq=False)
class RecordedRequest:
    """A request exactly as received: path and query undecoded, body as bytes."""

    method: str
    path: str
    query: str
    headers: Headers
    body: bytes
    at: datetime

    @property
    def kind(self) -> Kind:
        return _KINDS.get((self.method, self.path), "other")

    @property
    def json(self) -> Any:
        """The body as JSON, or None if it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def text(self) -> str:
        """All text that the model reads, one text per line."""
        body = self.json
        fields = body if isinstance(body, dict) else {}
        return "\n".join(texts([fields.get(name) for name in ("instructions", "messages", "input")]))


@dataclass(frozen=True, slots=True, eq=False)
class Disconnect:
    """A client that disconnected before its response was complete."""

    request: RecordedRequest
    at: datetime


async def read(scope: Scope, receive: Receive) -> RecordedRequest | None:
    """Return the request once it is complete, or None if the client disconnected before."""
    at, body = datetime.now(UTC), bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
            return RecordedRequest(scope["method"], path, query, Headers(scope=scope), bytes(body), at)


async def deliver(answer: HttpAnswer, receive: Receive, send: Send, transport: asyncio.Transport) -> bool:
    """Send the response with its faults; return False if the client disconnected before the end."""
    sending = asyncio.create_task(_send(answer, send, transport))
    leaving = asyncio.create_task(_left(receive))
    try:
        await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not sending.done():
            return False
        return await sending
    finally:
        sending.cancel()
        leaving.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(answer: HttpAnswer, send: Send, transport: asyncio.Transport) -> bool:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    start = {"type": "http.response.start", "status": answer.status, "headers": headers}
    started = False
    for step in answer.steps:
        if isinstance(step, bytes):
            # Yields between two writes, so that the loop sends each separately.
            await (asyncio.sleep(0) if started else send(start))
            started = True
            await send(_part(step))
        elif step is Cut.HANG:
            await asyncio.Event().wait()
        elif step is Cut.RESET:
            await _reset(transport, after_s=_FLUSH_S if started else 0.02)
            return True
        elif isinstance(step, float | int):
            await asyncio.sleep(step)
        else:
            assert_never(step)
    if not started:
        await send(start)
    # An empty part waits until the rest is sent, so that a client that left a large response is noticed.
    await send(_part(b""))
    if transport.is_closing():
        return False
    await send(_part(b"", more=False))
    return True


def _part(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def _reset(transport: asyncio.Transport, *, after_s: float) -> None:
    # A reset discards what the client has not received yet: let it arrive first.
    await asyncio.sleep(after_s)
    # With SO_LINGER 0, closing sends RST instead of FIN.
    no_linger = struct.pack("ii", 1, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
    transport.abort()


class _Connection(H11Protocol):
    """Passes its transport to the app, because ASGI cannot reset a connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}
        # Disabled here, because uvicorn's own setting silences the loggers of the whole process.
        self.access_log = False
        # asyncio does so only for sockets with a protocol number; without it each small write waits 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class LLMServer(uvicorn.Server):
    """A uvicorn server that reports when it listens, and stops without waiting for its clients."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]) -> None:
        config = uvicorn.Config(
            app,
            http=_Connection,
            loop="asyncio",
            interface="asgi3",
            lifespan="off",
            ws="none",
            proxy_headers=False,
            log_config=None,
            timeout_keep_alive=60,
        )
        super().__init__(config)
        self.ready = threading.Event()
        self.stopping = False

    def stop(self) -> None:
        """Begin to stop; callable from any thread."""
        self.stopping = True
        self._loop.call_soon_threadsafe(self._stop.set)

    async def main_loop(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.ready.set()
        await self._stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        # Responses in progress see a disconnect; one blocked in a function gets a second.
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=1)


@dataclass(frozen=True, slots=True)
class CallStats:
    """What the calls would have cost: every request counts as a call, every reply as tokens."""

    calls: Mapping[Kind, int]
    prompt_tokens: int
    completion_tokens: int
    embedding_tokens: int


Scripted: TypeAlias = str | ScriptedReply | Callable[[RecordedRequest], str | ScriptedReply]
Condition: TypeAlias = str | Callable[[RecordedRequest], bool]


def echo(request: RecordedRequest) -> str:
    """Return the default reply: the last message of the user."""
    body = request.json if isinstance(request.json, dict) else {}
    messages = body.get("messages", body.get("input"))
    if isinstance(messages, list):
        messages = [item for item in messages if isinstance(item, dict) and item.get("role") == "user"][-1:]
    return "You said: " + "\n".join(texts(messages))


class _Script:
    """The ways to script a reply, for the next request or for a rule."""

    def reply(
        self,
        content: Scripted | None = None,
        *,
        tool_calls: Sequence[ToolCall] = (),
        reasoning: str | None = None,
        finish_reason: str | None = None,
        faults: Sequence[Fault] = (),
    ) -> Self:
        """Reply with a text, tool calls, a `ScriptedReply`, or the result of a function of the request."""
        if content is None or isinstance(content, str):
            self._enqueue(ScriptedReply(content, tool_calls, reasoning, finish_reason, faults))
        elif tool_calls or reasoning or finish_reason or faults:
            raise TypeError("a Reply or a function says everything itself: leave the keywords out")
        else:
            self._enqueue(content)
        return self

    def reply_json(self, value: object) -> Self:
        return self.reply(json.dumps(value))

    def _enqueue(self, content: Scripted) -> None:
        raise NotImplementedError


class ReplyRule(_Script):
    """The reply to requests that match a condition, until it is removed."""

    def __init__(self, rules: list[ReplyRule], lock: threading.Condition, condition: Condition) -> None:
        self.content: Scripted = ""
        self._rules = rules
        self._lock = lock
        self._condition = condition

    def matches(self, request: RecordedRequest) -> bool:
        if isinstance(self._condition, str):
            return self._condition in request.text
        return bool(self._condition(request))

    def remove(self) -> None:
        """Remove the rule; doing so twice is no error."""
        with self._lock:
            if self in self._rules:
                self._rules.remove(self)

    def _enqueue(self, content: Scripted) -> None:
        with self._lock:
            self.content = content
            self.remove()
            self._rules.append(self)


@dataclass(slots=True)
class _Pending:
    faults: Sequence[Fault]
    times: int | None
    on: Kind | None


class ScriptedLLM(_Script):
    """A scripted OpenAI-compatible server, which runs inside its `with` block.

    The latest matching rule replies first, then the queue in order, then `default`. A queued reply is consumed when
    it was sent, so a client that retries after a fault still gets it.
    """

    def __init__(self, *, dimensions: int = 64, models: Sequence[str] = ("scripted",)) -> None:
        self.dimensions = dimensions
        self.models = tuple(models)
        self.default: Scripted = echo
        self.requests: list[RecordedRequest] = []
        self.answers: list[tuple[RecordedRequest, HttpAnswer]] = []
        self.disconnects: list[Disconnect] = []
        self._changed = threading.Condition()
        self._queue: deque[Scripted] = deque()
        self._rules: list[ReplyRule] = []
        self._pending: list[_Pending] = []
        self._tokens: Counter[str] = Counter()
        self._port = 0
        self._serial = 0
        self._server: LLMServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def stats(self) -> CallStats:
        kinds = Counter(request.kind for request in list(self.requests))
        tokens = self._tokens
        return CallStats(kinds, tokens["prompt"], tokens["completion"], tokens["embedding"])

    def calls(self, kind: Kind) -> list[RecordedRequest]:
        """Return the recorded requests of one kind, in order of arrival."""
        return [request for request in list(self.requests) if request.kind == kind]

    def when(self, condition: Condition) -> ReplyRule:
        """Return a rule for requests whose text contains `condition`, or for which it is true."""
        return ReplyRule(self._rules, self._changed, condition)

    def fault(self, *faults: Fault, times: int | None = 1, on: Kind | None = None) -> None:
        """Apply all these faults to the next `times` requests (None: always) of a kind."""
        with self._changed:
            self._pending.append(_Pending(faults, times, on))

    def clear_faults(self) -> None:
        """Remove the faults that no request has met yet."""
        with self._changed:
            self._pending.clear()

    def clear(self) -> None:
        """Clear what was recorded and counted; the script stays."""
        with self._changed:
            for record in (self.requests, self.answers, self.disconnects, self._tokens):
                record.clear()

    def wait_for(self, happened: Callable[[Self], object], timeout_s: float = 30.0) -> None:
        """Block until `happened(self)` is true; raise TimeoutError if it never is."""
        with self._changed:
            if not self._changed.wait_for(lambda: happened(self), timeout_s):
                arrived = [f"{request.method} {request.path}" for request in self.requests]
                raise TimeoutError(f"not within {timeout_s} s; recorded: {arrived}")

    def start(self) -> Self:
        """Listen on loopback; after a `stop`, on the same port as before."""
        listener = socket.create_server(("127.0.0.1", self._port), backlog=512)
        self._port = listener.getsockname()[1]
        self._server = LLMServer(self._serve)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="scripted-llm", daemon=True)
        self._thread.start()
        if not self._server.ready.wait(30):
            raise RuntimeError("the scripted LLM did not start within 30 s")
        return self

    def stop(self) -> None:
        """Drop every connection and free the port; doing so twice is no error."""
        if self._server is None or self._thread is None:
            return
        self._server.stop()
        self._thread.join(30)
        if self._thread.is_alive():
            raise RuntimeError("the scripted LLM did not stop: does a function in the script still wait?")
        self._server = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _enqueue(self, content: Scripted) -> None:
        with self._changed:
            self._queue.append(content)

    def _due_faults(self, kind: Kind) -> Sequence[Fault]:
        with self._changed:
            due = next((each for each in self._pending if each.on in (None, kind)), None)
            if due is None:
                return ()
            if due.times is not None:
                due.times -= 1
                if due.times <= 0:
                    self._pending.remove(due)
            return due.faults

    def _choose(self, request: RecordedRequest, *, spoiled: bool) -> Scripted:
        with self._changed:
            for rule in reversed(self._rules):
                if rule.matches(request):
                    return rule.content
            if not self._queue:
                return self.default
            return self._queue[0] if spoiled else self._queue.popleft()

    async def _lay_out(self, request: RecordedRequest, serial: int) -> HttpAnswer:
        """Return the response with its faults. A mistake in the script is a 500 that names it."""
        faults = self._due_faults(request.kind)
        try:
            answer = await self._honest(request, serial, spoiled=any(fault.spoils for fault in faults))
            return reduce(lambda bent, fault: fault.bend(bent), faults, answer)
        except Exception as error:  # the script is the test's code and may raise anything
            mistake = f"the script failed: {type(error).__name__}: {error}"
            return HttpAnswer.json(error_body(mistake, kind="script_error"), status=500)

    async def _honest(self, request: RecordedRequest, serial: int, *, spoiled: bool) -> HttpAnswer:
        body = request.json if isinstance(request.json, dict) else {}
        match request.kind:
            case "models":
                models = [{"id": id, "object": "model", "created": 0, "owned_by": "test"} for id in self.models]
                return HttpAnswer.json({"object": "list", "data": models})
            case "other":
                return _description(request)
            case "embeddings":
                return self.embeddings(body)
            case "chat" | "responses":
                if request.kind == "chat" and not isinstance(body.get("messages"), list):
                    return HttpAnswer.json(error_body("'messages' must be a list"), status=400)
                return await self._model_answer(request, body, serial, spoiled=spoiled)
        assert_never(request.kind)

    def embeddings(self, body: Json) -> HttpAnswer:
        """Answer a request for embeddings; a subclass may answer otherwise."""
        try:
            body = openai_embeddings(body, self.dimensions)
        except ValueError as error:
            return HttpAnswer.json(error_body(str(error)), status=400)
        self._tokens["embedding"] += body["usage"]["total_tokens"]
        return HttpAnswer.json(body)

    async def _model_answer(self, request: RecordedRequest, body: Json, serial: int, *, spoiled: bool) -> HttpAnswer:
        content = self._choose(request, spoiled=spoiled)
        # In a thread, so that a function may block without delaying other replies.
        content = await asyncio.to_thread(content, request) if callable(content) else content
        reply = ScriptedReply(content) if isinstance(content, str) else content
        at, prompt_tokens = int(request.at.timestamp()), count_tokens(request.text)
        exchange = ScriptedExchange(body, reply, serial, at, prompt_tokens)
        if not spoiled:
            self._tokens.update(prompt=prompt_tokens, completion=exchange.completion_tokens)
        answer = llm_replies.chat(exchange) if request.kind == "chat" else llm_replies.responses(exchange)
        return reduce(lambda bent, fault: fault.bend(bent), reply.faults, answer)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = await read(scope, receive)
        if request is None:
            return
        with self._changed:
            self._serial += 1
            serial = self._serial
            self.requests.append(request)
            self._changed.notify_all()
        answer = await self._lay_out(request, serial)
        with self._changed:
            self.answers.append((request, answer))
            self._changed.notify_all()
        whole = await deliver(answer, receive, send, scope["state"]["transport"])
        if not whole and self._server is not None and not self._server.stopping:
            with self._changed:
                self.disconnects.append(Disconnect(request, datetime.now(UTC)))
                self._changed.notify_all()


def _description(request: RecordedRequest) -> HttpAnswer:
    if not request.path.startswith("/v1/"):
        return HttpAnswer.json(error_body(f"nothing is served at {request.path}"), status=404)
    arrived = {"method": request.method, "path": request.path, "query": request.query}
    return HttpAnswer.json({**arrived, "body_bytes": len(request.body)})
