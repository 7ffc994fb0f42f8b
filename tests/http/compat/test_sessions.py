"""/api/sessions/{sessionId}/memories: memories of a session."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.compat_server import UNKNOWN, broken, served
from tests.support.remember_samples import claim, exchange, learns

SESSION = "7d0f3f5e-8f0a-4a53-9a83-3f1f0f6f8c11"
MEMORIES = f"/api/sessions/{SESSION}/memories"
DEADLINE = {"content": "The project deadline is March 15th", "type": "fact", "importance": 0.9}
DETAILED = {"content": "User prefers detailed explanations", "type": "preference", "importance": 0.7}
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")

# As the design prints them, but for what differs each time: ids and times.
LISTED = """[
  {
    "id": "uuid",
    "sessionId": "uuid",
    "memoryContent": "The project deadline is March 15th",
    "memoryType": "fact",
    "importance": 0.9,
    "createdAt": "time",
    "lastAccessedAt": "time"
  }
]"""
CREATED = """{
  "id": "uuid",
  "sessionId": "uuid",
  "memoryContent": "User prefers detailed explanations",
  "memoryType": "preference",
  "importance": 0.7,
  "createdAt": "time",
  "lastAccessedAt": "time"
}"""
CONTEXT = (
    "Relevant memories from this session:\n"
    "- [FACT] The project deadline is March 15th (importance: 0.9)\n"
    "- [PREFERENCE] User prefers concise bullet-point summaries (importance: 0.7)\n"
    "- [INSIGHT] Q3 revenue increase correlates with marketing campaign launch (importance: 0.8)\n\n"
    "Use these memories to provide contextually aware responses."
)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with served(tmp_path, preset="session-service") as client:
        assert client.post("/api/sessions", json={"sessionId": SESSION}).status_code == 201
        yield client


def printed(answer: Any) -> str:
    """The answer as the design prints it."""
    return TIME.sub("time", UUID.sub("uuid", json.dumps(answer.json(), indent=2)))


def refused(answer: Any) -> tuple[int, str]:
    assert answer.json()["detail"]
    return answer.status_code, answer.json()["error"]


def test_the_designs_manual_memory_is_created_and_answered_as_printed(client: TestClient) -> None:
    answer = client.post(MEMORIES, json=DETAILED)
    assert answer.status_code == 201
    assert printed(answer) == CREATED


def test_a_memory_said_twice_takes_on_what_is_said_of_it(client: TestClient) -> None:
    first = client.post(MEMORIES, json=DETAILED).json()
    repeated = client.post(MEMORIES, json={**DETAILED, "importance": 0.9}).json()
    assert repeated == {**first, "importance": 0.9}
    unsaid = {"content": DETAILED["content"], "type": "preference"}
    assert client.post(MEMORIES, json=unsaid).json() == repeated
    assert client.get(MEMORIES).json() == [repeated]


def test_the_designs_list_is_answered_as_printed(client: TestClient) -> None:
    client.post(MEMORIES, json=DEADLINE)
    assert printed(client.get(MEMORIES)) == LISTED


def test_one_memory_is_had_by_its_id_and_deleted(client: TestClient) -> None:
    made = client.post(MEMORIES, json=DEADLINE).json()
    path = f"{MEMORIES}/{made['id']}"
    assert client.get(path).json() == made
    deleted = client.delete(path)
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert refused(client.get(path)) == (404, "MemoryNotFoundException")
    assert refused(client.delete(path)) == (404, "MemoryNotFoundException")
    assert client.get(MEMORIES).json() == []


@pytest.mark.parametrize(
    ("verb", "path"),
    [("GET", ""), ("POST", ""), ("GET", f"/{UNKNOWN}"), ("DELETE", f"/{UNKNOWN}"), ("GET", "/relevant?query=x")],
)
def test_a_session_that_never_began_is_not_found(client: TestClient, verb: str, path: str) -> None:
    answer = client.request(verb, f"/api/sessions/nowhere/memories{path}", json=DEADLINE if verb == "POST" else None)
    assert refused(answer) == (404, "SessionNotFoundException")


def test_a_session_begins_with_what_is_said_in_it(client: TestClient) -> None:
    async def say() -> None:
        service = client.app.state.service  # type: ignore[attr-defined]
        await service.remember(Scope("default", "", "talk"), exchange("Hello"), by=Author("test"))

    assert client.get("/api/sessions/talk/memories").status_code == 404
    client.portal.call(say)  # type: ignore[union-attr]
    assert client.get("/api/sessions/talk/memories").json() == []


def test_a_session_that_is_begun_twice_stays_as_it_is(client: TestClient) -> None:
    client.post(MEMORIES, json=DEADLINE)
    assert client.post("/api/sessions", json={"sessionId": SESSION}).json() == {"sessionId": SESSION}
    assert len(client.get(MEMORIES).json()) == 1


def test_a_session_without_an_id_is_given_one(client: TestClient) -> None:
    started = client.post("/api/sessions").json()["sessionId"]
    assert UUID.fullmatch(started)
    assert client.get(f"/api/sessions/{started}/memories").json() == []


def test_memories_of_other_sessions_and_users_answer_like_none(client: TestClient) -> None:
    made = client.post(MEMORIES, json=DEADLINE).json()
    client.post("/api/sessions", json={"sessionId": "other"})
    elsewhere = client.get(f"/api/sessions/other/memories/{made['id']}")
    assert refused(elsewhere) == (404, "MemoryNotFoundException")
    assert elsewhere.text == client.get(f"/api/sessions/other/memories/{UNKNOWN}").text.replace(UNKNOWN, made["id"])
    assert client.get("/api/sessions/other/memories").json() == []
    eve = {"x-authz-user-id": "eve"}
    assert refused(client.get(MEMORIES, headers=eve)) == (404, "SessionNotFoundException")
    assert refused(client.delete(f"{MEMORIES}/{made['id']}", headers=eve))[0] == 404
    assert refused(client.get(MEMORIES, headers=eve, params={"user_id": "default"}))[0] == 403
    assert client.get(f"{MEMORIES}/{made['id']}").status_code == 200


def test_the_relevant_memories_come_with_the_designs_context(tmp_path: Path, llm: ScriptedLLM) -> None:
    with served(tmp_path, preset="session-service") as client:
        client.post("/api/sessions", json={"sessionId": SESSION})
        for content, kind, importance in (
            ("The project deadline is March 15th", "fact", 0.9),
            ("User prefers concise bullet-point summaries", "preference", 0.7),
            ("Q3 revenue increase correlates with marketing campaign launch", "insight", 0.8),
        ):
            client.post(MEMORIES, json={"content": content, "type": kind, "importance": importance})
        request = {"query": "Can you give me a concise summary of the project deadline?"}
        answer = client.get(f"{MEMORIES}/relevant", params=request).json()
        assert answer["context"] == CONTEXT
        assert [each["memoryType"] for each in answer["memories"]] == ["fact", "preference", "insight"]
        one = client.get(f"{MEMORIES}/relevant", params={**request, "limit": 1}).json()
        assert len(one["memories"]) == 1


def test_without_memories_there_is_no_context(client: TestClient) -> None:
    assert client.get(f"{MEMORIES}/relevant", params={"query": "x"}).json() == {"memories": [], "context": ""}


def test_the_context_holds_five_memories_unless_told_otherwise(client: TestClient) -> None:
    for number in range(8):
        client.post(MEMORIES, json={"content": f"The deadline of task {number} is March {number + 1}"})
    results = client.get(f"{MEMORIES}/relevant", params={"query": "deadline of a task"}).json()["memories"]
    assert len(results) == 5


def test_a_session_keeps_fifty_memories(client: TestClient) -> None:
    for number in range(60):
        client.post(MEMORIES, json={"content": f"Invoice {number} was paid", "importance": 0.9 if number else 0.1})

    async def look_after() -> None:
        await client.app.state.service.jobs.run_pending()  # type: ignore[attr-defined]

    client.portal.call(look_after)  # type: ignore[union-attr]
    assert len(client.get(MEMORIES).json()) == 50


@pytest.mark.parametrize("importance", [{"importance": 0.2}, {}])
def test_a_full_session_makes_room_for_what_is_added(client: TestClient, importance: dict[str, float]) -> None:
    async def look_after() -> None:
        await client.app.state.service.jobs.run_pending()  # type: ignore[attr-defined]

    for number in range(50):
        client.post(MEMORIES, json={"content": f"Invoice {number} was paid", "importance": 0.9 if number else 0.8})
    for number in range(3):
        made = client.post(MEMORIES, json={"content": f"Tea {number} is cold", **importance})
        client.portal.call(look_after)  # type: ignore[union-attr]
        assert client.get(f"{MEMORIES}/{made.json()['id']}").status_code == 200
        stored = [each["memoryContent"] for each in client.get(MEMORIES).json()]
        assert len(stored) == 50
        # The least of the others goes: first one of the invoices, then the tea before.
        assert [each for each in stored if each.startswith("Tea")] == [f"Tea {number} is cold"]
        assert "Invoice 0 was paid" not in stored


def test_what_matters_less_than_0_3_is_not_learned(tmp_path: Path, llm: ScriptedLLM) -> None:
    trivial, enough = claim("User had a sandwich", importance=0.29), claim("User works at Acme", importance=0.3)
    learns(llm, "sandwich", trivial, enough)
    with served(tmp_path, llm, preset="session-service") as client:

        async def say() -> None:
            service = client.app.state.service  # type: ignore[attr-defined]
            messages = exchange("I had a sandwich. I work at Acme.")
            await service.remember(Scope("default", "", SESSION), messages, by=Author("test"), wait_s=30)

        client.portal.call(say)  # type: ignore[union-attr]
        assert [each["memoryContent"] for each in client.get(MEMORIES).json()] == ["User works at Acme"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"content": " "},
        {"content": "x", "type": "identity"},
        {"content": "x", "importance": 1.1},
        {"content": "x", "memoryType": "fact"},
    ],
)
def test_what_a_new_memory_gets_wrong_is_told(client: TestClient, body: Any) -> None:
    assert refused(client.post(MEMORIES, json=body))[0] == 400


def test_unknown_parameters_are_refused(client: TestClient) -> None:
    answer = client.get(MEMORIES, params={"limt": 3})
    assert refused(answer)[0] == 400
    assert "limt" in answer.json()["detail"]


def test_a_memory_that_cannot_answer_says_so(client: TestClient) -> None:
    broken(client)
    assert client.get(MEMORIES).status_code == 503
