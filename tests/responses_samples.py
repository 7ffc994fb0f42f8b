"""A server of the Responses API for tests: real upstream calls, a real service, memory as chats have it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import uvicorn
from starlette.applications import Starlette

from recollect.errors import UpstreamBroken, UpstreamUnavailable
from recollect.http.responses.parts import Mode, Parts, Speech
from recollect.http.responses.routes import responses_routes
from recollect.http.upstream.protocol import Ask, Header
from recollect.model.change import By
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.recall import Recall
from recollect.service import Service
from recollect.settings import load
from recollect.wiring import open_service


class HttpReply:
    def __init__(self, reply: aiohttp.ClientResponse) -> None:
        self._reply = reply
        self.status = reply.status
        self.headers: Sequence[Header] = reply.raw_headers

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._reply.content.iter_any():
                yield chunk
        except aiohttp.ClientError as error:
            raise UpstreamBroken(f"the upstream broke off: {type(error).__name__}") from None

    async def close(self) -> None:
        self._reply.close()


class HttpUpstream:
    """The plainest upstream that keeps the promise."""

    name = "main"

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self._session = aiohttp.ClientSession(auto_decompress=False)

    async def send(self, ask: Ask) -> HttpReply:
        headers = [(name.decode(), value.decode()) for name, value in ask.headers]
        try:
            reply = await self._session.request(ask.method, self._base_url + ask.path, data=ask.body, headers=headers)
        except aiohttp.ClientError as error:
            raise UpstreamUnavailable(f"the upstream does not answer: {type(error).__name__}") from None
        return HttpReply(reply)

    async def close(self) -> None:
        await self._session.close()


@dataclass(frozen=True, slots=True)
class Steered:
    scope: Scope
    reads: bool = True
    writes: bool = True
    tell_hits: bool = False


def steer(fields: Mapping[str, Any], headers: Sequence[Header]) -> Steered:
    """Whose memory, by the fields and headers that say so."""
    said = {name.lower(): value.decode() for name, value in headers}
    context, config = fields.get("memory_context") or {}, fields.get("memory_config") or {}
    user = said.get(b"x-memory-user") or context.get("user_id") or fields.get("user") or "default"
    scope = Scope(user, context.get("project_id", ""), said.get(b"x-memory-session", ""))
    stores = config.get("auto_store", True)
    return Steered(scope, config.get("enabled", True), stores, fields.get("memory_id") is not None)


@dataclass(slots=True)
class Said:
    steering: Steered
    given: Sequence[Mapping[str, Any]]
    messages: Sequence[Mapping[str, Any]]
    status: str = "off"
    hits: list[Any] = field(default_factory=list)
    turn_id: str | None = None


class SampleMemory:
    """Memory for chats, as short as it can be: recalls, and remembers the last user message and the answer."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.begun: list[Said] = []
        self.answers: list[tuple[str, bool]] = []

    async def begin(self, steering: Steered, messages: Sequence[Mapping[str, Any]]) -> Said:
        said = Said(steering, messages, messages)
        if steering.reads:
            asked = Recall(messages=messages, at=now(), limit=5, min_score=0.15)
            recalled = await self._service.recall(steering.scope, asked)
            said.messages, said.status = recalled.messages or messages, "ok"
            said.hits = [{"id": hit.id} for hit in recalled.hits]
        self.begun.append(said)
        return said

    async def keep_said(self, exchange: Said) -> None:
        last = [each for each in exchange.given if each["role"] == "user"][-1:]
        if exchange.steering.writes and last and isinstance(last[0]["content"], str):
            kept = await self._service.remember(exchange.steering.scope, last, by=By("test"))
            exchange.turn_id = kept.turns[0].id

    async def keep_answer(self, exchange: Said, text: str, *, whole: bool) -> str | None:
        self.answers.append((text, whole))
        if not exchange.steering.writes:
            return None
        message = {"role": "assistant", "content": text}
        return (await self._service.remember(exchange.steering.scope, [message], by=By("test"))).turns[0].id


class Running:
    """A server that runs in a thread of its own; `run` runs a coroutine in its loop."""

    def __init__(self, base_url: str, mode: Mode) -> None:
        self._upstream_url = base_url
        self._mode: Mode = mode
        self._ready = threading.Event()
        app = Starlette(lifespan=self._lifespan, routes=responses_routes(lambda scope: self.parts))
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, timeout_graceful_shutdown=5)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.loop = asyncio.get_running_loop()
        self.service = await open_service(load({"database": "memory:"}, environ={}).settings)
        self.memory = SampleMemory(self.service)
        upstream = HttpUpstream(self._upstream_url)
        self.parts = Parts(
            kept=self.service,
            memory=self.memory,
            upstream_of=lambda model: upstream,
            steer=steer,
            speech=Speech({"main": self._mode}),
        )
        self._ready.set()
        yield
        await self.parts.tasks.close()
        await upstream.close()
        await self.service.close()

    def start(self) -> Running:
        self._thread.start()
        assert self._ready.wait(20)
        while not self._server.started:
            self._thread.join(0.01)
        return self

    @property
    def url(self) -> str:
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}/v1"

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(20)

    def with_parts(self, **changes: Any) -> None:
        self.parts = replace(self.parts, **changes)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)


@contextmanager
def running(base_url: str, mode: Mode = "auto") -> Iterator[Running]:
    """The server, in front of an upstream."""
    server = Running(base_url, mode).start()
    try:
        yield server
    finally:
        server.stop()
