"""Clients that hardly read: their upstream waits with them, and little of the answer is held."""

from __future__ import annotations

import json
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from served_proxy import chat, served

from recollect.http.proxy.listener import StreamRecorder

MOST_BYTES = 1 << 20
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(word: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": word}}]}).encode() + b"\n\n"


class Endless:
    """An upstream that answers without an end, until it is made to wait or has sent far too much."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        # What the system holds on its side is not the proxy's.
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"
        self.sent = 0
        self.ended = threading.Event()
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        words = event(" word") * 100
        chunk = b"%x\r\n%b\r\n" % (len(words), words)
        client, _ = self._listening.accept()
        with client:
            client.recv(1 << 16)
            client.settimeout(3)
            client.sendall(_HEAD)
            try:
                while self.sent < 2 * MOST_BYTES:
                    client.sendall(chunk)
                    self.sent += len(chunk)
            except TimeoutError:
                pass
            finally:
                self.ended.set()

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def endless() -> Iterator[Endless]:
    upstream = Endless()
    yield upstream
    upstream.close()


def test_an_upstream_waits_for_a_client_that_does_not_read(tmp_path: Path, endless: Endless) -> None:
    raw = json.dumps(chat(stream=True)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(raw)}\r\n\r\n"
    with served(tmp_path, endless.url) as proxy, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", proxy.port))
        client.sendall(head.encode() + raw)
        assert endless.ended.wait(60)
        assert 0 < endless.sent < MOST_BYTES


def test_a_long_answer_is_heard_in_the_room_of_its_words() -> None:
    listener = StreamRecorder(streamed=True)
    count = 20_000
    tracemalloc.start()
    try:
        for number in range(count):
            listener.feed(event(f" {number:05}"))
        stored, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    text = listener.text()
    assert (len(text), text[:12]) == (6 * count, " 00000 00001")
    assert stored < 3 * len(text)
