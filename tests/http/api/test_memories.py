"""Memories in the REST API: deduplication, versions, pages, filters and errors."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from tests.support.api_server import add, as_user, contents, problem, served

JSON = {"Content-Type": "application/json"}
PATHS = ["/memories/{id}", "/memories/{id}/history"]


def test_a_memory_is_added_read_changed_forgotten_and_restored(api: httpx.Client) -> None:
    stored = api.post("/memories", json={"content": "The budget is $10,000", "tags": ["travel"]})
    assert (stored.status_code, stored.headers["etag"], stored.json()["event"]) == (201, '"1"', "add")
    path = f"/memories/{stored.json()['id']}"
    assert api.get(path).json()["tags"] == ["travel"]
    changed = api.patch(path, json={"content": "The budget is $12,000"}, headers={"If-Match": stored.headers["etag"]})
    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
    assert api.delete(path).json()["status"] == "forgotten"
    assert contents(api.get("/memories")) == []
    assert contents(api.get("/memories", params={"status": "forgotten"})) == ["The budget is $12,000"]
    assert api.post(f"{path}/restore").json()["status"] == "active"
    assert contents(api.get("/memories")) == ["The budget is $12,000"]


def test_a_duplicate_returns_the_existing_memory(api: httpx.Client) -> None:
    first = add(api, "Likes tea")
    repeated = api.post("/memories", json={"content": "likes  tea"})
    assert (repeated.status_code, repeated.json()["id"], repeated.json()["event"]) == (200, first["id"], "none")


def test_null_removes_a_time(api: httpx.Client) -> None:
    stored = add(api, "The lease ends", expires_at="2099-01-01T00:00:00Z", importance=0.9)
    changed = api.patch(f"/memories/{stored['id']}", json={"expires_at": None}).json()
    assert (changed["expires_at"], changed["importance"]) == (None, 0.9)


async def test_a_hundred_requests_with_one_key_have_one_effect(api: httpx.Client) -> None:
    async with httpx.AsyncClient(base_url=api.base_url, headers=api.headers, timeout=120) as client:
        same: dict[str, Any] = {"json": {"content": "Paid 40 euros"}, "headers": {"Idempotency-Key": "payment 7"}}
        answers = await asyncio.gather(*(client.post("/memories", **same) for _ in range(100)))
        history = (await client.get("/history")).json()["results"]
    # Without the key all but one would be answered with 200.
    assert Counter(answer.status_code for answer in answers) == {201: 100}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert [line["verb"] for line in history] == ["add"]


def test_an_idempotency_key_is_for_one_request_and_has_one_effect(api: httpx.Client) -> None:
    key = {"Idempotency-Key": "k1"}
    stored = api.post("/memories", json={"content": "Has a cat"}, headers=key).json()
    api.patch(f"/memories/{stored['id']}", json={"content": "Has two cats"})
    assert api.post("/memories", json={"content": "Has a cat"}, headers=key).json()["id"] == stored["id"]
    assert contents(api.get("/memories")) == ["Has two cats"]

    other = api.post("/memories", json={"content": "Has a dog"}, headers=key)
    assert problem(other)[:2] == (409, "IdempotencyReuse")
    elsewhere = api.post("/memories", json={"content": "Has a cat"}, params={"project_id": "p"}, headers=key)
    assert problem(elsewhere)[:2] == (409, "IdempotencyReuse")


async def test_one_of_fifty_updates_of_the_same_version_succeeds(api: httpx.Client) -> None:
    stored = add(api, "The meeting is at 9")
    async with httpx.AsyncClient(base_url=api.base_url, headers=api.headers, timeout=120) as client:
        answers = await asyncio.gather(
            *(
                client.patch(
                    f"/memories/{stored['id']}",
                    json={"content": f"The meeting is at 10:{n:02}"},
                    headers={"If-Match": '"1"'},
                )
                for n in range(50)
            )
        )
        saved = (await client.get(f"/memories/{stored['id']}")).json()
    assert Counter(answer.status_code for answer in answers) == {200: 1, 412: 49}
    winner = next(answer for answer in answers if answer.status_code == 200)
    assert (saved["memory"], saved["version"]) == (winner.json()["memory"], 2)
    assert {problem(answer)[1] for answer in answers if answer.status_code == 412} == {"StaleVersion"}


async def test_concurrent_undos_undo_different_changes(
    api: httpx.Client,
) -> None:
    for n in range(8):
        add(api, f"Fact number {n}")
    async with httpx.AsyncClient(base_url=api.base_url, headers=api.headers, timeout=120) as client:
        answers = await asyncio.gather(*(client.post("/undo") for _ in range(10)))
    undone = [answer.json()["results"] for answer in answers if answer.status_code == 200]
    assert sorted(each["memory"] for results in undone for each in results) == [f"Fact number {n}" for n in range(8)]
    assert [len(results) for results in undone] == [1] * 8
    left = [answer for answer in answers if answer.status_code != 200]
    assert [problem(answer)[:2] for answer in left] == [(404, "NotFound")] * 2


def test_if_match_requires_one_of_its_versions(api: httpx.Client) -> None:
    path = f"/memories/{add(api, 'Likes tea')['id']}"
    for tag in ("nonsense", '"1', '"1" "2"', '"1",', "w/1", "*, *", ""):
        assert problem(api.delete(path, headers={"If-Match": tag}))[:2] == (400, "InvalidInput"), tag
    for tag in ('"9"', '"abc"', 'W/"9"', "9", '"8", "9"', '"abc","9"'):
        for answer in (
            api.patch(path, json={"importance": 1}, headers={"If-Match": tag}),
            api.delete(path, headers={"If-Match": tag}),
        ):
            assert problem(answer)[:2] == (412, "StaleVersion"), tag
            assert "not 0" not in answer.text
    for version, tag in enumerate(
        ('"{}"', 'W/"{}"', "{}", '"{}", "99"', '"99",W/"{}"', '"abc" , "{}"', "*"), start=1
    ):
        changes = {"importance": version / 10}
        answer = api.patch(path, json=changes, headers={"If-Match": tag.format(version)})
        assert (answer.status_code, answer.headers.get("etag")) == (200, f'"{version + 1}"'), answer.text


def test_pages_have_no_gaps_or_duplicates(api: httpx.Client) -> None:
    messages = [f"Fact number {n}" for n in range(7)]
    for content in messages:
        add(api, content)
    pages: list[list[str]] = []
    cursor: str | None = None
    while True:
        params: dict[str, Any] = {"limit": 3, "order": "oldest"} | ({"cursor": cursor} if cursor else {})
        answer = api.get("/memories", params=params)
        pages.append(contents(answer))
        cursor = answer.json()["cursor"]
        if cursor is None:
            break
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [each for page in pages for each in page] == messages


def test_lists_are_filtered_by_parameters_and_bodies(api: httpx.Client) -> None:
    add(api, "Likes tea", category="preference", tags=["drink", "hot"], importance=0.9)
    add(api, "Likes water", category="preference", tags=["drink"])
    add(api, "Lives in Lisbon", key="city", value="Lisbon")
    assert contents(api.get("/memories", params={"category": ["preference"], "tag": ["drink", "hot"]})) == [
        "Likes tea"
    ]
    assert contents(api.get("/memories", params={"key": "city"})) == ["Lives in Lisbon"]
    filters = {"importance": {"gte": 0.5}, "not": {"tags": "hot"}}
    assert contents(api.post("/list", json={"filters": filters, "order": "oldest"})) == [
        "Likes water",
        "Lives in Lisbon",
    ]
    assert api.post("/forget", json={"filters": {"tags": "drink"}}).json() == {"forgotten": 2}
    assert contents(api.get("/memories")) == ["Lives in Lisbon"]


def test_memories_of_other_users_are_not_found(api: httpx.Client) -> None:
    hers = add(api, "My PIN is in the blue book")["id"]
    with as_user(api, "mallory") as other:
        for call, path in (
            *((("GET", path.format(id="{id}"))) for path in PATHS),
            ("PATCH", "/memories/{id}"),
            ("DELETE", "/memories/{id}"),
            ("POST", "/memories/{id}/restore"),
            ("PATCH", "/reviews/{id}"),
            ("POST", "/reviews/{id}/approve"),
            ("POST", "/reviews/{id}/reject"),
        ):
            body = {"importance": 1} if call == "PATCH" else None
            headers = {"X-Memory-Actor": "person", "X-Memory-By": "mallory"}
            answers = [
                other.request(call, path.format(id=id), json=body, headers=headers) for id in (hers, "unknown")
            ]
            text = [answer.text.replace(hers, "ID").replace("unknown", "ID") for answer in answers]
            assert [answer.status_code for answer in answers] == [404, 404], (call, path)
            assert text[0] == text[1]
        assert contents(other.get("/memories")) == []
        assert contents(other.post("/search", json={"query": "PIN in the blue book", "min_score": 0})) == []
    assert api.get(f"/memories/{hers}").json()["version"] == 1


def test_an_invalid_request_is_rejected_with_an_explanation(api: httpx.Client) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"method": "GET", "url": "/memories", "params": {"limit": "many"}}, "limit"),
        ({"method": "GET", "url": "/memories", "params": {"categroy": "fact"}}, "categroy is not a query parameter"),
        ({"method": "GET", "url": "/memories", "params": {"cursor": "bm9uc2Vuc2U"}}, "cursor"),
        ({"method": "GET", "url": "/memories", "params": {"user_id": "x" * 301}}, "user_id"),
        ({"method": "POST", "url": "/memories", "content": b'{"content": "x"}'}, "Content-Type: application/json"),
        ({"method": "POST", "url": "/memories", "content": b"{", "headers": JSON}, "not valid JSON"),
        ({"method": "POST", "url": "/memories", "json": ["x"]}, "must be a JSON object"),
        ({"method": "POST", "url": "/memories"}, "The body is missing"),
        ({"method": "POST", "url": "/memories", "json": {"contents": "x"}}, "contents is not a field"),
        ({"method": "POST", "url": "/memories", "json": {"content": ""}}, "content"),
        ({"method": "POST", "url": "/memories", "json": {}}, "content"),
        ({"method": "POST", "url": "/memories", "json": {"content": "x", "importance": "high"}}, "importance"),
        ({"method": "POST", "url": "/memories", "json": {"content": "x", "category": "turn"}}, "category"),
        ({"method": "POST", "url": "/memories", "json": {"content": "x", "embedding": [1.0]}}, "embedding"),
        ({"method": "POST", "url": "/memories", "json": {"content": "x", "expires_at": "soon"}}, "expires_at"),
        ({"method": "POST", "url": "/list", "json": {"filters": {"colour": "red"}}}, "unknown field 'colour'"),
        ({"method": "PATCH", "url": "/memories/x", "json": {}}, "nothing to change"),
    ]
    for call, expected in cases:
        status, _, message = problem(api.request(**call))
        assert (status, expected in message) == (400, True), message


def test_a_request_must_name_one_user_and_an_existing_path(server: httpx.Client) -> None:
    with httpx.Client(base_url=server.base_url, timeout=60) as nobody:
        assert problem(nobody.get("/memories"))[:2] == (401, "MissingUser")
        assert nobody.get("/memories", params={"user_id": "alex"}).status_code == 200
    assert problem(server.get("/memories", params={"user_id": "someone else"}))[:2] == (403, "NotAllowed")

    assert problem(server.get("/nowhere"))[:2] == (404, "NotFound")
    wrong = server.put("/memories")
    assert problem(wrong)[:2] == (405, "MethodNotAllowed")
    assert wrong.headers["allow"] == "GET, POST"


def test_a_large_request_is_rejected_in_the_format_of_its_api(tmp_path: Path) -> None:
    with served(tmp_path, max_body_mb=1) as api:
        body = b"x" * (1 << 20 | 1)
        answer = api.post("/memories", content=body)
        assert problem(answer)[:2] == (413, "TooLarge")
        assert set(answer.json()["error"]) == {"code", "message", "retryable"}
        outside = str(api.base_url).removesuffix("/recollect/v1/")
        session = api.post(f"{outside}/api/sessions", content=body)
        existing = api.get(f"{outside}/api/sessions/nowhere/memories")
        assert (session.status_code, session.json().keys()) == (413, existing.json().keys())
        react = api.post(f"{outside}/api/react/facts/store", content=body)
        assert (react.status_code, react.json()["error"]["type"]) == (413, "TooLarge")
        chat = api.post(f"{outside}/v1/memory/search", content=body)
        assert chat.status_code == 413
