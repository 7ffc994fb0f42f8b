"""Chats and keys are sent to the configured upstreams only."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from recollect.config.settings import load
from recollect.errors import InvalidSettings, UpstreamUnavailable
from recollect.http.auth.address import checked_url, is_forbidden
from recollect.http.upstream.http_upstream import HttpUpstream
from recollect.http.upstream.router import UpstreamRequest
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.llm_faults import http_error
from tests.support.proxy_server import BUDGET, KEY, ServedProxy, chat, served

OWN = "sk-operator-fedcba9876543210"
PATHS = ("/chat/completions", "/embeddings")
# The default one, and one for some models.
Endpoints: TypeAlias = tuple[ScriptedLLM, ScriptedLLM]


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest", "http://169.254.0.1:80/v1", "http://[fe80::1]/v1", "http://[fe80::1%25eth0]/v1",
        "http://[::ffff:169.254.169.254]/v1", "http://[::ffff:a9fe:a9fe]/v1", "http://[2002:a9fe:a9fe::]/v1",
        "http://[64:ff9b::a9fe:a9fe]/v1", "http://[::169.254.169.254]/v1", "http://[fd00:ec2::254]/v1",
        "http://2852039166/v1", "http://0xa9fea9fe/v1", "http://0251.0376.0251.0376/v1", "http://169.16689662/v1",
        "http://127.1/v1", "http://0/v1", "http://0.0.0.0/v1", "http://[::]/v1", "http://100.100.100.200/v1",
        "http://224.0.0.1/v1", "http://255.255.255.255/v1",
        "http://169。254。169。254/v1", "http://①69.254.169.254/v1", "http://169.254.169.254./v1",
        "file:///etc/passwd", "ftp://host/v1", "gopher://host/v1", "//host/v1", "host/v1", "http:///v1", "",
        "http://user:secret@host/v1", "http://host/v1?key=1", "http://host/v1#x", "http://host:99999/v1",
        "http://ho st/v1", "http://host\r\nX: y/v1", "http://host\\@evil/v1",
    ],
)  # fmt: skip
def test_a_forbidden_address_is_rejected(url: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        checked_url(url, name="upstream_url")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/v1", "http://localhost:11434/v1", "http://10.0.0.5/v1", "http://[::1]:8000/v1",
        "https://api.openai.com/v1", "http://llm:8000", "http://my_vllm.internal/openai/v1", "http://192.168.1.2/v1/",
    ],
)  # fmt: skip
def test_local_and_remote_endpoints_are_accepted(url: str) -> None:
    assert checked_url(f" {url} ", name="upstream_url") == url.rstrip("/")


def test_resolved_addresses_are_checked_in_every_form() -> None:
    assert is_forbidden("fe80::1%3")
    assert is_forbidden("::ffff:169.254.169.254")
    assert not is_forbidden("::ffff:10.0.0.1")


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("address", ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1"])
async def test_a_name_that_resolves_to_a_forbidden_address_is_rejected_at_each_connection(
    monkeypatch: pytest.MonkeyPatch, address: str, scheme: str
) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET

    def rebound(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        return [(family, socket.SOCK_STREAM, 6, "", (address, port, 0, 0)[: 4 if ":" in address else 2])]

    def connect(*_: Any) -> None:
        raise AssertionError("it was connected to")

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", connect)
    upstream = HttpUpstream("it", f"{scheme}://rebind.test/v1", connect_s=60, idle_s=60)
    try:
        with pytest.raises(UpstreamUnavailable, match="a forbidden address"):
            await upstream.send(UpstreamRequest(method="POST", path="/chat/completions", body=b"{}"))
    finally:
        await upstream.close()


async def test_an_unreachable_upstream_is_reported_by_name() -> None:
    for url in ("http://127.0.0.1:9/v1", "https://127.0.0.1:9/v1"):
        upstream = HttpUpstream("the model", url, connect_s=60, idle_s=60)
        with pytest.raises(UpstreamUnavailable, match="the model cannot be reached"):
            await upstream.send(UpstreamRequest(method="GET", path="/models"))
        await upstream.close()


def test_no_field_of_a_request_chooses_the_upstream(llm: ScriptedLLM, tmp_path: Path) -> None:
    with ScriptedLLM() as elsewhere, served(tmp_path, llm.base_url, allow_anonymous_proxy=True) as proxy:
        evil = elsewhere.base_url
        host = evil.removeprefix("http://").removesuffix("/v1")
        named = {"base_url": evil, "api_base": evil, "url": evil, "upstream_url": evil}
        proxy.post(chat(**named), x_forwarded_host=host, x_upstream=evil, x_base_url=evil)
        proxy.ask("GET", f"/{evil}/models")
        proxy.ask("GET", f"/models?base_url={evil}")
        proxy.ask("GET", "/../../models", headers={"host": host})
        assert not elsewhere.requests
        assert len(llm.requests) == 4


def test_a_client_key_reaches_the_upstream_only(
    llm: ScriptedLLM, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with served(tmp_path, llm.base_url, log_level="debug") as proxy:
        for path in PATHS:
            for fault in (None, http_error(401, {"error": {"message": "bad key"}}), http_error(302)):
                if fault:
                    llm.fault(fault)
                proxy.post(chat(BUDGET, input="x"), path=path, authorization=f"Bearer {KEY}", x_memory_user="ann")
        llm.stop()
        for path in PATHS:
            proxy.post(chat(BUDGET, input="x"), path=path, authorization=f"Bearer {KEY}", x_memory_user="ann")
    assert {request.headers["authorization"] for request in llm.requests} == {f"Bearer {KEY}"}
    assert KEY not in caplog.text
    stored = b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
    assert BUDGET.encode() in stored
    assert KEY.encode() not in stored


def test_a_configured_key_replaces_that_of_the_client(llm: ScriptedLLM, tmp_path: Path) -> None:
    with served(tmp_path, llm.base_url, upstream_api_key=OWN) as proxy:
        for path in PATHS:
            proxy.post(chat(input="x"), path=path, authorization=f"Bearer {KEY}", api_key=KEY, x_api_key=KEY)
            proxy.post(chat(input="x"), path=path)
    assert len(llm.requests) == 4
    for request in llm.requests:
        assert request.headers.getlist("authorization") == [f"Bearer {OWN}"]
        assert KEY not in str(request.headers)


@pytest.fixture(scope="module")
def endpoints() -> Iterator[Endpoints]:
    with ScriptedLLM() as default, ScriptedLLM(models=["org/big"]) as other:
        yield default, other


@pytest.fixture(scope="module")
def shared_proxy(endpoints: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProxy]:
    default, other = endpoints
    named = {"models": "org/*, big-?", "url": other.base_url, "api_key": OWN}
    with served(tmp_path_factory.mktemp("home"), default.base_url, upstreams={"other": named}) as running:
        yield running


@pytest.fixture
def proxy(endpoints: Endpoints, shared_proxy: ServedProxy) -> ServedProxy:
    for endpoint in endpoints:
        endpoint.clear()
    return shared_proxy


@pytest.mark.parametrize("model", ["org/big", "org/", "big-1"])
@pytest.mark.parametrize("path", PATHS)
def test_a_matching_model_goes_to_its_upstream(
    endpoints: Endpoints, proxy: ServedProxy, model: str, path: str
) -> None:
    default, other = endpoints
    proxy.post(chat(input="x") | {"model": model}, path=path, authorization=f"Bearer {KEY}")
    assert not default.requests
    assert other.requests[0].headers["authorization"] == f"Bearer {OWN}"


@pytest.mark.parametrize("model", ["scripted", "big-10", "an-org/big", "ORG/big", None, 7])
def test_other_models_go_to_the_default_upstream_with_the_key_of_the_client(
    endpoints: Endpoints, proxy: ServedProxy, model: Any
) -> None:
    default, other = endpoints
    proxy.post(chat() | {"model": model}, authorization=f"Bearer {KEY}")
    assert not other.requests
    assert default.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_model_in_the_path_goes_to_its_upstream(endpoints: Endpoints, proxy: ServedProxy) -> None:
    proxy.ask("GET", "/models/org%2Fbig")
    proxy.ask("GET", "/models/scripted")
    paths = [[request.path for request in endpoint.requests] for endpoint in endpoints]
    assert paths == [["/v1/models/scripted"], ["/v1/models/org%2Fbig"]]


def test_keys_of_upstreams_are_hidden_in_settings() -> None:
    named = {"models": "x", "url": "http://host/v1", "api_key": OWN}
    settings = load({"upstream_api_key": OWN, "upstreams": {"a": named}}, environ={}).settings
    assert OWN not in repr(settings)
