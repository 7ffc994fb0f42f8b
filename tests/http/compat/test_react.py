"""/api/react: facts, episodes and conversations of an agent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.compat_server import UNKNOWN, broken, served
from tests.support.remember_samples import claim, learns

HERE: dict[str, Any] = {"user": "alex", "collection": "payments"}
TALK: dict[str, Any] = {"user": "alex", "conversation_id": "monday"}
PORT = "The payment service listens on port 8443"
EPISODE: dict[str, Any] = {
    "goal": "Deploy the payment service",
    "steps": ["npm build", "docker push"],
    "outcome": "deployed on port 8443",
    "lessons": "Check the port first",
}
INVOCATION: dict[str, Any] = {
    "query": "Deploy the payment service",
    "summary": "User asked for a deployment, agent built and pushed, result was a deployment",
    "result": "deployed",
    "timestamp": "2026-03-15T10:00:00Z",
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with served(tmp_path, preset="react-mem") as client:
        yield client


def ask(client: TestClient, path: str, **body: Any) -> dict[str, Any]:
    answer = client.post(f"/api/react{path}", json=body)
    assert answer.status_code == 200, answer.text
    report: dict[str, Any] = answer.json()
    assert report.pop("error") is None
    return report


def refused(client: TestClient, path: str, **body: Any) -> tuple[int, str]:
    # Written in ASCII, so that lone surrogates can be sent.
    headers = {"content-type": "application/json"}
    answer = client.post(f"/api/react{path}", content=json.dumps(body), headers=headers)
    assert list(answer.json()) == ["error"]
    assert list(answer.json()["error"]) == ["type", "message"]
    return answer.status_code, answer.json()["error"]["type"]


def facts(client: TestClient, query: str, **more: Any) -> list[str]:
    return [each["content"] for each in ask(client, "/facts/retrieve", query=query, **{**HERE, **more})["facts"]]


def test_a_fact_is_stored_and_retrieved(client: TestClient) -> None:
    stored = ask(client, "/facts/store", content=PORT, source="monday", metadata={"verified": True}, **HERE)
    assert list(stored) == ["fact_id"]
    [fact] = ask(client, "/facts/retrieve", query="Which port does the payment service use?", **HERE)["facts"]
    assert list(fact) == ["id", "content", "source", "timestamp", "metadata"]
    assert (fact["id"], fact["content"], fact["source"]) == (stored["fact_id"], PORT, "monday")
    assert fact["metadata"] == {"verified": True}


def test_storing_twice_merges_the_metadata(client: TestClient) -> None:
    metadata = [{"verified": False, "by": "ann"}, {"verified": True}, {}]
    stored = [ask(client, "/facts/store", content=PORT, metadata=each, **HERE) for each in metadata]
    assert stored[0] == stored[1] == stored[2]
    [fact] = ask(client, "/facts/retrieve", query="Which port does the payment service use?", **HERE)["facts"]
    assert fact["metadata"] == {"verified": True, "by": "ann"}
    story = {"goal": "Deploy it", "steps": ["build"], "outcome": "deployed"}
    report = [ask(client, "/episodes/store", metadata=each, **story, **HERE) for each in metadata]
    assert report[0] == report[1]
    [episode] = ask(client, "/episodes/retrieve", query="Deploy", **HERE)["episodes"]
    assert episode["metadata"] == {"verified": True, "by": "ann"}


def test_five_facts_and_three_episodes_are_retrieved_by_default(client: TestClient) -> None:
    for number in range(8):
        ask(client, "/facts/store", content=f"Service number {number} listens on port {8000 + number}", **HERE)
        ask(client, "/episodes/store", **{**EPISODE, "goal": f"Deploy service number {number}"}, **HERE)
    assert len(facts(client, "Which port does a service listen on?")) == 5
    assert len(facts(client, "Which port does a service listen on?", top_k=2)) == 2
    results = ask(client, "/episodes/retrieve", query="deploy a service", **HERE)
    assert len(results["episodes"]) == 3


def test_a_deleted_fact_is_not_retrieved(client: TestClient) -> None:
    id = ask(client, "/facts/store", content=PORT, **HERE)["fact_id"]
    assert ask(client, "/facts/delete", fact_id=id, **HERE) == {"success": True}
    assert facts(client, "port") == []
    assert refused(client, "/facts/delete", fact_id=id, **HERE) == (404, "NotFound")


def test_an_episode_is_stored_and_retrieved(client: TestClient) -> None:
    stored = ask(client, "/episodes/store", **EPISODE, metadata={"run": 7}, **HERE)
    ask(client, "/facts/store", content=PORT, **HERE)
    [episode] = ask(client, "/episodes/retrieve", query="deploy the payment service", **HERE)["episodes"]
    assert list(episode) == ["id", "goal", "steps", "outcome", "lessons", "timestamp", "metadata"]
    assert {name: episode[name] for name in EPISODE} == EPISODE
    assert (episode["id"], episode["metadata"]) == (stored["episode_id"], {"run": 7})
    # An episode is no fact.
    assert facts(client, "deploy the payment service") == [PORT]
    assert refused(client, "/facts/delete", fact_id=stored["episode_id"], **HERE) == (404, "NotFound")


def test_a_conversation_has_its_invocations_in_order(client: TestClient) -> None:
    empty = ask(client, "/conversations/get", **TALK)["conversation"]
    assert (empty["conversation_id"], empty["invocations"]) == ("monday", [])
    second = {**INVOCATION, "query": "And the tests?", "result": "they pass"}
    assert ask(client, "/conversations/update", **TALK, invocation_summary=INVOCATION) == {"success": True}
    ask(client, "/conversations/update", **TALK, invocation_summary=second)
    stored = ask(client, "/conversations/get", **TALK)["conversation"]
    assert list(stored) == ["conversation_id", "invocations", "metadata"]
    assert stored["invocations"] == [INVOCATION, second]


def test_a_conversation_can_be_ended(client: TestClient) -> None:
    ask(client, "/conversations/update", **TALK, invocation_summary=INVOCATION)
    end(client, **TALK)
    stored = ask(client, "/conversations/get", **TALK)["conversation"]
    assert stored["metadata"]["closed"] is True
    assert stored["invocations"] == [INVOCATION]
    assert refused(client, "/conversations/end", user="alex", conversation_id="never") == (404, "NotFound")


def test_secrets_are_removed_from_invocations(client: TestClient) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    report = {**INVOCATION, "result": f"the key is {secret}"}
    ask(client, "/conversations/update", **TALK, invocation_summary=report)
    assert secret not in client.post("/api/react/conversations/get", json=TALK).text


def test_an_embedding_of_the_caller_is_checked_and_used(client: TestClient) -> None:
    dimensions = client.get("/health").json()["dimensions"]
    one, other = [1.0] + [0.0] * (dimensions - 1), [0.0] * (dimensions - 1) + [1.0]
    ask(client, "/facts/store", content="alpha", embedding=one, **HERE)
    ask(client, "/facts/store", content="omega", embedding=other, **HERE)
    assert facts(client, "unrelated words", embedding=other, top_k=1) == ["omega"]
    assert facts(client, "unrelated words", embedding=one, top_k=1) == ["alpha"]
    for path in ("/facts/retrieve", "/episodes/retrieve"):
        assert refused(client, path, query="x", embedding=[1.0, 2.0], **HERE) == (400, "InvalidInput")
    assert refused(client, "/facts/store", content="x", embedding=[0.0] * dimensions, **HERE)[0] == 400


def test_collections_and_users_are_isolated(client: TestClient) -> None:
    id = ask(client, "/facts/store", content=PORT, **HERE)["fact_id"]
    ask(client, "/episodes/store", **EPISODE, **HERE)
    ask(client, "/conversations/update", **TALK, invocation_summary=INVOCATION)
    for other in ({"collection": "other"}, {"user": "eve"}):
        assert facts(client, "port", **other) == []
        assert ask(client, "/episodes/retrieve", query="deploy", **{**HERE, **other}) == {"episodes": []}
        for fact_id in (id, UNKNOWN):
            assert refused(client, "/facts/delete", fact_id=fact_id, **{**HERE, **other}) == (404, "NotFound")
    theirs = ask(client, "/conversations/get", user="eve", conversation_id="monday")["conversation"]
    assert theirs["invocations"] == []
    assert refused(client, "/conversations/end", user="eve", conversation_id="monday") == (404, "NotFound")
    assert facts(client, "port") == [PORT]


def test_a_gateway_names_the_user(client: TestClient) -> None:
    ask(client, "/facts/store", content=PORT, **HERE)
    gateway = {"x-authz-user-id": "alex"}
    body = {"query": "port", "collection": "payments"}
    answer = client.post("/api/react/facts/retrieve", json=body, headers=gateway)
    assert [each["content"] for each in answer.json()["facts"]] == [PORT]
    answer = client.post(
        "/api/react/facts/retrieve", json={**body, "user": "alex"}, headers={"x-authz-user-id": "eve"}
    )
    assert answer.status_code == 403


def test_an_invalid_request_is_rejected(client: TestClient) -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("/facts/retrieve", {"query": " ", "user": "alex"}),
        ("/facts/retrieve", {"query": "x", "user": "alex", "top_k": 0}),
        ("/facts/retrieve", {"query": "x", "user": "alex", "topk": 3}),
        ("/facts/store", {"content": "", "user": "alex"}),
        ("/facts/store", {"content": "x", "user": "alex", "metadata": {"lone": "\ud800"}}),
        ("/episodes/store", {"goal": " ", "user": "alex"}),
        ("/conversations/get", {"user": "alex"}),
        ("/conversations/update", {**TALK, "invocation_summary": {"query": "x"}}),
        ("/conversations/update", {**TALK, "conversation_id": "a\nb", "invocation_summary": INVOCATION}),
        ("/facts/delete", {"user": "alex"}),
    ]
    for path, body in cases:
        assert refused(client, path, **body)[0] == 400
    assert refused(client, "/facts/retrieve", query="x") == (401, "MissingUser")
    broken(client)
    assert refused(client, "/facts/retrieve", query="x", **HERE)[0] == 503


BRANCH = {
    "query": "I work at Contoso and my release branch is called green. Build it.",
    "summary": "User asked for a build of green, agent ran npm build, result was a bundle of 3 MB",
    "result": "built",
    "timestamp": "2026-03-15T09:00:00Z",
}
TESTS = {**INVOCATION, "query": "Run the tests of it", "summary": "Agent ran 214 tests", "result": "all pass"}


def end(client: TestClient, **talk: Any) -> None:
    assert ask(client, "/conversations/end", **talk) == {"success": True}
    client.portal.call(client.app.state.service.jobs.run_pending)  # type: ignore[union-attr, attr-defined]


def episodes(client: TestClient, **more: Any) -> list[dict[str, Any]]:
    request = {"query": "build and deploy", "user": "alex", **more}
    results: list[dict[str, Any]] = ask(client, "/episodes/retrieve", **request)["episodes"]
    return results


@pytest.mark.parametrize("preset", ["react-mem", None])
def test_the_end_of_a_conversation_stores_an_episode_and_facts(tmp_path: Path, preset: str | None) -> None:
    with served(tmp_path, **({"preset": preset} if preset else {})) as client:
        for line in (BRANCH, TESTS, INVOCATION):
            ask(client, "/conversations/update", **TALK, invocation_summary=line)
        end(client, **TALK)
        [episode] = episodes(client)
        assert episode["goal"] == "; ".join(each["query"] for each in (BRANCH, TESTS, INVOCATION))
        assert episode["steps"] == [each["summary"] for each in (BRANCH, TESTS, INVOCATION)]
        assert episode["outcome"] == "deployed"
        # Facts about the user are learned, and visible in other conversations.
        learned = ask(client, "/facts/retrieve", query="Where does the user work?", user="alex")["facts"]
        assert any("Contoso" in each["content"] for each in learned)
        assert episodes(client, user="eve") == []
        # Ending twice adds nothing; later invocations make an episode of their own.
        end(client, **TALK)
        assert episodes(client) == [episode]
        later = {**INVOCATION, "query": "Roll back the payment service", "timestamp": "2026-03-16T10:00:00Z"}
        ask(client, "/conversations/update", **TALK, invocation_summary=later)
        end(client, **TALK)
        goals = {each["goal"] for each in episodes(client)}
        assert goals == {episode["goal"], "Roll back the payment service"}


def test_small_talk_makes_no_episode(client: TestClient) -> None:
    report = {**INVOCATION, "query": "Hello!", "summary": "Agent greeted the user", "result": "Hi there"}
    ask(client, "/conversations/update", **TALK, invocation_summary=report)
    end(client, **TALK)
    assert episodes(client) == []
    assert ask(client, "/facts/retrieve", query="hello", user="alex")["facts"] == []


def test_facts_from_invocations_have_no_turns_as_evidence(client: TestClient) -> None:
    ask(client, "/conversations/update", **TALK, invocation_summary=BRANCH)
    end(client, **TALK)
    listed = client.get("/recollect/v1/memories", headers={"X-Memory-User": "alex"}).json()["results"]
    assert len(listed) > 1
    assert [each["evidence"] for each in listed] == [[]] * len(listed)


def test_facts_from_invocations_are_erased_with_the_conversation(client: TestClient) -> None:
    ask(client, "/conversations/update", **TALK, invocation_summary=BRANCH)
    end(client, **TALK)
    assert len(episodes(client)) == 1
    gone = {"target": "session", "session_id": "monday"}
    assert client.post("/recollect/v1/erase", json=gone, headers={"X-Memory-User": "alex"}).status_code == 200
    assert episodes(client) == []
    assert ask(client, "/facts/retrieve", query="Where does the user work?", user="alex")["facts"] == []


def test_an_llm_writes_the_episode_of_invocations(tmp_path: Path, llm: ScriptedLLM) -> None:
    story = {
        "task": True,
        "goal": "Release the branch green",
        "steps": ["npm build", "run 214 tests", "push the image"],
        "outcome": "deployed",
        "lessons": ["The build of green makes a bundle of 3 MB"],
        "summary": "The branch green was released",
    }
    with served(tmp_path, llm, preset="react-mem") as client:
        llm.when("Tell its story for those who will work").reply_json(story)
        learns(llm, "I work at Contoso", claim("User works at Contoso", importance=0.9))
        for line in (BRANCH, TESTS, INVOCATION):
            ask(client, "/conversations/update", **TALK, invocation_summary=line)
        end(client, **TALK)
        [episode] = episodes(client)
        assert (episode["goal"], episode["steps"]) == (story["goal"], story["steps"])
        learned = ask(client, "/facts/retrieve", query="Where does the user work?", user="alex")["facts"]
        assert "User works at Contoso" in [each["content"] for each in learned]


def test_an_llm_that_sees_no_task_makes_no_episode(tmp_path: Path, llm: ScriptedLLM) -> None:
    none = {"task": False, "goal": "", "steps": [], "outcome": "", "lessons": [], "summary": ""}
    with served(tmp_path, llm, preset="react-mem", session_episode=False) as client:
        llm.when("Tell its story for those who will work").reply_json(none)
        ask(client, "/conversations/update", **TALK, invocation_summary=BRANCH)
        end(client, **TALK)
        assert episodes(client) == []
