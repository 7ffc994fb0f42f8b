"""The route of MCP: authentication, discovery for OAuth, limits, errors before the protocol, and the lazy import."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from mcp.client.auth.utils import extract_resource_metadata_from_www_auth
from mcp.shared.auth import ProtectedResourceMetadata
from mcp.shared.subscriptions import ResourceUpdated

from recollect.config.settings import load
from recollect.errors import InvalidSettings
from recollect.http.app import make_app
from tests.http.auth.test_jwt import AUDIENCE, ISSUER, Issuer, token
from tests.mcp.conftest import McpServerForTests
from tests.support.auth_samples import bearer, make_key, serving
from tests.support.mcp_client import ERAS, TIMEOUT_S, call, http_client, recalled
from tests.support.recollect_server import RecollectServer

ACCEPT = {"Accept": "application/json, text/event-stream"}
LIST: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


def recall(query: str) -> dict[str, Any]:
    params = {"name": "recall", "arguments": {"query": query}}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


def ask(client: TestClient | httpx.Client, path: str = "/mcp", body: Any = LIST, **headers: str) -> httpx.Response:
    sent = {**ACCEPT, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return client.post(path, json=body, headers=sent)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    running = Issuer()
    yield running
    running.close()


@pytest.mark.parametrize("headers", [{}, {"Authorization": f"Bearer rk_{'x' * 43}"}])
def test_a_missing_or_wrong_key_is_refused_in_the_format_of_the_protocol(
    server: McpServerForTests, headers: dict[str, str]
) -> None:
    answer = httpx.post(server.url, json=LIST, headers={**ACCEPT, **headers})
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="recollect"'
    body = answer.json()
    assert (body["jsonrpc"], body["id"], body["error"]["code"]) == ("2.0", None, -32600)


def test_a_key_for_everyone_names_the_user_and_one_that_only_writes_is_refused(server: McpServerForTests) -> None:
    with httpx.Client(base_url=server.url, headers=bearer(server.keys["everyone"])) as client:
        assert ask(client, "").json()["error"]["message"].startswith("Name the user")
        assert ask(client, "", X_Memory_User="ann").status_code == 200
    with httpx.Client(base_url=server.url, headers=bearer(server.keys["ann_writes"])) as client:
        answer = ask(client, "")
        assert (answer.status_code, answer.json()["error"]["message"]) == (403, "This key may write, not read")


def test_the_project_comes_from_the_path_or_the_header(server: McpServerForTests) -> None:
    project, encoded = "github.com/ann/röntgen", "github.com%2Fann%2Fr%C3%B6ntgen"
    store = {"name": "remember", "arguments": {"text": "The scanner is a Siemens"}}
    with httpx.Client(headers={**ACCEPT, **bearer(server.keys["ann"])}) as client:
        body = {**LIST, "method": "tools/call", "params": store}
        assert client.post(f"{server.url}/{encoded}", json=body).status_code == 200
        header = {"X-Memory-Project": project.encode()}
        for path, headers in ((f"/{encoded}", {}), (f"/{project}", {}), (f"/{project}/", {}), ("", header)):
            answer = client.post(server.url + path, json=recall("Which scanner?"), headers=headers)
            assert "Siemens" in answer.text
        assert "Siemens" not in client.post(server.url, json=recall("Which scanner?")).text
        answer = client.post(f"{server.url}/one", json=LIST, headers={"X-Memory-Project": "two"})
        assert (answer.status_code, "send one of them" in answer.text) == (400, True)


def test_the_branch_is_stored_as_metadata(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        store = {"name": "remember", "arguments": {"text": "The flag is on"}}
        ask(client, "/mcp/p", {**LIST, "method": "tools/call", "params": store}, X_Memory_Branch="feature/x")
        listed = client.get("/recollect/v1/memories", headers={"X-Memory-User": "default", "X-Memory-Project": "p"})
        assert listed.json()["results"][0]["metadata"] == {"branch": "feature/x"}


def test_only_post_is_served_and_a_body_that_is_no_message_is_rejected(server: McpServerForTests) -> None:
    with httpx.Client(headers={**ACCEPT, **bearer(server.keys["ann"])}) as client:
        for method in ("GET", "DELETE", "PUT"):
            answer = client.request(method, server.url)
            assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
        assert client.post(server.url, content=b"[1", headers={"Content-Type": "application/json"}).status_code == 400
        assert client.post(server.url, json={"no": "message"}).status_code == 400


def test_a_foreign_page_and_a_large_body_are_rejected_and_the_rate_is_limited(tmp_path: Path) -> None:
    with serving(tmp_path, max_body_mb=1, rate_limit_per_minute=3) as client:
        assert ask(client, Origin="https://evil.example").status_code == 403
        large = {**LIST, "params": {"_meta": {"x": "y" * (1 << 20)}}}
        answer = ask(client, body=large)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, -32600)
        statuses = [ask(client).status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429]


def test_without_keys_the_user_is_that_of_chats(tmp_path: Path) -> None:
    with serving(tmp_path, chat_user="owner") as client:
        client.post("/recollect/v1/memories", json={"content": "The owner sails"}, headers={"X-Memory-User": "owner"})
        assert "The owner sails" in ask(client, body=recall("What does the owner do?")).text
        assert "The owner sails" not in ask(client, body=recall("owner"), X_Memory_User="ann").text


def test_calls_are_counted_and_the_log_shows_the_route(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(tmp_path) as client, caplog.at_level("INFO", "recollect.access"):
        ask(client, "/mcp/someproject", recall("x"))
        ask(client, body={**recall("x"), "params": {"name": "recall", "arguments": {}}})
        metrics = client.get("/metrics").text
    assert 'recollect_mcp_calls_total{tool="recall",outcome="ok"}' in metrics
    assert 'recollect_mcp_calls_total{tool="recall",outcome="error"}' in metrics
    assert 'route="/mcp/{project:path}"' in metrics
    assert "POST /mcp/* 200" in caplog.text
    assert "someproject" not in caplog.text


def test_it_can_be_switched_off_and_an_unknown_group_is_an_invalid_setting(tmp_path: Path) -> None:
    with serving(tmp_path, mcp=False) as client:
        assert ask(client).status_code == 404
    with pytest.raises(InvalidSettings, match="mcp_tools: 'erase' is not one of"):
        make_app(load({"home": tmp_path, "mcp_tools": "erase"}, environ={}).settings)


def test_a_token_of_the_issuer_is_accepted_beside_keys_and_its_absence_leads_to_the_issuer(
    tmp_path: Path, issuer: Issuer
) -> None:
    settings = {"jwt_jwks_url": issuer.url, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    with serving(tmp_path, **settings) as client:
        for path in ("/mcp", "/mcp/atlas"):
            refused = ask(client, path)
            assert refused.status_code == 401
            # The SDK's client reads it thus.
            address = extract_resource_metadata_from_www_auth(refused)  # type: ignore[arg-type]
            assert address == "http://127.0.0.1/.well-known/oauth-protected-resource/mcp"
        described = client.get("/.well-known/oauth-protected-resource/mcp").json()
        metadata = ProtectedResourceMetadata.model_validate(described)
        assert str(metadata.resource) == "http://127.0.0.1/mcp"
        assert [str(each) for each in metadata.authorization_servers] == [ISSUER]
        of_project = client.get("/.well-known/oauth-protected-resource/mcp/atlas").json()
        assert of_project == described
        assert ask(client, Authorization=f"Bearer {token()}").status_code == 200
        assert ask(client, Authorization=f"Bearer {token(aud='another')}").status_code == 401
        assert ask(client, Authorization=f"Bearer {make_key(client, user='ann')}").status_code == 200
        # Other interfaces do not send clients to the issuer.
        assert "resource_metadata" not in client.get("/recollect/v1/memories").headers["WWW-Authenticate"]


def test_the_public_address_is_that_of_the_setting_or_of_a_trusted_proxy(tmp_path: Path, issuer: Issuer) -> None:
    settings = {"jwt_jwks_url": issuer.url, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    with serving(tmp_path, trusted_gateways="127.0.0.1", auth="jwt", **settings) as client:
        answer = client.get("/.well-known/oauth-protected-resource", headers={"X-Forwarded-Proto": "https"})
        assert answer.json()["resource"] == "https://127.0.0.1/mcp"
    with serving(tmp_path, mcp_url="https://memory.example.org/mcp", **settings) as client:
        answer = client.get("/.well-known/oauth-protected-resource/mcp/atlas", headers={"X-Forwarded-Proto": "http"})
        assert answer.json()["resource"] == "https://memory.example.org/mcp"


def test_without_an_issuer_there_is_no_metadata(server: McpServerForTests) -> None:
    answer = httpx.get(server.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp"))
    assert answer.status_code == 404


async def test_any_process_answers_and_notices_the_changes_of_the_other(tmp_path: Path) -> None:
    with RecollectServer(tmp_path, "--workers", "2") as running:
        url = f"{running.url}/mcp"
        async with (
            http_client(url, "auto") as listener,
            listener.listen(resource_subscriptions=["memory://recent"]) as changes,
        ):
            for number, era in enumerate((*ERAS, *ERAS)):
                # A new connection each time, which either process accepts.
                async with http_client(url, era) as client:
                    await call(client, "remember", text=f"Shelf {number} holds books about topic {number}")
                    assert len(await recalled(client, "Which shelf holds what?")) == number + 1
                    async with asyncio.timeout(TIMEOUT_S):
                        assert await anext(changes) == ResourceUpdated("memory://recent")


CODE = """
import sys
from fastapi.testclient import TestClient
from recollect.config.settings import load
from recollect.http.app import make_app
with TestClient(make_app(load({"home": sys.argv[1]}, environ={}).settings), base_url="http://127.0.0.1") as client:
    assert client.get("/live").status_code == 200
    assert not {"mcp", "mcp_types"} & set(sys.modules)
    # As if it were not installed.
    sys.modules["mcp"] = None
    answer = client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    print(answer.status_code, answer.json()["error"]["message"])
"""


def test_the_sdk_is_imported_when_used_and_an_error_names_the_extra(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "501 The MCP server needs an optional dependency: pip install 'recollect[mcp]'\n"
