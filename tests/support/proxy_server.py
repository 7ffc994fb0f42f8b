"""The real application on a real port for tests of the proxy, and a raw HTTP client."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import uvicorn

from recollect.config.settings import load
from recollect.http.app import make_app
from recollect.http.server import bind_sockets
from recollect.model.turn import Turn
from recollect.service.service import Service
from recollect.testing.llm_replies import Fault, HttpAnswer, Step

BUDGET = "My budget for the Hawaii trip is $10,000"
QUESTION = "What is my budget for the Hawaii trip?"
KEY = "sk-client-0123456789abcdef"
_T = TypeVar("_T")


class ServedProxy:
    """The application on a loopback port."""

    def __init__(self, home: Path, upstream: str, **settings: Any) -> None:
        # A slow search on a loaded machine must not leave a chat without memory, and the upstream must get no
        # requests but those of the test.
        usual = {"memory_timeout_s": 30.0, "worker": False, "learn_with_upstream": False}
        chosen = {"home": home, "upstream_url": upstream, **usual, **settings}
        self.app = make_app(load(chosen, environ={}).settings)
        self._listening = bind_sockets("127.0.0.1", 0)
        self.port = self._listening.port
        config = uvicorn.Config(self.app, http="httptools", log_config=None, server_header=False)
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._server.run, args=(list(self._listening.sockets),), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def service(self) -> Service:
        service: Service = self.app.state.service
        return service

    def run(self, doing: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the loop of the server."""
        return asyncio.run_coroutine_threadsafe(doing, self._server.loop).result(60)

    def start(self) -> ServedProxy:
        self._thread.start()
        if not self._server.ready.wait(60):
            raise RuntimeError("the server did not start within 60 s")
        return self

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(300)
        self._listening.close()

    def stored_turns(self, user: str, count: int = 2) -> list[tuple[str, str]]:
        """Return roles and texts of the user's latest session, once `count` turns are stored in the background."""
        deadline = time.monotonic() + 60
        while len(results := self.run(self._turns(user))) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        return [(str(turn.role), turn.content) for turn in results]

    async def _turns(self, user: str) -> list[Turn]:
        latest = await self.service.sessions.list(user, limit=1)
        return await self.service.turns(latest[0].scope) if latest else []

    def post(self, body: bytes | dict[str, Any], *, path: str = "/chat/completions", **headers: str) -> Answered:
        """Send a JSON request and return the complete answer."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", path, raw, {"content-type": "application/json", **named})

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answered:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, "/v1" + path, body, headers or {})
            answer = connection.getresponse()
            return Answered(answer.status, answer.headers, answer.read())

    def leave(self, body: dict[str, Any], user: str, ready: Callable[[bytes], bool]) -> float:
        """Send a chat, disconnect once the received bytes are `ready`, and return the time of that."""
        raw = json.dumps(body).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-Memory-User: {user}\r\n"
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as client:
            client.sendall(f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
            received = b""
            while not ready(received):
                received += client.recv(65536)
            return time.time()


class Answered:
    """An answer as received."""

    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _Server(uvicorn.Server):
    """Reports when it listens, and installs no signal handlers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def main_loop(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.ready.set()
        await super().main_loop()


@contextlib.contextmanager
def served(home: Path, upstream: str, **settings: Any) -> Iterator[ServedProxy]:
    """Serve the application while the block lasts."""
    server = ServedProxy(home, upstream, **settings).start()
    try:
        yield server
    finally:
        server.stop()


def chat(text: str = QUESTION, **fields: Any) -> dict[str, Any]:
    """Return a chat request with one message."""
    return {"model": "scripted", "messages": [{"role": "user", "content": text}], **fields}


def answers(*steps: Step, status: int = 200, **headers: str) -> Fault:
    """Answer with exactly these writes, pauses and ends, and exactly these headers."""
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Fault("answers", lambda _: HttpAnswer(status, named, steps))
