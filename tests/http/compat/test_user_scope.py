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


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/v1/memory", "user_id=ann&project_id="),
        ("/v1/memory", "user_id=ann&project_id=%20"),
        ("/v1/memory", "user_id=ann&project_id=pa&project_id="),
        ("/v1/memory", "user_id=ann&project_id=pa&project_id=pb"),
        ("/v1/memory", "user_id=ann&user_id=ann"),
        ("/v1/memory", "user_id=ann&type="),
        ("/memories", "user_id=ann&run_id="),
        ("/memories", "user_id=ann&agent_id="),
        ("/memories", "user_id=ann&user_id=bob"),
        ("/v1/memories/", "user_id=ann&run_id="),
        ("/v1/memories/", "user_id=ann&app_id="),
        ("/v1/memories/", 'user_id=ann&filters={"run_id": ""}'),
        ("/v1/memories/", 'user_id=ann&filters={"AND": [{"agent_id": {"in": ["", "a"]}}]}'),
    ],
)
def test_a_name_that_is_empty_or_comes_twice_deletes_nothing(client: TestClient, path: str, query: str) -> None:
    keep(client, "In a project", project_id="pa")
    keep(client, "In another", project_id="pb")
    keep(client, "In none")
    assert client.delete(f"{path}?{query}").status_code == 400
    assert left(client) == 3


def test_a_deletion_that_names_what_it_means_goes_on(client: TestClient) -> None:
    keep(client, "In a project", project_id="pa")
    keep(client, "In another", project_id="pb")
    assert client.delete("/v1/memory?user_id=ann&project_id=pa").json()["deleted"] == 1
    # What clients of mem0 say of organisations means nothing here, empty or not.
    assert client.delete("/v1/memories/?user_id=ann&org_id=&project_id=").status_code == 200
    assert left(client) == 0


@pytest.mark.parametrize("header", ["X-Memory-Project", "X-Memory-Session"])
def test_an_empty_header_deletes_nothing(client: TestClient, header: str) -> None:
    keep(client, "In none")
    assert client.delete("/v1/memory?user_id=ann", headers={header: ""}).status_code == 400
    own = client.post("/recollect/v1/forget?user_id=ann", json={"filters": {}}, headers={header: ""})
    assert own.status_code == 400
    assert left(client) == 1


@pytest.mark.parametrize("query", ["project_id=", "session_id=", "project_id=a&project_id=b"])
def test_our_own_api_forgets_nothing_for_an_empty_name(client: TestClient, query: str) -> None:
    keep(client, "In none")
    answer = client.post(f"/recollect/v1/forget?user_id=ann&{query}", json={"filters": {}})
    assert answer.status_code == 400
    assert left(client) == 1


@pytest.mark.parametrize(
    "path",
    [
        "/v1/memory?user_id=bob&user_id=ann",
        "/v1/memory?user_id=ann&limit=1&limit=2",
        "/memories?user_id=ann&user_id=ann",
        "/v1/memories/?user_id=ann&page=1&page=2",
        "/api/sessions/s/memories?user_id=ann&user_id=bob",
        "/recollect/v1/memories?user_id=ann&user_id=bob",
        "/v1/responses/resp_1?user=ann&user=bob",
    ],
)
def test_a_parameter_that_comes_twice_is_refused(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 400


def test_what_is_meant_to_repeat_may(client: TestClient) -> None:
    keep(client, "The boiler is made by Vaillant")
    results = client.get("/recollect/v1/memories?user_id=ann&type=semantic&type=episodic")
    assert len(results.json()["results"]) == 1


def test_a_session_is_of_the_user_that_the_header_names(client: TestClient) -> None:
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


def test_without_the_header_a_session_is_of_the_user_of_chats(client: TestClient) -> None:
    assert client.post("/api/sessions", json={"sessionId": "s"}).status_code == 201
    assert client.get("/api/sessions/s/memories", headers={"X-Memory-User": "default"}).status_code == 200


def test_the_headers_of_a_chat_find_its_session(tmp_path: Path) -> None:
    with ScriptedLLM() as llm, served(tmp_path, upstream_url=llm.base_url, learn_with_upstream=False) as client:
        for project in ({}, {"X-Memory-Project": "trip"}):
            headers = {**ZOE, **project}
            body = {"model": "m", "messages": [{"role": "user", "content": "My name is Zoe."}]}
            text = client.post("/v1/chat/completions", json=body, headers={**headers, "X-Memory-Session": "mon"})
            assert text.status_code == 200
            assert client.get("/api/sessions/mon/memories", headers=headers).status_code == 200
            assert client.get("/api/sessions/mon/memories", headers={**EVE, **project}).status_code == 404


def test_a_chat_reads_a_name_as_it_was_sent(tmp_path: Path) -> None:
    with ScriptedLLM() as llm, served(tmp_path, upstream_url=llm.base_url, learn_with_upstream=False) as client:
        body = {"model": "m", "messages": [{"role": "user", "content": "My name is José."}]}
        named = {"X-Memory-User": "José".encode(), "X-Memory-Session": "märz".encode()}
        assert client.post("/v1/chat/completions", json=body, headers=named).status_code == 200
        assert client.get("/api/sessions/märz/memories", params={"user_id": "José"}).status_code == 200


def test_every_door_honours_the_header(client: TestClient) -> None:
    keep(client, "The boiler is made by Vaillant")
    ann = {"X-Memory-User": "ann"}
    for headers, count in ((ann, 1), (EVE, 0)):
        assert client.get("/v1/memory", headers=headers).json()["total"] == count
        request = {"query": "boiler"}
        assert len(client.post("/api/react/facts/retrieve", json=request, headers=headers).json()["facts"]) == count
        assert len(client.post("/search", json=request, headers=headers).json()["results"]) == count
        assert len(client.get("/memories", headers=headers).json()["results"]) == count


@pytest.mark.parametrize("name", ["José", "日本", "Ζωή"])
def test_a_name_in_a_header_is_read_as_it_was_sent(client: TestClient, name: str) -> None:
    sent = {"X-Memory-User": name.encode()}
    client.post("/v1/memory", json={"content": DIAGNOSIS, "user_id": name})
    assert client.get("/v1/memory", headers=sent).json()["total"] == 1
    assert client.get("/recollect/v1/memories", headers=sent).json()["results"][0]["memory"] == DIAGNOSIS
    assert client.get("/recollect/v1/memories", headers=sent, params={"user_id": name}).status_code == 200
    client.post("/api/sessions", json={"sessionId": "s"}, headers=sent)
    assert client.get("/api/sessions/s/memories", params={"user_id": name}).status_code == 200


@pytest.mark.parametrize(
    "name", [{"user_id": [""]}, {"user_id": "a\tb"}, {"run_id": {"icontains": "a\tb"}}, {"agent_id": "x" * 400}]
)
def test_a_name_that_nobody_can_have_is_refused_wherever_a_filter_has_it(client: TestClient, name: Any) -> None:
    for filters in (name, {"NOT": [name]}, {"AND": [{"user_id": "bob"}, name]}):
        request = {"query": "tea", "filters": filters, "user_id": "ann"}
        assert client.post("/search", json=request, headers={"X-Memory-User": "ann"}).status_code == 400
        assert client.post("/v2/memories/", json=request, headers={"X-Memory-User": "ann"}).status_code == 400


def test_a_project_that_a_header_names_is_not_gone_beyond(client: TestClient) -> None:
    keep(client, "In a project", project_id="pa")
    keep(client, "In none")
    pa = {"X-Memory-Project": "pa"}
    assert client.get("/v1/memory?user_id=ann", headers=pa).json()["total"] == 1
    assert client.delete("/v1/memory?user_id=ann&project_id=pb", headers=pa).status_code == 403
    assert client.delete("/v1/memory?user_id=ann", headers=pa).json()["deleted"] == 1
    assert left(client) == 1


@pytest.mark.parametrize("verb", ["put", "patch"])
def test_a_change_is_for_one_user(client: TestClient, verb: str) -> None:
    id = keep(client, "The boiler is made by Vaillant")
    body = {"user_id": "bob", "importance": 0.1}
    assert client.request(verb, f"/v1/memory/{id}?user_id=ann", json=body).status_code == 403
    body["user_id"] = "ann"
    assert client.request(verb, f"/v1/memory/{id}?user_id=ann", json=body).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/memories", {"messages": "Hi", "user_id": "ann", "filters": {"user_id": "bob"}}),
        ("POST", "/search", {"query": "x", "user_id": "ann", "filters": {"user_id": "bob"}}),
        ("POST", "/v3/memories/", {"user_id": "ann", "filters": {"user_id": "bob"}}),
        ("DELETE", '/v1/memories/?user_id=ann&filters={"user_id": "bob"}', None),
    ],
)
def test_mem0s_routes_refuse_two_users_in_one_request(client: TestClient, method: str, path: str, body: Any) -> None:
    assert client.request(method, path, json=body).status_code == 403


def test_a_user_in_the_address_is_not_passed_over(client: TestClient) -> None:
    answer = client.post("/search?user_id=bob", json={"query": "x", "user_id": "ann"})
    assert (answer.status_code, "user_id" in answer.json()["detail"]) == (400, True)
    assert client.post("/search?version=v2", json={"query": "x", "user_id": "ann"}).status_code == 200


def test_a_gateway_that_names_nobody_is_told_what_is_missing(tmp_path: Path) -> None:
    with served(tmp_path, auth="gateway", trusted_gateways="127.0.0.1") as client:
        client._transport.client = ("127.0.0.1", 1)  # type: ignore[attr-defined]
        answer = client.get("/v1/memory")
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "MISSING_USER_ID")
        assert client.get("/v1/memory", headers={"x-authz-user-id": "ann"}).status_code == 200
