"""The audit log: who looked at whose memories with a key for several users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.auth_samples import bearer, make_key, serving

V1 = "/recollect/v1"
PAGE = {"X-Recollect-Page": "1"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with serving(tmp_path, auth="keys") as client:
        yield client


def entries(client: TestClient, **params: Any) -> list[tuple[str, str | None, str]]:
    answer = client.get(f"{V1}/admin/audit", params=params)
    assert answer.status_code == 200, answer.text
    return [(each["who"], each["user_id"], each["route"]) for each in answer.json()["results"]]


def test_each_look_of_an_admin_in_the_page_is_recorded_once_a_minute(client: TestClient) -> None:
    key = make_key(client, admin=True, name="owner")
    client.post(f"{V1}/login", json={"key": key})
    client.post(f"{V1}/memories", json={"content": "Ann plays chess"}, headers={**PAGE, "X-Memory-User": "ann"})
    for _ in range(3):
        assert client.get(f"{V1}/memories", params={"user_id": "ann"}).status_code == 200
    client.get(f"{V1}/memories", headers={"X-Memory-User": "bob", "x-authz-user-id": "bob"})
    client.get(f"{V1}/memories/nosuch", params={"user_id": "ann"})
    chat = {"model": "m", "messages": [{"role": "user", "content": "What do I play?"}]}
    client.post("/v1/chat/completions", json=chat, headers={**PAGE, "X-Memory-User": "ann"})
    ann, bob = entries(client, of_user="ann"), entries(client, of_user="bob")
    assert set(ann) == {
        ("key:owner", "ann", "POST /recollect/v1/memories"),
        ("key:owner", "ann", "GET /recollect/v1/memories"),
        ("key:owner", "ann", "GET /recollect/v1/memories/{memory_id}"),
        ("key:owner", "ann", "POST /v1/chat/completions"),
    }
    # A minute may have ended in between.
    assert len(ann) <= 5
    assert set(bob) == {("key:owner", "bob", "GET /recollect/v1/memories")}
    assert len(entries(client)) == len(ann) + len(bob)
    # Bob has no data, so that nobody knows his name.
    assert {user for _, user, _ in entries(client)} == {"ann", None}


def test_the_log_is_read_in_pages_and_outlives_the_user(client: TestClient) -> None:
    client.post(f"{V1}/login", json={"key": make_key(client, admin=True, name="owner")})
    ann = {**PAGE, "X-Memory-User": "ann"}
    client.post(f"{V1}/memories", json={"content": "Ann plays chess"}, headers=ann)
    for path in ("memories", "history", "reviews", "facets"):
        client.get(f"{V1}/{path}", headers=ann)
    everything = entries(client)
    assert len(everything) == 5
    paged, cursor = [], None
    while True:
        body = client.get(f"{V1}/admin/audit", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        paged += [(each["who"], each["user_id"], each["route"]) for each in body["results"]]
        if not (cursor := body["cursor"]):
            break
    assert paged == everything
    assert client.post(f"{V1}/erase", json={"target": "user"}, headers=ann).status_code == 200
    assert {user for _, user, _ in entries(client)} == {None}
    assert len(entries(client, of_user="ann")) >= 5


def test_own_looks_and_programs_are_not_recorded(client: TestClient) -> None:
    admin = bearer(make_key(client, admin=True))
    client.get(f"{V1}/memories", headers={**admin, "X-Memory-User": "ann"})
    client.post(f"{V1}/login", json={"key": make_key(client, user="ann")})
    assert client.get(f"{V1}/memories").status_code == 200
    client.cookies.clear()
    assert client.get(f"{V1}/admin/audit", headers=admin).json()["results"] == []
    everyone = make_key(client, everyone=True, name="app")
    client.post(f"{V1}/login", json={"key": everyone})
    client.get(f"{V1}/memories", params={"user_id": "ann"})
    client.cookies.clear()
    [entry] = client.get(f"{V1}/admin/audit", headers=admin, params={"of_user": "ann"}).json()["results"]
    assert entry["who"] == "key:app"
