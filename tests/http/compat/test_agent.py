"""POST /v1/agent: requests and responses, whole and streamed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
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


@pytest.fixture
def client(tmp_path: Path, llm: ScriptedLLM) -> Iterator[TestClient]:
    file = tmp_path / "sums.py"
    file.write_text(SERVER)
    more = {
        "agent_mcp": {"sums": {"command": sys.executable, "args": [str(file)]}},
        "agent_groups": {"default": ["sums_add", "*Fact*", "*Episodes"], "none": []},
    }
    with served(tmp_path, llm, preset="react-mem", worker=False, **more) as client:
        # On a busy machine the ledger may be opened a little after the start.
        wait_until(lambda: client.get("/ready").status_code == 200)
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


def settle(client: TestClient) -> None:
    """Wait until what the runs came to is kept, and learned from."""
    app: Any = client.app

    async def work() -> None:
        await app.state.agents._agent.settled()
        await app.state.service.jobs.run_pending()

    client.portal.call(work)  # type: ignore[union-attr]


def test_without_memory_it_answers_and_keeps_nothing(client: TestClient, llm: ScriptedLLM) -> None:
    script(llm, calls(call("sums_add", a=2, b=3), thought="I add."), "5.")
    report = ask(client, "What is 2 and 3?")
    step = {"thought": "I add.", "action": "sums_add", "arguments": {"a": 2, "b": 3}, "observation": "5"}
    assert (report["answer"], report["thought"], report["observation"]) == ("5.", "I add.", "5")
    assert report["steps"] == [step]
    assert (report["ended"], report["conversation_id"], report["error"]) == ("answered", "", None)
    assert tool_names(agent_requests(llm)[0]) == ["sums_add"]
    settle(client)
    service = client.app.state.service  # type: ignore[attr-defined]
    assert client.portal.call(service.users) == []  # type: ignore[union-attr]


def test_it_streams_thought_action_observation_and_answer(client: TestClient, llm: ScriptedLLM) -> None:
    script(llm, calls(call("sums_add", a=2, b=3), thought="I add."), "5.")
    report = events(client)
    assert [kind for kind, _ in report] == ["thought", "action", "observation", "answer"]
    assert report[0][1] == {"thought": "I add."}
    assert report[2][1] == {"observation": "5", "action": "sums_add", "failed": False}
    assert report[3][1]["answer"] == "5."


def test_with_memory_a_conversation_goes_on(client: TestClient, llm: ScriptedLLM) -> None:
    client.post("/api/react/facts/store", json={"content": PORT, "user": "alex", "collection": "payments"})
    script(llm, "8443.", "I told you: 8443.")
    first = ask(client, **MONDAY)
    assert len(first["facts"]) == 1
    assert first["conversation_id"] == "monday"
    assert PORT in str(messages(agent_requests(llm)[0]))
    ask(client, "What did I ask?", **MONDAY)
    assert f"Previous invocation 1: The user asked “{QUESTION}”" in str(messages(agent_requests(llm)[1]))
    settle(client)
    body = {"user": "alex", "collection": "payments", "conversation_id": "monday"}
    stored = client.post("/api/react/conversations/get", json=body).json()["conversation"]
    assert [each["query"] for each in stored["invocations"]] == [QUESTION, "What did I ask?"]


def test_a_question_without_a_conversation_begins_one(client: TestClient, llm: ScriptedLLM) -> None:
    script(llm, "8443.", "Yes.")
    started = ask(client, **ALEX)["conversation_id"]
    assert started
    ask(client, "Sure?", **{**ALEX, "conversation_id": started})
    assert QUESTION in str(messages(agent_requests(llm)[1]))


def test_what_one_user_or_collection_has_no_other_is_shown(client: TestClient, llm: ScriptedLLM) -> None:
    client.post("/api/react/facts/store", json={"content": PORT, "user": "alex", "collection": "payments"})
    script(llm, "I do not know.", "I do not know.")
    for other in ({"user": "eve"}, {"collection": "other"}):
        assert ask(client, **{**MONDAY, **other})["facts"] == []
    assert "8443" not in str([messages(each) for each in agent_requests(llm)])


def test_history_and_state_are_gone_on_from_and_a_group_has_its_tools(client: TestClient, llm: ScriptedLLM) -> None:
    script(llm, "5.")
    step = {"thought": "I add.", "action": "sums_add", "arguments": {"a": 2, "b": 3}, "observation": "5"}
    ask(client, history=[step], state="almost done", group=["none"])
    [request] = agent_requests(llm)
    assert tool_names(request) == []
    assert [each["role"] for each in messages(request)] == ["system", "user", "assistant", "tool"]
    assert "State: almost done" in messages(request)[1]["content"]


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"question": ""}, 400, "InvalidText"),
        ({"question": "  "}, 400, "InvalidText"),
        ({"question": "  ", "streaming": True}, 400, "InvalidText"),
        ({"question": "x", "grop": []}, 400, "InvalidInput"),
        ({"question": "x", "group": ["boss"]}, 400, "InvalidInput"),
        ({"question": "x", "group": ["boss"], "streaming": True}, 400, "InvalidInput"),
        ({"question": "x", "enable_memory": True}, 401, "MissingUser"),
        ({"question": "x", "enable_memory": True, "streaming": True}, 401, "MissingUser"),
        ({"question": "x", "history": [{"thought": 1}]}, 400, "InvalidInput"),
    ],
)
def test_what_a_request_gets_wrong_is_told(client: TestClient, body: Any, status: int, kind: str) -> None:
    answer = client.post("/v1/agent", json=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)


def test_a_model_that_does_not_answer_is_an_error_in_the_response(client: TestClient, llm: ScriptedLLM) -> None:
    llm.when(lambda request: "You are an agent" in request.text).reply(ScriptedReply(faults=[http_error(401)]))
    report = ask(client)
    assert report["ended"] == "failed"
    assert report["error"]["type"] == "ModelUnavailable"
    assert [kind for kind, _ in events(client)] == ["error", "answer"]


def test_while_nobody_can_tell_who_asks_nobody_is_answered(client: TestClient) -> None:
    broken(client)
    answer = client.post("/v1/agent", json={"question": QUESTION, **MONDAY})
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "StoreUnavailable")


def test_a_server_without_a_model_says_so(tmp_path: Path) -> None:
    with served(tmp_path) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        answer = client.post("/v1/agent", json={"question": "Hi there"})
        assert answer.json()["error"]["message"] == "an agent needs a model: set agent_llm or llm"


def test_history_names_the_key_that_asked(client: TestClient, llm: ScriptedLLM) -> None:
    app: Any = client.app

    async def key() -> str:
        return str((await app.state.service.api_keys.add(new_key(user="alex", name="laptop"))).text)

    async def writers() -> set[str]:
        return {entry.by.who for entry in await app.state.service.history(Scope("alex"))}

    headers = {"Authorization": f"Bearer {client.portal.call(key)}"}  # type: ignore[union-attr]
    script(llm, calls(call("StoreFact", content=PORT), thought="I keep it."), "8443.")
    answer = client.post("/v1/agent", json={"question": QUESTION, **MONDAY}, headers=headers)
    assert answer.status_code == 200, answer.text
    # What it was told to keep, and what was said.
    assert client.portal.call(writers) == {"key:laptop agent"}  # type: ignore[union-attr]
