"""Requests that are repeated with an idempotency key: one effect and one answer, in any process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect.errors import StoreUnavailable
from recollect.http.api import idempotency
from recollect.ledger.ledger import Ledger
from tests.support.api_server import PREFIX, add, as_user, client_of, problem, served
from tests.support.recollect_server import RecollectServer

KEY = {"Idempotency-Key": "payment 7"}
OTHER = {"Idempotency-Key": "payment 8"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with served(tmp_path_factory.mktemp("home"), learn="off") as client:
        yield client


def lines(api: httpx.Client) -> int:
    return len(api.get("/history", params={"limit": 1000}).json()["results"])


def test_messages_sent_eight_times_with_one_key_are_stored_once(api: httpx.Client) -> None:
    call: dict[str, Any] = {
        "json": {"messages": "My dog is called Rex."},
        "headers": KEY,
        "params": {"session_id": "s"},
    }
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: api.post("/remember", **call), range(8)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    assert len(api.get("/turns", params={"session_id": "s"}).json()["results"]) == 1
    # Near misses: another key, no key, another user.
    for headers in (OTHER, {}):
        api.post("/remember", **{**call, "headers": headers})
    assert len(api.get("/turns", params={"session_id": "s"}).json()["results"]) == 3
    with as_user(api, "zoe") as zoe:
        assert zoe.post("/remember", **call).json()["turns"] != answers[0].json()["turns"]


def _operations(api: httpx.Client) -> dict[str, tuple[str, str, Any]]:
    stored, gone = add(api, "Likes tea"), add(api, "Likes milk")
    api.delete(f"/memories/{gone['id']}")
    erased = add(api, "Likes cake")
    api.post("/remember", json={"messages": "hello"}, params={"session_id": "s"})
    return {
        "patch": ("PATCH", f"/memories/{stored['id']}", {"importance": 0.9}),
        "delete": ("DELETE", f"/memories/{stored['id']}", None),
        "restore": ("POST", f"/memories/{gone['id']}/restore", None),
        "undo": ("POST", "/undo", {}),
        "forget": ("POST", "/forget", {"filters": {}}),
        "erase": ("POST", "/erase", {"target": "memory", "id": erased["id"]}),
        "end": ("POST", "/session/end?session_id=s", None),
        "run": ("POST", "/session/runs?session_id=s", {"goal": "Plan the trip to Oslo", "answer": "done"}),
        "upkeep": ("POST", "/upkeep", {"chores": ["expire"]}),
    }


@pytest.mark.parametrize(
    "operation", ["patch", "delete", "restore", "undo", "forget", "erase", "end", "run", "upkeep"]
)
def test_a_repeated_change_has_one_effect_and_one_answer(api: httpx.Client, operation: str) -> None:
    method, path, body = _operations(api)[operation]
    first = api.request(method, path, json=body, headers=KEY)
    assert first.status_code in (200, 202), first.text
    after = lines(api)
    repeated = api.request(method, path, json=body, headers=KEY)
    assert (repeated.status_code, repeated.json(), repeated.headers.get("etag")) == (
        first.status_code, first.json(), first.headers.get("etag"),
    )  # fmt: skip
    assert lines(api) == after
    other = api.request(
        method, path, json={**(body or {}), "x": 1} if body is not None else None, headers=KEY, params={"why": "x"}
    )
    assert problem(other)[1] in ("IdempotencyReuse", "InvalidInput")


def test_a_key_with_another_request_is_rejected(api: httpx.Client) -> None:
    stored = add(api, "Likes tea")
    path = f"/memories/{stored['id']}"
    assert api.patch(path, json={"importance": 0.9}, headers=KEY).status_code == 200
    assert problem(api.patch(path, json={"importance": 0.1}, headers=KEY))[:2] == (409, "IdempotencyReuse")
    assert problem(api.post("/memories", json={"content": "x"}, headers=KEY))[:2] == (409, "IdempotencyReuse")
    assert problem(api.delete(path, headers=KEY))[:2] == (409, "IdempotencyReuse")
    assert api.get(path).json()["importance"] == 0.9


def test_a_failed_request_can_be_retried_with_its_key(api: httpx.Client) -> None:
    stored = add(api, "Likes tea")
    path, stale = f"/memories/{stored['id']}", {**KEY, "If-Match": '"2"'}
    assert api.patch(path, json={"importance": 0.9}, headers=stale).status_code == 412
    api.patch(path, json={"importance": 0.1})
    first = api.patch(path, json={"importance": 0.9}, headers=stale)
    assert (first.status_code, first.headers["etag"]) == (200, '"3"')
    assert api.patch(path, json={"importance": 0.9}, headers=stale).json() == first.json()


def test_answers_are_erased_with_what_they_contain(api: httpx.Client) -> None:
    messages = {"json": {"messages": "My PIN is 4711 at the gym"}, "params": {"session_id": "s"}}
    [turn] = api.post("/remember", headers=KEY, **messages).json()["turns"]
    assert api.post("/erase", json={"target": "turn", "id": turn["id"]}).status_code == 200
    stored = api.post("/remember", json={"messages": "Hello"}, headers=KEY, params={"session_id": "s"})
    assert [each["content"] for each in stored.json()["turns"]] == ["Hello"]


def test_erasing_a_user_erases_the_keys(api: httpx.Client) -> None:
    add(api, "Likes tea")
    for _ in range(2):
        assert api.post("/erase", json={"target": "user"}, headers=KEY).status_code == 200
        assert api.get("/memories").json()["results"] == []
    assert api.post("/memories", json={"content": "Likes coffee"}, headers=KEY).status_code == 201


def test_a_key_is_rejected_where_it_has_no_meaning(api: httpx.Client) -> None:
    for answer in (
        api.post("/import", content=b"", headers={**KEY, "Content-Type": "application/x-ndjson"}),
        api.post("/admin/erasures/replay", json={"erasures": []}, headers=KEY),
    ):
        status, code, message = problem(answer)
        assert (status, code, "Idempotency-Key" in message) == (400, "InvalidInput", True)


def test_an_undo_without_a_stored_answer_is_not_repeated(api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "WAIT_S", 0.2)
    monkeypatch.setattr(idempotency, "LOST_S", 0.0)
    add(api, "Likes tea")
    add(api, "Likes cake")

    async def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("no more")

    with monkeypatch.context() as broken:
        broken.setattr(Ledger, "store_answer", away)
        assert api.post("/undo", headers=KEY).status_code == 503
        messages = {"json": {"messages": "Hello"}, "params": {"session_id": "s"}, "headers": OTHER}
        assert api.post("/remember", **messages).status_code == 503
    assert problem(api.post("/undo", headers=KEY))[:2] == (409, "Conflict")
    assert len(api.get("/memories").json()["results"]) == 1
    # A request that can run again does, and its turns are stored once.
    assert len(api.post("/remember", **messages).json()["turns"]) == 1
    assert len(api.get("/turns", params={"session_id": "s"}).json()["results"]) == 1


def test_another_process_returns_the_same_answer(tmp_path: Path) -> None:
    with (
        RecollectServer(tmp_path) as one,
        RecollectServer(tmp_path) as two,
        client_of("alex", one.url) as first,
        client_of("alex", two.url) as second,
    ):
        add(first, "Likes tea")
        add(first, "Likes cake")
        answers = [client.post("/undo", headers=KEY).json() for client in (first, second)]
        assert answers[0] == answers[1]
        assert [each["memory"] for each in first.get("/memories").json()["results"]] == ["Likes tea"]


def test_every_route_that_writes_takes_a_key(server: httpx.Client) -> None:
    described = server.get(f"http://{server.base_url.netloc.decode()}/openapi.json").json()
    # They only read, can be repeated, make a file of their own, or have an answer that must not be stored.
    without = {
        f"{PREFIX}/{each}"
        for each in (
            "import", "admin/erasures/replay", "search", "recall", "list", "facets", "login", "logout", "admin/keys",
            "admin/keys/{key_id}", "admin/backups", "hooks/{client}/{event}",
        )
    }  # fmt: skip
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            if path.startswith(PREFIX) and method != "get":
                names = [each["name"].lower() for each in operation.get("parameters", ())]
                assert names.count("idempotency-key") == (path not in without), (method, path)


def test_an_add_that_the_quota_refuses_is_refused_again_with_the_same_key(tmp_path: Path) -> None:
    with served(tmp_path, learn="off", quota_user=1, quota_order="importance") as api:
        add(api, "Likes tea", importance=0.9)
        call: dict[str, Any] = {"json": {"content": "Likes milk", "importance": 0.1}, "headers": KEY}
        assert [api.post("/memories", **call).status_code for _ in range(3)] == [429, 429, 429]
        [stored] = api.get("/memories").json()["results"]
        api.delete(f"/memories/{stored['id']}")
        assert [api.post("/memories", **call).status_code for _ in range(2)] == [201, 201]
