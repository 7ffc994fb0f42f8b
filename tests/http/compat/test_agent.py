"""POST /v1/agent: requests and responses, whole and streamed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from recollect.model.key import new_key
from recollect.model.scope import Scope
from recollect.testing.llm_replies import ScriptedReply
from recollect.testing.scripted_llm import ScriptedLLM
from tests.agent.test_tool_sources import SERVER
from tests.support.agent_samples import agent_requests, call, calls, messages, script, tool_names
from tests.support.compat_server import broken, served
from tests.support.llm_faults import http_error
from tests.support.remember_samples import wait_until

ALEX: dict[str, Any] = {"user": "alex", "collection": "payments", "enable_memory": True}
MONDAY: dict[str, Any] = {**ALEX, "conversation_id": "monday"}
PORT = "The payment service listens on port 8443"
QUESTION = "Which port does the payment service use?"
GROUPS = {"default": ["sums_add", "*Fact*", "*Episodes"], "none": []}


@contextmanager
def serving(home: Path, llm: ScriptedLLM, **settings: Any) -> Iterator[TestClient]:
    more = {"preset": "react-mem", "worker": False, "agent_groups": GROUPS, **settings}
    with served(home, llm, **more) as client:
        # On a busy machine the ledger may be opened a little after the start.
        wait_until(lambda: client.get("/ready").status_code == 200)
        yield client


@pytest.fixture
def client(tmp_path: Path, llm: ScriptedLLM) -> Iterator[TestClient]:
    with serving(tmp_path, llm) as client:
        yield client


@pytest.fixture
def client_with_sums(tmp_path: Path, llm: ScriptedLLM) -> Iterator[TestClient]:
    """Yield a client of a server that has a tool of an MCP server, which is another process."""
    file = tmp_path / "sums.py"
    file.write_text(SERVER)
    with serving(tmp_path, llm, agent_mcp={"sums": {"command": sys.executable, "args": [str(file)]}}) as client:
        yield client


def ask(client: TestClient, question: str = QUESTION, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/agent", json={"question": question, **body})
    assert answer.status_code == 200, answer.text
    report: dict[str, Any] = answer.json()
    return report


def events(client: TestClient, **body: Any) -> list[tuple[str, dict[str, Any]]]:
    answer = client.post("/v1/agent", json={"question": QUESTION, "streaming": True, **body})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    reports = []
    for block in answer.text.strip().split("\n\n"):
        kind, data = block.split("\n")
        reports.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return reports


def test_without_memory_the_agent_stores_nothing(client_with_sums: TestClient, llm: ScriptedLLM) -> None:
    adds = calls(call("sums_add", a=2, b=3), thought="I add.")
    script(llm, adds, "5.", adds, "5.")
    report = ask(client_with_sums, "What is 2 and 3?")
    step = {"thought": "I add.", "action": "sums_add", "arguments": {"a": 2, "b": 3}, "observation": "5"}
    assert (report["answer"], report["thought"], report["observation"]) == ("5.", "I add.", "5")
    assert report["steps"] == [step]
    assert (report["ended"], report["conversation_id"], report["error"]) == ("answered", "", None)
    assert tool_names(agent_requests(llm)[0]) == ["sums_add"]
    streamed = events(client_with_sums)
    assert [kind for kind, _ in streamed] == ["thought", "action", "observation", "answer"]
    assert streamed[0][1] == {"thought": "I add."}
    assert streamed[2][1] == {"observation": "5", "action": "sums_add", "failed": False}
    assert streamed[3][1]["answer"] == "5."
    service = client_with_sums.app.state.service  # type: ignore[attr-defined]
    assert client_with_sums.portal.call(service.users) == []  # type: ignore[union-attr]


def test_with_memory_a_conversation_continues(client: TestClient, llm: ScriptedLLM) -> None:
    client.post("/api/react/facts/store", json={"content": PORT, "user": "alex", "collection": "payments"})
    script(llm, "8443.", "I told you: 8443.")
    first = ask(client, **MONDAY)
    assert len(first["facts"]) == 1
    assert first["conversation_id"] == "monday"
    assert PORT in str(messages(agent_requests(llm)[0]))
    ask(client, "What did I ask?", **MONDAY)
    assert f"Previous invocation 1: The user asked “{QUESTION}”" in str(messages(agent_requests(llm)[1]))
    body = {"user": "alex", "collection": "payments", "conversation_id": "monday"}

    def queries() -> list[str]:
        stored = client.post("/api/react/conversations/get", json=body).json()["conversation"]
        return [each["query"] for each in stored["invocations"]]

    # The result of a run is stored in the background.
    wait_until(lambda: queries() == [QUESTION, "What did I ask?"])


def test_a_question_without_a_conversation_starts_one(client: TestClient, llm: ScriptedLLM) -> None:
    script(llm, "8443.", "Yes.")
    started = ask(client, **ALEX)["conversation_id"]
    assert started
    ask(client, "Sure?", **{**ALEX, "conversation_id": started})
    assert QUESTION in str(messages(agent_requests(llm)[1]))


def test_facts_of_other_users_and_collections_are_not_used(client: TestClient, llm: ScriptedLLM) -> None:
    client.post("/api/react/facts/store", json={"content": PORT, "user": "alex", "collection": "payments"})
    script(llm, "I do not know.", "I do not know.")
    for other in ({"user": "eve"}, {"collection": "other"}):
        assert ask(client, **{**MONDAY, **other})["facts"] == []
    assert "8443" not in str([messages(each) for each in agent_requests(llm)])


def test_history_state_and_groups_of_tools_are_used(client: TestClient, llm: ScriptedLLM) -> None:
    script(llm, "5.")
    step = {"thought": "I add.", "action": "sums_add", "arguments": {"a": 2, "b": 3}, "observation": "5"}
    ask(client, history=[step], state="almost done", group=["none"])
    [request] = agent_requests(llm)
    assert tool_names(request) == []
    assert [each["role"] for each in messages(request)] == ["system", "user", "assistant", "tool"]
    assert "State: almost done" in messages(request)[1]["content"]


def test_an_invalid_request_is_rejected_before_a_stream_begins(client: TestClient) -> None:
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"question": ""}, 400, "InvalidText"),
        ({"question": "  "}, 400, "InvalidText"),
        ({"question": "  ", "streaming": True}, 400, "InvalidText"),
        ({"question": "x", "grop": []}, 400, "InvalidInput"),
        ({"question": "x", "group": ["boss"]}, 400, "InvalidInput"),
        ({"question": "x", "group": ["boss"], "streaming": True}, 400, "InvalidInput"),
        ({"question": "x", "enable_memory": True}, 401, "MissingUser"),
        ({"question": "x", "enable_memory": True, "streaming": True}, 401, "MissingUser"),
        ({"question": "x", "history": [{"thought": 1}]}, 400, "InvalidInput"),
    ]
    for body, status, kind in cases:
        answer = client.post("/v1/agent", json=body)
        assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)


def test_while_keys_cannot_be_checked_requests_are_rejected(client: TestClient) -> None:
    broken(client)
    answer = client.post("/v1/agent", json={"question": QUESTION, **MONDAY})
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "StoreUnavailable")


def test_a_model_that_does_not_answer_is_an_error_in_the_response(client: TestClient, llm: ScriptedLLM) -> None:
    llm.when(lambda request: "You are an agent" in request.text).reply(ScriptedReply(faults=[http_error(401)]))
    report = ask(client)
    assert report["ended"] == "failed"
    assert report["error"]["type"] == "ModelUnavailable"
    assert [kind for kind, _ in events(client)] == ["error", "answer"]


def test_a_server_without_a_model_reports_it(tmp_path: Path) -> None:
    with served(tmp_path) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        answer = client.post("/v1/agent", json={"question": "Hi there"})
        assert answer.json()["error"]["message"] == "an agent needs a model: set agent_llm or llm"


def test_the_history_names_the_key_and_the_agent(client: TestClient, llm: ScriptedLLM) -> None:
    app: Any = client.app

    async def key() -> str:
        return str((await app.state.service.api_keys.add(new_key(user="alex", name="laptop"))).text)

    async def writers() -> set[str]:
        return {entry.by.who for entry in await app.state.service.history(Scope("alex"))}

    headers = {"Authorization": f"Bearer {client.portal.call(key)}"}  # type: ignore[union-attr]
    script(llm, calls(call("StoreFact", content=PORT), thought="I keep it."), "8443.")
    answer = client.post("/v1/agent", json={"question": QUESTION, **MONDAY}, headers=headers)
    assert answer.status_code == 200, answer.text
    # Of the fact that the agent stored, and of the turns.
    assert client.portal.call(writers) == {"key:laptop agent"}  # type: ignore[union-attr]
