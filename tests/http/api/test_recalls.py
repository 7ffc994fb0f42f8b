"""The log of recalls, and traces: why a memory was recalled, and why another one was not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect.service.logs import MAX_PER_USER
from tests.support.api_server import add, as_user, problem, served

TEA = "Where do I buy my green tea?"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[httpx.Client]:
    with served(tmp_path) as client:
        yield client


def trace(client: httpx.Client, question: str = TEA, **more: Any) -> dict[str, Any]:
    answer = client.post("/recall", json={"messages": question, "trace": True, **more})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def candidate(body: dict[str, Any], id: str) -> dict[str, Any]:
    [found] = [each for each in body["candidates"] if each["id"] == id]
    return dict(found)


def listed(client: httpx.Client, **params: Any) -> list[dict[str, Any]]:
    answer = client.get("/recalls", params=params)
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def test_a_recall_is_logged_with_its_block_and_hits(server: httpx.Client) -> None:
    tea = add(server, "I buy my green tea at the harbour")
    block = server.post("/recall", json={"messages": TEA}).json()["context"]["text"]
    server.post("/recall", json={"messages": "Hi!"})
    # Searches are logged if they are traced.
    server.post("/search", json={"query": "tea"})
    server.post("/search", json={"query": "green tea", "trace": True})
    search, greeting, recall = listed(server)
    assert (search["kind"], search["question"], search["traced"]) == ("search", "green tea", True)
    assert (greeting["outcome"], greeting["hits"], greeting["tokens"]) == ("ignored", 0, 0)
    assert (recall["kind"], recall["outcome"], recall["used"]) == ("recall", "used", 1)
    assert (recall["question"], recall["traced"]) == (TEA, False)
    one = server.get(f"/recalls/{recall['id']}").json()
    assert {name: one[name] for name in recall} == recall
    assert one["context"]["text"] == block
    assert [(hit["id"], hit["memory"]) for hit in one["results"]] == [(tea["id"], tea["memory"])]
    assert one["results"][0]["scores"]["relevance"] > 0
    assert sum(one["steps_us"].values()) > 0
    assert (one["trace"], one["candidates"]) == (None, [])
    assert server.get(f"/recalls/{search['id']}").json()["candidates"]
    assert len(listed(server, limit=1)) == 1


def test_chats_are_logged(server: httpx.Client) -> None:
    add(server, "I buy my green tea at the harbour")
    root = f"http://{server.base_url.netloc.decode()}"
    chat = {"model": "m", "messages": [{"role": "user", "content": TEA}]}
    assert server.post(f"{root}/v1/chat/completions", json=chat).status_code == 200
    [logged] = listed(server)
    assert (logged["question"], logged["outcome"]) == (TEA, "used")
    assert logged["session_id"]


def test_the_log_is_the_users_own_and_limited_to_the_scope(server: httpx.Client) -> None:
    add(server, "I buy my green tea at the harbour")
    server.post("/recall", json={"messages": TEA}, headers={"X-Memory-Project": "shop"})
    [logged] = listed(server)
    assert logged["project_id"] == "shop"
    with as_user(server, "bea") as bea:
        assert listed(bea) == []
        assert problem(bea.get(f"/recalls/{logged['id']}"))[:2] == (404, "NotFound")
    assert listed(server, project_id="shop") == [logged]
    assert listed(server, project_id="other") == []


def test_the_log_is_bounded_and_keeps_the_newest(server: httpx.Client) -> None:
    for number in range(MAX_PER_USER + 2):
        server.post("/recall", json={"messages": f"Hi {number}!"})
    questions = [each["question"] for each in listed(server, limit=1000)]
    assert questions == [f"Hi {number}!" for number in range(MAX_PER_USER + 1, 1, -1)]


def test_an_erasure_removes_the_log_of_the_user_alone(server: httpx.Client) -> None:
    tea = add(server, "I buy my green tea at the harbour")
    server.post("/recall", json={"messages": TEA})
    with as_user(server, "bea") as bea:
        bea.post("/recall", json={"messages": TEA})
        assert server.post("/erase", json={"target": "memory", "id": tea["id"]}).status_code == 200
        assert listed(server) == []
        assert len(listed(bea)) == 1


def test_the_log_can_be_turned_off(tmp_path: Path) -> None:
    with served(tmp_path, recall_log=0) as client:
        client.post("/recall", json={"messages": TEA})
        assert listed(client) == []


def test_a_trace_explains_decision_budget_ranks_and_log_odds(server: httpx.Client) -> None:
    tea = add(server, "I buy my green tea at the harbour")
    add(server, "The weather is grey over the hills")
    body = trace(server, limit=1)
    report = body["trace"]
    assert (report["searched"], report["question"], report["query"]) == (True, TEA, TEA)
    assert report["decision"]
    assert report["limit"] == 1
    assert 0 < body["context"]["tokens"] <= report["budget_tokens"]
    assert report["pool"] == len(body["candidates"]) == 2
    first, second = body["candidates"]
    assert (first["id"], first["selected"], first["in_prompt"], first["decision"]) == (
        tea["id"], True, True, "selected",
    )  # fmt: skip
    assert first["ranks"] == {"fuse": 1, "rank": 1, "newest": 1, "select": 1}
    assert not second["selected"]
    assert not second["in_prompt"]
    assert second["ranks"]["fuse"] == 2
    assert "select" not in second["ranks"]
    odds = first["log_odds"]
    strengths = [abs(each["log_odds"]) for each in odds["contributions"]]
    assert strengths == sorted(strengths, reverse=True)
    for each in odds["contributions"]:
        assert each["log_odds"] == pytest.approx(each["value"] * each["weight"], abs=0.01)
        assert first["features"][each["feature"]] == pytest.approx(each["value"], abs=0.001)


def test_a_trace_of_a_message_that_needs_no_memory_has_the_reason(server: httpx.Client) -> None:
    body = trace(server, "Hi!")
    assert (body["outcome"], body["trace"]["searched"]) == ("ignored", False)
    assert body["trace"]["decision"] == body["reason"]


def test_a_trace_contains_the_memory_that_is_asked_about(tmp_path: Path) -> None:
    # Token vectors, which are computed in the background, would change the order between two recalls.
    with served(tmp_path, late_interaction=False) as server:
        add(server, "I buy my green tea at the harbour")
        for number in range(60):
            add(server, f"Green tea number {number} comes from garden {number}")
        far = add(server, "The bicycle was repaired in spring")
        body = trace(server)
        assert far["id"] not in [each["id"] for each in body["candidates"]]
        asked = trace(server, memory_id=far["id"])
        found = candidate(asked, far["id"])
        assert (found["forced"], found["selected"], found["in_prompt"]) == (True, False, False)
        assert found["decision"].startswith("relevance 0.0")
        unlimited = trace(server, memory_id=far["id"], min_score=0)
        assert candidate(unlimited, far["id"])["decision"].startswith("it is not among the")
        assert far["id"] not in [hit["id"] for hit in unlimited["results"]]
        assert found["ranks"]["fuse"] > 10
        assert found["log_odds"]["contributions"]
        # The answer is the same as without the question about it.
        assert [hit["id"] for hit in asked["results"]] == [hit["id"] for hit in body["results"]]
        assert asked["trace"]["memory_id"] == far["id"]


def test_a_memory_that_cannot_be_found_has_its_reason(server: httpx.Client) -> None:
    gone = add(server, "Green tea was sold at the old shop")
    server.delete(f"/memories/{gone['id']}")
    old = add(server, "Tea at noon", key="tea", value="noon")
    add(server, "Tea at four", key="tea", value="four", correction=True)
    there = server.post(
        "/memories", json={"content": "Green tea in the project"}, headers={"X-Memory-Project": "shop"}
    ).json()
    past = add(server, "Green tea was cheap", valid_to="2020-01-01T00:00:00Z", valid_from="2019-01-01T00:00:00Z")
    reasons = {
        gone["id"]: "it is forgotten",
        old["id"]: "it was superseded by ",
        there["id"]: "it belongs to project 'shop'",
        past["id"]: "it has not been valid since 2020-01-01",
    }
    for id, reason in reasons.items():
        for path, question in (("/recall", {"messages": TEA}), ("/search", {"query": TEA})):
            body = server.post(path, json={**question, "trace": True, "memory_id": id}).json()
            found = candidate(body, id)
            assert found["decision"].startswith(reason)
            assert (found["forced"], found["selected"]) == (True, False)
    filtered = trace(server, memory_id=there["id"], filters={"category": "event"})
    assert candidate(filtered, there["id"])["forced"]


def test_asking_about_a_memory_needs_a_trace_and_an_own_memory(server: httpx.Client) -> None:
    tea = add(server, "I buy my green tea at the harbour")
    answer = server.post("/recall", json={"messages": TEA, "memory_id": tea["id"]})
    assert problem(answer) == (400, "InvalidInput", "memory_id is for a trace; set trace to true")
    with as_user(server, "bea") as bea:
        answer = bea.post("/recall", json={"messages": TEA, "trace": True, "memory_id": tea["id"]})
        assert problem(answer)[:2] == (404, "NotFound")
