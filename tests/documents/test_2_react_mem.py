"""The requirements of react-mem, on a server that is started as its page says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect import Memory, Settings
from recollect.config.settings import load
from recollect.errors import InvalidSettings
from tests.support.agent_samples import agent_requests, call, calls, messages, script, tool_names
from tests.support.recollect_server import RecollectServer
from tests.support.remember_samples import NOTHING, claim, learns, wait_until
from tests.support.scripted_llm import ScriptedLLM

PORT = "The payment service listens on port 8443"
CHAT_MODEL = "chat-model"
INVOCATION = {"query": "Run the tests", "summary": "The agent ran the tests", "result": "They pass"}


@pytest.fixture(scope="module")
def llm() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as llm:
        llm.default = NOTHING
        learns(llm, "port 8443", claim(PORT))
        llm.when(lambda request: request.json.get("model") == CHAT_MODEL).reply("Done.")
        yield llm


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, llm: ScriptedLLM) -> Iterator[httpx.Client]:
    home = tmp_path_factory.mktemp("react-mem")
    variables = {"OPENAI_BASE_URL": llm.base_url, "RECOLLECT_LLM": "scripted", "RECOLLECT_LLM_URL": llm.base_url}
    # A busy machine must not turn a slow answer into none.
    patient = {"RECOLLECT_RECALL_TIMEOUT_S": "60", "RECOLLECT_MEMORY_TIMEOUT_S": "30"}
    with (
        RecollectServer(home, "--preset", "react-mem", **variables, **patient) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        yield client


def react(client: httpx.Client, path: str, **body: Any) -> dict[str, Any]:
    answer = client.post(f"/api/react/{path}", json=body)
    assert answer.status_code == 200, answer.text
    report: dict[str, Any] = answer.json()
    return report


def ask(client: httpx.Client, question: str, conversation: str, **body: Any) -> dict[str, Any]:
    where = {"user": body["user"], "collection": "payments", "conversation_id": conversation, "enable_memory": True}
    answer = client.post("/v1/agent", json={"question": question, **where, **body})
    assert answer.status_code == 200, answer.text
    report: dict[str, Any] = answer.json()
    return report


def chat(client: httpx.Client, llm: ScriptedLLM, question: str, user: str, conversation: str, *before: str) -> str:
    """Send a chat, and return the prompt that the LLM received, as text."""
    headers = {"X-Memory-User": user, "X-Memory-Project": "payments", "X-Memory-Session": conversation}
    history = [{"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(before)]
    body = {"model": CHAT_MODEL, "messages": [*history, {"role": "user", "content": question}]}
    answer = client.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    request = [each for each in llm.calls("chat") if each.json.get("model") == CHAT_MODEL][-1]
    return "\n\n".join(str(each["content"]) for each in messages(request)[:-1])


def fact_texts(client: httpx.Client, query: str, user: str, **more: Any) -> list[str]:
    where = {"user": user, "collection": "payments", **more}
    return [fact["content"] for fact in react(client, "facts/retrieve", query=query, **where)["facts"]]


def queries(client: httpx.Client, conversation: str, user: str, **more: Any) -> list[str]:
    body = {"conversation_id": conversation, "user": user, **more}
    return [each["query"] for each in react(client, "conversations/get", **body)["conversation"]["invocations"]]


class TestLongTermFacts:
    """Facts are global per user and collection, permanent until deleted or expired."""

    def test_facts_learned_in_one_conversation_are_long_term_and_global_before_it_ends(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        script(llm, "Deployed.", "8443.")
        ask(client, "Deploy the payment service. It listens on port 8443.", "monday", user="ann")
        wait_until(lambda: fact_texts(client, "Which port?", "ann") == [PORT])
        conversation = react(client, "conversations/get", conversation_id="monday", user="ann")["conversation"]
        assert conversation["metadata"]["closed"] is False
        report = ask(client, "Which port does the payment service use?", "tuesday", user="ann")
        assert len(report["facts"]) == 1
        assert f"Long-term Facts:\n- {PORT}" in messages(agent_requests(llm)[-1])[1]["content"]

    def test_a_fact_records_the_conversation_where_it_was_learned(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        script(llm, "Deployed.")
        ask(client, "Deploy the payment service. It listens on port 8443.", "wednesday", user="amy")
        wait_until(lambda: fact_texts(client, "Which port?", "amy") == [PORT])
        [fact] = react(client, "facts/retrieve", query="port", user="amy", collection="payments")["facts"]
        assert fact["source"] == "wednesday"

    def test_another_user_or_collection_does_not_see_them(self, client: httpx.Client) -> None:
        react(client, "facts/store", content=PORT, user="art", collection="payments")
        assert fact_texts(client, "port", "art") == [PORT]
        assert fact_texts(client, "port", "art", collection="shop") == []
        assert fact_texts(client, "port", "eve") == []

    def test_a_stored_fact_has_an_optional_ttl(self, client: httpx.Client) -> None:
        where = {"user": "ada", "collection": "payments"}
        react(client, "facts/store", content="The staging server is down", ttl=1, **where)
        react(client, "facts/store", content=PORT, ttl=3600, **where)
        wait_until(lambda: fact_texts(client, "server and port", "ada") == [PORT])
        # It can be stored anew.
        react(client, "facts/store", content="The staging server is down", **where)
        assert len(fact_texts(client, "server and port", "ada")) == 2

    def test_the_store_fact_tool_takes_fact_content(self, client: httpx.Client, llm: ScriptedLLM) -> None:
        stored = ["The staging host is stage.example", "The build runs on Fridays"]
        tool_calls = [call("StoreFact", fact_content=stored[0]), call("StoreFact", content=stored[1])]
        script(llm, *(calls(each, thought="I keep it.") for each in tool_calls), "Noted.")
        report = ask(client, "Keep in mind where staging is.", "monday", user="abe")
        assert [step["observation"] for step in report["steps"]] == ["Stored as f1.", "Stored as f2."]
        assert sorted(fact_texts(client, "staging, build", "abe")) == sorted(stored)
        [request, *_] = [each for each in agent_requests(llm) if "where staging is" in each.text]
        [tool] = [each for each in request.json["tools"] if each["function"]["name"] == "StoreFact"]
        assert list(tool["function"]["parameters"]["properties"]) == ["fact_content"]
        assert {"RetrieveFacts", "RecallEpisodes", "StoreFact"} <= set(tool_names(request))


class TestEpisodicMemory:
    """Episodes have an optional TTL."""

    def test_a_stored_episode_has_an_optional_ttl(self, client: httpx.Client) -> None:
        where = {"user": "bea", "collection": "payments"}
        for goal, ttl in (("Deploy the shop", {"ttl": 1}), ("Deploy the service", {}), ("Deploy it", {"ttl": 3600})):
            react(client, "episodes/store", goal=goal, steps=["build"], outcome="deployed", **ttl, **where)

        def goals() -> list[str]:
            found = react(client, "episodes/retrieve", query="deploy", **where)["episodes"]
            return sorted(each["goal"] for each in found)

        wait_until(lambda: goals() == ["Deploy it", "Deploy the service"])

    def test_a_ttl_must_be_in_the_future(self, client: httpx.Client) -> None:
        for path, body in (("facts", {"content": PORT}), ("episodes", {"goal": "Deploy it"})):
            answer = client.post(f"/api/react/{path}/store", json={**body, "user": "bea", "ttl": 0})
            assert answer.status_code == 400
            assert answer.json()["error"]["message"] == "ttl: Input should be greater than or equal to 1"


class TestConversationMemory:
    """Conversation memory is of the current conversation only, and read in order, not searched."""

    def test_get_conversation_memory_needs_only_conversation_id_and_user(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        script(llm, "Deployed.", "They pass.")
        ask(client, "Deploy the shop", "monday", user="cal")
        ask(client, "Run the tests", "monday", user="cal")
        asked = ["Deploy the shop", "Run the tests"]
        wait_until(lambda: queries(client, "monday", "cal") == asked)
        assert queries(client, "monday", "cal", collection="payments") == asked
        assert queries(client, "monday", "cal", collection="shop") == []
        assert queries(client, "monday", "eve") == []

    def test_update_conversation_memory_needs_only_conversation_id_and_user(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        script(llm, "Deployed.")
        ask(client, "Deploy the shop", "monday", user="cia")
        wait_until(lambda: queries(client, "monday", "cia") == ["Deploy the shop"])
        react(client, "conversations/update", conversation_id="monday", user="cia", invocation_summary=INVOCATION)
        assert queries(client, "monday", "cia", collection="payments") == ["Deploy the shop", "Run the tests"]

    def test_a_conversation_in_several_collections_is_returned_in_the_order_of_time(
        self, client: httpx.Client
    ) -> None:
        for collection, query, hour in (("payments", "first", 1), ("shop", "second", 2), ("payments", "third", 3)):
            summary = {**INVOCATION, "query": query, "timestamp": f"2026-03-15T0{hour}:00:00Z"}
            body = {"conversation_id": "monday", "user": "cleo", "collection": collection}
            react(client, "conversations/update", **body, invocation_summary=summary)
        assert queries(client, "monday", "cleo") == ["first", "second", "third"]

    def test_a_conversation_can_be_deleted_with_what_was_learned_from_it_alone(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        script(llm, "Deployed.", "They pass.")
        react(client, "facts/store", content="The shop is open", user="cy", collection="payments")
        ask(client, "Deploy the payment service. It listens on port 8443.", "monday", user="cy")
        ask(client, "Run the tests", "tuesday", user="cy")
        wait_until(lambda: len(fact_texts(client, "port", "cy")) == 2 and bool(queries(client, "tuesday", "cy")))
        wait_until(lambda: bool(queries(client, "monday", "cy")))
        assert react(client, "conversations/delete", conversation_id="monday", user="cy")["success"] is True
        assert queries(client, "monday", "cy") == []
        assert queries(client, "tuesday", "cy") == ["Run the tests"]
        assert fact_texts(client, "port", "cy") == ["The shop is open"]
        again = client.post("/api/react/conversations/delete", json={"conversation_id": "monday", "user": "cy"})
        assert (again.status_code, again.json()["error"]["type"]) == (404, "NotFound")

    def test_the_conversation_history_of_an_agent_holds_the_current_conversation_only(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        script(llm, "Fixed.", "Painted.", "You asked for a fix.")
        ask(client, "Fix the login of the service", "monday", user="dan")
        ask(client, "Paint the login of the service", "tuesday", user="dan")
        ask(client, "What did I ask about the login?", "monday", user="dan")
        block = messages(agent_requests(llm)[-1])[1]["content"]
        assert "Conversation History:\n- Previous invocation 1: The user asked “Fix the login" in block
        assert "Paint" not in block

    def test_the_conversation_history_of_a_chat_holds_the_current_conversation_only(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        for conversation, text in (("monday", "Fix the login of the service"), ("tuesday", "Paint the login")):
            chat(client, llm, text, "dora", conversation)
            wait_until(lambda at=conversation, said=text: queries(client, at, "dora") == [said])  # type: ignore[misc]
        prompt = chat(client, llm, "What did I say about the login?", "dora", "monday")
        assert prompt == (
            "Conversation History:\n"
            "- Previous invocation 1: The user said “Fix the login of the service”; the answer was “Done.”"
        )

    def test_messages_that_a_chat_sends_itself_are_not_repeated(self, client: httpx.Client, llm: ScriptedLLM) -> None:
        chat(client, llm, "Fix the login of the service", "drew", "monday")
        wait_until(lambda: queries(client, "monday", "drew") == ["Fix the login of the service"])
        before = ("Fix the login of the service", "Done.")
        prompt = chat(client, llm, "What did I say about the login?", "drew", "monday", *before)
        assert prompt == "Fix the login of the service\n\nDone."


AGENT_MEM = """\
agent-mem:
  max-iterations: 1
  working-memory-threshold: 500
  fact-retrieval-top-k: 2
  episode-retrieval-top-k: 1
  enable-auto-fact-extraction: false
  enable-episode-recording: false
  additional-context: You look after a shop.
"""


class TestServiceConfiguration:
    """The configuration block is accepted with its names, and the preset applies however it is named."""

    def test_the_configuration_block_agent_mem_is_accepted_with_its_names(
        self, tmp_path: Path, llm: ScriptedLLM
    ) -> None:
        home = tmp_path / "home"
        home.mkdir()
        (home / "config.yaml").write_text(AGENT_MEM)
        where = {"user": "alex", "collection": "payments"}
        options = {"RECOLLECT_LLM": "scripted", "RECOLLECT_LLM_URL": llm.base_url}
        with (
            RecollectServer(home, "--preset", "react-mem", **options) as server,
            httpx.Client(base_url=server.url, timeout=60) as client,
        ):
            for number in range(3):
                react(client, "facts/store", content=f"Shop {number} sells tea", **where)
                react(client, "episodes/store", goal=f"Sell tea in shop {number}", outcome="sold", **where)
            script(llm, calls(call("RetrieveFacts", query="tea"), thought="I look."), "In all of them.")
            report = ask(client, "Which shop sells tea? It has port 8443.", "monday", user="alex")
            assert (len(report["facts"]), len(report["episodes"])) == (2, 1)
            assert report["ended"] == "iterations"
            assert "You look after a shop." in messages(agent_requests(llm)[-1])[0]["content"]
            wait_until(lambda: bool(queries(client, "monday", "alex")))
            # Neither turns to learn from nor an episode of the run.
            params = {"user_id": "alex", "project_id": "payments", "session_id": "monday"}
            assert client.get("/recollect/v1/turns", params=params).json()["results"] == []
            assert len(react(client, "episodes/retrieve", query="tea", top_k=10, **where)["episodes"]) == 3

    def test_an_unknown_name_in_agent_mem_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        (tmp_path / "config.yaml").write_text("agent-mem:\n  fact-retrieval-topk: 2\n")
        with pytest.raises(InvalidSettings, match=r"no setting 'agent-mem.fact-retrieval-topk'"):
            load({"home": tmp_path, "preset": "react-mem"}, environ={})

    def test_settings_and_memory_both_apply_the_preset(self, tmp_path: Path) -> None:
        settings = Settings(preset="react-mem", home=tmp_path, database="memory:", search_limit=4)
        assert (settings.context_format, settings.keep_invocations) == ("react-mem", True)
        assert settings.search_limit == 4
        with Memory(settings=settings) as one, Memory("memory:", preset="react-mem", home=tmp_path) as other:
            for memory in (one, other):
                memory.add(PORT, user_id="alex")
                block = memory.recall("Which port does the payment service use?", user_id="alex").context.text
                assert block == f"Long-term Facts:\n- {PORT}"

    def test_an_unknown_preset_is_an_error_that_lists_the_presets(self) -> None:
        with pytest.raises(InvalidSettings, match=r"there is no preset 'react'; the presets are .*react-mem"):
            Settings(preset="react")
