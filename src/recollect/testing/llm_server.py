"""The HTTP server of the scripted LLM: it records requests exactly, and sends responses with their faults."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, assert_never

import uvicorn
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from recollect.frozen_dataclass import frozen_dataclass
from recollect.testing.llm_replies import Cut, HttpAnswer, texts

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


@frozen_dataclass(eq=False)
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


@frozen_dataclass(eq=False)
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
