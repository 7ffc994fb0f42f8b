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

INVALID: list[dict[str, Any]] = [{"type": "identity"}, {"importance": 1.1}, {"memoryType": "fact"}]

# The documented format, with placeholders for ids and times.
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
    """Return the answer with placeholders for ids and times."""
    return TIME.sub("time", UUID.sub("uuid", json.dumps(answer.json(), indent=2)))


def refused(answer: Any) -> tuple[int, str]:
    assert answer.json()["detail"]
    return answer.status_code, answer.json()["error"]


def test_memories_have_the_documented_format(client: TestClient) -> None:
    answer = client.post(MEMORIES, json=DETAILED)
    assert (answer.status_code, printed(answer)) == (201, CREATED)
    assert client.delete(f"{MEMORIES}/{answer.json()['id']}").status_code == 204
    client.post(MEMORIES, json=DEADLINE)
    assert printed(client.get(MEMORIES)) == LISTED


def test_a_memory_that_exists_is_updated(client: TestClient) -> None:
    first = client.post(MEMORIES, json=DETAILED).json()
    repeated = client.post(MEMORIES, json={**DETAILED, "importance": 0.9}).json()
    assert repeated == {**first, "importance": 0.9}
    unsaid = {"content": DETAILED["content"], "type": "preference"}
    assert client.post(MEMORIES, json=unsaid).json() == repeated
    assert client.get(MEMORIES).json() == [repeated]


def test_a_memory_is_read_and_deleted_by_its_id(client: TestClient) -> None:
    made = client.post(MEMORIES, json=DEADLINE).json()
    path = f"{MEMORIES}/{made['id']}"
    assert client.get(path).json() == made
    deleted = client.delete(path)
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert refused(client.get(path)) == (404, "MemoryNotFoundException")
    assert refused(client.delete(path)) == (404, "MemoryNotFoundException")
    assert client.get(MEMORIES).json() == []


def test_a_session_that_does_not_exist_is_not_found(client: TestClient) -> None:
    missing = "/api/sessions/nowhere/memories"
    for verb, path in (("GET", ""), ("GET", f"/{UNKNOWN}"), ("DELETE", f"/{UNKNOWN}"), ("GET", "/relevant?query=x")):
        assert refused(client.request(verb, missing + path)) == (404, "SessionNotFoundException")
    assert refused(client.post(missing, json=DEADLINE)) == (404, "SessionNotFoundException")


def test_a_session_begins_with_its_first_turn(client: TestClient) -> None:
    async def say() -> None:
        service = client.app.state.service  # type: ignore[attr-defined]
        await service.remember(Scope("default", "", "talk"), exchange("Hello"), by=Author("test"))

    assert client.get("/api/sessions/talk/memories").status_code == 404
    client.portal.call(say)  # type: ignore[union-attr]
    assert client.get("/api/sessions/talk/memories").json() == []


def test_beginning_a_session_keeps_an_existing_one_and_chooses_a_missing_id(client: TestClient) -> None:
    client.post(MEMORIES, json=DEADLINE)
    assert client.post("/api/sessions", json={"sessionId": SESSION}).json() == {"sessionId": SESSION}
    assert len(client.get(MEMORIES).json()) == 1
    started = client.post("/api/sessions").json()["sessionId"]
    assert UUID.fullmatch(started)
    assert client.get(f"/api/sessions/{started}/memories").json() == []


def test_memories_of_other_sessions_and_users_are_not_found(client: TestClient) -> None:
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


def test_relevant_memories_come_with_a_context_block(client: TestClient) -> None:
    assert client.get(f"{MEMORIES}/relevant", params={"query": "x"}).json() == {"memories": [], "context": ""}
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


def test_five_memories_are_relevant_by_default(client: TestClient) -> None:
    for number in range(8):
        client.post(MEMORIES, json={"content": f"The deadline of task {number} is March {number + 1}"})
    results = client.get(f"{MEMORIES}/relevant", params={"query": "deadline of a task"}).json()["memories"]
    assert len(results) == 5


def test_a_full_session_drops_its_least_important_memory(client: TestClient) -> None:
    for number in range(50):
        client.post(MEMORIES, json={"content": f"Invoice {number} was paid", "importance": 0.9 if number else 0.8})
    # As important as the least important one, which is older.
    made = client.post(MEMORIES, json={"content": "The tea is cold", "importance": 0.8})
    assert client.get(f"{MEMORIES}/{made.json()['id']}").status_code == 200
    stored = [each["memoryContent"] for each in client.get(MEMORIES).json()]
    assert len(stored) == 50
    assert "Invoice 0 was paid" not in stored


def test_a_full_session_refuses_a_memory_that_is_less_important_than_all(client: TestClient) -> None:
    for number in range(50):
        client.post(MEMORIES, json={"content": f"Invoice {number} was paid", "importance": 0.8})
    assert refused(client.post(MEMORIES, json={"content": "The tea is cold", "importance": 0.7})) == (
        429,
        "QuotaReached",
    )
    stored = {each["memoryContent"] for each in client.get(MEMORIES).json()}
    assert stored == {f"Invoice {number} was paid" for number in range(50)}


def test_memories_with_an_importance_below_0_3_are_not_extracted(tmp_path: Path, llm: ScriptedLLM) -> None:
    trivial, enough = claim("User had a sandwich", importance=0.29), claim("User works at Acme", importance=0.3)
    learns(llm, "sandwich", trivial, enough)
    with served(tmp_path, llm, preset="session-service") as client:

        async def say() -> None:
            service = client.app.state.service  # type: ignore[attr-defined]
            messages = exchange("I had a sandwich. I work at Acme.")
            await service.remember(Scope("default", "", SESSION), messages, by=Author("test"), wait_s=30)

        client.portal.call(say)  # type: ignore[union-attr]
        assert [each["memoryContent"] for each in client.get(MEMORIES).json()] == ["User works at Acme"]


def test_an_invalid_request_is_rejected(client: TestClient) -> None:
    new = {"content": "x"}
    for body in ({}, {"content": " "}, *({**new, **each} for each in INVALID)):
        assert refused(client.post(MEMORIES, json=body))[0] == 400
    answer = client.get(MEMORIES, params={"limt": 3})
    assert refused(answer)[0] == 400
    assert "limt" in answer.json()["detail"]
    broken(client)
    assert client.get(MEMORIES).status_code == 503
