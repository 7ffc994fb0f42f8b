"""The requirements of session-service, on a server that is started as its page says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from recollect.config.name_mapping import NAMES
from recollect.config.settings import load
from recollect.errors import InvalidSettings
from recollect.testing.scripted_llm import RecordedRequest, ScriptedLLM
from tests.support.llm_faults import hang, http_error
from tests.support.paths import ROOT
from tests.support.recollect_server import RecollectServer
from tests.support.remember_samples import EXTRACT, asks_about, claim, learns, llm_requests, wait_until

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
# As in the document, with placeholders for ids and times.
LISTED = [
    {
        "id": "uuid",
        "sessionId": "uuid",
        "memoryContent": DEADLINE,
        "memoryType": "fact",
        "importance": 0.9,
        "createdAt": "time",
        "lastAccessedAt": "time",
    }
]
DETAILED = {"content": "User prefers detailed explanations", "type": "preference", "importance": 0.7}
CREATED = {
    "id": "uuid",
    "sessionId": "uuid",
    "memoryContent": "User prefers detailed explanations",
    "memoryType": "preference",
    "importance": 0.7,
    "createdAt": "time",
    "lastAccessedAt": "time",
}
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
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


@contextmanager
def started(home: Path, config: str, llm: ScriptedLLM) -> Iterator[RecollectServer]:
    """`recollect serve --preset session-service --upstream URL --llm MODEL --llm-url URL` with this config.yaml."""
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(config)
    options = ["--preset", "session-service", "--upstream", llm.base_url]
    options += ["--llm", "scripted", "--llm-url", llm.base_url]
    # On a loaded machine a slow answer must not become none.
    patient = {"RECOLLECT_LEARN_WAIT_S": "0", "RECOLLECT_MEMORY_TIMEOUT_S": "30", "RECOLLECT_RECALL_TIMEOUT_S": "30"}
    with RecollectServer(home, *options, **patient) as server:
        yield server


@pytest.fixture(scope="module")
def server(llm: ScriptedLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecollectServer]:
    with started(tmp_path_factory.mktemp("documents") / "home", CONFIG, llm) as server:
        yield server


class Session:
    """A session of its own for each test."""

    def __init__(self, http: httpx.Client, llm: ScriptedLLM) -> None:
        self.id = f"session-{next(_numbers)}"
        self.path = f"/api/sessions/{self.id}/memories"
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
        return self._http.post(self.path, json={"content": content, **fields})

    def listed(self) -> list[dict[str, Any]]:
        answer = self._http.get(self.path)
        assert answer.status_code == 200, answer.text
        return list(answer.json())

    def memories(self) -> dict[str, float]:
        """Return the importance of each memory."""
        return {each["memoryContent"]: each["importance"] for each in self.listed()}

    def metric(self, name: str) -> float:
        """Return the value of a metric, summed over its labels."""
        lines = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", self._http.get("/metrics").text, re.MULTILINE)
        assert lines, f"there is no metric {name}"
        return sum(map(float, lines))

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


def printed(answer: httpx.Response) -> Any:
    """Return the body with placeholders for ids and times."""
    return json.loads(TIME.sub("time", UUID.sub("uuid", answer.text)))


def refused(answer: httpx.Response) -> tuple[int, str]:
    assert answer.json()["detail"]
    return answer.status_code, answer.json()["error"]


# Extraction


def answers(llm: ScriptedLLM, text: str, *memories: dict[str, Any]) -> None:
    """Script the LLM: to new lines with these words it answers in the form of the document's prompt."""
    llm.when(asks_about(text)).reply_json(list(memories))


def test_memories_are_extracted_after_each_response(session: Session, llm: ScriptedLLM) -> None:
    learns(llm, "March 15th", claim(DEADLINE, importance=0.9))
    session.chat("The project deadline is March 15th, says the plan.")
    learned(session, DEADLINE)
    assert session.memories() == {DEADLINE: 0.9}
    [request] = [each for each in llm_requests(llm, EXTRACT) if "says the plan" in each.text]
    assert "Noted." in request.text


def test_a_streamed_response_is_extracted_from_as_well(
    session: Session, http: httpx.Client, llm: ScriptedLLM
) -> None:
    answers(llm, "dark theme", {"type": "fact", "content": "Customers ask for a dark theme", "importance": 0.6})
    body = {"model": "scripted", "messages": [{"role": "user", "content": "All want a dark theme."}], "stream": True}
    with http.stream("POST", "/v1/chat/completions", json=body, headers={"X-Memory-Session": session.id}) as answer:
        assert "data: [DONE]" in list(answer.iter_lines())
    learned(session, "Customers ask for a dark theme")


def test_the_types_and_the_importance_are_those_of_the_documents_prompt(session: Session, llm: ScriptedLLM) -> None:
    extracted = [
        {"type": "fact", "content": DEADLINE, "importance": 0.9},
        {"type": "preference", "content": "User prefers concise bullet-point summaries", "importance": 0.7},
        {"type": "insight", "content": "Q3 revenue correlates with the marketing campaign", "importance": 0.8},
    ]
    answers(llm, "three kinds", *extracted)
    session.chat("Here is a message with three kinds of memories.")
    learned(session, DEADLINE)
    listed = [
        {"type": each["memoryType"], "content": each["memoryContent"], "importance": each["importance"]}
        for each in session.listed()
    ]
    assert sorted(listed, key=str) == sorted(extracted, key=str)


def test_an_empty_array_saves_nothing_and_is_a_success(session: Session, llm: ScriptedLLM) -> None:
    before = session.metric("memory_extraction_success_total")
    llm.when(asks_about("hummed a tune")).reply("[]")
    session.chat("She hummed a tune.")
    wait_until(lambda: session.metric("memory_extraction_success_total") > before)
    assert session.memories() == {}


def test_memories_below_an_importance_of_0_3_are_not_saved(session: Session, llm: ScriptedLLM) -> None:
    trivial = {"type": "fact", "content": "User had a sandwich", "importance": 0.29}
    enough = {"type": "fact", "content": "User works at Acme", "importance": 0.3}
    answers(llm, "sandwich", trivial, enough)
    session.chat("I had a sandwich. I work at Acme.")
    learned(session, "User works at Acme")
    assert session.memories() == {"User works at Acme": 0.3}
    assert session.add("User had a sandwich", importance=0.1).status_code == 201


def test_extraction_does_not_delay_the_response(http: httpx.Client, llm: ScriptedLLM) -> None:
    # A user of its own, because the extractions of a user run one after the other.
    headers = {"X-Memory-User": "sailor", "X-Memory-Session": "voyage"}

    def chat(text: str) -> None:
        body = {"model": "scripted", "messages": [{"role": "user", "content": text}]}
        assert http.post("/v1/chat/completions", json=body, headers=headers).status_code == 200

    rule = llm.when(asks_about("slow boat")).reply("[]", faults=[hang()])
    chat("We take the slow boat.")
    wait_until(lambda: [each for each in llm_requests(llm, EXTRACT) if "slow boat" in each.text])
    # The extraction has not ended, and never will.
    chat("And we come back by train.")
    rule.remove()


def test_a_failed_extraction_is_logged_and_the_chat_goes_on(
    session: Session, llm: ScriptedLLM, server: RecollectServer
) -> None:
    errors = session.metric("memory_extraction_errors_total")
    rule = llm.when(asks_about("failing pump")).reply("", faults=[http_error(400)])
    session.chat("There is a failing pump.")
    wait_until(lambda: session.metric("memory_extraction_errors_total") > errors)
    rule.remove()
    wait_until(lambda: "scripted 400" in server.log)
    assert "failing pump" not in server.log
    session.chat("Thank you.")


# Memories in the context


def test_up_to_five_memories_of_one_message_are_in_the_context(session: Session, llm: ScriptedLLM) -> None:
    learns(llm, "what the plan says", *(claim(each) for each in STATEMENTS))
    session.chat("Let me tell you what the plan says.")
    learned(session, STATEMENTS[-1])
    relevant = session.get(f"{session.path}/relevant", query="What do you know about the project?")
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


def test_without_memories_the_request_is_unchanged(session: Session) -> None:
    messages = session.chat("When is the deadline of the project?")
    assert messages == [{"role": "user", "content": "When is the deadline of the project?"}]


def test_the_context_has_the_format_of_the_document(session: Session) -> None:
    session.add(DEADLINE, type="fact", importance=0.9)
    session.add("User prefers concise bullet-point summaries", type="preference", importance=0.7)
    session.add("Q3 revenue increase correlates with marketing campaign launch", type="insight", importance=0.8)
    query = "Can you give me a concise summary of the project deadline?"
    answered = session.get(f"{session.path}/relevant", query=query)["context"]
    [message, _] = session.chat(query)
    assert message["role"] == "system"
    for context in (answered, message["content"]):
        first, *memories, space, last = context.split("\n")
        assert (first, space) == ("Relevant memories from this session:", "")
        assert last == "Use these memories to provide contextually aware responses."
        # The first two are about equally relevant.
        assert sorted(memories) == [
            "- [FACT] The project deadline is March 15th (importance: 0.9)",
            "- [INSIGHT] Q3 revenue increase correlates with marketing campaign launch (importance: 0.8)",
            "- [PREFERENCE] User prefers concise bullet-point summaries (importance: 0.7)",
        ]


def test_relevant_memories_are_best_first_and_no_more_than_the_limit(session: Session) -> None:
    for content in STATEMENTS:
        session.add(content)
    query = {"query": "Where is the project office?"}
    relevant = session.get(f"{session.path}/relevant", **query, limit=7)["memories"]
    assert len(relevant) == 7
    assert relevant[0]["memoryContent"] == "The project office is on Baker Street"
    assert session.get(f"{session.path}/relevant", **query, limit=1)["memories"] == relevant[:1]


def test_a_session_has_its_own_memories_only(session: Session, http: httpx.Client, llm: ScriptedLLM) -> None:
    made = session.add(DEADLINE, importance=0.9).json()
    other = Session(http, llm)
    question = "When is the deadline of the project?"
    assert other.chat(question) == [{"role": "user", "content": question}]
    assert other.listed() == []
    assert other.get(f"{other.path}/relevant", query=question) == {"memories": [], "context": ""}
    assert refused(http.get(f"{other.path}/{made['id']}")) == (404, "MemoryNotFoundException")
    assert refused(http.get(session.path, headers={"X-Memory-User": "eve"})) == (404, "SessionNotFoundException")


# Duplicates


def test_a_manual_memory_in_the_same_words_is_skipped(session: Session) -> None:
    first = session.add(DEADLINE, importance=0.9).json()
    assert session.add(DEADLINE, importance=0.4).json() == first
    assert session.memories() == {DEADLINE: 0.9}


def test_the_same_words_with_a_higher_importance_raise_it(session: Session) -> None:
    first = session.add(DEADLINE, importance=0.5).json()
    assert session.add(DEADLINE, importance=0.9).json() == {**first, "importance": 0.9}
    assert session.memories() == {DEADLINE: 0.9}


def test_extracted_duplicates_are_skipped_or_merged(session: Session, llm: ScriptedLLM) -> None:
    def memory(content: str, importance: float) -> dict[str, Any]:
        return {"type": "fact", "content": content, "importance": importance}

    session.add("User prefers concise bullet-point summaries", type="fact", importance=0.7)
    answers(llm, "for the first time", memory(DEADLINE, 0.9), memory("Two suppliers deliver the glass", 0.5))
    session.chat("I say it for the first time.")
    learned(session, DEADLINE)
    similar = [memory("Two suppliers deliver their glass", 0.4), memory("User prefers concise bullet summaries", 0.6)]
    answers(llm, "once more", memory(DEADLINE, 0.5), *similar, memory(STATEMENTS[0], 0.6))
    session.chat("I say it once more.")
    learned(session, STATEMENTS[0])
    assert session.memories() == {
        DEADLINE: 0.9,
        STATEMENTS[0]: 0.6,
        "Two suppliers deliver their glass": pytest.approx(0.6),
        # The user's own words stay.
        "User prefers concise bullet-point summaries": pytest.approx(0.8),
    }


def test_a_similar_manual_memory_is_merged_and_becomes_more_important(session: Session) -> None:
    first = session.add("User prefers concise bullet-point summaries", type="preference", importance=0.7).json()
    merged = session.add("User prefers concise bullet point summaries", type="preference", importance=0.6).json()
    assert (merged["id"], merged["importance"]) == (first["id"], pytest.approx(0.8))
    assert list(session.memories()) == ["User prefers concise bullet point summaries"]


def test_memories_with_other_numbers_are_not_merged(session: Session) -> None:
    session.add("The budget of the project is 15000 euros")
    session.add("The budget of the project is 16000 euros")
    assert len(session.memories()) == 2


def test_less_similar_memories_are_saved_as_new(session: Session) -> None:
    # Of these, 0.80 is not above 0.8, and 0.85 is.
    session.add("User prefers detailed explanations")
    session.add("User prefers detailed conversations")
    assert len(session.memories()) == 2
    session.add("User prefers detailed explanation charts")
    assert len(session.memories()) == 2


# A full session


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


# Interaction modes


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


# Configuration


def test_max_per_session_is_the_maximum_of_a_session(session: Session) -> None:
    for content in (*STATEMENTS, "The tea is cold"):
        session.add(content, importance=0.5)
    assert len(session.memories()) == 8


def test_each_name_of_its_configuration_has_an_effect(tmp_path: Path) -> None:
    def settings(config: str) -> Any:
        (tmp_path / "config.yaml").write_text(config)
        return load({"home": tmp_path, "preset": "session-service"}, environ={}).settings

    documented = settings(CONFIG.replace("session: 8 ", "session: 50"))
    (tmp_path / "config.yaml").unlink()
    assert documented == load({"home": tmp_path, "preset": "session-service"}, environ={}).settings
    for before, after, changed in (
        ("true", "false", {"chat_memory": False}),
        ("session: 8 ", "session: 9", {"quota_session": 9}),
        ("0.3", "0.4", {"learn_min_importance": 0.4}),
        ("limit: 5", "limit: 6", {"search_limit": 6}),
    ):
        assert settings(CONFIG.replace(before, after)) == settings(CONFIG).model_copy(update=changed)


def test_an_unknown_name_of_its_configuration_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG.replace("context-limit", "context-size"))
    with pytest.raises(InvalidSettings, match=r"no setting 'rag\.memory\.context-size'"):
        load({"home": tmp_path, "preset": "session-service"}, environ={})


def test_the_page_lists_every_name_of_its_configuration() -> None:
    page = (ROOT / "docs" / "documents" / "session-service.md").read_text(encoding="utf-8")
    assert [name for name in NAMES["session-service"] if f"`{name}`" not in page] == []


def test_memories_outlive_the_server_and_enabled_false_turns_memory_off(llm: ScriptedLLM, tmp_path: Path) -> None:
    config = (
        CONFIG.replace("limit: 5", "limit: 2").replace("session: 8 ", "session: 50")
        + "merge_vector_similarity: 0.9\n"
    )
    with started(tmp_path / "home", config, llm) as server, httpx.Client(base_url=server.url, timeout=60) as http:
        session = Session(http, llm)
        for content in STATEMENTS:
            session.add(content)
        assert len(session.get(f"{session.path}/relevant", query="the project")["memories"]) == 2
        # Embedding similarity, which the document plans for later.
        session.add("The project office is located on Baker Street")
        assert len(session.memories()) == len(STATEMENTS)
        before = session.listed()
    off = CONFIG.replace("enabled: true", "enabled: false")
    with started(tmp_path / "home", off, llm) as server, httpx.Client(base_url=server.url, timeout=60) as http:
        after = Session(http, llm)
        after.id, after.path = session.id, session.path
        assert after.listed() == before
        question = "What do you know about the project?"
        assert after.chat(question) == [{"role": "user", "content": question}]
        assert after.get("/recollect/v1/turns", user_id="default", session_id=session.id)["results"] == []


# REST


def test_post_creates_a_memory_as_printed(http: httpx.Client) -> None:
    id = str(uuid4())
    assert http.post("/api/sessions", json={"sessionId": id}).json() == {"sessionId": id}
    answer = http.post(f"/api/sessions/{id}/memories", json=DETAILED)
    assert (answer.status_code, printed(answer)) == (201, CREATED)
    assert answer.json()["sessionId"] == id


def test_get_lists_all_memories_as_printed(http: httpx.Client) -> None:
    id = http.post("/api/sessions").json()["sessionId"]
    http.post(f"/api/sessions/{id}/memories", json={"content": DEADLINE, "type": "fact", "importance": 0.9})
    answer = http.get(f"/api/sessions/{id}/memories")
    assert (answer.status_code, printed(answer)) == (200, LISTED)


def test_get_and_delete_of_one_memory(session: Session, http: httpx.Client) -> None:
    made, _ = session.add(DEADLINE).json(), session.add("The tea is cold")
    path = f"{session.path}/{made['id']}"
    assert http.get(path).json() == made
    deleted = http.delete(path)
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert list(session.memories()) == ["The tea is cold"]
    for answer in (http.get(path), http.delete(path)):
        assert refused(answer) == (404, "MemoryNotFoundException")


def test_a_session_that_does_not_exist_is_a_session_not_found_exception(http: httpx.Client) -> None:
    path = f"/api/sessions/{uuid4()}/memories"
    for method, rest in (
        ("GET", ""),
        ("GET", f"/{uuid4()}"),
        ("DELETE", f"/{uuid4()}"),
        ("GET", "/relevant?query=x"),
    ):
        assert refused(http.request(method, path + rest)) == (404, "SessionNotFoundException")
    assert refused(http.post(path, json=DETAILED)) == (404, "SessionNotFoundException")


def test_a_chat_begins_its_session(http: httpx.Client) -> None:
    body = {"model": "scripted", "messages": [{"role": "user", "content": "Hello"}]}
    http.post("/v1/chat/completions", json=body, headers={"X-Memory-Session": "begun-by-a-chat"})
    assert http.get("/api/sessions/begun-by-a-chat/memories").json() == []


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"type": "fact"}, "content"),
        ({**DETAILED, "type": "identity"}, "type"),
        ({**DETAILED, "importance": 1.1}, "importance"),
        ({**DETAILED, "memoryType": "fact"}, "memoryType"),
    ],
)
def test_an_invalid_memory_is_refused_with_the_name_of_the_field(
    session: Session, http: httpx.Client, body: dict[str, Any], name: str
) -> None:
    answer = http.post(session.path, json=body)
    assert refused(answer)[0] == 400
    assert name in answer.json()["detail"]
    assert session.listed() == []


def test_last_accessed_at_is_the_time_of_the_last_retrieval(session: Session) -> None:
    session.add(DEADLINE)
    [made] = session.listed()
    assert made["lastAccessedAt"] == made["createdAt"]

    def is_accessed() -> bool:
        session.get(f"{session.path}/relevant", query="When is the deadline?")
        return bool(session.listed()[0]["lastAccessedAt"] > made["lastAccessedAt"])

    wait_until(is_accessed)


# Metrics


def test_the_five_metrics_count_extractions_and_memories(session: Session, llm: ScriptedLLM) -> None:
    names = ("extraction_count", "extraction_success", "saved_count", "retrieved_count")
    before = {name: session.metric(f"memory_{name}_total") for name in names}
    assert session.metric("memory_extraction_errors_total") >= 0
    answers(llm, "metric system", {"type": "fact", "content": "The project is metric", "importance": 0.6})
    session.chat("The project uses the metric system.")
    learned(session, "The project is metric")
    session.chat("Which units does the project use?")

    def grown() -> dict[str, float]:
        return {name: session.metric(f"memory_{name}_total") - before[name] for name in names}

    # Other tests' extractions may end meanwhile.
    wait_until(lambda: min(grown().values()) >= 1)


# The circuit breaker


def test_a_circuit_breaker_protects_a_failing_llm(http: httpx.Client, session: Session, llm: ScriptedLLM) -> None:
    sessions = [session, *(Session(http, llm) for _ in range(11))]
    failing = llm.when(lambda request: EXTRACT in request.text).reply("", faults=[http_error(500)])
    before = len(llm_requests(llm, EXTRACT))
    for each in sessions:
        each.chat(f"In {each.id} the color of the flag is green.")
    wait_until(lambda: session.get("/ready")["status"] == "degraded")
    ready = session.get("/ready")
    assert "calls are paused, and jobs wait" in ready["checks"]["llm"]
    assert 'recollect_breaker_open{part="llm"} 1' in session.get("/metrics")
    # Five failures open it, and each of the four jobs at a time may have had one more call on its way.
    assert len(llm_requests(llm, EXTRACT)) - before <= 9
    failing.remove()
    rule = learns(llm, "flag is green", claim("The flag is green", importance=0.9))
    for each in sessions:
        learned(each, "The flag is green")
    rule.remove()
    assert session.get("/ready")["checks"].get("llm") is None
    assert 'recollect_breaker_open{part="llm"} 0' in session.get("/metrics")
