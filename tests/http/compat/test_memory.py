"""/v1/memory: memories of a user and their projects, and the error codes of this API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from recollect.model.change import Author
from recollect.model.key import new_key
from recollect.model.scope import Scope
from tests.support.compat_server import UNKNOWN, broken, served

BUDGET = "User's budget for Hawaii is $10,000"
DEPLOY = "To deploy payment-service: run npm build, then docker push"
VACATION = "On Dec 29 2024, user planned Hawaii vacation with $10K budget"
USER = "user_123"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with served(tmp_path, preset="semantic-router") as client:
        yield client


def store_memory(client: TestClient, content: str = BUDGET, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/memory", json={"content": content, "user_id": USER, **fields})
    assert answer.status_code == 201, answer.text
    item: dict[str, Any] = answer.json()
    return item


def contents(answer: Any) -> list[str]:
    return [each["content"] for each in answer.json()["memories"]]


def code_of(answer: Any) -> tuple[int, str]:
    assert list(answer.json()) == ["error"]
    assert answer.json()["error"]["message"]
    return answer.status_code, answer.json()["error"]["code"]


def test_a_memory_has_the_fields_of_the_design_in_its_order(client: TestClient) -> None:
    item = store_memory(client, project_id="project_abc", source="conversation", importance=0.8)
    assert list(item) == [
        "id", "type", "content", "user_id", "project_id", "source", "created_at", "access_count", "importance"
    ]  # fmt: skip
    assert item["created_at"].endswith("Z")
    assert (item["type"], item["importance"], item["access_count"]) == ("semantic", 0.8, 0)

    item = store_memory(client, DEPLOY)
    assert "project_id" not in item
    assert "source" not in item
    assert client.get(f"/v1/memory/{item['id']}", params={"user_id": USER}).json() == item


def test_memories_are_listed_by_type(client: TestClient) -> None:
    store_memory(client, BUDGET)
    store_memory(client, DEPLOY, type="procedural")
    store_memory(client, VACATION, type="episodic")
    everything = client.get("/v1/memory", params={"user_id": USER})
    assert (everything.json()["total"], everything.json()["limit"]) == (3, 20)
    assert contents(everything) == [VACATION, DEPLOY, BUDGET]
    assert contents(client.get("/v1/memory", params={"user_id": USER, "type": "procedural"})) == [DEPLOY]
    both = client.get("/v1/memory", params={"user_id": USER, "type": "semantic,episodic"})
    assert contents(both) == [VACATION, BUDGET]


def test_a_cursor_requests_the_next_page(client: TestClient) -> None:
    for number in range(5):
        store_memory(client, f"Fact number {number}")
    seen, cursor = [], None
    for _ in range(3):
        page = client.get(
            "/v1/memory", params={"user_id": USER, "limit": 2, **({"cursor": cursor} if cursor else {})}
        )
        seen += contents(page)
        cursor = page.json().get("cursor")
    assert seen == [f"Fact number {number}" for number in (4, 3, 2, 1, 0)]
    assert cursor is None


def test_turns_are_not_listed(client: TestClient) -> None:
    service = client.app.state.service  # type: ignore[attr-defined]

    async def say() -> None:
        await service.remember(Scope(USER), "Hello there, how are you?", by=Author("test"))

    client.portal.call(say)  # type: ignore[union-attr]
    assert client.get("/v1/memory", params={"user_id": USER}).json()["total"] == 0


def test_a_memory_that_exists_is_updated(client: TestClient) -> None:
    first = store_memory(client, importance=0.3, source="chat")
    repeated = {"content": BUDGET, "user_id": USER}
    answer = client.post("/v1/memory", json={**repeated, "type": "episodic", "importance": 0.9})
    item = {**first, "type": "episodic", "importance": 0.9}
    assert (answer.status_code, answer.json()) == (200, item)
    # Fields that are not sent stay as they are.
    assert client.post("/v1/memory", json=repeated).json() == item
    assert client.get(f"/v1/memory/{first['id']}", params={"user_id": USER}).json() == item


def test_expired_memories_are_not_listed(client: TestClient) -> None:
    who = {"X-Memory-User": USER}
    for content, until in (("It was on sale", "2020-01-01"), ("It is on sale", "2999-01-01")):
        new = {"content": content, "expires_at": until}
        assert client.post("/recollect/v1/memories", json=new, headers=who).status_code == 201
    store_memory(client)
    everything = client.get("/v1/memory", headers=who)
    assert (everything.json()["total"], contents(everything)) == (2, [BUDGET, "It is on sale"])
    own = client.get("/recollect/v1/memories", headers=who).json()["results"]
    assert [each["memory"] for each in own] == [BUDGET, "It is on sale"]
    mem0 = client.get("/memories", headers=who).json()["results"]
    assert [each["memory"] for each in mem0] == [BUDGET, "It is on sale"]
    # A filter by that time finds expired memories.
    request = {"filters": {"expires_at": {"lt": "2021-01-01"}}}
    over = client.post("/recollect/v1/list", json=request, headers=who).json()["results"]
    assert [each["memory"] for each in over] == ["It was on sale"]
    assert client.delete("/v1/memory", headers=who).json()["deleted"] == 3


def test_search_returns_the_best_match(client: TestClient) -> None:
    store_memory(client, BUDGET)
    store_memory(client, DEPLOY, type="procedural")
    request = {"query": "What's my budget for the Hawaii trip?", "user_id": USER}
    [best, *_] = client.post("/v1/memory/search", json=request).json()["results"]
    assert best["memory"]["content"] == BUDGET
    assert 0.6 <= best["score"] <= 1
    none = client.post("/v1/memory/search", json={**request, "types": ["procedural"], "threshold": 0.6})
    assert none.json() == {"results": []}


def test_search_sees_the_named_project_and_no_other(client: TestClient) -> None:
    store_memory(client, "The staging password policy is strict", project_id="one")
    request = {"query": "password policy", "user_id": USER, "threshold": 0.0}
    assert client.post("/v1/memory/search", json={**request, "project_id": "two"}).json() == {"results": []}
    assert len(client.post("/v1/memory/search", json={**request, "project_id": "one"}).json()["results"]) == 1


def test_search_without_a_project_finds_what_the_list_has(client: TestClient) -> None:
    boiler = store_memory(client, "The boiler is made by Vaillant", project_id="p")
    store_memory(client, "The boiler is in the cellar")
    client.post("/v1/memory", json={"content": "The boiler is Eve's", "user_id": "eve", "project_id": "p"})
    headers = {"X-Memory-User": USER, "X-Memory-Session": "monday"}
    new = {"content": "The boiler was serviced in May", "level": "session"}
    assert client.post("/recollect/v1/memories", json=new, headers=headers).status_code == 201
    request = {"query": "Who made the boiler?", "user_id": USER}
    [best, *_] = client.post("/v1/memory/search", json=request).json()["results"]
    assert best["memory"] == boiler
    everything = client.post("/v1/memory/search", json={**request, "threshold": 0.0}).json()["results"]
    listed = client.get("/v1/memory", params={"user_id": USER}).json()["memories"]
    assert {each["memory"]["content"] for each in everything} == {each["content"] for each in listed}
    results = client.post("/search", json=request).json()["results"]
    assert results[0]["memory"] == boiler["content"]


def test_a_key_of_one_project_searches_no_other(client: TestClient) -> None:
    store_memory(client, "The boiler is made by Vaillant", project_id="p")

    async def make() -> str:
        ring = client.app.state.service.api_keys  # type: ignore[attr-defined]
        return (await ring.add(new_key(user=USER, project="q"))).text

    key = client.portal.call(make)  # type: ignore[union-attr]
    request = {"query": "Who made the boiler?", "threshold": 0.0}
    headers = {"Authorization": f"Bearer {key}"}
    assert client.post("/v1/memory/search", json=request, headers=headers).json() == {"results": []}


def test_an_update_changes_only_the_fields_that_it_has(client: TestClient) -> None:
    item = store_memory(client, importance=0.8)
    path = f"/v1/memory/{item['id']}"
    for verb, content in (("PUT", "User's budget is $12,000"), ("PATCH", "User's budget is $13,000")):
        answer = client.request(verb, path, params={"user_id": USER}, json={"content": content})
        assert answer.json() == {**item, "content": content}
        assert client.get(path, params={"user_id": USER}).json()["content"] == content


def test_a_deleted_memory_is_not_found(client: TestClient) -> None:
    path = f"/v1/memory/{store_memory(client)['id']}"
    answer = client.delete(path, params={"user_id": USER})
    assert answer.json() == {"success": True, "message": "deleted 1 memory", "deleted": 1}
    for verb in ("get", "delete"):
        assert code_of(getattr(client, verb)(path, params={"user_id": USER})) == (404, "NOT_FOUND")
    assert client.get("/v1/memory", params={"user_id": USER}).json()["total"] == 0


def test_memories_are_deleted_by_project_by_type_and_by_user(client: TestClient) -> None:
    store_memory(client, BUDGET)
    store_memory(client, DEPLOY, type="procedural")
    store_memory(client, VACATION, project_id="project_abc", type="episodic")
    client.post("/v1/memory", json={"content": BUDGET, "user_id": "someone else"})

    def left() -> list[str]:
        return contents(client.get("/v1/memory", params={"user_id": USER}))

    assert client.delete("/v1/memory", params={"user_id": USER, "project_id": "project_abc"}).json()["deleted"] == 1
    assert left() == [DEPLOY, BUDGET]
    assert client.delete("/v1/memory", params={"user_id": USER, "type": "procedural"}).json()["deleted"] == 1
    assert left() == [BUDGET]
    assert client.delete("/v1/memory", params={"user_id": USER}).json()["deleted"] == 1
    assert left() == []
    assert client.get("/v1/memory", params={"user_id": "someone else"}).json()["total"] == 1


def test_a_gateway_names_the_user(client: TestClient) -> None:
    store_memory(client)
    gateway = {"x-authz-user-id": USER}
    assert client.get("/v1/memory", headers=gateway).json()["total"] == 1
    assert client.get("/v1/memory", headers={"x-authz-user-id": "eve"}).json()["total"] == 0
    named_another = client.get("/v1/memory", headers={"x-authz-user-id": "eve"}, params={"user_id": USER})
    assert code_of(named_another) == (403, "FORBIDDEN")


def test_a_request_without_a_user_is_rejected(client: TestClient) -> None:
    for verb, path, body in (
        ("get", "/v1/memory", None),
        ("delete", "/v1/memory", None),
        ("get", f"/v1/memory/{UNKNOWN}", None),
        ("delete", f"/v1/memory/{UNKNOWN}", None),
        ("put", f"/v1/memory/{UNKNOWN}", {"content": "x"}),
        ("post", "/v1/memory", {"content": "x"}),
        ("post", "/v1/memory/search", {"query": "x"}),
    ):
        assert code_of(client.request(verb, path, json=body)) == (401, "MISSING_USER_ID")


def test_an_invalid_query_parameter_is_named(client: TestClient) -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("/v1/memory", {"limit": 0}, "INVALID_LIMIT"),
        ("/v1/memory", {"limit": 101}, "INVALID_LIMIT"),
        ("/v1/memory", {"limit": "many"}, "INVALID_LIMIT"),
        ("/v1/memory", {"type": "strange"}, "INVALID_TYPE"),
        ("/v1/memory", {"type": ""}, "INVALID_TYPE"),
        ("/v1/memory", {"cursor": "nonsense"}, "INVALID_INPUT"),
        ("/v1/memory", {"usr_id": "x"}, "INVALID_USR_ID"),
        (f"/v1/memory/{UNKNOWN}", {"verbose": 1}, "INVALID_VERBOSE"),
    ]
    for path, params, code in cases:
        assert code_of(client.get(path, params={"user_id": USER, **params})) == (400, code)
    store_memory(client)
    answer = client.delete("/v1/memory", params={"user_id": USER, "projectid": "x"})
    assert code_of(answer) == (400, "INVALID_PROJECTID")
    assert "project_id" in answer.json()["error"]["message"]
    assert client.get("/v1/memory", params={"user_id": USER}).json()["total"] == 1


def test_an_invalid_body_is_rejected_with_the_name_of_the_field(client: TestClient) -> None:
    cases: list[tuple[Any, str]] = [
        ({"user_id": USER}, "INVALID_CONTENT"),
        ({"user_id": USER, "content": 7}, "INVALID_CONTENT"),
        ({"user_id": USER, "content": "  "}, "INVALID_TEXT"),
        ({"user_id": USER, "content": "a\0b"}, "INVALID_TEXT"),
        ({"user_id": USER, "content": "x", "type": "odd"}, "INVALID_TYPE"),
        ({"user_id": USER, "content": "x", "importance": 2}, "INVALID_IMPORTANCE"),
        ({"user_id": USER, "content": "x", "colour": "red"}, "INVALID_COLOUR"),
        ({"user_id": "u\n", "content": "x"}, "INVALID_INPUT"),
        (["not", "an", "object"], "INVALID_BODY"),
    ]
    for body, code in cases:
        assert code_of(client.post("/v1/memory", json=body)) == (400, code)
    for raw in (b"", b"{", b"\xff", b'{"content": "\\ud800", "user_id": "u"}', b"[" * 20_000):
        answer = client.post("/v1/memory", content=raw, headers={"content-type": "application/json"})
        assert (answer.status_code, code_of(answer)[1].startswith("INVALID_")) == (400, True)
    path = f"/v1/memory/{store_memory(client)['id']}"
    assert code_of(client.put(path, params={"user_id": USER}, json={})) == (400, "INVALID_BODY")


def test_unknown_and_foreign_memories_answer_alike(client: TestClient) -> None:
    foreign = store_memory(client)["id"]
    for verb, body in (("GET", None), ("DELETE", None), ("PUT", {"content": "mine"})):
        report = [
            client.request(verb, f"/v1/memory/{id}", params={"user_id": "eve"}, json=body)
            for id in (foreign, UNKNOWN)
        ]
        assert [code_of(each) for each in report] == [(404, "NOT_FOUND")] * 2
        assert report[0].text.replace(foreign.removeprefix("mem_"), "") == report[1].text.replace(UNKNOWN, "")
    assert client.get(f"/v1/memory/{foreign}", params={"user_id": USER}).status_code == 200


def test_an_unavailable_ledger_is_reported(client: TestClient) -> None:
    broken(client)
    answer = client.get("/v1/memory", params={"user_id": USER})
    assert code_of(answer) == (503, "MEMORY_NOT_AVAILABLE")
    assert answer.headers["retry-after"] == "1"


def test_reserved_paths_are_not_forwarded(client: TestClient) -> None:
    for verb, path in (("PUT", "/v1/memory"), ("POST", "/v1/memory/x/y"), ("POST", "/v1/feedback/")):
        assert client.request(verb, path, json={"content": "private"}).status_code in (404, 405)
    # With a slash at its end a path means the same.
    assert client.get("/v1/memory/", params={"user_id": USER}).json()["total"] == 0


def test_secrets_are_removed(client: TestClient) -> None:
    assert "sk-" not in store_memory(client, "My key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD")["content"]
