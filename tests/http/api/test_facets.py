"""Counts of memories by their fields, and what was learned from each turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.api_server import add, as_user, served


@pytest.fixture
def server(tmp_path: Path) -> Iterator[httpx.Client]:
    with served(tmp_path) as client:
        yield client


def counts(answer: httpx.Response, name: str) -> dict[str, int]:
    assert answer.status_code == 200, answer.text
    return {each["value"]: each["count"] for each in answer.json()["facets"][name]}


def _fill(server: httpx.Client) -> None:
    add(server, "Tea is green", category="preference", tags=["drink", "home"], occurred_at="2026-05-31T23:59:59Z")
    add(server, "Coffee is black", category="preference", tags=["drink"], occurred_at="2026-06-01T00:00:00Z")
    gone = add(server, "Milk is white", category="fact", source="shop")
    server.delete(f"/memories/{gone['id']}")
    server.post("/memories", json={"content": "The trip is in May"}, headers={"X-Memory-Project": "hawaii"})
    server.post("/remember", json={"messages": "Hello there, how are you?"}, headers={"X-Memory-Session": "monday"})


def test_memories_are_counted_by_each_field(server: httpx.Client) -> None:
    _fill(server)
    answer = server.get("/facets")
    assert answer.json()["total"] == 3
    assert counts(answer, "category") == {"preference": 2, "fact": 1}
    assert counts(answer, "tags") == {"drink": 2, "home": 1}
    assert counts(answer, "project_id") == {"": 2, "hawaii": 1}
    assert counts(answer, "session_id") == {"": 3}
    assert counts(answer, "status") == {"active": 3, "forgotten": 1}
    months = [each["value"] for each in answer.json()["facets"]["month"]]
    assert months[-2:] == ["2026-06", "2026-05"]
    assert months == sorted(months, reverse=True)
    assert counts(server.get("/facets", params={"status": "forgotten"}), "source") == {"shop": 1}
    assert counts(server.get("/facets", params={"turns": True}), "session_id") == {"": 3, "monday": 1}
    with as_user(server, "bea") as bea:
        assert bea.get("/facets").json()["total"] == 0


def test_counts_are_those_of_the_list_with_the_same_filter(server: httpx.Client) -> None:
    _fill(server)
    bodies: list[dict[str, Any]] = [
        {},
        {"filters": {"tags": "drink"}},
        {"filters": {"category": ["fact", "preference"], "not": {"tags": "home"}}},
        {"statuses": ["active", "forgotten"], "turns": True},
        {"filters": {"project_id": "hawaii"}},
    ]
    for body in bodies:
        listed = server.post("/list", json=body).json()["results"]
        answer = server.post("/facets", json=body)
        assert answer.json()["total"] == len(listed)
        for name in ("category", "type", "level", "source", "trust"):
            expected: dict[str, int] = {}
            for each in listed:
                expected[each[name]] = expected.get(each[name], 0) + 1
            assert counts(answer, name) == expected, (body, name)
    scoped = server.get("/facets", params={"project_id": "hawaii"})
    assert (scoped.json()["total"], counts(scoped, "project_id")) == (1, {"hawaii": 1})
    assert server.get("/facets", params={"tag": "home"}).json()["total"] == 1


def test_each_turn_lists_the_memories_learned_from_it(server: httpx.Client) -> None:
    session = {"X-Memory-Session": "monday"}
    messages = [{"role": "user", "content": text} for text in ("I live in Lisbon.", "Thanks!")]
    server.post("/remember", json={"messages": messages, "wait_s": 60}, headers=session)
    first, second = server.get("/turns", headers=session).json()["results"]
    assert second["learned"] == []
    [learned] = [server.get(f"/memories/{id}").json() for id in first["learned"]]
    assert learned["evidence"] == [first["id"]]
    assert "Lisbon" in learned["memory"]
    # A turn is read like a memory.
    assert server.get(f"/memories/{learned['evidence'][0]}").json()["memory"] == "I live in Lisbon."
    page = server.get("/turns", headers=session, params={"limit": 1}).json()
    assert [each["id"] for each in page["results"]] == [first["id"]]
    rest = server.get("/turns", headers=session, params={"cursor": page["cursor"]}).json()
    assert ([each["id"] for each in rest["results"]], rest["cursor"]) == ([second["id"]], None)
