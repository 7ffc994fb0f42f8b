"""The user and project of a request in every API: headers, parameters and bodies must agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.compat_server import served

ZOE = {"X-Memory-User": "zoe"}
EVE = {"X-Memory-User": "eve"}
DIAGNOSIS = "Zoe is diabetic"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with served(tmp_path) as client:
        yield client


def keep(client: TestClient, content: str, **more: Any) -> str:
    answer = client.post("/v1/memory", json={"content": content, "user_id": "ann", **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def left(client: TestClient) -> int:
    return int(client.get("/v1/memory", params={"user_id": "ann"}).json()["total"])


def test_an_empty_or_duplicate_name_deletes_nothing(client: TestClient) -> None:
    keep(client, "In a project", project_id="pa")
    keep(client, "In another", project_id="pb")
    keep(client, "In none")
    for path, query in (
        ("/v1/memory", "project_id="),
        ("/v1/memory", "project_id=%20"),
        ("/v1/memory", "project_id=pa&project_id="),
        ("/v1/memory", "project_id=pa&project_id=pb"),
        ("/v1/memory", "user_id=ann"),
        ("/v1/memory", "type="),
        ("/memories", "run_id="),
        ("/memories", "agent_id="),
        ("/memories", "user_id=bob"),
        ("/v1/memories/", "run_id="),
        ("/v1/memories/", "app_id="),
        ("/v1/memories/", 'filters={"run_id": ""}'),
        ("/v1/memories/", 'filters={"AND": [{"agent_id": {"in": ["", "a"]}}]}'),
    ):
        assert client.delete(f"{path}?user_id=ann&{query}").status_code == 400, (path, query)
    forget = "/recollect/v1/forget?user_id=ann"
    for header in ("X-Memory-Project", "X-Memory-Session"):
        assert client.delete("/v1/memory?user_id=ann", headers={header: ""}).status_code == 400
        assert client.post(forget, json={"filters": {}}, headers={header: ""}).status_code == 400
    for query in ("project_id=", "session_id=", "project_id=a&project_id=b"):
        assert client.post(f"{forget}&{query}", json={"filters": {}}).status_code == 400
    assert left(client) == 3
    assert client.delete("/v1/memory?user_id=ann&project_id=pa").json()["deleted"] == 1
    # Organisations and projects of mem0's clients are ignored, empty or not.
    assert client.delete("/v1/memories/?user_id=ann&org_id=&project_id=").status_code == 200
    assert left(client) == 0


def test_a_duplicate_parameter_is_rejected(client: TestClient) -> None:
    for path in (
        "/v1/memory?user_id=bob&user_id=ann",
        "/v1/memory?user_id=ann&limit=1&limit=2",
        "/memories?user_id=ann&user_id=ann",
        "/v1/memories/?user_id=ann&page=1&page=2",
        "/api/sessions/s/memories?user_id=ann&user_id=bob",
        "/recollect/v1/memories?user_id=ann&user_id=bob",
        "/v1/responses/resp_1?user=ann&user=bob",
    ):
        assert client.get(path).status_code == 400, path


def test_list_parameters_may_repeat(client: TestClient) -> None:
    keep(client, "The boiler is made by Vaillant")
    results = client.get("/recollect/v1/memories?user_id=ann&type=semantic&type=episodic")
    assert len(results.json()["results"]) == 1


def test_a_session_belongs_to_the_user_in_the_header(client: TestClient) -> None:
    assert client.post("/api/sessions", json={"sessionId": "zs"}, headers=ZOE).status_code == 201
    memories = "/api/sessions/zs/memories"
    made = client.post(memories, json={"content": DIAGNOSIS, "type": "fact"}, headers=ZOE)
    assert made.status_code == 201
    one = f"{memories}/{made.json()['id']}"
    for headers in (EVE, {}):
        for verb, path in (("get", memories), ("get", one), ("delete", one), ("get", f"{memories}/relevant?query=x")):
            answer = client.request(verb, path, headers=headers)
            assert (answer.status_code, DIAGNOSIS in answer.text) == (404, False)
    assert [each["memoryContent"] for each in client.get(memories, headers=ZOE).json()] == [DIAGNOSIS]
    assert client.get(memories, params={"user_id": "zoe"}).json() == client.get(memories, headers=ZOE).json()


def test_without_a_user_a_session_belongs_to_the_chat_user(client: TestClient) -> None:
    assert client.post("/api/sessions", json={"sessionId": "s"}).status_code == 201
    assert client.get("/api/sessions/s/memories", headers={"X-Memory-User": "default"}).status_code == 200


def test_the_session_of_a_chat_is_found_with_the_same_headers(tmp_path: Path) -> None:
    with ScriptedLLM() as llm, served(tmp_path, upstream_url=llm.base_url, learn_with_upstream=False) as client:
        for project in ({}, {"X-Memory-Project": "trip"}):
            headers = {**ZOE, **project}
            body = {"model": "m", "messages": [{"role": "user", "content": "My name is Zoe."}]}
            text = client.post("/v1/chat/completions", json=body, headers={**headers, "X-Memory-Session": "mon"})
            assert text.status_code == 200
            assert client.get("/api/sessions/mon/memories", headers=headers).status_code == 200
            assert client.get("/api/sessions/mon/memories", headers={**EVE, **project}).status_code == 404


def test_names_in_headers_of_a_chat_are_utf_8(tmp_path: Path) -> None:
    with ScriptedLLM() as llm, served(tmp_path, upstream_url=llm.base_url, learn_with_upstream=False) as client:
        body = {"model": "m", "messages": [{"role": "user", "content": "My name is José."}]}
        named = {"X-Memory-User": "José".encode(), "X-Memory-Session": "märz".encode()}
        assert client.post("/v1/chat/completions", json=body, headers=named).status_code == 200
        assert client.get("/api/sessions/märz/memories", params={"user_id": "José"}).status_code == 200


def test_every_api_accepts_the_user_header(client: TestClient) -> None:
    keep(client, "The boiler is made by Vaillant")
    ann = {"X-Memory-User": "ann"}
    for headers, count in ((ann, 1), (EVE, 0)):
        assert client.get("/v1/memory", headers=headers).json()["total"] == count
        request = {"query": "boiler"}
        assert len(client.post("/api/react/facts/retrieve", json=request, headers=headers).json()["facts"]) == count
        assert len(client.post("/search", json=request, headers=headers).json()["results"]) == count
        assert len(client.get("/memories", headers=headers).json()["results"]) == count


def test_names_in_headers_are_utf_8(client: TestClient) -> None:
    for name in ("José", "日本", "Ζωή"):
        sent = {"X-Memory-User": name.encode()}
        client.post("/v1/memory", json={"content": DIAGNOSIS, "user_id": name})
        assert client.get("/v1/memory", headers=sent).json()["total"] == 1
        assert client.get("/recollect/v1/memories", headers=sent).json()["results"][0]["memory"] == DIAGNOSIS
        assert client.get("/recollect/v1/memories", headers=sent, params={"user_id": name}).status_code == 200
        client.post("/api/sessions", json={"sessionId": "s"}, headers=sent)
        assert client.get("/api/sessions/s/memories", params={"user_id": name}).status_code == 200


def test_an_invalid_name_is_rejected_anywhere_in_a_filter(client: TestClient) -> None:
    names: list[dict[str, Any]] = [
        {"user_id": [""]},
        {"user_id": "a\tb"},
        {"run_id": {"icontains": "a\tb"}},
        {"agent_id": "x" * 400},
    ]
    for name in names:
        for filters in (name, {"NOT": [name]}, {"AND": [{"user_id": "bob"}, name]}):
            request = {"query": "tea", "filters": filters, "user_id": "ann"}
            for path in ("/search", "/v2/memories/"):
                assert client.post(path, json=request, headers={"X-Memory-User": "ann"}).status_code == 400


def test_a_project_in_a_header_limits_the_request(client: TestClient) -> None:
    keep(client, "In a project", project_id="pa")
    keep(client, "In none")
    pa = {"X-Memory-Project": "pa"}
    assert client.get("/v1/memory?user_id=ann", headers=pa).json()["total"] == 1
    assert client.delete("/v1/memory?user_id=ann&project_id=pb", headers=pa).status_code == 403
    assert client.delete("/v1/memory?user_id=ann", headers=pa).json()["deleted"] == 1
    assert left(client) == 1


def test_a_request_that_names_two_users_is_rejected(client: TestClient) -> None:
    id = keep(client, "The boiler is made by Vaillant")
    change = {"user_id": "bob", "importance": 0.1}
    requests: list[tuple[str, str, Any]] = [
        ("PUT", f"/v1/memory/{id}?user_id=ann", change),
        ("PATCH", f"/v1/memory/{id}?user_id=ann", change),
        ("POST", "/memories", {"messages": "Hi", "user_id": "ann", "filters": {"user_id": "bob"}}),
        ("POST", "/search", {"query": "x", "user_id": "ann", "filters": {"user_id": "bob"}}),
        ("POST", "/v3/memories/", {"user_id": "ann", "filters": {"user_id": "bob"}}),
        ("DELETE", '/v1/memories/?user_id=ann&filters={"user_id": "bob"}', None),
    ]
    for method, path, body in requests:
        assert client.request(method, path, json=body).status_code == 403, path
    assert client.put(f"/v1/memory/{id}?user_id=ann", json={**change, "user_id": "ann"}).status_code == 200


def test_a_user_in_the_query_of_a_mem0_request_is_rejected(client: TestClient) -> None:
    answer = client.post("/search?user_id=bob", json={"query": "x", "user_id": "ann"})
    assert (answer.status_code, "user_id" in answer.json()["detail"]) == (400, True)
    assert client.post("/search?version=v2", json={"query": "x", "user_id": "ann"}).status_code == 200


def test_a_gateway_without_a_user_is_reported(tmp_path: Path) -> None:
    with served(tmp_path, peer="127.0.0.1", auth="gateway", trusted_gateways="127.0.0.1") as client:
        answer = client.get("/v1/memory")
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "MISSING_USER_ID")
        assert client.get("/v1/memory", headers={"x-authz-user-id": "ann"}).status_code == 200
