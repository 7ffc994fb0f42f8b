"""Half-open connections are closed and do not keep others out; slow uploads and long answers are not cut off."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send

from recollect.config.settings import Settings
from recollect.http.connections import guarded_protocol

HALF_OPEN = 60
HEADERS = b"POST /upload HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n"
REQUEST = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward, so that no test waits for a timeout."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


@dataclass
class App:
    """Answers with the size of the body; /stream answers in two parts, /large with much."""

    received: asyncio.Queue[int] = field(default_factory=asyncio.Queue)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnected.set()
                return
            size, more = size + len(message["body"]), message["more_body"]
            self.received.put_nowait(size)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/stream":
            await send({"type": "http.response.body", "body": b"begun ", "more_body": True})
            await self.go_on.wait()
        if scope["path"] == "/large":
            for _ in range(1000):
                await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
            await receive()
            self.disconnected.set()
        await send({"type": "http.response.body", "body": f"{size} bytes".encode()})


@dataclass
class Site:
    """A server in the loop of the test."""

    app: App
    port: int
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def connect(self, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        writer.write(data)
        await writer.drain()
        return reader, writer

    def close(self) -> None:
        for writer in self.writers:
            writer.close()

    async def answer(self) -> bytes:
        """Return the answer to an honest client."""
        reader, _ = await self.connect(REQUEST)
        return await reader.read()

    async def wait_for(self, size: int) -> None:
        while await self.app.received.get() < size:
            pass


def put_forward(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop)
    loop.ahead_s += seconds


def run(test: Callable[[Site], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        app = App()
        protocol = guarded_protocol(Settings(**settings))
        server = uvicorn.Server(uvicorn.Config(app, http=protocol, lifespan="off", log_config=None, ws="none"))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.create_task(server.serve([listener]))
            site = Site(app, listener.getsockname()[1])
            try:
                await test(site)
            finally:
                site.close()
                server.should_exit = server.force_exit = True
                await serving

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(main())


def test_half_open_requests_end_after_their_time_while_others_are_served() -> None:
    async def test(site: Site) -> None:
        beginnings = (b"", b"GET / HTTP/1.1\r\nhost: local", b"GET / HTTP/1.1\r\nhost: localhost\r\n")
        opened = [await site.connect(beginnings[n % 3]) for n in range(HALF_OPEN)]
        assert b"200 OK" in await site.answer()
        # A byte now and then does not help.
        put_forward(15)
        for _, writer in (each for n, each in enumerate(opened) if n % 3):
            writer.write(b"x")
        assert b"200 OK" in await site.answer()
        put_forward(6)
        for reader, _ in opened:
            answer = await reader.read()
            assert b"408 Request Timeout" in answer
            assert b"headers of the request did not arrive within 20 s; header_timeout_s" in answer
        assert b"200 OK" in await site.answer()

    run(test, header_timeout_s=20)


def test_a_body_may_be_slow_but_not_stop() -> None:
    async def test(site: Site) -> None:
        reader, writer = await site.connect(HEADERS)
        stopped, _ = await site.connect(HEADERS + b"1")
        await site.wait_for(1)
        for size in range(1, 11):
            put_forward(25)
            writer.write(b"x")
            await site.wait_for(size)
        assert b"200 OK" in await reader.readuntil(b"\r\n")
        answer = await stopped.read()
        assert b"408 Request Timeout" in answer
        assert b"body_timeout_s" in answer
        await site.app.disconnected.wait()

    run(test, body_timeout_s=60)


def test_a_long_answer_is_not_cut_off() -> None:
    async def test(site: Site) -> None:
        reader, _ = await site.connect(REQUEST.replace(b"/", b"/stream", 1))
        await reader.readuntil(b"begun ")
        for _ in range(10):
            put_forward(3600)
            assert b"200 OK" in await site.answer()
        site.app.go_on.set()
        assert b"0 bytes" in await reader.read()

    run(test)


def test_an_answer_that_nobody_reads_ends() -> None:
    async def test(site: Site) -> None:
        _, writer = await site.connect(REQUEST.replace(b"/", b"/large", 1))
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await site.wait_for(0)
        while not site.app.disconnected.is_set():
            put_forward(301)
            await asyncio.sleep(0)

    run(test, send_timeout_s=300)


def test_connections_that_wait_make_room_for_others() -> None:
    async def test(site: Site) -> None:
        streaming, _ = await site.connect(REQUEST.replace(b"/", b"/stream", 1))
        await streaming.readuntil(b"begun ")
        opened = [await site.connect(HEADERS if n % 2 else b"GET") for n in range(HALF_OPEN)]
        for _ in range(5):
            assert b"200 OK" in await site.answer()
        # The longest waiting are closed, and the answer in progress is not.
        for reader, _ in opened[: HALF_OPEN - 12]:
            assert await _ended(reader)
        site.app.go_on.set()
        assert b"0 bytes" in await streaming.read()

    for limits in ({"max_connections": 12}, {"max_connections": 100, "max_connections_per_address": 12}):
        run(test, **limits)


async def _ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


def test_requests_in_progress_are_not_closed_for_others() -> None:
    async def test(site: Site) -> None:
        opened = [await site.connect(REQUEST.replace(b"/", b"/stream", 1)) for _ in range(8)]
        for reader, _ in opened:
            await reader.readuntil(b"begun ")
        refused, _ = await site.connect()
        assert b"503 Service Unavailable" in await refused.read()
        site.app.go_on.set()
        for reader, _ in opened:
            assert b"0 bytes" in await reader.read()

    run(test, max_connections=8, max_connections_per_address=100)


def test_endless_headers_are_refused() -> None:
    async def test(site: Site) -> None:
        reader, writer = await site.connect(b"GET / HTTP/1.1\r\nhost: localhost\r\n")
        answer = asyncio.create_task(reader.readuntil(b"\r\n"))
        while not answer.done():
            writer.write(b"x-more: " + b"x" * 4096 + b"\r\n")
            await asyncio.sleep(0)
        assert b"431" in answer.result()

    run(test)
