"""Chats are limited to the user, project and permissions of the key, which is never forwarded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from recollect.model.scope import Scope
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.auth_samples import bearer, make_key, serving
from tests.support.llm_faults import http_error

BUDGET_CHAT = {"messages": [{"role": "user", "content": "My budget for the trip is 9,000 dollars"}], "model": "m"}


@pytest.fixture
def client(tmp_path: Path, llm: ScriptedLLM) -> Iterator[TestClient]:
    with serving(tmp_path, auth="keys", upstream_url=llm.base_url) as client:
        yield client


def chat(client: TestClient, key: str, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    return client.post(
        "/v1/chat/completions", headers={**bearer(key), **(headers or {})}, json={**BUDGET_CHAT, **fields}
    )


def turns(client: TestClient, user: str) -> int:
    service = client.app.state.service  # type: ignore[attr-defined]
    return int(client.portal.call(service.stats, user)["turns"])  # type: ignore[union-attr]


def test_the_user_of_a_chat_comes_from_the_key(client: TestClient, llm: ScriptedLLM) -> None:
    answer = chat(client, make_key(client, user="ann"))
    assert answer.status_code == 200
    assert answer.headers["x-memory-status"] == "ok"
    assert turns(client, "ann")
    assert not turns(client, "default")
    assert chat(client, make_key(client, user="ann"), {"X-Memory-User": "ann"}, user="ann").status_code == 200


def test_another_user_in_the_body_or_a_header_is_rejected(client: TestClient, llm: ScriptedLLM) -> None:
    key = make_key(client, user="ann")
    others: list[dict[str, Any]] = [
        {"user": "bob"},
        {"metadata": {"user_id": "bob"}},
        {"memory_context": {"user_id": "bob"}},
        {"headers": {"X-Memory-User": "bob"}},
        {"headers": {"X-Memory-User": "ann"}, "user": "bob"},
        {"headers": {"x-authz-user-id": "bob"}},
    ]
    for other in others:
        answer = chat(client, key, **other)
        assert answer.status_code == 403
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", "not_allowed")
        assert "bob" not in answer.text
    assert not llm.requests
    assert turns(client, "bob") == turns(client, "ann") == 0


def test_chats_with_a_key_of_one_project_stay_in_it(client: TestClient, llm: ScriptedLLM) -> None:
    key = make_key(client, user="ann", project="p")
    assert chat(client, key, {"X-Memory-Project": "q"}).status_code == 403
    assert chat(client, key, {"X-Memory-Project": "p"}, memory_context={"project_id": "q"}).status_code == 403
    assert not llm.requests
    # A named session belongs to the key's project.
    assert chat(client, key, memory_id="trip").status_code == 200
    service = client.app.state.service  # type: ignore[attr-defined]
    assert client.portal.call(service.turns, Scope("ann", "p", "trip"))  # type: ignore[union-attr]


def test_a_read_only_key_stores_nothing(client: TestClient, llm: ScriptedLLM) -> None:
    answer = chat(client, make_key(client, user="ann", writes=False), {"X-Memory": "write"})
    assert (answer.status_code, answer.headers["x-memory-status"]) == (200, "off; read_only")
    answer = chat(client, make_key(client, user="ann", writes=False))
    assert (answer.status_code, answer.headers["x-memory-status"]) == (200, "ok; read_only")
    assert "x-memory-turn" not in answer.headers
    assert turns(client, "ann") == 0


def test_a_write_only_key_recalls_nothing(client: TestClient, llm: ScriptedLLM) -> None:
    chat(client, make_key(client, user="ann"))
    answer = chat(
        client, make_key(client, user="ann", reads=False), messages=[{"role": "user", "content": "budget?"}]
    )
    assert answer.headers["x-memory-status"] == "ok; write_only"
    assert answer.headers["x-memory-hits"] == "0"
    assert "9,000" not in str(llm.requests[-1].json)
    assert answer.headers["x-memory-turn"]


def test_a_chat_with_a_key_for_everyone_must_name_a_user(client: TestClient, llm: ScriptedLLM) -> None:
    key = make_key(client, everyone=True)
    refused = chat(client, key)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "missing_user_id")
    assert not llm.requests
    assert chat(client, key, user="bob").status_code == 200
    assert turns(client, "bob")


@pytest.mark.parametrize("upstream_key", ["sk-upstream", ""])
def test_our_key_is_never_forwarded(tmp_path: Path, llm: ScriptedLLM, upstream_key: str) -> None:
    settings = {"auth": "keys", "upstream_url": llm.base_url, "upstream_api_key": upstream_key}
    with serving(tmp_path, **settings) as client:
        key = make_key(client, user="ann")
        for headers in (
            {"Authorization": f"Bearer {key}"},
            {"Authorization": f"Token {key}"},
            {"X-API-Key": key},
            {"api-key": key},
            {"Authorization": f"Bearer {key}", "X-API-Key": key, "api-key": f"rk_{'x' * 43}"},
        ):
            assert client.post("/v1/chat/completions", headers=headers, json=BUDGET_CHAT).status_code == 200
            assert client.get("/v1/models", headers=headers).status_code == 200
            client.post("/v1/embeddings", headers=headers, json={"model": "m", "input": "x"})
    assert len(llm.requests) == 15
    for request in llm.requests:
        assert "rk_" not in str(dict(request.headers))
        assert request.headers.get("authorization") == (f"Bearer {upstream_key}" if upstream_key else None)


def test_a_client_can_send_a_key_for_the_upstream_and_ours(client: TestClient, llm: ScriptedLLM) -> None:
    headers = {"X-API-Key": make_key(client, user="ann"), "Authorization": "Bearer sk-mine"}
    assert client.post("/v1/chat/completions", headers=headers, json=BUDGET_CHAT).status_code == 200
    # The account at the upstream is the client's own, so that stored files are no other user's.
    assert client.get("/v1/files", headers=headers).status_code == 200
    assert [each.headers["authorization"] for each in llm.requests] == ["Bearer sk-mine"] * 2
    assert not [each for each in llm.requests if "x-api-key" in each.headers]


def test_a_missing_key_for_the_upstream_is_reported(client: TestClient, llm: ScriptedLLM) -> None:
    llm.fault(http_error(401, {"error": {"message": "You didn't provide an API key."}}), times=None)
    headers = bearer(make_key(client, user="ann"))
    for answer in (
        client.post("/v1/chat/completions", headers=headers, json=BUDGET_CHAT),
        client.get("/v1/models", headers=headers),
    ):
        assert answer.status_code == 502
        assert answer.json()["error"]["code"] == "upstream_key_missing"
        assert "upstream_api_key" in answer.json()["error"]["message"]
    # The error of the upstream is forwarded to a client that sent a key for it.
    mine = {"X-API-Key": make_key(client, user="ann"), "Authorization": "Bearer sk-mine"}
    assert client.post("/v1/chat/completions", headers=mine, json=BUDGET_CHAT).status_code == 401


def test_headers_of_a_gateway_are_not_forwarded(tmp_path: Path, llm: ScriptedLLM) -> None:
    settings = {"trusted_gateways": "10.1.0.0/16", "upstream_url": llm.base_url}
    with serving(tmp_path, peer="10.1.2.3", **settings) as client:
        headers = {"x-authz-user-id": "ann", "Authorization": "Bearer sk-mine"}
        assert client.post("/v1/chat/completions", headers=headers, json=BUDGET_CHAT).status_code == 200
        assert turns(client, "ann")
    assert "x-authz-user-id" not in llm.requests[0].headers
    assert llm.requests[0].headers["authorization"] == "Bearer sk-mine"


def test_a_local_server_forwards_the_key_of_the_client(tmp_path: Path, llm: ScriptedLLM) -> None:
    with serving(tmp_path, upstream_url=llm.base_url) as client:
        answer = client.post("/v1/chat/completions", headers=bearer("sk-mine"), json={**BUDGET_CHAT, "user": "bob"})
        assert answer.status_code == 200
        assert turns(client, "bob")
    assert llm.requests[0].headers["authorization"] == "Bearer sk-mine"


STORED_AT_UPSTREAM = [
    ("GET", "files"), ("POST", "files"), ("GET", "files/file-1/content"), ("DELETE", "files/file-1"),
    ("GET", "batches"), ("POST", "batches"), ("GET", "vector_stores"), ("POST", "threads"), ("POST", "assistants"),
    ("GET", "chat/completions"), ("GET", "chat/completions/chatcmpl-1"), ("GET", "fine_tuning/jobs"),
    ("DELETE", "models/ft:mine"), ("POST", "models/ft:mine"), ("POST", "uploads"), ("GET", "something/new"),
    ("GET", "models/%2E%2E/files"), ("GET", "models/..%2Ffiles"), ("GET", "models/%2E%2E;/files"),
    ("GET", "models%5C%2E%2E%5Cfiles"), ("POST", "embeddings/%2E%2E/files"), ("POST", "audio/speech/%2E%2E/voices"),
    ("GET", "models//%2E%2E/files"), ("POST", "embeddings%0A"), ("POST", "images/generations/img-1"),
]  # fmt: skip
COMPUTED = [
    ("GET", "models"), ("HEAD", "models"), ("GET", "models/gpt-4.1"), ("GET", "models/org%2Fname"),
    ("POST", "embeddings"), ("POST", "completions"), ("POST", "moderations"), ("POST", "audio/transcriptions"),
    ("POST", "images/edits"), ("POST", "rerank"),
]  # fmt: skip


def test_a_key_of_one_user_or_project_uses_only_what_stores_nothing_at_a_shared_upstream(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    settings = {"auth": "keys", "upstream_url": llm.base_url, "upstream_api_key": "sk-of-the-server"}
    with serving(tmp_path, **settings) as client:
        ann = bearer(make_key(client, user="ann"))
        project = bearer(make_key(client, project="work", everyone=True))
        for headers in (ann, project, bearer(make_key(client, user="ann", project="work"))):
            answer = client.get("/v1/files", headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "account_of_all")
            assert "upstream_shared" in answer.json()["error"]["message"]
        for method, path in STORED_AT_UPSTREAM:
            assert client.request(method, f"/v1/{path}", headers=ann).status_code in (403, 405), path
        assert not llm.requests
        for method, path in COMPUTED:
            client.request(method, f"/v1/{path}", headers=ann)
        assert [(each.method, each.path) for each in llm.requests] == [
            (each, f"/v1/{path}") for each, path in COMPUTED
        ]
        assert {each.headers["authorization"] for each in llm.requests} == {"Bearer sk-of-the-server"}
        llm.clear()
        for headers in (bearer(make_key(client, everyone=True)), bearer(make_key(client, admin=True))):
            assert client.get("/v1/files", headers=headers).status_code == 200
    with serving(tmp_path, **settings, upstream_shared=True) as client:
        assert client.get("/v1/files", headers=bearer(make_key(client, user="ann"))).status_code == 200


def test_a_client_that_sends_a_key_of_its_own_uses_its_own_account_if_that_is_preferred(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    settings = {"auth": "keys", "upstream_url": llm.base_url, "upstream_api_key": "sk-of-the-server"}
    with serving(tmp_path, **settings, upstream_key="client") as client:
        ann = {"X-API-Key": make_key(client, user="ann")}
        assert client.get("/v1/files", headers=ann).status_code == 403
        # The header would be dropped on the way, and the server's key sent in its place.
        dropped = {**ann, **bearer("sk-mine"), "Connection": "authorization"}
        assert client.get("/v1/files", headers=dropped).status_code == 403
        assert not llm.requests
        assert client.get("/v1/files", headers={**ann, **bearer("sk-mine")}).status_code == 200
    assert [each.headers["authorization"] for each in llm.requests] == ["Bearer sk-mine"]
