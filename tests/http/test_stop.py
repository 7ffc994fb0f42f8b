"""A server that is stopped during many streamed chats finishes them, and loses no turn that it acknowledged."""

from __future__ import annotations

import http.server
import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from recollect import Memory
from tests.support.recollect_server import START_S, RecollectServer

STREAMS = 20


class PausedUpstream(http.server.ThreadingHTTPServer):
    """Streams half an answer, and the rest once `go_on` is set."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.go_on = threading.Event()
        self.begun = threading.Semaphore(0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: PausedUpstream

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self._send("half an ")
        self.server.begun.release()
        self.server.go_on.wait(START_S)
        self._send("answer")
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, text: str) -> None:
        chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]}
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def upstream() -> Iterator[PausedUpstream]:
    with PausedUpstream() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.go_on.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one process", "two"])
def test_streams_end_properly_and_their_turns_are_stored(
    tmp_path: Path, upstream: PausedUpstream, options: tuple[str, ...]
) -> None:
    home = tmp_path / "home"

    def chat(number: int) -> tuple[str, bool]:
        body = {
            "model": "m",
            "stream": True,
            "messages": [{"role": "user", "content": f"I have {number} cats"}],
        }
        headers = {"X-Memory-User": f"user {number}", "X-Memory-Session": "monday"}
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=headers, timeout=START_S)
        return answer.text, "x-memory-turn" in answer.headers

    variables = {
        "RECOLLECT_STOP_WITHIN_S": "600",
        "RECOLLECT_MEMORY_TIMEOUT_S": "30",
        "OPENAI_BASE_URL": upstream.url,
    }
    with (
        RecollectServer(home, *options, **variables) as server,
        ThreadPoolExecutor(STREAMS) as clients,
    ):
        chats = [clients.submit(chat, number) for number in range(STREAMS)]
        for _ in range(STREAMS):
            assert upstream.begun.acquire(timeout=START_S), server.log
        server.process.send_signal(signal.SIGTERM)
        upstream.go_on.set()
        for each in chats:
            text, acknowledged = each.result(START_S)
            assert text.endswith("data: [DONE]\n\n")
            assert acknowledged
        assert server.process.wait(START_S) == 0, server.log
        assert "Traceback" not in server.log
    with Memory(home=home) as memory:
        for number in range(STREAMS):
            turns = memory.sessions.turns(user_id=f"user {number}", session_id="monday")
            assert [turn.content for turn in turns] == [f"I have {number} cats", "half an answer"]
