"""The host guard: foreign hosts, foreign pages and large bodies are rejected before any route."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from fastapi import Body, FastAPI
from fastapi.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from recollect.config.settings import Settings, load
from recollect.http.app import make_app
from recollect.http.middleware import HostGuardMiddleware


def with_route(app: FastAPI) -> FastAPI:
    @app.post("/json")
    async def take(body: Annotated[Any, Body()]) -> int:
        return len(str(body))

    return app


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    home, hosts = tmp_path_factory.mktemp("home"), "Memory.Example.org, *.inside.example"
    settings = load({"home": home, "allowed_hosts": hosts}, environ={}).settings
    with TestClient(with_route(make_app(settings)), "http://127.0.0.1:8100") as client:
        yield client


def test_a_foreign_host_is_rejected_on_every_route(client: TestClient) -> None:
    for path in ("/health", "/live", "/ready", "/version", "/docs", "/openapi.json", "/v1/none", "/"):
        for host in (
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example:8100",
            "",
            "*",
        ):
            answer = client.get(path, headers={"Host": host})
            expected = "foreign_host" if path.startswith("/v1/") else "ForeignHost"
            assert (answer.status_code, answer.json()["error"]["code"]) == (421, expected), host


def test_names_of_this_machine_and_of_the_settings_are_answered(client: TestClient) -> None:
    local = ("localhost", "LocalHost:8100", "127.0.0.1:1", "[::1]:8100", "[::1]")
    for host in (*local, "memory.example.org", "a.inside.example:443"):
        assert client.get("/live", headers={"Host": host}).status_code == 200
    for host in ("inside.example", "xinside.example", "a.memory.example.org"):
        assert client.get("/live", headers={"Host": host}).status_code == 421


def test_a_request_needs_exactly_one_host(client: TestClient) -> None:
    twice = client.get("/live", headers=[("Host", "localhost"), ("Host", "evil.example")])
    assert (twice.status_code, twice.json()["error"]["code"]) == (400, "BadHost")


def test_a_page_of_another_site_cannot_send(client: TestClient) -> None:
    ports = ("http://localhost:3000", "http://127.0.0.1:81000", "127.0.0.1:8100")
    for origin in ("https://evil.example", "null", *ports):
        for kind in ("text/plain", "application/json", "application/x-www-form-urlencoded"):
            answer = client.post("/json", content=b"{}", headers={"Origin": origin, "Content-Type": kind})
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "ForeignOrigin")
        assert client.options("/json", headers={"Origin": origin}).status_code == 405


def test_pages_of_allowed_hosts_and_programs_can_send(client: TestClient) -> None:
    for origin in ("http://127.0.0.1:8100", "https://memory.example.org", "https://a.inside.example"):
        assert client.post("/json", json={}, headers={"Origin": origin}).status_code == 200
    assert client.post("/json", json={}).status_code == 200


def test_no_answer_has_a_cors_header(client: TestClient) -> None:
    preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    for answer in (client.get("/live", headers=preflight), client.options("/json", headers=preflight)):
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_json_nested_too_deeply_is_a_bad_request(client: TestClient) -> None:
    deep = b"[" * 10_000 + b"]" * 10_000
    assert client.post("/json", content=deep, headers={"Content-Type": "application/json"}).status_code == 400


class AsgiConnection:
    """An ASGI connection: the parts of a request, and what was sent back."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = list(parts)
        self.taken = 0
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        self.taken += 1
        body = self._parts.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(self._parts)}

    async def send(self, message: Message) -> None:
        self.sent.append(message)


def scope(path: str = "/json", **headers: str) -> Scope:
    raw = [
        (name.replace("_", "-").encode(), value.encode()) for name, value in {"host": "localhost", **headers}.items()
    ]
    return {"type": "http", "method": "POST", "path": path, "headers": raw}


async def swallow(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer any error while reading the body with 400."""
    status = 200
    try:
        while (await receive()).get("more_body"):
            pass
    except Exception:
        status = 400
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})


MIB = 1 << 20
GUARD = HostGuardMiddleware(swallow, Settings(max_body_mb=1), {})


async def status(connection: AsgiConnection, request: Scope, guard: HostGuardMiddleware = GUARD) -> Any:
    await guard(request, connection.receive, connection.send)
    starts = [each["status"] for each in connection.sent if each["type"] == "http.response.start"]
    assert len(starts) == 1
    assert connection.sent[-1].get("more_body", False) is False
    return starts[0]


async def test_the_allowed_hosts_of_a_server_depend_on_its_address() -> None:
    cases: list[tuple[dict[str, Any], dict[str, int]]] = [
        ({"host": "127.0.0.9"}, {"127.0.0.9": 200, "127.0.0.8": 421}),
        ({"allowed_hosts": "*"}, {"any.example": 200}),
        ({"host": "0.0.0.0"}, {"any.example": 200}),
        ({"host": "0.0.0.0", "allowed_hosts": "a"}, {"a": 200, "0.0.0.0": 421, "any.example": 421}),
    ]
    for settings, expected in cases:
        guard = HostGuardMiddleware(swallow, Settings(**settings), {})
        assert {host: await status(AsgiConnection(b""), scope(host=host), guard) for host in expected} == expected


async def test_a_large_content_length_is_rejected_before_the_app_is_called() -> None:
    assert await status(AsgiConnection(b"x" * MIB), scope(content_length=str(MIB))) == 200
    assert await status(AsgiConnection(b"x" * (MIB + 1)), scope(content_length=str(MIB + 1))) == 413
    uploaded = AsgiConnection(b"x" * (MIB + 1))
    assert await status(uploaded, scope("/v1/files", content_length=str(MIB + 1))) == 200


async def test_a_body_without_a_length_is_counted() -> None:
    half = b"x" * (MIB // 2)
    assert await status(AsgiConnection(half, half), scope(transfer_encoding="chunked")) == 200
    assert await status(AsgiConnection(half, half + b"x"), scope(transfer_encoding="chunked")) == 413
    connection = AsgiConnection(half, half + b"x", *[b"x" * MIB] * 100)
    assert await status(connection, scope(transfer_encoding="chunked")) == 413
    # Some of the rest is received, so that the client reads the answer, but not all of it.
    assert 60 < connection.taken < 100


async def test_the_guard_costs_a_few_microseconds() -> None:
    async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
        pass

    connection, rounds = AsgiConnection(), 2_000
    guard = HostGuardMiddleware(nothing, Settings(allowed_hosts="a.example"), {})
    request = scope(**{f"x-{n}": "value" for n in range(12)}, content_length="10", origin="http://localhost")
    best = 1.0
    for _ in range(20):
        started = time.thread_time()
        for _ in range(rounds):
            await guard(request, connection.receive, connection.send)
        best = min(best, (time.thread_time() - started) / rounds)
        await asyncio.sleep(0)
    # 2 us on a quiet machine.
    assert best < 20e-6
