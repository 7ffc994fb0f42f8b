"""Clients that chat as fast as they are answered.

Each line on standard input is a `Load` as JSON; each line on standard output is the result of one.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from time import perf_counter
from typing import Any

import httptools
import uvloop

from benchmarks.corpus import questions, sentences
from benchmarks.proxy_upstream import ANSWER

_EXCHANGES = 5
_MAX_ANSWER_S = 60
_SYSTEM = "You are a helpful assistant. Answer briefly, and say so where you are not sure."


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The clients, their requests, and for how long they send them."""

    port: int = 0
    seconds: float
    clients: int
    stream: bool
    model: str
    headers: dict[str, str] = field(default_factory=dict)
    users: Sequence[str] = ("default",)
    seed: int = 0
    # Clients start spread over this time, so that they do not stay in step; nothing is counted until then.
    ramp_s: float = 0.2
    slow: bool = False


class _Client(asyncio.Protocol):
    """One connection, with one request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    async def ask(self, request: bytes) -> tuple[float, float]:
        """Send a request; return the seconds to the first and to the last byte of the body."""
        self._parser = httptools.HttpResponseParser(self)
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._first = 0.0
        self.status = ""
        start = perf_counter()
        self._transport.write(request)
        await self._done
        return self._first - start, perf_counter() - start

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(ConnectionError("closed before the answer was whole"))

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-memory-status":
            self.status = value.decode()

    def on_body(self, _: bytes) -> None:
        self._first = self._first or perf_counter()

    def on_message_complete(self) -> None:
        if not self._done.done():
            if self._parser.get_status_code() == 200:
                self._done.set_result(None)
            else:
                self._done.set_exception(ConnectionError(f"status {self._parser.get_status_code()}"))


def requests(load: Load, client: int) -> Iterator[bytes]:
    """Yield the requests of one client: conversations of some exchanges, each with all previous messages."""
    request, report = questions(load.seed * 1000 + client), sentences(load.seed * 1000 + client)
    users = islice(cycle(load.users), client % len(load.users), None)
    for user in users:
        messages = [{"role": "system", "content": _SYSTEM}]
        for exchange in range(_EXCHANGES):
            text = f"{next(report)}. {next(request)}" if exchange % 3 == 1 else next(request)
            messages.append({"role": "user", "content": text})
            yield _request(load, {"model": load.model, "user": user, "stream": load.stream, "messages": messages})
            messages.append({"role": "assistant", "content": ANSWER})


def _request(load: Load, body: dict[str, Any]) -> bytes:
    raw = json.dumps(body).encode()
    inputs = "".join(f"{name}: {value}\r\n" for name, value in load.headers.items())
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{load.port}\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer none\r\n{inputs}content-length: {len(raw)}\r\n\r\n"
    )
    return head.encode() + raw


async def chat(load: Load) -> dict[str, Any]:
    """Run the clients; requests before all have started are not counted."""
    loop = asyncio.get_running_loop()
    firsts, wholes, troubles, query = list[float](), list[float](), list[str](), 0
    counts_from = perf_counter() + load.ramp_s
    until = counts_from + load.seconds

    async def chatting(number: int) -> None:
        nonlocal query
        _, client = await loop.create_connection(_Client, "127.0.0.1", load.port)
        await asyncio.sleep(load.ramp_s * number / load.clients)
        for request in requests(load, number):
            started = perf_counter()
            if started > until and wholes:
                break
            async with asyncio.timeout(_MAX_ANSWER_S):
                first, whole = await client.ask(request)
            query += 1
            if started > counts_from:
                firsts.append(first)
                wholes.append(whole)
            if client.status not in ("", "ok", "off"):
                troubles.append(client.status)
        client.close()

    outcomes = await asyncio.gather(*map(chatting, range(load.clients)), return_exceptions=True)
    failed = [str(each) or type(each).__name__ for each in outcomes if isinstance(each, BaseException)]
    # Until the last request has ended.
    seconds = perf_counter() - counts_from
    report = {"first_s": firsts, "whole_s": wholes, "troubles": troubles, "failed": failed}
    return {**report, "seconds": seconds, "asked": query or 1}


async def read_slowly(load: Load) -> dict[str, Any]:
    """Run clients that read a kilobyte per second."""
    loop = asyncio.get_running_loop()
    read = 0

    async def reading(number: int) -> None:
        nonlocal read
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", load.port))
            await loop.sock_sendall(client, next(requests(load, number)))
            until = perf_counter() + load.seconds
            while perf_counter() < until:
                read += len(await loop.sock_recv(client, 1024))
                await asyncio.sleep(1)

    outcomes = await asyncio.gather(*map(reading, range(load.clients)), return_exceptions=True)
    return {"read": read, "failed": [str(each) for each in outcomes if isinstance(each, BaseException)]}


async def _main() -> None:
    for line in iter(sys.stdin.readline, ""):
        load = Load(**json.loads(line))
        print(json.dumps(await (read_slowly if load.slow else chat)(load)), flush=True)


if __name__ == "__main__":
    uvloop.run(_main())
