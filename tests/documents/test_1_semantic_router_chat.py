"""The semantic-router design on a running server: opt-in, signals, query rewriting, and when memory is extracted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from recollect.model.ids import new_id
from recollect.testing.llm_replies import Fault
from recollect.testing.scripted_llm import RecordedRequest, ScriptedLLM
from tests.support.llm_faults import delay, hang, http_error
from tests.support.recollect_server import RecollectServer
from tests.support.remember_samples import (
    CONSOLIDATE,
    EXTRACT,
    SESSION,
    asks_about,
    llm_requests,
    new_turns,
    read_along,
    wait_until,
)

BUDGET = "budget for Hawaii vacation is $10,000"
QUESTION = "What's my budget for the Hawaii trip?"
REWRITE = "too vague to be"
REFLECT = "Find what several of the memories below show together"
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

    def add(self, content: str, **fields: Any) -> None:
        body = {"content": content, "user_id": self.user, **fields}
        answer = httpx.post(f"{self._url}/v1/memory", json=body, timeout=60)
        assert answer.status_code == 201, answer.text

    def memories(self) -> dict[str, dict[str, Any]]:
        """Return the memories by their content."""
        answer = httpx.get(f"{self._url}/v1/memory", params={"user_id": self.user}, timeout=60)
        return {each["content"]: each for each in answer.json()["memories"]}

    def call(self, path: str, body: Any = None, **headers: str) -> Any:
        """Post to our own API as this user."""
        headers = {"X-Memory-User": self.user, **headers}
        answer = httpx.post(f"{self._url}/recollect/v1/{path}", json=body, headers=headers, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()

    def recall(self, *texts: str, **fields: Any) -> Any:
        """Recall for messages of the user; the answer has the query that was searched for."""
        return self.call("recall", {"messages": [{"role": "user", "content": text} for text in texts], **fields})

    def end(self, session: str) -> None:
        """End a session, and wait until it was extracted from."""
        job = self.call("session/end?wait_s=60", **{"X-Memory-Session": session})
        assert job["state"] == "done", job

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
        # On a loaded machine the server may find its ledger slow for a moment.
        wait_until(lambda: httpx.get(f"{self._url}/ready", timeout=60).is_success)
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
    question = {"role": "user", "content": QUESTION}
    client.chat(QUESTION, config=ON)
    context = f"## User's Relevant Context\n\n- {BUDGET}\n"
    assert llm.requests[-1].json["messages"] == [{"role": "system", "content": context}, question]
    prompt = {"role": "system", "content": "You are a travel agent."}
    client.post("chat/completions", {"messages": [prompt, question]}, ON)
    [system, unchanged] = llm.requests[-1].json["messages"]
    assert (system["role"], unchanged) == ("system", question)
    assert system["content"].startswith("You are a travel agent.")
    assert system["content"].strip().endswith(context.strip())


def test_without_memories_the_request_is_forwarded_without_the_memory_fields(
    client: Client, llm: ScriptedLLM
) -> None:
    for ask, name, value in (
        (client.chat, "messages", [{"role": "user", "content": QUESTION}]),
        (client.respond, "input", QUESTION),
    ):
        assert hits(ask(QUESTION, config=ON)) == 0
        assert llm.requests[-1].json == {"model": "qwen3", name: value}


def test_memories_of_another_user_are_not_recalled(client: Client, server: RecollectServer, llm: ScriptedLLM) -> None:
    client.add(BUDGET)
    other = Client(server.url, llm)
    for ask in (other.chat, other.respond):
        assert hits(ask(QUESTION, config=ON)) == 0
        assert "$10,000" not in llm.requests[-1].text


def test_a_project_sees_its_own_memories_and_those_of_the_user(client: Client, llm: ScriptedLLM) -> None:
    client.add(BUDGET)
    client.add("budget for the Hawaii hotel is $4,000", project_id="hotels")
    client.add("budget for Hawaii flights is $3,000", project_id="flights")
    assert hits(client.chat(QUESTION, config=ON, project_id="hotels")) == 2
    assert "$3,000" not in llm.requests[-1].text
    assert hits(client.chat(QUESTION, config=ON)) == 1


def test_five_memories_are_retrieved_unless_the_request_has_a_limit(client: Client) -> None:
    for number, item in enumerate(("hotels", "flights", "food", "surfing", "museums", "taxis", "presents"), 1):
        client.add(f"User's budget for {item} on the Hawaii trip is ${number},000")
    for ask in (client.chat, client.respond):
        assert hits(ask(QUESTION, config=ON)) == 5
        assert hits(ask(QUESTION, config={**ON, "retrieval_limit": 2})) == 2
        assert hits(ask(QUESTION, config={**ON, "retrieval_limit": 7})) == 7


def test_only_memories_above_the_threshold_are_retrieved(client: Client) -> None:
    client.add(BUDGET)
    client.add("User's dog is called Rex")
    for ask in (client.chat, client.respond):
        assert hits(ask(QUESTION, config=ON)) == 1
        assert hits(ask(QUESTION, config={**ON, "similarity_threshold": 0.0})) == 2
        assert hits(ask(QUESTION, config={**ON, "similarity_threshold": 1.0})) == 0
    traced = client.recall(QUESTION, trace=True, min_score=0)["candidates"]
    relevance = {each["memory"]: each["relevance"] for each in traced}
    assert relevance["User's dog is called Rex"] < 0.6 < relevance[BUDGET]


def test_memory_types_restrict_the_types_that_are_searched(client: Client, llm: ScriptedLLM) -> None:
    client.add(BUDGET, type="semantic")
    client.add("To check the Hawaii trip budget: open the spreadsheet, then sum it up", type="procedural")
    for ask in (client.chat, client.respond):
        # Memories cluster by content: their type does not matter unless it is named.
        assert hits(ask(QUESTION, config=ON)) == 2
        assert hits(ask(QUESTION, config={**ON, "memory_types": ["procedural"]})) == 1
        assert "spreadsheet" in llm.requests[-1].text
        assert hits(ask(QUESTION, config={**ON, "memory_types": ["episodic"]})) == 0


def test_the_example_request_continues_a_response_and_recalls(client: Client, llm: ScriptedLLM) -> None:
    client.add(BUDGET)
    earlier = client.respond("We talked about the weather in Maui.", config=STORING).json()["id"]
    example = {"input": "What's my budget for the trip?", "previous_response_id": earlier}
    answer = client.post("responses", example, STORING)
    assert hits(answer) >= 1
    assert answer.json()["previous_response_id"] == earlier
    assert BUDGET in llm.requests[-1].text
    missing = client.post("responses", {**example, "previous_response_id": "resp_abc123"}, STORING)
    assert (missing.status_code, missing.json()["error"]["param"]) == (400, "previous_response_id")


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


@pytest.mark.parametrize(
    "greeting",
    "hi|Hello!|hey...|HOWDY|thanks|thank you!|thx.|bye|goodbye?|See you!|ok|okay.|sure|yes|no!| hello ! ".split("|"),
)
def test_a_greeting_skips_memory(client: Client, greeting: str) -> None:
    client.add(BUDGET)
    recalled = client.recall(greeting, min_score=0)
    assert (recalled["outcome"], recalled["results"]) == ("ignored", [])


def test_any_other_message_is_searched(client: Client) -> None:
    client.add(BUDGET)
    for text in (
        "hi, what did I plan for Hawaii?",
        "okay, and the hotel?",
        "The trip with Ann",
        "What shall I pack?",
    ):
        assert client.recall(text, min_score=0)["outcome"] == "used"
    # Whatever it is, if the router says that it is neither.
    assert client.recall("Hawaii", min_score=0, is_fact=False, requires_tool=False)["outcome"] == "used"


def test_decisions_are_counted_by_outcome_and_logs_have_no_question(client: Client, server: RecollectServer) -> None:
    def count(outcome: str) -> int:
        metrics = httpx.get(f"{server.url}/metrics", timeout=60).text
        return int(re.search(rf'^recollect_recalls_total{{outcome="{outcome}"}} (\d+)', metrics, re.M)[1])  # type: ignore[index]

    client.add(BUDGET)
    client.chat(QUESTION, config=ON)
    client.chat("Thanks!", config=ON)
    used, ignored = count("used"), count("ignored")
    # A random text would now and then be less similar than the threshold.
    question = "What is the entire budget for my Hawaii trip?"
    assert client.chat(question, config=ON).headers["x-memory-hits"] == "1"
    assert client.chat(question, config=ON, is_fact=True).headers["x-memory-hits"] == "0"
    assert (count("used"), count("ignored")) == (used + 1, ignored + 1)
    assert client.recall("Thanks!")["reason"] == "it is a greeting, thanks, a goodbye or a bare yes or no"
    assert question not in server.log


def test_stored_messages_are_recalled_before_their_extraction(client: Client, llm: ScriptedLLM) -> None:
    message = "My budget for the Hawaii trip is $12,000."
    client.exchange("march-15", message)
    assert client.memories() == {}
    assert hits(client.chat(QUESTION, config=ON, headers={"X-Memory-Session": "march-20"})) >= 1
    assert f"- user: {message}" in llm.requests[-1].json["messages"][0]["content"]


# Query rewriting


def test_a_self_contained_query_is_searched_as_it_is(client: Client) -> None:
    assert client.recall("I like surfing", QUESTION)["query"] == QUESTION


@pytest.mark.parametrize("query", ["How much?", "how much", "What about it?", "And that one?", "This one?"])
def test_a_vague_query_is_searched_with_key_terms_of_the_history(client: Client, query: str) -> None:
    # The scripted LLM does not rewrite it.
    searched = client.recall("Planning vacation", "Hawaii sounds nice", query)["query"]
    assert searched.startswith(f"{query} Hawaii ")
    assert {"Hawaii", "vacation", "planning"} <= set(searched.split())


def test_terms_are_taken_from_the_last_three_user_messages(client: Client) -> None:
    history = [
        {"role": "user", "content": "My piano needs tuning"},
        {"role": "user", "content": "Planning vacation"},
        {"role": "assistant", "content": "Zanzibar?"},
        {"role": "user", "content": "Hawaii sounds nice"},
        {"role": "user", "content": "Looking at hotels"},
        {"role": "user", "content": "How much?"},
    ]
    searched = client.call("recall", {"messages": history})["query"]
    assert {"Hawaii", "vacation", "hotels"} <= set(searched.split())
    assert not {"piano", "tuning", "Zanzibar"} & set(searched.split())


@pytest.mark.parametrize("query", ["My tea?", "Where is Oahu?", "Our Maui hotel?"])
def test_a_short_query_that_names_its_subject_is_searched_as_it_is(client: Client, query: str) -> None:
    assert client.recall("Planning vacation", "Hawaii sounds nice", query, is_fact=False)["query"] == query


def test_a_vague_query_is_rewritten_by_the_llm(client: Client, llm: ScriptedLLM) -> None:
    client.add("User's favourite tea is Darjeeling")
    rule = llm.when(lambda request: REWRITE in request.text and "And that one?" in request.text)
    rule.reply("What is my favourite tea?")
    try:
        # The terms alone do not find it.
        wait_until(lambda: hits(client.chat("We were at the shop", "And that one?", config=ON)) == 1)
        assert client.recall("We were at the shop", "And that one?")["query"] == "What is my favourite tea?"
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
    client.exchange("drift", "My budget for the Hawaii trip is $10,000.")
    client.exchange("drift", "Hotels in Hawaii should fit the budget of the trip.")
    topic = "The compiler rejects my Rust lifetimes."
    # Its answer is stored before the extraction begins, and does not postpone it.
    client.exchange("drift", topic)
    wait_until(lambda: client.extractions(topic))
    # Had it begun earlier, this one would have fewer.
    [extraction] = client.extractions(topic)
    assert len(new_turns(extraction)) >= 5


def test_turns_are_counted_for_each_session(client: Client) -> None:
    for number in range(1, 10):
        for session in ("one", "two"):
            client.exchange(session, f"I moved {client.user} box {number} of {session} to the attic.")
    assert not client.extractions(client.user)
    client.exchange("one", f"I moved {client.user} box 10 of one to the attic.")
    wait_until(lambda: client.extractions(client.user))
    [extraction] = client.extractions(client.user)
    assert len(new_turns(extraction)) == 20
    assert "of two" not in "".join(new_turns(extraction))


def test_the_end_of_a_session_extracts_and_stores_an_episodic_summary(client: Client, llm: ScriptedLLM) -> None:
    def summary(request: RecordedRequest) -> str:
        [day] = re.findall('as in\\s"(On .*?), the user planned', request.text)
        return f"{day}, user planned Hawaii vacation with $10,000 budget"

    rules = [
        llm.when(lambda request: SESSION in request.text and client.user in request.text).reply(summary),
        llm.when(asks_about(client.user)).reply_json([{"type": "semantic", "content": BUDGET}]),
    ]
    client.exchange("trip", f"My budget for the Hawaii vacation {client.user} is $10,000.")
    client.exchange("trip", "We fly in March with Ann and Bob.")
    client.exchange("trip", "The hotel is in Hilo.")
    client.end("trip")
    memories = client.memories()
    assert memories.pop(BUDGET)["type"] == "semantic"
    [(episode, fields)] = memories.items()
    assert re.fullmatch(r"On \w+ \d+ \d{4}, user planned Hawaii vacation with \$10,000 budget", episode)
    assert fields["type"] == "episodic"
    for rule in rules:
        rule.remove()


# What is extracted


def test_the_llm_answers_as_in_the_design_and_the_memories_have_its_fields(client: Client, llm: ScriptedLLM) -> None:
    deploy = "To deploy payment-service: run npm build, then docker push"
    extracted = [{"type": "semantic", "content": BUDGET}, {"type": "procedural", "content": deploy}]
    rule = llm.when(asks_about(client.user)).reply_json(extracted)
    client.exchange("trip", f"My budget {client.user} for the Hawaii vacation is $10,000.")
    client.exchange("trip", "To deploy payment-service, run npm build, then docker push.")
    client.end("trip")
    memories = client.memories()
    assert {content: each["type"] for content, each in memories.items() if each["type"] != "episodic"} == {
        BUDGET: "semantic",
        deploy: "procedural",
    }
    assert (memories[BUDGET]["source"], memories[BUDGET]["user_id"]) == ("conversation", client.user)
    assert re.fullmatch(r"mem_[0-9a-f-]{36}\.\w+", memories[BUDGET]["id"])
    [request] = client.extractions(client.user)
    assert request.json["model"] == "scripted"
    assert "that makes sense alone years later: name who or what it is about" in request.text
    rule.remove()


def test_an_empty_array_stores_no_memory(client: Client, llm: ScriptedLLM) -> None:
    rule = llm.when(asks_about(client.user)).reply("[]")
    client.exchange("empty", f"It rains on {client.user}.")
    client.end("empty")
    assert len(client.extractions(client.user)) == 1
    assert [each for each in client.memories().values() if each["type"] != "episodic"] == []
    rule.remove()


def test_the_llm_rates_the_importance(client: Client, llm: ScriptedLLM) -> None:
    rated = [{"type": "semantic", "content": BUDGET, "importance": 0.85}]
    rule = llm.when(asks_about(client.user)).reply_json(rated)
    client.exchange("rated", f"My budget {client.user} for the Hawaii vacation is $10,000.")
    client.end("rated")
    assert client.memories()[BUDGET]["importance"] == 0.85
    rule.remove()


def test_an_extracted_fact_with_a_similarity_above_0_9_updates_the_existing_memory(
    client: Client, llm: ScriptedLLM
) -> None:
    paraphrase, another = "the budget for the Hawaii vacation is $10,000", "User's dog is called Rex"
    rule = llm.when(asks_about(client.user))
    rule.reply_json([{"type": "semantic", "content": BUDGET}])
    client.exchange("first", f"My budget {client.user} for the Hawaii vacation is $10,000.")
    client.end("first")
    before = client.memories()[BUDGET]
    facts = [{"type": "semantic", "content": content} for content in (paraphrase, another)]
    rule.reply_json(facts)
    client.exchange("second", f"As I said {client.user}, the budget is $10,000. My dog is called Rex.")
    client.end("second")
    after = {content: each for content, each in client.memories().items() if each["type"] == "semantic"}
    assert set(after) == {paraphrase, another}
    assert after[paraphrase]["id"] == before["id"]
    assert after[another]["id"] != before["id"]
    rule.remove()


def test_extraction_runs_in_the_background(client: Client, llm: ScriptedLLM) -> None:
    rule = llm.when(asks_about(client.user)).reply("[]", faults=[hang()])
    client.exchange("slow", f"I moved {client.user} to the attic.")
    client.call("session/end", **{"X-Memory-Session": "slow"})
    wait_until(lambda: client.extractions(client.user))
    # The LLM never answers the extraction, and answers chats.
    client.exchange("slow", "And back to the cellar.")
    rule.remove()


def test_a_failed_extraction_leaves_the_chat_alone_and_is_retried(client: Client, llm: ScriptedLLM) -> None:
    rule = llm.when(asks_about(client.user)).reply("", faults=[http_error(400)])
    client.exchange("failing", f"My budget {client.user} for the Hawaii vacation is $10,000.")
    client.call("session/end", **{"X-Memory-Session": "failing"})
    wait_until(lambda: client.extractions(client.user))
    client.exchange("failing", "Hello, are you there?")
    rule.reply_json([{"type": "semantic", "content": BUDGET}])
    wait_until(lambda: BUDGET in client.memories())
    rule.remove()


# Later operations: consolidate, reflect


def test_consolidation_merges_the_three_budgets_of_the_design(client: Client, llm: ScriptedLLM) -> None:
    merged = "Hawaii trip budget: $12,000 (updated from initial $10,000)"
    for content in (
        "Budget for Hawaii is $10,000",
        "Added $2,000 to Hawaii budget",
        "Final Hawaii budget is $12,000",
    ):
        client.add(content)

    def merge(request: RecordedRequest) -> str:
        rows = [json.loads(line) for line in request.text.partition("\n===")[2].splitlines() if '"says"' in line]
        [newest] = [row["memory"] for row in rows if "Final" in row["says"]]
        ends = [{"op": "end", "memory": row["memory"], "content": ""} for row in rows if row["memory"] != newest]
        for each in ends:
            each["content"] = "It is no longer the budget"
        return json.dumps({"operations": [{"op": "update", "memory": newest, "content": merged}, *ends]})

    rule = llm.when(CONSOLIDATE).reply(merge)
    client.call("upkeep", {"chores": ["consolidate"]})
    rule.remove()
    assert list(client.memories()) == [merged]


def test_reflection_stores_insights_as_memories(client: Client, llm: ScriptedLLM) -> None:
    for content in (
        "The user deployed payment-service on Monday with docker-compose",
        "The deployment of payment-service failed because of a port conflict",
        "The user deployed payment-service to staging with docker-compose",
        "A port conflict on 8080 stopped the deployment of payment-service",
        "The user's dog is called Rex",
    ):
        client.add(content)
    insight = "Deployments of payment-service fail because of port conflicts"

    def show(request: RecordedRequest) -> str:
        rows = [json.loads(line) for line in request.text.partition("\n===")[2].splitlines() if '"says"' in line]
        lines = [row["memory"] for row in rows if "port conflict" in row["says"]]
        fields = {"type": "semantic", "importance": 0.7, "confidence": 0.9}
        return json.dumps({"operations": [{"op": "add", "lines": lines, "content": insight, **fields}]})

    rule = llm.when(REFLECT).reply(show)
    client.call("upkeep", {"chores": ["reflect"]})
    rule.remove()
    assert client.memories()[insight]["type"] == "reflective"
