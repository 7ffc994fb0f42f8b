"""An endpoint behind TLS that offers HTTP/2, says what it was sent, and sees when a stream is given up."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset

FRAMES = [f'data: {{"choices":[{{"index":0,"delta":{{"content":"{word}"}}}}]}}\n\n'.encode() for word in "abc"]


@dataclass(slots=True)
class ReceivedRequest:
    """One request: its headers in order, and what came after them."""

    headers: list[tuple[str, str]]
    body: bytearray = field(default_factory=bytearray)
    whole: bool = False
    cancelled: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class Endpoint:
    """Where it is, whom to trust for it, and what it saw; `hold` leaves answers without an end."""

    url: str
    ca: Path
    connections: int = 0
    requests: list[ReceivedRequest] = field(default_factory=list)
    hold: str = ""


class _Connection(asyncio.Protocol):
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._requests: dict[int, ReceivedRequest] = {}

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._endpoint.connections += 1
        self._h2.initiate_connection()
        transport.write(self._h2.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self._h2.receive_data(data):
            if isinstance(event, RequestReceived):
                self._requests[event.stream_id] = ReceivedRequest(
                    [(str(name), str(value)) for name, value in event.headers]
                )
                self._endpoint.requests.append(self._requests[event.stream_id])
            elif isinstance(event, DataReceived):
                self._requests[event.stream_id].body += event.data
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, StreamEnded):
                self._requests[event.stream_id].whole = True
                self._answer(event.stream_id)
            elif isinstance(event, StreamReset):
                self._requests[event.stream_id].cancelled.set()
        self._transport.write(self._h2.data_to_send())

    def _answer(self, stream: int) -> None:
        if self._endpoint.hold == "head":
            return
        request = json.loads(self._requests[stream].body or b"{}")
        kind = "text/event-stream" if request.get("stream") else "application/json"
        self._h2.send_headers(stream, [(":status", "200"), ("content-type", kind), ("x-request-id", "r1")])
        frames = FRAMES if request.get("stream") else [b'{"choices":[{"index":0,"message":{"content":"abc"}}]}']
        for frame in frames[:1] if self._endpoint.hold == "body" else frames:
            self._h2.send_data(stream, frame)
        if self._endpoint.hold == "reset":
            self._h2.reset_stream(stream)
        elif not self._endpoint.hold:
            self._h2.end_stream(stream)


@contextmanager
def h2_endpoint(folder: Path) -> Iterator[Endpoint]:
    """The endpoint as long as the block lasts."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    context.set_alpn_protocols(["h2"])
    loop = asyncio.new_event_loop()
    endpoint = Endpoint("", folder / "ca.pem")
    server = loop.run_until_complete(
        loop.create_server(lambda: _Connection(endpoint), "localhost", 0, ssl=context, family=2)
    )
    endpoint.url = f"https://localhost:{server.sockets[0].getsockname()[1]}/v1"
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
