"""The semantic-router design on a running server: opt-in, signals, query rewriting, and when memory is extracted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from recollect.model.ids import new_id
from recollect.testing.llm_replies import Fault
from recollect.testing.llm_server import RecordedRequest
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.llm_faults import delay, hang
from tests.support.recollect_server import RecollectServer
from tests.support.remember_samples import EXTRACT, llm_requests, new_turns, read_along, wait_until

BUDGET = "budget for Hawaii vacation is $10,000"
QUESTION = "What's my budget for the Hawaii trip?"
REWRITE = "too vague to be"
ON = {"enabled": True}
STORING = {"enabled": True, "auto_store": True}


@pytest.fixture(scope="module")
def llm() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as server:
        yield server


@pytest.fixture(scope="module")
def server(llm: ScriptedLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecollectServer]:
    """`recollect serve --preset semantic-router --upstream URL --llm MODEL --llm-url URL`."""
    options = ("--upstream", llm.base_url, "--llm", "scripted", "--llm-url", llm.base_url)
    home = tmp_path_factory.mktemp("router") / "home"
    # More time than the preset gives, for a loaded machine: 4 s for the LLM, and as much for the stores.
    times = {"RECOLLECT_MEMORY_TIMEOUT_S": "8", "RECOLLECT_REWRITE_TIMEOUT_S": "60"}
    with RecollectServer(home, "--preset", "semantic-router", *options, **times) as running:
        yield running


class Client:
    """A user of the server, with no memories at first."""

    def __init__(self, url: str, llm: ScriptedLLM) -> None:
        self.user = new_id()
        self._url = url
        self._llm = llm

    def add(self, content: str) -> None:
        answer = httpx.post(f"{self._url}/v1/memory", json={"content": content, "user_id": self.user}, timeout=60)
        assert answer.status_code == 201, answer.text

    def chat(
        self, *texts: str, config: object = None, headers: Mapping[str, str] | None = None, **context: Any
    ) -> Any:
        """Post a chat with messages of the user; return the answer."""
        messages = [{"role": "user", "content": text} for text in texts]
        return self.post("chat/completions", {"messages": messages}, config, headers, context)

    def respond(
        self, text: str, *, config: object = None, headers: Mapping[str, str] | None = None, **context: Any
    ) -> Any:
        return self.post("responses", {"input": text}, config, headers, context)

    def post(
        self,
        path: str,
        body: Mapping[str, Any],
        config: object = None,
        headers: Mapping[str, str] | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> httpx.Response:
        fields: dict[str, object] = {"memory_context": {"user_id": self.user, **(context or {})}}
        fields |= {} if config is None else {"memory_config": config}
        return httpx.post(
            f"{self._url}/v1/{path}", json={"model": "qwen3", **body, **fields}, headers=headers, timeout=60
        )

    def exchange(self, session: str, text: str) -> None:
        """Send a message of a session, and store it with the answer."""
        answer = self.post(
            "chat/completions",
            {"messages": [{"role": "user", "content": text}]},
            STORING,
            {"X-Memory-Session": session},
        )
        assert answer.headers["x-memory-status"] == "ok"

    def learned_to(self) -> int:
        """Return the number of turns of the user's session that were extracted from."""
        answer = httpx.get(f"{self._url}/recollect/v1/sessions", headers={"X-Memory-User": self.user}, timeout=60)
        return int(answer.json()["results"][0]["learned_to"])

    def extractions(self, text: str) -> list[RecordedRequest]:
        """Return the extractions from turns with this text, so far."""
        return [each for each in llm_requests(self._llm, EXTRACT) if text in each.text]


@pytest.fixture
def client(server: RecollectServer, llm: ScriptedLLM) -> Client:
    return Client(server.url, llm)


def hits(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    return int(answer.headers["x-memory-hits"])


# Memory is opt-in


def test_a_request_without_memory_config_uses_no_memory(client: Client, llm: ScriptedLLM) -> None:
    client.add(BUDGET)
    for ask in (client.chat, client.respond):
        answer = ask(QUESTION)
        assert (answer.headers["x-memory-status"], hits(answer)) == ("off", 0)
        assert BUDGET not in llm.requests[-1].text
        assert hits(ask(QUESTION, config={"enabled": False})) == 0


def test_an_enabled_request_recalls_into_the_system_message(client: Client, llm: ScriptedLLM) -> None:
    client.add(BUDGET)
    for ask in (client.chat, client.respond):
        assert hits(ask(QUESTION, config=ON)) == 1
        assert "## User's Relevant Context" in llm.requests[-1].text
        assert BUDGET in llm.requests[-1].text


def test_auto_store_that_is_absent_is_false(client: Client) -> None:
    for ask in (client.chat, client.respond):
        for config in (None, ON, {**ON, "auto_store": False}, {"auto_store": True}):
            assert "x-memory-turn" not in ask("My dog is called Rex.", config=config).headers
        assert hits(ask("What is my dog called?", config=ON)) == 0
    for ask in (client.chat, client.respond):
        assert ask("My dog is called Rex.", config=STORING).headers["x-memory-turn"]


def test_the_header_opts_in_as_well(client: Client) -> None:
    client.add(BUDGET)
    read = client.chat(QUESTION, headers={"X-Memory": "read"})
    assert hits(read) == 1
    assert "x-memory-turn" not in read.headers
    assert client.chat("My dog is called Rex.", headers={"X-Memory": "on"}).headers["x-memory-turn"]


@pytest.mark.parametrize(
    ("config", "context", "problem"),
    [
        (
            {"enabled": True, "auto_stor": True},
            {},
            "memory_config.auto_stor is unknown; the fields are enabled, auto",
        ),
        (ON, {"userid": "x"}, "memory_context.userid is unknown; the fields are user_id, project_id, is_fact"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_it(
    client: Client, config: dict[str, Any], context: dict[str, Any], problem: str
) -> None:
    for ask in (client.chat, client.respond):
        answer = ask(QUESTION, config=config, **context)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert problem in error["message"]
        assert (error["param"], error["code"]) == (problem.split()[0], "invalid_memory_field")


# The signals of the pipeline: Fact? Tool?


@pytest.mark.parametrize("signal", ["is_fact", "requires_tool"])
def test_a_fact_or_tool_query_skips_memory_even_if_it_says_my(client: Client, signal: str) -> None:
    client.add(BUDGET)
    header = f"X-Memory-{signal.replace('_', '-')}"
    true: dict[str, Any] = {signal: True}
    false: dict[str, Any] = {signal: False}
    for ask in (client.chat, client.respond):
        assert hits(ask(QUESTION, config=ON)) == 1
        assert hits(ask(QUESTION, config=ON, **true)) == 0
        assert hits(ask(QUESTION, config=ON, headers={header: "true"})) == 0
        assert hits(ask(QUESTION, config=ON, **false)) == 1
        # The header is that of the router in front, which knows better than the client.
        assert hits(ask(QUESTION, config=ON, headers={header: "false"}, **true)) == 1


def test_a_signal_is_true_or_false(client: Client) -> None:
    answer = client.chat(QUESTION, config=ON, headers={"X-Memory-Is-Fact": "perhaps"})
    assert answer.status_code == 400
    assert "X-Memory-Is-Fact must be true or false, got 'perhaps'" in answer.json()["error"]["message"]


def test_a_query_that_the_router_calls_no_fact_is_searched(client: Client) -> None:
    client.add("The capital of France is where the user was born")
    question = "What is the capital of France?"
    assert hits(client.chat(question, config=ON)) == 0
    assert hits(client.chat(question, config=ON, is_fact=False)) == 1


# Query rewriting


def test_a_vague_query_is_rewritten_by_the_llm(client: Client, llm: ScriptedLLM) -> None:
    client.add("User's favourite tea is Darjeeling")
    rule = llm.when(lambda request: REWRITE in request.text and "And that one?" in request.text)
    rule.reply("What is my favourite tea?")
    try:
        # The terms alone do not find it.
        wait_until(lambda: hits(client.chat("We were at the shop", "And that one?", config=ON)) == 1)
    finally:
        rule.remove()


@pytest.fixture
def rewrite_fault(llm: ScriptedLLM) -> Iterator[Callable[[Fault], object]]:
    """Make the LLM rewrite queries with this fault until the end of the test."""
    rule = llm.when(REWRITE)
    yield lambda fault: rule.reply("What is the budget for the Hawaii vacation?", faults=[fault])
    rule.remove()


def test_an_ordinary_llm_that_takes_half_a_second_keeps_the_memories(
    client: Client, rewrite_fault: Callable[[Fault], object]
) -> None:
    client.add(BUDGET)
    rewrite_fault(delay(0.5))
    answer = client.chat("Planning vacation", "Hawaii sounds nice", "How much?", config=ON)
    assert (answer.headers["x-memory-status"], hits(answer)) == ("ok", 1)


def test_a_late_llm_falls_back_to_context_terms_and_does_not_open_the_breaker(
    client: Client, server: RecollectServer, rewrite_fault: Callable[[Fault], object]
) -> None:
    client.add(BUDGET)
    rewrite_fault(hang())
    with ThreadPoolExecutor(8) as pool:
        asked = [
            pool.submit(client.chat, "Planning vacation", "Hawaii sounds nice", "How much?", config=ON)
            for _ in range(8)
        ]
    answers = [each.result() for each in asked]
    assert [(each.headers["x-memory-status"], hits(each)) for each in answers] == [("ok", 1)] * 8
    assert hits(client.chat(QUESTION, config=ON)) == 1


# When memory is extracted


def test_memory_is_extracted_every_10_turns_that_are_exchanges_with_an_overlap_of_5(client: Client) -> None:
    def send(first: int, last: int) -> None:
        for number in range(first, last + 1):
            client.exchange("boxes", f"I moved {client.user} box {number} to the attic today.")

    send(1, 10)
    wait_until(lambda: client.learned_to() == 20)
    # Had it begun earlier, this one would have fewer.
    [first] = client.extractions(client.user)
    assert (len(new_turns(first)), len(read_along(first))) == (20, 0)
    send(11, 20)
    wait_until(lambda: client.learned_to() == 40)
    [_, second] = client.extractions(client.user)
    assert (len(new_turns(second)), len(read_along(second))) == (20, 5)
    assert "box 11 " in new_turns(second)[0]


def test_memory_is_extracted_when_the_topic_changes(client: Client) -> None:
    client.exchange("drift", f"My budget for the Hawaii trip {client.user} is $10,000.")
    client.exchange("drift", "Hotels in Hawaii should fit the budget of the trip.")
    assert not client.extractions(client.user)
    # Its answer is stored before the extraction begins, and does not postpone it.
    client.exchange("drift", "Our database migration fails with a lock timeout.")
    wait_until(lambda: client.extractions(client.user))
    [extraction] = client.extractions(client.user)
    assert len(new_turns(extraction)) >= 5
