"""The requirements of session-service, on a server that is started as its page says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest

from recollect.testing.llm_server import RecordedRequest
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.llm_faults import http_error
from tests.support.recollect_server import RecollectServer
from tests.support.remember_samples import EXTRACT, claim, learns, llm_requests, wait_until

_numbers = count(1)
# As in the document, with a smaller maximum, which the tests can reach.
CONFIG = """
rag:
  memory:
    enabled: true
    max-per-session: 8           # Max memories per session
    extraction-threshold: 0.3    # Min importance to save
    context-limit: 5             # Max memories in context
"""
DEADLINE = "The project deadline is March 15th"
STATEMENTS = [
    "The launch of the project is planned for May",
    "Ada Lovelace leads the project",
    "Two suppliers deliver glass to the project",
    "Revenue of the project grew in the third quarter",
    "The project office is on Baker Street",
    "Customers of the project ask for a dark theme",
    "Insurance covers the machines of the project",
    "Every project report is due on a Friday",
]


@pytest.fixture(scope="module")
def llm() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as llm:
        llm.default = lambda request: '{"operations": []}' if EXTRACT in request.text else "Noted."
        yield llm


@pytest.fixture(scope="module")
def server(llm: ScriptedLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecollectServer]:
    home = tmp_path_factory.mktemp("documents") / "home"
    home.mkdir()
    (home / "config.yaml").write_text(CONFIG)
    options = ["--preset", "session-service", "--upstream", llm.base_url]
    options += ["--llm", "scripted", "--llm-url", llm.base_url]
    # On a loaded machine a slow answer must not become none.
    patient = {"RECOLLECT_LEARN_WAIT_S": "0", "RECOLLECT_MEMORY_TIMEOUT_S": "30", "RECOLLECT_RECALL_TIMEOUT_S": "30"}
    with RecollectServer(home, *options, **patient) as server:
        yield server


class Session:
    """A session of its own for each test."""

    def __init__(self, http: httpx.Client, llm: ScriptedLLM) -> None:
        self.id = f"session-{next(_numbers)}"
        self._llm = llm
        self._http = http
        self._http.post("/api/sessions", json={"sessionId": self.id}).raise_for_status()

    def chat(self, text: str, *before: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
        """Chat, and return the messages that the LLM got."""
        body = {"model": "scripted", "messages": [*before, {"role": "user", "content": text}], **fields}
        answer = self._http.post("/v1/chat/completions", json=body, headers={"X-Memory-Session": self.id})
        assert answer.status_code == 200, answer.text
        asked = [each for each in llm_requests(self._llm) if each.json["messages"][-1]["content"] == text]
        return list(asked[-1].json["messages"])

    def add(self, content: str, **fields: Any) -> httpx.Response:
        return self._http.post(f"/api/sessions/{self.id}/memories", json={"content": content, **fields})

    def memories(self) -> dict[str, float]:
        """Return the importance of each memory."""
        listed = self._http.get(f"/api/sessions/{self.id}/memories").json()
        return {each["memoryContent"]: each["importance"] for each in listed}

    def get(self, path: str, **params: Any) -> Any:
        answer = self._http.get(path, params=params)
        return answer.json() if "json" in answer.headers["content-type"] else answer.text


@pytest.fixture(scope="module")
def http(server: RecollectServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as http:
        yield http


@pytest.fixture
def session(http: httpx.Client, llm: ScriptedLLM) -> Session:
    return Session(http, llm)


def learned(session: Session, text: str) -> None:
    wait_until(lambda: text in session.memories())


def test_memories_are_extracted_after_each_response(session: Session, llm: ScriptedLLM) -> None:
    learns(llm, "March 15th", claim(DEADLINE, importance=0.9))
    session.chat("The project deadline is March 15th, says the plan.")
    learned(session, DEADLINE)
    assert session.memories() == {DEADLINE: 0.9}


def test_up_to_five_memories_of_one_message_are_in_the_context(session: Session, llm: ScriptedLLM) -> None:
    learns(llm, "what the plan says", *(claim(each) for each in STATEMENTS))
    session.chat("Let me tell you what the plan says.")
    learned(session, STATEMENTS[-1])
    relevant = session.get(
        f"/api/sessions/{session.id}/memories/relevant", query="What do you know about the project?"
    )
    assert len(relevant["memories"]) == 5
    context = session.chat("What do you know about the project?")[0]["content"]
    assert context.count("\n- [FACT] ") == 5


def test_memories_are_a_system_message_of_their_own_after_the_system_prompt(session: Session) -> None:
    session.add(DEADLINE, importance=0.9)
    prompt = {"role": "system", "content": "You are a helpful assistant."}
    earlier = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi!"}]
    messages = session.chat("When is the deadline of the project?", prompt, *earlier)
    assert messages == [
        prompt,
        {
            "role": "system",
            "content": "Relevant memories from this session:\n"
            "- [FACT] The project deadline is March 15th (importance: 0.9)\n\n"
            "Use these memories to provide contextually aware responses.",
        },
        *earlier,
        {"role": "user", "content": "When is the deadline of the project?"},
    ]


def test_a_manual_memory_in_the_same_words_is_skipped(session: Session) -> None:
    first = session.add(DEADLINE, importance=0.9).json()
    assert session.add(DEADLINE, importance=0.4).json() == first
    assert session.memories() == {DEADLINE: 0.9}


def test_a_similar_manual_memory_is_merged_and_becomes_more_important(session: Session) -> None:
    first = session.add("User prefers concise bullet-point summaries", type="preference", importance=0.7).json()
    merged = session.add("User prefers concise bullet point summaries", type="preference", importance=0.6).json()
    assert (merged["id"], merged["importance"]) == (first["id"], pytest.approx(0.8))
    assert list(session.memories()) == ["User prefers concise bullet point summaries"]


def test_memories_with_other_numbers_are_not_merged(session: Session) -> None:
    session.add("The budget of the project is 15000 euros")
    session.add("The budget of the project is 16000 euros")
    assert len(session.memories()) == 2


def test_a_full_session_keeps_its_more_important_memories(session: Session, llm: ScriptedLLM) -> None:
    important = dict.fromkeys(STATEMENTS, 0.8)
    for content, importance in important.items():
        session.add(content, importance=importance)
    assert session.memories() == important
    refused = session.add("The tea is cold", importance=0.7)
    assert (refused.status_code, refused.json()["error"]) == (429, "QuotaReached")
    learns(llm, "tea is lukewarm", claim("The tea is lukewarm", importance=0.7))
    learns(llm, "moved to Lisbon", claim("The team moved to Lisbon", importance=0.9))
    session.chat("By the way, the tea is lukewarm.")
    session.chat("By the way, the team moved to Lisbon.")
    del important[STATEMENTS[0]]
    wait_until(lambda: session.memories() == important | {"The team moved to Lisbon": 0.9})


def test_the_interaction_mode_of_a_request_affects_the_extraction(session: Session, llm: ScriptedLLM) -> None:
    def prompts(text: str) -> list[RecordedRequest]:
        return [each for each in llm_requests(llm, EXTRACT) if text in each.text]

    session.chat("The plan names seven risks.")
    wait_until(lambda: prompts("seven risks"))
    assert "The conversation is about documents." in prompts("seven risks")[0].text
    session.chat("We decided to deploy on Mondays.", memory_mode="task")
    wait_until(lambda: prompts("deploy on Mondays"))
    assert "The conversation is about work." in prompts("deploy on Mondays")[-1].text


def test_an_unknown_interaction_mode_is_refused(http: httpx.Client) -> None:
    body = {"model": "scripted", "messages": [{"role": "user", "content": "Hello"}]}
    for request in (
        {"json": body | {"memory_mode": "poetry"}},
        {"json": body, "headers": {"X-Memory-Mode": "poetry"}},
    ):
        answer = http.post("/v1/chat/completions", **request)  # type: ignore[arg-type]
        assert answer.status_code == 400
        assert "document" in json.dumps(answer.json())


def test_the_names_of_its_configuration_are_accepted(session: Session) -> None:
    for content in (*STATEMENTS, "The tea is cold"):
        session.add(content, importance=0.5)
    assert len(session.memories()) == 8


def test_a_circuit_breaker_protects_a_failing_llm(http: httpx.Client, session: Session, llm: ScriptedLLM) -> None:
    sessions = [session, *(Session(http, llm) for _ in range(11))]
    llm.when(lambda request: EXTRACT in request.text).reply("", faults=[http_error(500)])
    before = len(llm_requests(llm, EXTRACT))
    for each in sessions:
        each.chat(f"In {each.id} the color of the flag is green.")
    wait_until(lambda: session.get("/ready")["status"] == "degraded")
    ready = session.get("/ready")
    assert "calls are paused, and jobs wait" in ready["checks"]["llm"]
    assert 'recollect_breaker_open{part="llm"} 1' in session.get("/metrics")
    # Five failures open it, and each of the four jobs at a time may have had one more call on its way.
    assert len(llm_requests(llm, EXTRACT)) - before <= 9
    rule = learns(llm, "flag is green", claim("The flag is green", importance=0.9))
    for each in sessions:
        learned(each, "The flag is green")
    rule.remove()
    assert session.get("/ready")["checks"].get("llm") is None
    assert 'recollect_breaker_open{part="llm"} 0' in session.get("/metrics")
