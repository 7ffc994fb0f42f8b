"""The host guard: foreign hosts, foreign pages and large bodies are rejected before any route."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Body, FastAPI
from fastapi.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from recollect.config.settings import load
from recollect.http.app import make_app
from recollect.http.middleware.host_guard import HostGuardConfig, HostGuardMiddleware


def with_route(app: FastAPI) -> FastAPI:
    @app.post("/json")
    async def take(body: Annotated[Any, Body()]) -> int:
        return len(str(body))

    return app


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    settings = load({"home": tmp_path, "allowed_hosts": "memory.example.org, *.inside.example"}, environ={}).settings
    with TestClient(with_route(make_app(settings)), "http://127.0.0.1:8100") as client:
        yield client


@pytest.mark.parametrize(
    "path", ["/health", "/live", "/ready", "/version", "/docs", "/openapi.json", "/v1/none", "/"]
)
def test_a_foreign_host_is_refused_on_every_route(client: TestClient, path: str) -> None:
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:8100", "", "*"):
        refused = client.get(path, headers={"Host": host})
        expected = "foreign_host" if path.startswith("/v1/") else "ForeignHost"
        assert (refused.status_code, refused.json()["error"]["code"]) == (421, expected), host


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:8100",
        "127.0.0.1:1",
        "[::1]:8100",
        "[::1]",
        "memory.example.org",
        "a.inside.example:443",
    ],
)
def test_names_of_this_machine_and_those_the_operator_gave_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/live", headers={"Host": host}).status_code == 200


def test_a_name_below_is_not_the_name_itself(client: TestClient) -> None:
    for host in ("inside.example", "xinside.example", "a.memory.example.org"):
        assert client.get("/live", headers={"Host": host}).status_code == 421


def test_a_request_needs_exactly_one_host(client: TestClient) -> None:
    twice = client.get("/live", headers=[("Host", "localhost"), ("Host", "evil.example")])
    assert (twice.status_code, twice.json()["error"]["code"]) == (400, "BadHost")


def test_the_bound_address_is_one_of_ours_and_a_star_is_everyone(tmp_path: Path) -> None:
    for inputs, host in (({"host": "127.0.0.9"}, "127.0.0.9"), ({"allowed_hosts": "*"}, "any.example")):
        settings = load({"home": tmp_path, **inputs}, environ={}).settings
        with TestClient(make_app(settings), f"http://{host}") as client:
            assert client.get("/live").status_code == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:3000", "http://127.0.0.1:81000", "127.0.0.1:8100"]
)
def test_a_page_of_another_site_cannot_send(client: TestClient, origin: str) -> None:
    for kind in ("text/plain", "application/json", "application/x-www-form-urlencoded"):
        refused = client.post("/json", content=b"{}", headers={"Origin": origin, "Content-Type": kind})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "ForeignOrigin")
    assert client.options("/json", headers={"Origin": origin}).status_code == 405


@pytest.mark.parametrize(
    "origin", ["http://127.0.0.1:8100", "https://memory.example.org", "https://a.inside.example"]
)
def test_a_page_of_ours_and_a_program_can_send(client: TestClient, origin: str) -> None:
    assert client.post("/json", json={}, headers={"Origin": origin}).status_code == 200
    assert client.post("/json", json={}).status_code == 200


def test_no_answer_carries_a_header_that_lets_other_pages_read_it(client: TestClient) -> None:
    preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    for answer in (client.get("/live", headers=preflight), client.options("/json", headers=preflight)):
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_json_nested_too_deeply_is_a_bad_request(client: TestClient) -> None:
    deep = b"[" * 10_000 + b"]" * 10_000
    assert client.post("/json", content=deep, headers={"Content-Type": "application/json"}).status_code == 400


class AsgiConnection:
    """An ASGI connection by hand: the parts of a request, and what was sent back."""

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
    """An app that turns whatever goes wrong while it reads into an answer of its own."""
    status = 200
    try:
        while (await receive()).get("more_body"):
            pass
    except Exception:
        status = 400
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})


GATE = HostGuardMiddleware(swallow, HostGuardConfig(hosts=["localhost"], max_bytes=100))


async def status(connection: AsgiConnection, request: Scope) -> Any:
    await GATE(request, connection.receive, connection.send)
    starts = [each["status"] for each in connection.sent if each["type"] == "http.response.start"]
    assert len(starts) == 1
    assert connection.sent[-1].get("more_body", False) is False
    return starts[0]


async def test_a_length_beyond_the_limit_is_refused_without_asking_the_app() -> None:
    assert await status(AsgiConnection(b"x" * 100), scope(content_length="100")) == 200
    assert await status(AsgiConnection(b"x" * 101), scope(content_length="101")) == 413


async def test_an_untold_length_is_counted_whatever_the_app_makes_of_it() -> None:
    assert await status(AsgiConnection(b"x" * 60, b"x" * 40), scope(transfer_encoding="chunked")) == 200
    assert await status(AsgiConnection(b"x" * 60, b"x" * 41), scope(transfer_encoding="chunked")) == 413
    connection = AsgiConnection(b"x" * 60, b"x" * 41, *[b"x" * (1 << 20)] * 100)
    assert await status(connection, scope(transfer_encoding="chunked")) == 413
    # Some of the rest is taken in so that the client hears the answer, but not all of it.
    assert 60 < connection.taken < 100


async def test_files_that_are_passed_on_may_be_of_any_size() -> None:
    assert await status(AsgiConnection(b"x" * 900), scope("/v1/files", content_length="900")) == 200


async def test_the_gate_costs_a_few_microseconds() -> None:
    async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
        pass

    connection, rounds = AsgiConnection(), 2_000
    gate = HostGuardMiddleware(nothing, HostGuardConfig(hosts=["localhost"], allowed=["a.example"], max_bytes=100))
    request = scope(**{f"x-{n}": "value" for n in range(12)}, content_length="10", origin="http://localhost")
    best = 1.0
    for _ in range(20):
        started = time.process_time()
        for _ in range(rounds):
            await gate(request, connection.receive, connection.send)
        best = min(best, (time.process_time() - started) / rounds)
        await asyncio.sleep(0)
    # 2 us on a quiet machine.
    assert best < 20e-6
