"""The requirements of three-tier, on servers that are started as its page says."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import numpy as np
import pytest

from recollect import Memory
from recollect.testing.scripted_llm import RecordedRequest, ScriptedLLM
from tests.support.postgres_server import PLAIN_ROLE, running_server
from tests.support.recollect_server import RecollectServer
from tests.support.remember_samples import COMPRESS, EXTRACT, NOTHING, asks_about, new_turns, wait_until

CHAT_MODEL = "chat-model"
DATABASES = "User asked about vector databases. The assistant named options that fit a small team."
BEES = ("hives", "honey", "queens", "wax")
LONG = "User asked about the moons of Jupiter. " + "The assistant named moons and told how they were discovered. " * 5
ALIKE = "User asked the assistant about gardening, and the assistant named options."
# A busy machine must not turn a slow answer into none.
PATIENT = {"RECOLLECT_RECALL_TIMEOUT_S": "60", "RECOLLECT_MEMORY_TIMEOUT_S": "30"}


def structured(category: str, key: str, value: str, confidence: float, **more: Any) -> dict[str, Any]:
    """Return a fact as the document's LLM extracts it: without an importance, and in no words of its own."""
    return {"content": f"The user's {key} is {value}", "category": category, "key": key, "value": value,
            "confidence": confidence, **more}  # fmt: skip


FACTS = {
    "My name is Alex and I prefer Python": [
        structured("identity", "name", "Alex", 1.0),
        structured("preference", "language", "Python", 0.9),
    ],
    "I am Berta, I live in Oslo, I code in Rust": [
        structured("identity", "name", "Berta", 1.0),
        structured("identity", "city", "Oslo", 1.0),
        structured("preference", "language", "Rust", 0.9),
        structured("preference", "editor", "Helix", 0.9, importance=0.3),
    ],
    "I may be Cleo": [structured("identity", "name", "Cleo", 0.39)],
    "I had coffee, I am Cora": [
        structured("preference", "drink", "coffee", 0.9, importance=0.19),
        structured("identity", "name", "Cora", 0.4, importance=0.2),
    ],
    "Call me Al": [structured("identity", "name", "Al", 0.6)],
    "I think I am Dan": [structured("identity", "name", "Dan", 0.8)],
    "My full name is Daniel": [structured("identity", "name", "Daniel", 0.95)],
    "My name is Erik": [structured("identity", "name", "Erik", 1.0)],
    "My full name is Alexander": [structured("identity", "name", "Alexander", 0.95)],
    "I am Gus, vegan, I write in German, always greet me": [
        structured("identity", "name", "Gus", 1.0, importance=0.7),
        structured("constraint", "diet", "vegan", 1.0, importance=0.9),
        structured("preference", "language", "German", 0.9, importance=0.6),
        structured("instruction", "greeting", "Greet me always", 1.0),
    ],
    "We discussed trains and I am working on a poem, I am Hugo": [
        structured("identity", "name", "Hugo", 1.0),
        structured("fact", "topic", "trains", 1.0),
        structured("event", "task", "a poem", 1.0),
        structured("hobby", "poetry", "yes", 1.0),
    ],
    "I like the name Jo, I am Johanna": [
        structured("preference", "name", "Jo", 1.0),
        structured("identity", "name", "Johanna", 1.0),
    ],
    "I am Ines, Ines is my name": [
        structured("identity", "name", "Ines", 1.0),
        structured("identity", "name", "Ines", 1.0),
    ],
}


def summarize(request: RecordedRequest) -> str:
    """Return a summary of a range of turns; all ranges about gardening read alike."""
    talk = request.text.partition("\n===")[2]
    if "gardening" in talk:
        return ALIKE
    if "Jupiter" in talk:
        return LONG
    if "beekeeping" in talk:
        return f"User asked about beekeeping and {', '.join(each for each in BEES if each in talk)}."
    return DATABASES


@pytest.fixture(scope="module")
def llm() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as llm:
        llm.default = NOTHING
        llm.when(COMPRESS).reply(summarize)
        for text, facts in FACTS.items():
            llm.when(asks_about(text)).reply_json(
                {"operations": [{"op": "add", "lines": [1], **each} for each in facts]}
            )
        llm.when(lambda request: request.json.get("model") == CHAT_MODEL).reply(
            lambda request: f"Answer to: {request.json['messages'][-1]['content']}"
        )
        yield llm


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    server, name = running_server(), f"three_tier_{os.getpid()}"
    yield asyncio.run(server.make(name, role=PLAIN_ROLE))
    asyncio.run(server.run(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, llm: ScriptedLLM, database: str) -> Iterator[httpx.Client]:
    options = ("--preset", "three-tier", "--upstream", llm.base_url, "--llm", "scripted", "--llm-url", llm.base_url)
    with (
        RecollectServer(tmp_path_factory.mktemp("llm"), *options, "--database", database, **PATIENT) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        wait_until(lambda: client.get("/ready").status_code == 200)
        yield client


@pytest.fixture(scope="module")
def client_without_llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with (
        RecollectServer(
            tmp_path_factory.mktemp("alone"), "--preset", "three-tier", RECOLLECT_EMBEDDER="neural", **PATIENT
        ) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        wait_until(lambda: client.get("/ready").status_code == 200)
        yield client


def get(client: httpx.Client, path: str, user: str, **params: Any) -> list[dict[str, Any]]:
    answer = client.get(f"/recollect/v1/{path}", params={"user_id": user, "limit": 200, **params})
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["results"]
    return items


def turn_count(client: httpx.Client, user: str) -> int:
    return sum(each["turn_count"] for each in get(client, "sessions", user))


def say(client: httpx.Client, user: str, text: str, *history: dict[str, str], session: str = "") -> None:
    """Send one message as a client does, and wait until its answer is stored."""
    before = turn_count(client, user)
    headers = {"X-Memory-Session": session} if session else {}
    body = {"model": CHAT_MODEL, "user": user, "messages": [*history, {"role": "user", "content": text}]}
    answer = client.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    wait_until(lambda: turn_count(client, user) == before + 2)


def prompt(llm: ScriptedLLM) -> str:
    """Return what the last chat's LLM received before the question."""
    request = [each for each in llm.calls("chat") if each.json.get("model") == CHAT_MODEL][-1]
    return "\n".join(each["content"] for each in request.json["messages"][:-1])


def remember(client: httpx.Client, user: str, *texts: str, session: str = "long", wait_s: float = 0) -> None:
    """Store exchanges, as many as there are texts, in order; with `wait_s`, wait until facts are extracted."""
    messages = [
        {"role": role, "content": words}
        for text in texts
        for role, words in (("user", text), ("assistant", f"Answer to: {text}"))
    ]
    where = {"user_id": user, "session_id": session}
    answer = client.post("/recollect/v1/remember", params=where, json={"messages": messages, "wait_s": wait_s})
    assert answer.status_code < 300, answer.text
    assert not wait_s or answer.json()["job"]["state"] == "done", answer.text


def learn(client: httpx.Client, user: str, text: str) -> None:
    """Store an exchange, and wait until facts are extracted from it."""
    remember(client, user, text, wait_s=60)


def recall(client: httpx.Client, user: str, question: str, session: str = "long") -> str:
    where = {"user_id": user, "session_id": session}
    answer = client.post("/recollect/v1/recall", params=where, json={"messages": question})
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["context"]["text"]
    return text


def episodes(client: httpx.Client, user: str) -> list[dict[str, Any]]:
    return sorted(get(client, "memories", user, category="episode"), key=lambda each: each["detail"]["turn_start"])


def ranges(client: httpx.Client, user: str) -> list[tuple[int, int]]:
    return [(each["detail"]["turn_start"], each["detail"]["turn_end"]) for each in episodes(client, user)]


def questions(topic: str, first: int, last: int) -> list[str]:
    return [f"Question {number} about {topic}: which fits a small team?" for number in range(first, last + 1)]


def facts(client: httpx.Client, user: str) -> dict[str, tuple[str, float, float]]:
    return {
        each["key"]: (each["value"], each["confidence"], each["importance"])
        for each in get(client, "memories", user)
        if each["key"]
    }


def rows(database: str, sql: str, tenant: str = "") -> list[dict[str, Any]]:
    """Return the rows that a connection of the server's role sees, as a user of memory or as nobody."""

    async def fetch() -> list[dict[str, Any]]:
        connection = await asyncpg.connect(database)
        try:
            await connection.execute("SELECT set_config('recollect.whose', $1, false)", tenant)
            return [dict(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    return asyncio.run(fetch())


class TestShortTermMemory:
    def test_the_server_keeps_the_session_of_a_client_that_sends_one_message_at_a_time(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        say(client, "sam", "Which vector database fits a small team?")
        say(client, "sam", "And for a large one?")
        say(client, "sam", "Why?")
        assert (
            "# Recent Conversation\n"
            "user: Which vector database fits a small team?\n"
            "assistant: Answer to: Which vector database fits a small team?\n"
            "user: And for a large one?\n"
            "assistant: Answer to: And for a large one?\n\n"
            "Answer consistently using the memory and conversation above." in prompt(llm)
        )

    def test_sessions_that_the_client_names_are_apart(self, client: httpx.Client, llm: ScriptedLLM) -> None:
        say(client, "tim", "Let us talk about trains", session="monday")
        say(client, "tim", "Let us talk about boats", session="tuesday")
        assert "trains" not in prompt(llm)
        say(client, "tim", "Go on", session="monday")
        assert "# Recent Conversation\nuser: Let us talk about trains\n" in prompt(llm)
        assert "boats" not in prompt(llm)

    def test_nothing_is_added_when_the_client_sends_its_own_history(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        say(client, "uma", "Let us talk about trains", session="monday")
        history = (
            {"role": "user", "content": "Let us talk about trains"},
            {"role": "assistant", "content": "Answer to: Let us talk about trains"},
        )
        say(client, "uma", "Go on", *history, session="monday")
        assert "# Recent Conversation" not in prompt(llm)

    def test_a_system_message_is_no_history(self, client: httpx.Client, llm: ScriptedLLM) -> None:
        say(client, "una", "Let us talk about trains")
        say(client, "una", "Go on", {"role": "system", "content": "Be brief."})
        assert "# Recent Conversation\nuser: Let us talk about trains\n" in prompt(llm)

    def test_a_repeated_request_does_not_show_the_question_as_conversation(self, client: httpx.Client) -> None:
        where = {"user_id": "uwe", "session_id": "long"}
        question = [{"role": "user", "content": "Which train goes to Oslo?"}]
        assert client.post("/recollect/v1/remember", params=where, json={"messages": question}).status_code < 300
        assert "Which train" not in recall(client, "uwe", "Which train goes to Oslo?")
        assert "user: Which train goes to Oslo?" in recall(client, "uwe", "And to Rome?")

    def test_the_last_10_to_20_turns_are_in_the_session_and_the_older_ones_in_an_episode(
        self, client: httpx.Client
    ) -> None:
        shown = []
        for number in range(1, 31):
            remember(client, "vic", f"Question {number} about vector databases: which fits a small team?")
            if number in (10, 20, 30):
                wait_until(lambda number=number: len(episodes(client, "vic")) == number // 10)
            text = recall(client, "vic", "Go on").partition("# Recent Conversation\n")[2].partition("\n\n")[0]
            turns = text.splitlines()
            assert turns[-1].startswith(f"assistant: Answer to: Question {number} about")
            shown.append(len(turns))
        assert shown[:9] == [2, 4, 6, 8, 10, 12, 14, 16, 18]
        assert min(shown[9:]) == 10
        assert max(shown[9:]) == 20
        assert "# Recent Conversation\nuser: Question 26 about" in recall(client, "vic", "Go on")

    def test_the_session_survives_a_restart(self, tmp_path: Path) -> None:
        where = {"user_id": "vera", "session_id": "long"}
        with Memory(preset="three-tier", home=tmp_path) as memory:
            memory.remember("Let us talk about trains", **where)
        with Memory(preset="three-tier", home=tmp_path) as memory:
            assert "# Recent Conversation\nuser: Let us talk about trains\n" in (
                memory.recall("Go on", **where).context.text
            )


class TestMidTermMemory:
    def test_a_summary_is_cut_after_150_characters(self, client: httpx.Client) -> None:
        remember(client, "wes", *questions("the moons of Jupiter", 1, 10))
        wait_until(lambda: episodes(client, "wes"))
        [episode] = episodes(client, "wes")
        assert episode["memory"] == LONG.strip()
        context = recall(client, "wes", "What did we discuss about the moons of Jupiter?", session="another")
        [line] = [each for each in context.splitlines() if each.startswith("- turns 1-10: ")]
        words = line.removeprefix("- turns 1-10: ").removesuffix("...")
        assert LONG.startswith(words)
        assert 120 < len(words) <= 150

    def test_the_three_nearest_episodes_are_recalled_and_unrelated_ones_are_not(self, client: httpx.Client) -> None:
        for thing in BEES:
            remember(client, "wyn", *questions(f"beekeeping and {thing}", 1, 10))
        wait_until(lambda: len(episodes(client, "wyn")) == 4)
        context = recall(client, "wyn", "What did we discuss about beekeeping?", session="another")
        assert context.count("User asked about beekeeping") == 3
        assert "beekeeping" not in recall(client, "wyn", "Which train goes to Oslo?", session="another")

    def test_a_chat_does_not_wait_for_compression_and_extraction(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        answered = threading.Event()

        def summary(_: RecordedRequest) -> str:
            return "User asked about snails." if answered.wait(60) else "too late"

        def extraction(_: RecordedRequest) -> str:
            return NOTHING if answered.wait(60) else "too late"

        rules = [
            llm.when(lambda request: COMPRESS in request.text and "snails" in request.text).reply(summary),
            llm.when(asks_about("snails")).reply(extraction),
        ]
        remember(client, "wan", *questions("snails", 1, 9))
        say(client, "wan", "Question 10 about snails: which fits a small team?", session="long")
        assert episodes(client, "wan") == []
        answered.set()
        wait_until(lambda: [each["memory"] for each in episodes(client, "wan")] == ["User asked about snails."])
        for rule in rules:
            rule.remove()

    def test_at_20_turns_the_oldest_10_are_compressed_to_an_episode_with_its_turn_range(
        self, client: httpx.Client
    ) -> None:
        questions = [f"Question {number} about vector databases: which fits a small team?" for number in range(1, 11)]
        remember(client, "wim", *questions[:9])
        assert episodes(client, "wim") == []
        remember(client, "wim", questions[9])
        wait_until(lambda: episodes(client, "wim"))
        [episode] = episodes(client, "wim")
        assert (episode["detail"]["turn_start"], episode["detail"]["turn_end"]) == (1, 10)
        assert episode["memory"].startswith("User asked about vector databases.")
        context = recall(client, "wim", "What did we discuss about vector databases?", session="another")
        assert "## Recent Context\n- turns 1-10: User asked about vector databases." in context

    def test_every_compressed_range_keeps_its_episode_even_if_two_summaries_read_alike(
        self, client: httpx.Client
    ) -> None:
        for number in range(1, 51):
            remember(client, "xia", f"Question {number} about gardening: which option fits?")
        expected = [(1, 10), (11, 30), (31, 50), (51, 70), (71, 90)]
        wait_until(lambda: len(ranges(client, "xia")) >= 5)
        assert ranges(client, "xia") == expected
        assert {each["memory"] for each in episodes(client, "xia")} == {ALIKE}
        # In a prompt the same words are one line, and the session has the last ten turns.
        context = recall(client, "xia", "What did we discuss about gardening?")
        assert context.count(ALIKE.rstrip(".")) == 1
        conversation = context.partition("# Recent Conversation\n")[2]
        assert conversation.startswith("user: Question 46 about gardening")
        assert conversation.count("user: ") == 5


class TestLongTermMemory:
    def test_facts_are_extracted_from_every_user_message_in_the_background(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        for number in range(1, 4):
            text = f"I moved box {number} of Yan to the attic."
            say(client, "yan", text)
            llm.wait_for(
                lambda llm, text=text: any(
                    EXTRACT in each.text and any(text in line for line in new_turns(each))
                    for each in llm.calls("chat")
                )
            )

    def test_a_fact_without_an_importance_has_0_8_and_is_always_recalled(self, client: httpx.Client) -> None:
        learn(client, "alex", "My name is Alex and I prefer Python")
        assert facts(client, "alex") == {"name": ("Alex", 1.0, 0.8), "language": ("Python", 0.9, 0.8)}
        context = recall(client, "alex", "What's the weather?", session="another")
        assert context.startswith("# Long-term Memory\n## User Profile\n- name: Alex\n- language: Python\n")

    def test_a_fact_that_is_added_without_an_importance_has_0_8(self, client: httpx.Client) -> None:
        body = {"category": "preference", "key": "timezone", "value": "CET"}
        answer = client.post("/recollect/v1/memories", params={"user_id": "zoe"}, json=body)
        assert answer.status_code < 300, answer.text
        assert facts(client, "zoe")["timezone"] == ("CET", 1.0, 0.8)

    def test_all_facts_of_one_message_of_importance_0_5_and_more_are_recalled(self, client: httpx.Client) -> None:
        learn(client, "berta", "I am Berta, I live in Oslo, I code in Rust")
        context = recall(client, "berta", "What's the weather?", session="another")
        for line in ("- name: Berta\n", "- city: Oslo\n", "- language: Rust\n"):
            assert line in context
        assert "Helix" not in context

    def test_facts_of_the_four_categories_are_recalled_in_the_order_of_importance(self, client: httpx.Client) -> None:
        learn(client, "gus", "I am Gus, vegan, I write in German, always greet me")
        context = recall(client, "gus", "What's the weather?", session="another")
        assert context.startswith(
            "# Long-term Memory\n## User Profile\n"
            "- diet: vegan\n- greeting: Greet me always\n- name: Gus\n- language: German\n"
        )

    def test_other_categories_are_not_stored(self, client: httpx.Client, llm: ScriptedLLM) -> None:
        text = "We discussed trains and I am working on a poem, I am Hugo"
        learn(client, "hugo", text)
        assert [each["memory"] for each in get(client, "memories", "hugo")] == ["The user's name is Hugo"]
        [request] = [each for each in llm.calls("chat") if asks_about(text)(each)]
        profile = "Keep only the user's profile: identity, preferences, constraints and standing instructions"
        assert profile in request.text

    def test_a_fact_that_a_message_states_twice_is_stored_once(self, client: httpx.Client) -> None:
        learn(client, "ines", "I am Ines, Ines is my name")
        assert [each["memory"] for each in get(client, "memories", "ines")] == ["The user's name is Ines"]

    def test_a_category_and_key_have_one_active_value(self, client: httpx.Client) -> None:
        learn(client, "jo", "My name is Erik")
        learn(client, "jo", "I like the name Jo, I am Johanna")
        stored = {(each["category"], each["key"], each["value"]) for each in get(client, "memories", "jo")}
        assert stored == {("preference", "name", "Jo"), ("identity", "name", "Johanna")}

    def test_a_value_of_confidence_1_is_replaced_by_an_equal_one_or_a_correction_only(
        self, client: httpx.Client
    ) -> None:
        learn(client, "kai", "My name is Erik")
        for text in ("Call me Al", "My full name is Alexander"):
            learn(client, "kai", text)
            assert facts(client, "kai")["name"][0] == "Erik"
        body = {"category": "identity", "key": "name", "value": "Al", "confidence": 0.6, "correction": True}
        assert client.post("/recollect/v1/memories", params={"user_id": "kai"}, json=body).status_code < 300
        assert facts(client, "kai")["name"][0] == "Al"
        learn(client, "kai", "My name is Erik")
        assert facts(client, "kai")["name"][0] == "Erik"

    def test_a_confidence_below_0_4_and_an_importance_below_0_2_are_not_stored(self, client: httpx.Client) -> None:
        learn(client, "cleo", "I may be Cleo")
        learn(client, "cleo", "I had coffee, I am Cora")
        assert facts(client, "cleo") == {"name": ("Cora", 0.4, 0.2)}

    def test_a_value_of_lower_confidence_is_ignored_and_one_of_higher_confidence_updates(
        self, client: httpx.Client
    ) -> None:
        for text, name in (
            ("I think I am Dan", ("Dan", 0.8)),
            ("Call me Al", ("Dan", 0.8)),
            ("My full name is Daniel", ("Daniel", 0.95)),
            ("Call me Al", ("Daniel", 0.95)),
        ):
            learn(client, "dan", text)
            assert facts(client, "dan")["name"][:2] == name


class TestPrompt:
    def test_the_prompt_has_the_profile_the_episodes_and_the_conversation(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        learn(client, "lars", "My name is Alex and I prefer Python")
        remember(client, "lars", *questions("vector databases", 2, 10))
        wait_until(lambda: episodes(client, "lars"))
        say(client, "lars", "What did we discuss about databases?", session="long")
        conversation = "".join(
            f"user: {text}\nassistant: Answer to: {text}\n" for text in questions("vector databases", 6, 10)
        )
        assert prompt(llm) == (
            "# Long-term Memory\n"
            "## User Profile\n"
            "- name: Alex\n"
            "- language: Python\n\n"
            "## Recent Context\n"
            f"- turns 1-10: {DATABASES[:-1]}...\n\n"
            f"# Recent Conversation\n{conversation}\n"
            "Answer consistently using the memory and conversation above."
        )
        # The question follows as a message of its own.
        request = [each for each in llm.calls("chat") if each.json.get("model") == CHAT_MODEL][-1]
        assert request.json["messages"][-1] == {"role": "user", "content": "What did we discuss about databases?"}

    def test_memory_can_be_turned_off_for_a_request(self, client: httpx.Client, llm: ScriptedLLM) -> None:
        learn(client, "mia", "My name is Erik")
        body = {"model": CHAT_MODEL, "user": "mia", "messages": [{"role": "user", "content": "What is my name?"}]}
        for switch, expected in (("off", ""), ("on", "# Long-term Memory\n## User Profile\n- name: Erik")):
            answer = client.post("/v1/chat/completions", json=body, headers={"X-Memory": switch})
            assert answer.status_code == 200, answer.text
            assert prompt(llm).startswith(expected)
            assert bool(prompt(llm)) == bool(expected)


class TestTablesOnPostgres:
    def test_structured_facts_is_a_view_with_the_columns_and_versions_of_the_document(
        self, client: httpx.Client, database: str
    ) -> None:
        for value in ("Ed", "Edgar"):
            body = {"category": "identity", "key": "name", "value": value}
            assert client.post("/recollect/v1/memories", params={"user_id": "ed"}, json=body).status_code < 300
        sql = (
            "SELECT user_id, category, key, value, confidence, importance, is_active FROM structured_facts "
            "WHERE user_id = 'ed' AND importance >= 0.5 ORDER BY is_active DESC, importance DESC"
        )
        shared = {"user_id": "ed", "category": "identity", "key": "name", "confidence": 1.0, "importance": 0.8}
        assert rows(database, sql, "=ed") == [
            {**shared, "value": "Edgar", "is_active": True},
            {**shared, "value": "Ed", "is_active": False},
        ]

    def test_structured_facts_has_no_embedding(self, client: httpx.Client, database: str) -> None:
        body = {"category": "identity", "key": "name", "value": "Eve"}
        assert client.post("/recollect/v1/memories", params={"user_id": "eve"}, json=body).status_code < 300
        [row] = rows(database, "SELECT * FROM structured_facts WHERE user_id = 'eve'", "=eve")
        document = {"id", "user_id", "category", "key", "value", "confidence", "importance", "is_active"}
        assert row.keys() == document | {"created_at", "updated_at", "project_id"}
        assert isinstance(row["id"], str)

    def test_episodic_memory_is_a_view_with_the_columns_and_the_embedding(
        self, client: httpx.Client, database: str
    ) -> None:
        remember(
            client, "fay", *(f"Question {n} about vector databases: which fits a small team?" for n in range(10))
        )
        wait_until(lambda: episodes(client, "fay"))
        sql = (
            "SELECT turn_range, summary, embedding, turn_start, turn_end, created_at FROM episodic_memory "
            "WHERE user_id = 'fay'"
        )
        [row] = rows(database, sql, "=fay")
        assert (row["turn_range"], row["turn_start"], row["turn_end"]) == ("turns 1-10", 1, 10)
        assert row["summary"].startswith("User asked about vector databases.")
        assert row["created_at"].tzinfo is not None
        [episode] = get(client, "memories", "fay", category="episode")
        assert row["created_at"].isoformat() == episode["created_at"]
        assert len(row["embedding"]) == 256
        assert np.linalg.norm(row["embedding"]) == pytest.approx(1, abs=0.001)

    def test_the_views_show_the_rows_of_the_user_of_the_connection_only(
        self, client: httpx.Client, database: str
    ) -> None:
        for user in ("gil", "hal"):
            body = {"category": "identity", "key": "name", "value": user}
            assert client.post("/recollect/v1/memories", params={"user_id": user}, json=body).status_code < 300
            remember(client, user, *(f"Question {n} about gardening: which option fits?" for n in range(10)))
            wait_until(lambda user=user: episodes(client, user))
        for view in ("structured_facts", "episodic_memory"):
            assert rows(database, f"SELECT * FROM {view}") == []
            assert {row["user_id"] for row in rows(database, f"SELECT * FROM {view}", "=gil")} == {"gil"}
            assert {"gil", "hal"} <= {row["user_id"] for row in rows(database, f"SELECT * FROM {view}", "*")}


class TestWithoutAnLLM:
    def test_one_setting_gives_embeddings_of_384_dimensions(self, client_without_llm: httpx.Client) -> None:
        assert client_without_llm.get("/health").json()["dimensions"] == 384

    def test_the_three_tiers_work_without_an_llm(self, client_without_llm: httpx.Client) -> None:
        client = client_without_llm
        learn(client, "alex", "My name is Alex and I prefer Python")
        remember(client, "alex", *(f"Question {n} about vector databases: which fits a team?" for n in range(2, 11)))
        wait_until(lambda: episodes(client, "alex") and facts(client, "alex"))
        assert ranges(client, "alex") == [(1, 10)]
        assert facts(client, "alex")["name"][0] == "Alex"
        context = recall(client, "alex", "What is my name?")
        assert context.startswith("# Long-term Memory\n## User Profile\n- name: Alex\n")
        assert "# Recent Conversation\nuser: Question 6 about vector databases: which fits a team?\n" in context

    def test_a_chat_is_answered_and_its_session_continued(self, client_without_llm: httpx.Client) -> None:
        client = client_without_llm
        say(client, "sam", "My name is Sam.")
        wait_until(lambda: facts(client, "sam"))
        say(client, "sam", "What is my name?")
        [session] = get(client, "sessions", "sam")
        assert session["turn_count"] == 4
        assert session["session_id"] == "conversation"
