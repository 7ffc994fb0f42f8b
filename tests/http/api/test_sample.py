"""Sample data: added through the normal write path to a project of its own, and erased without a trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.api_server import add, as_user, served

ALL = {"statuses": ["active", "superseded", "review", "forgotten"], "turns": True, "limit": 1000}
SAMPLE = {"X-Memory-Project": "sample"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[httpx.Client]:
    with served(tmp_path) as client:
        yield client


def records(client: httpx.Client) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = client.post("/list", json=ALL).json()["results"]
    return results


def test_the_sample_has_sessions_a_change_an_end_a_review_and_instructions(server: httpx.Client) -> None:
    answer = server.post("/sample")
    assert answer.status_code == 201, answer.text
    added = answer.json()
    memories = [each for each in records(server) if each["category"] != "turn"]
    assert added["added"] == len(memories) >= 23
    assert all(each["tags"] == ["sample"] and each["project_id"] == "sample" for each in memories)
    sessions = {each["session_id"] for each in server.get("/sessions").json()["results"]}
    assert sessions == set(added["sessions"])
    by_status = {each["status"]: each for each in memories}
    assert by_status["superseded"]["value"] == "Fjordlab"
    assert by_status["superseded"]["superseded_by"]
    assert [each["memory"] for each in server.get("/reviews").json()["results"]] == [by_status["review"]["memory"]]
    assert any(each["valid_to"] and each["status"] == "active" for each in memories)
    assert sum(each["category"] == "instruction" for each in memories) >= 2
    # Each memory points to words that were said.
    for each in memories:
        for turn in each["evidence"]:
            assert server.get(f"/memories/{turn}").json()["category"] == "turn"
    found = server.post("/search", json={"query": "Where does Nora work?", "limit": 3}, headers=SAMPLE).json()
    assert "the Tidewater Institute" in [each["value"] for each in found["results"]]
    assert server.post("/sample").json()["added"] == 0
    assert server.post("/sample").status_code == 200


def test_removing_the_sample_removes_exactly_it(server: httpx.Client) -> None:
    own = [add(server, "I live in Lisbon", key="city", value="Lisbon", tags=["sample"])["id"]]
    answer = server.post("/memories", json={"content": "My own note in the same project"}, headers=SAMPLE)
    own.append(answer.json()["id"])
    with as_user(server, "bea") as bea:
        bea.post("/sample")
        before = records(bea)
        for _ in range(2):
            assert server.post("/sample").status_code == 201
            total = len(records(server))
            assert server.delete("/sample").json()["erased"] == total - len(own)
            assert sorted(each["id"] for each in records(server)) == sorted(own)
        assert server.get("/sessions").json()["results"] == []
        assert server.delete("/sample").json() == {"erased": 0}
        assert records(bea) == before
