"""The requirements of react-mem, on a server that is started as its page says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from recollect import Memory, Settings
from recollect.agent.types import Call, Observation, Step
from recollect.agent.working_memory import WorkingMemory
from recollect.config.settings import load
from recollect.errors import InvalidSettings
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.agent_samples import agent_requests, call, calls, messages, script, tool_names
from tests.support.recollect_server import RecollectServer, in_thread
from tests.support.remember_samples import EXTRACT, NOTHING, claim, learns, new_turns, wait_until

PORT = "The payment service listens on port 8443"
CHAT_MODEL = "chat-model"
INVOCATION = {"query": "Run the tests", "summary": "The agent ran the tests", "result": "They pass"}
EPISODE = {
    "goal": "Deploy the payment service",
    "steps": ["npm build", "docker push"],
    "outcome": "deployed on port 8443",
    "lessons": "Check the port first",
}
# The prompt that asks for the episode of a run or of a conversation.
EPISODE_PROMPT = "Tell its story for those who will work"
LAST_PAGE = 20


@pytest.fixture(scope="module")
def llm() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as llm:
        llm.default = NOTHING
        learns(llm, "port 8443", claim(PORT))
        llm.when(lambda request: request.json.get("model") == CHAT_MODEL).reply("Done.")
        yield llm


def page_of_log(page: int) -> str:
    return f"Page {page} has the code {page}77. " + "Nothing else of note happened. " * 90


@pytest.fixture(scope="module")
def tools() -> Iterator[str]:
    """A service with a log, as a tool of the agent; a page that does not exist is an error."""

    def read(request: Request) -> PlainTextResponse:
        if (page := int(request.path_params["page"])) > LAST_PAGE:
            raise HTTPException(404, f"there is no page {page}")
        return PlainTextResponse(page_of_log(page))

    app = Starlette(routes=[Route("/log/{page}", read)])
    with in_thread(uvicorn.Config(app, log_level="error")) as url:
        number = {"page": {"type": "integer"}}
        tool = {"description": "Read a page of the log.", "url": f"{url}/log/{{page}}", "parameters": number}
        yield json.dumps({"read_log": tool})


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, llm: ScriptedLLM, tools: str) -> Iterator[httpx.Client]:
    home = tmp_path_factory.mktemp("react-mem")
    options = ("--preset", "react-mem", "--llm", "scripted", "--llm-url", llm.base_url)
    groups = json.dumps({"default": ["*"], "readers": ["read_log"]})
    variables = {"OPENAI_BASE_URL": llm.base_url, "RECOLLECT_AGENT_TOOLS": tools, "RECOLLECT_AGENT_GROUPS": groups}
    # A busy machine must not turn a slow answer into none.
    patient = {
        "RECOLLECT_RECALL_TIMEOUT_S": "60",
        "RECOLLECT_MEMORY_TIMEOUT_S": "30",
        "RECOLLECT_AGENT_TIME_S": "300",
    }
    with (
        RecollectServer(home, *options, **variables, **patient) as server,
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


def stored_episodes(client: httpx.Client, user: str, query: str = "the log", **more: Any) -> list[dict[str, Any]]:
    where = {"user": user, "collection": "payments", **more}
    results: list[dict[str, Any]] = react(client, "episodes/retrieve", query=query, **where)["episodes"]
    return results


def sent_by(llm: ScriptedLLM, question: str) -> list[list[dict[str, Any]]]:
    """Return the messages of the requests of an agent with this question, in order."""
    return [messages(each) for each in agent_requests(llm) if question in each.text]


def prompt_of(llm: ScriptedLLM, question: str) -> str:
    """Return the last prompt of an agent with this question, as text."""
    return "\n\n".join(str(each["content"]) for each in sent_by(llm, question)[-1])


def reads(*pages: int) -> list[Any]:
    return [calls(call("read_log", page=page), thought=f"I read page {page}.") for page in pages]


def is_closed(client: httpx.Client, **where: str) -> bool:
    return bool(react(client, "conversations/get", **where)["conversation"]["metadata"]["closed"])


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

    def test_a_fact_stays_until_it_is_deleted(self, client: httpx.Client) -> None:
        where = {"user": "ali", "collection": "payments"}
        fact_id = react(client, "facts/store", content=PORT, **where)["fact_id"]
        assert fact_texts(client, "port", "ali") == [PORT]
        assert react(client, "facts/delete", fact_id=fact_id, **where) == {"error": None, "success": True}
        assert fact_texts(client, "port", "ali") == []
        again = client.post("/api/react/facts/delete", json={"fact_id": fact_id, **where})
        assert (again.status_code, again.json()["error"]["type"]) == (404, "NotFound")

    def test_facts_are_searched_by_the_embedding_of_the_query_or_one_of_the_caller(
        self, client: httpx.Client
    ) -> None:
        for content in (PORT, "The office cat sleeps on the sofa", "Invoices are sent on Mondays"):
            react(client, "facts/store", content=content, user="ava", collection="payments")
        assert fact_texts(client, "Where does the kitten rest?", "ava", top_k=1) == [
            "The office cat sleeps on the sofa"
        ]
        size = client.get("/health").json()["dimensions"]
        one, other = [1.0] + [0.0] * (size - 1), [0.0] * (size - 1) + [1.0]
        for content, embedding in (("alpha", one), ("omega", other)):
            react(client, "facts/store", content=content, embedding=embedding, user="avi", collection="payments")
        for content, embedding in (("alpha", one), ("omega", other)):
            assert fact_texts(client, "unrelated words", "avi", embedding=embedding, top_k=1) == [content]

    def test_all_facts_of_one_message_can_be_retrieved(self, client: httpx.Client, llm: ScriptedLLM) -> None:
        facts = [
            f"The {name} runs in zone {at}" for at, name in enumerate(("shop", "till", "mailer", "cache", "queue"))
        ]
        text = "The shop is in zone 0, the till in 1, the mailer in 2, the cache in 3, the queue in 4."
        learns(llm, text, *map(claim, facts))
        script(llm, "Noted.")
        ask(client, text, "monday", user="axl")
        wait_until(lambda: sorted(fact_texts(client, "Which zone does it run in?", "axl")) == sorted(facts))

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
    """Episodes are global per user and collection, searched by similarity, with an optional TTL."""

    def test_episodes_are_of_all_conversations_of_the_user_and_collection(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        react(client, "episodes/store", **EPISODE, user="ben", collection="payments")
        script(llm, "As before.", "I do not know.")
        assert len(ask(client, "How do I deploy the payment service?", "tuesday", user="ben")["episodes"]) == 1
        assert "Relevant Past Episodes:\n- Episode 1: Goal: Deploy the payment service" in prompt_of(
            llm, "How do I deploy the payment service?"
        )
        for other in ({"user": "eve"}, {"user": "ben", "collection": "shop"}):
            assert ask(client, "How do I deploy it?", "tuesday", **other)["episodes"] == []

    def test_episodes_are_searched_by_the_query_and_the_state_of_the_work(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        topics = ("Paint the kitchen wall", "Restore the database from a backup")
        for topic in topics:
            for number in range(3):
                goal = f"{topic}, part {number}"
                react(client, "episodes/store", goal=goal, outcome="done", user="bob", collection="payments")
        script(llm, "Going on.", "Going on.")
        for state, topic in (("The wall of the kitchen is grey", topics[0]), ("The database is lost", topics[1])):
            ask(client, "Please go on with it", "monday", user="bob", state=state)
            prompt = prompt_of(llm, "Please go on with it")
            assert prompt.count(f"Goal: {topic}") == 3
            assert prompt.count("Goal: ") == 3

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

    def test_the_conversation_survives_its_end(self, client: httpx.Client) -> None:
        where = {"conversation_id": "monday", "user": "cara"}
        react(client, "conversations/update", **where, invocation_summary=INVOCATION)
        react(client, "conversations/end", **where)
        wait_until(lambda: is_closed(client, **where))
        assert queries(client, "monday", "cara") == ["Run the tests"]

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


class TestRecords:
    """The records of the memory API have the fields of the design."""

    def test_a_fact_has_id_content_source_timestamp_and_metadata(self, client: httpx.Client) -> None:
        where = {"user": "fay", "collection": "payments"}
        stored = react(client, "facts/store", content=PORT, source="monday", metadata={"verified": True}, **where)
        assert stored.keys() == {"fact_id", "error"}
        answer = react(client, "facts/retrieve", query="port", **where)
        assert answer.keys() == {"facts", "error"}
        [fact] = answer["facts"]
        # The embedding is not returned.
        assert fact.keys() == {"id", "content", "source", "timestamp", "metadata"}
        assert (fact["id"], fact["content"], fact["source"]) == (stored["fact_id"], PORT, "monday")
        assert (fact["metadata"], fact["timestamp"][-1]) == ({"verified": True}, "Z")

    def test_an_episode_has_goal_steps_outcome_lessons_timestamp_and_metadata(self, client: httpx.Client) -> None:
        where = {"user": "flo", "collection": "payments"}
        stored = react(client, "episodes/store", **EPISODE, metadata={"run": 7}, **where)
        assert stored.keys() == {"episode_id", "error"}
        answer = react(client, "episodes/retrieve", query="deploy", **where)
        assert answer.keys() == {"episodes", "error"}
        [episode] = answer["episodes"]
        assert episode.keys() == {*EPISODE, "id", "timestamp", "metadata"}
        assert {name: episode[name] for name in EPISODE} == EPISODE
        assert (episode["id"], episode["metadata"]) == (stored["episode_id"], {"run": 7})

    def test_a_conversation_has_its_id_invocations_and_metadata(self, client: httpx.Client) -> None:
        invocation = {**INVOCATION, "timestamp": "2026-03-15T10:00:00Z"}
        where = {"conversation_id": "monday", "user": "fred"}
        updated = react(client, "conversations/update", **where, invocation_summary=invocation)
        assert updated == {"error": None, "success": True}
        answer = react(client, "conversations/get", **where)
        assert answer.keys() == {"conversation", "error"}
        conversation = answer["conversation"]
        assert conversation.keys() == {"conversation_id", "invocations", "metadata"}
        assert (conversation["conversation_id"], conversation["invocations"]) == ("monday", [invocation])

    async def test_an_item_of_working_memory_has_kind_content_time_and_tokens(self) -> None:
        working = WorkingMemory()
        asked = Call(id="1", tool="read_log", arguments={"page": 3})
        await working.add(
            Step(
                thought="I read it.",
                calls=(asked,),
                observations=(Observation(call_id="1", tool="read_log", text="Nothing."),),
            )
        )
        kinds = [(str(item.kind), item.content) for item in working.items]
        assert kinds == [
            ("thought", "I read it."),
            ("action", "read_log(page=3)"),
            ("observation", "Nothing."),
        ]
        assert all(item.at.tzinfo is not None and item.tokens > 0 for item in working.items)
        assert working.items[2].metadata["tool"] == "read_log"

    def test_five_facts_and_three_episodes_are_retrieved_by_default(self, client: httpx.Client) -> None:
        where = {"user": "fin", "collection": "payments"}
        for number in range(6):
            react(client, "facts/store", content=f"Service {number} listens on port {8000 + number}", **where)
            react(client, "episodes/store", **{**EPISODE, "goal": f"Deploy service {number}"}, **where)
        assert len(fact_texts(client, "Which port?", "fin")) == 5
        assert len(fact_texts(client, "Which port?", "fin", top_k=2)) == 2
        assert len(stored_episodes(client, "fin", "deploy")) == 3
        assert len(stored_episodes(client, "fin", "deploy", top_k=6)) == 6

    def test_an_error_has_a_type_and_a_message(self, client: httpx.Client) -> None:
        for path, body, message in (
            ("facts/retrieve", {"query": "port", "user": "fin", "top_k": 0}, "top_k: "),
            ("facts/store", {"content": " ", "user": "fin"}, "content is empty"),
            ("conversations/get", {"user": "fin"}, "conversation_id is missing"),
            ("episodes/store", {"goals": "x", "user": "fin"}, "goal"),
        ):
            answer = client.post(f"/api/react/{path}", json=body)
            assert answer.status_code == 400
            [error] = answer.json().values()
            assert error.keys() == {"type", "message"}
            assert error["message"].startswith(message)


class TestAgentRequests:
    """A request has the fields of `AgentRequest`; memory changes the context of a run, not the response."""

    def test_without_enable_memory_it_is_a_plain_react_agent_that_stores_nothing(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        react(client, "facts/store", content=PORT, user="gil", collection="payments")
        script(llm, *reads(1), "I do not know.")
        body = {"question": "Which port has Gil's service?", "user": "gil", "conversation_id": "monday"}
        report = client.post("/v1/agent", json={**body, "collection": "payments"}).json()
        assert (report["answer"], report["facts"], report["conversation_id"]) == ("I do not know.", [], "")
        [request, _] = [each for each in agent_requests(llm) if "Gil's" in each.text]
        assert tool_names(request) == ["read_log"]
        assert "8443" not in request.text
        assert "memory" not in request.text
        assert queries(client, "monday", "gil") == []
        assert fact_texts(client, "port", "gil") == [PORT]

    def test_with_memory_the_response_has_the_same_fields(self, client: httpx.Client, llm: ScriptedLLM) -> None:
        reports = []
        for memory in (False, True):
            script(llm, *reads(1), "The code is 177.")
            reports.append(ask(client, "Which code is in the log?", "monday", user="gus", enable_memory=memory))
        for report in reports:
            assert (report["answer"], report["thought"]) == ("The code is 177.", "I read page 1.")
            assert report["observation"].startswith("Page 1 has the code 177.")
            assert (report["ended"], report["error"]) == ("answered", None)
        assert reports[0].keys() == reports[1].keys()

    def test_the_steps_are_streamed_as_they_happen(self, client: httpx.Client, llm: ScriptedLLM) -> None:
        script(llm, *reads(1), "The code is 177.")
        body = {"question": "Which code?", "user": "guy", "enable_memory": True, "streaming": True}
        answer = client.post("/v1/agent", json=body)
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [block.split("\n") for block in answer.text.strip().split("\n\n")]
        assert [kind for kind, _ in events] == [
            f"event: {kind}" for kind in ("thought", "action", "observation", "answer")
        ]
        assert json.loads(events[0][1].removeprefix("data: ")) == {"thought": "I read page 1."}
        assert json.loads(events[3][1].removeprefix("data: "))["answer"] == "The code is 177."

    def test_history_state_and_groups_are_used(self, client: httpx.Client, llm: ScriptedLLM) -> None:
        script(llm, "The code is 277.")
        step = {"thought": "I read.", "action": "read_log", "arguments": {"page": 2}, "observation": "The code 277."}
        ask(
            client,
            "Which code is it then?",
            "monday",
            user="gwen",
            history=[step],
            state="almost done",
            group=["readers"],
        )
        [request] = [each for each in agent_requests(llm) if "Which code is it then?" in each.text]
        assert tool_names(request) == ["read_log"]
        assert [each["role"] for each in messages(request)][-2:] == ["assistant", "tool"]
        assert messages(request)[-1]["content"] == "The code 277."
        assert "Current Task:\nState: almost done\n" in request.text


class TestInvocation:
    """A run begins with memories, reasons and acts within its limits, and leaves memories."""

    def test_the_context_has_the_sections_of_the_design_in_their_order(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        where = {"user": "hal", "collection": "payments"}
        react(client, "facts/store", content=PORT, **where)
        react(client, "episodes/store", **EPISODE, **where)
        react(client, "conversations/update", conversation_id="monday", invocation_summary=INVOCATION, **where)
        script(llm, "It is 8443.")
        ask(client, "Which port has the payment service of Hal?", "monday", user="hal")
        prompt = prompt_of(llm, "Which port has the payment service of Hal?")
        parts = (
            "You are an agent",
            "You have access to persistent memory",
            f"Long-term Facts:\n- {PORT}\n",
            "Relevant Past Episodes:\n- Episode 1: Goal: Deploy the payment service Steps: 1. npm build 2. ",
            "Conversation History:\n- Previous invocation 1: The agent ran the tests\n",
            "Current Task:\n",
            "Working Memory:\n",
            "Question: Which port has the payment service of Hal?\n",
            "Think step by step and decide on the next action, or give the final answer.",
        )
        places = [prompt.find(part) for part in parts]
        assert -1 not in places, prompt
        assert places == sorted(places)

    def test_five_facts_and_three_episodes_begin_a_run(self, client: httpx.Client, llm: ScriptedLLM) -> None:
        where = {"user": "han", "collection": "payments"}
        for number in range(7):
            react(client, "facts/store", content=f"Service {number} listens on port {8000 + number}", **where)
            react(client, "episodes/store", **{**EPISODE, "goal": f"Deploy service {number}"}, **where)
        script(llm, "I do not know.")
        report = ask(client, "Which port has the service of Han?", "monday", user="han")
        assert (len(report["facts"]), len(report["episodes"])) == (5, 3)
        prompt = prompt_of(llm, "Which port has the service of Han?")
        assert (prompt.count("listens on port"), prompt.count("Goal: Deploy service")) == (5, 3)

    def test_the_last_ten_invocations_are_loaded_each_up_to_500_characters(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        for number in range(1, 13):
            summary = {**INVOCATION, "summary": f"The agent did number {number}. " + "And more. " * 100}
            body = {"conversation_id": "monday", "user": "hans", "collection": "payments"}
            react(client, "conversations/update", **body, invocation_summary=summary)
        script(llm, "A lot.")
        ask(client, "What did Hans do so far?", "monday", user="hans")
        lines = [
            line for line in prompt_of(llm, "What did Hans do so far?").splitlines() if "Previous invocation" in line
        ]
        assert [line.partition(".")[0] for line in lines] == [
            f"- Previous invocation {at}: The agent did number {at + 2}" for at in range(1, 11)
        ]
        assert max(map(len, lines)) <= len("- Previous invocation 10: ") + 500

    def test_a_run_reasons_and_acts_until_the_final_answer(self, client: httpx.Client, llm: ScriptedLLM) -> None:
        script(llm, *reads(1, 2), "The codes are 177 and 277.")
        report = ask(client, "Which codes has Hugo's log?", "monday", user="hugo")
        assert (report["answer"], report["ended"]) == ("The codes are 177 and 277.", "answered")
        assert [(step["thought"], step["action"], step["arguments"]) for step in report["steps"]] == [
            (f"I read page {page}.", "read_log", {"page": page}) for page in (1, 2)
        ]
        sent = sent_by(llm, "Which codes has Hugo's log?")
        assert [each["content"] for each in sent[-1] if each["role"] == "tool"] == [page_of_log(1), page_of_log(2)]

    def test_a_run_ends_after_ten_iterations(self, client: httpx.Client, llm: ScriptedLLM) -> None:
        script(llm, *[calls(call("RetrieveFacts", query="code"))] * 10, "I give up.")
        report = ask(client, "Which code has Ida's log?", "monday", user="ida")
        assert (report["ended"], report["answer"], len(report["steps"])) == ("iterations", "I give up.", 10)

    def test_above_2000_tokens_older_steps_are_compressed_and_the_last_three_stay(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        llm.when("An agent is working on a task").reply("The log was read page by page.")
        question = "Which codes has Ian's log?"
        script(llm, *reads(1, 2, 3, 4, 5, 6), "They are known.")
        ask(client, question, "monday", user="ian")
        sent = sent_by(llm, question)

        def pages(rows: list[dict[str, Any]]) -> list[str]:
            return [row["content"].partition(".")[0] for row in rows if row["role"] == "tool"]

        assert pages(sent[3]) == [f"Page {page} has the code {page}77" for page in (1, 2, 3)]
        assert pages(sent[6]) == [f"Page {page} has the code {page}77" for page in (4, 5, 6)]
        [task] = [row["content"] for row in sent[6] if "Working Memory:" in str(row["content"])]
        # Summarised by the LLM; the tool results and the decisions are preserved.
        assert "Working Memory:\nThe log was read page by page." in task
        for page in (1, 2, 3):
            assert f"- read_log(page={page}) -> Page {page} has the code {page}77." in task
            assert f"- decided: I read page {page}." in task

    def test_the_invocation_is_summarised_as_asked_did_and_result(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        script(llm, *reads(3), "The code is 377.")
        ask(client, "Which code is on page 3?", "monday", user="ike")
        wait_until(lambda: queries(client, "monday", "ike"))
        [invocation] = react(client, "conversations/get", conversation_id="monday", user="ike")["conversation"][
            "invocations"
        ]
        assert invocation["summary"] == (
            "The user asked “Which code is on page 3?”; the agent did: read_log(page=3); "
            "the result was: The code is 377."
        )
        assert invocation["result"] == "The code is 377."

    def test_a_run_of_several_steps_is_recorded_as_an_episode(self, client: httpx.Client, llm: ScriptedLLM) -> None:
        question = "Find the code of page 7 for Ira"
        story = {
            "task": True,
            "goal": "Find a code in the log",
            "steps": ["read page 99", "read page 7"],
            "outcome": "The code is 777",
            "lessons": ["The log has 20 pages"],
            "summary": "A code was found",
        }
        llm.when(lambda request: EPISODE_PROMPT in request.text and question in request.text).reply_json(story)
        script(llm, *reads(99, 7), "The code is 777.", "Hello.")
        ask(client, question, "monday", user="ira")
        ask(client, "Hello there", "monday", user="ira")
        wait_until(lambda: len(queries(client, "monday", "ira")) == 2)
        # The greeting is none.
        [episode] = stored_episodes(client, "ira")
        assert (episode["goal"], episode["steps"]) == (question, story["steps"])
        assert episode["outcome"] == "The code is 777"
        assert "read_log(page=99) failed" in episode["lessons"]
        assert "read_log(page=7) worked" in episode["lessons"]

    def test_working_memory_is_discarded_after_the_run(self, client: httpx.Client, llm: ScriptedLLM) -> None:
        script(llm, *reads(8), "Read.", "Page 8.")
        ask(client, "Read page 8 for Isa", "monday", user="isa")
        ask(client, "What did Isa read?", "monday", user="isa")
        prompt = prompt_of(llm, "What did Isa read?")
        assert "Read page 8 for Isa" in prompt
        assert "the code 877" not in prompt

    def test_the_llm_is_asked_for_facts_after_the_answer(self, client: httpx.Client, llm: ScriptedLLM) -> None:
        script(llm, "Noted, Ivo.")
        report = ask(client, "My name is Ivo and I look after the till.", "monday", user="ivo")
        assert report["answer"] == "Noted, Ivo."
        llm.wait_for(
            lambda llm: any(
                EXTRACT in each.text and any("look after the till" in line for line in new_turns(each))
                for each in llm.calls("chat")
            )
        )


class TestConversationEnd:
    def test_the_end_of_a_conversation_records_its_episode_and_promotes_its_facts(
        self, client: httpx.Client, llm: ScriptedLLM
    ) -> None:
        where = {"conversation_id": "monday", "user": "jan", "collection": "payments"}
        text = "I work at Contoso on the branch green. Build it."
        learns(llm, "I work at Contoso on the branch green", claim("User works at Contoso", importance=0.9))
        for query in (text, "Run the tests of it"):
            react(client, "conversations/update", **where, invocation_summary={**INVOCATION, "query": query})
        memory = {"content": "The branch of this week is green", "level": "session", "importance": 0.9}
        scope = {"user_id": "jan", "project_id": "payments", "session_id": "monday"}
        assert client.post("/recollect/v1/memories", params=scope, json=memory).status_code < 300
        assert fact_texts(client, "Which branch?", "jan") == []
        react(client, "conversations/end", **where)
        wait_until(lambda: len(fact_texts(client, "Which branch, which employer?", "jan")) == 2)
        wait_until(lambda: stored_episodes(client, "jan", "branch"))
        [episode] = stored_episodes(client, "jan", "branch")
        assert episode["goal"] == f"{text}; Run the tests of it"
        assert episode["outcome"] == "They pass"


class TestSecurity:
    def test_secrets_are_not_stored_in_facts_and_conversations(self, client: httpx.Client, llm: ScriptedLLM) -> None:
        secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
        where = {"user": "kim", "collection": "payments"}
        react(client, "facts/store", content=f"The key of the till is {secret}", **where)
        script(llm, "Noted.")
        ask(client, f"The key of the shop is {secret}", "monday", user="kim")
        wait_until(lambda: queries(client, "monday", "kim"))
        [fact] = fact_texts(client, "key", "kim")
        assert fact.startswith("The key of the till is ")
        assert secret not in fact
        assert secret not in str(react(client, "conversations/get", conversation_id="monday", user="kim"))

    def test_the_memory_of_a_user_can_be_purged(self, client: httpx.Client) -> None:
        for user in ("kai", "kit"):
            react(client, "facts/store", content=PORT, user=user, collection="payments")
            react(client, "episodes/store", **EPISODE, user=user, collection="payments")
            react(client, "conversations/update", conversation_id="monday", user=user, invocation_summary=INVOCATION)
        answer = client.post("/recollect/v1/erase", json={"target": "user"}, params={"user_id": "kai"})
        assert answer.status_code == 200, answer.text
        for user, count in (("kai", 0), ("kit", 1)):
            assert len(fact_texts(client, "port", user)) == count
            assert len(stored_episodes(client, user, "deploy")) == count
            assert len(queries(client, "monday", user)) == count


AGENT_MEM = """\
agent-mem:
  max-iterations: 1
  working-memory-threshold: 500
  fact-retrieval-top-k: 2
  episode-retrieval-top-k: 1
  enable-auto-fact-extraction: false
  enable-episode-recording: false
  additional-context: You look after a shop.
agent_memory_tools: false
session_idle_s: 0.001
quota_project: 6
"""
ALEX = {"user": "alex", "collection": "payments"}


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory, llm: ScriptedLLM, tools: str) -> Iterator[httpx.Client]:
    """A server with a configuration file, on a home that was used before."""
    home = tmp_path_factory.mktemp("configured")
    with Memory(preset="react-mem", home=home) as memory:
        memory.add(PORT, user_id="before", project_id="payments")
        memory.remember("Deploy the shop", user_id="before", project_id="payments", session_id="sunday")
    (home / "config.yaml").write_text(AGENT_MEM)
    options = ("--preset", "react-mem", "--llm", "scripted", "--llm-url", llm.base_url)
    with (
        RecollectServer(home, *options, RECOLLECT_RECALL_TIMEOUT_S="60", RECOLLECT_AGENT_TOOLS=tools) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        wait_until(lambda: client.get("/ready").status_code == 200)
        yield client


class TestServiceConfiguration:
    """The configuration block is accepted with its names, and the preset applies however it is named."""

    def test_the_configuration_block_agent_mem_is_accepted_with_its_names(
        self, configured: httpx.Client, llm: ScriptedLLM
    ) -> None:
        for number in range(3):
            react(configured, "facts/store", content=f"Shop {number} sells tea", **ALEX)
            react(configured, "episodes/store", goal=f"Sell tea in shop {number}", outcome="sold", **ALEX)
        script(llm, *reads(1), "In all of them.")
        question = "Which shop of Alex sells tea? It has port 8443."
        report = ask(configured, question, "monday", user="alex")
        assert (len(report["facts"]), len(report["episodes"])) == (2, 1)
        assert (report["ended"], len(report["steps"])) == ("iterations", 1)
        assert "You look after a shop." in sent_by(llm, question)[-1][0]["content"]
        wait_until(lambda: queries(configured, "monday", "alex"))
        # Neither turns to learn from nor an episode of the run.
        params = {"user_id": "alex", "project_id": "payments", "session_id": "monday"}
        assert configured.get("/recollect/v1/turns", params=params).json()["results"] == []
        assert len(stored_episodes(configured, "alex", "tea", top_k=10)) == 3

    def test_the_working_memory_threshold_is_that_of_the_block(
        self, configured: httpx.Client, llm: ScriptedLLM
    ) -> None:
        # About 900 tokens: above 500, below the default of 2000.
        history = [
            {
                "thought": "I read.",
                "action": "read_log",
                "arguments": {"page": page},
                "observation": "Nothing new. " * 60,
            }
            for page in range(5)
        ]
        script(llm, "Nothing.")
        question = "What is in the log of Lou?"
        ask(configured, question, "monday", user="lou", history=history)
        [sent] = sent_by(llm, question)
        assert len([row for row in sent if row["role"] == "tool"]) == 3
        assert "- read_log(page=0) -> Nothing new." in str(sent)

    def test_the_memory_tools_can_be_left_out(self, configured: httpx.Client, llm: ScriptedLLM) -> None:
        script(llm, "Nothing.")
        ask(configured, "Which tools has Lea?", "monday", user="lea")
        [request] = [each for each in agent_requests(llm) if "Which tools has Lea?" in each.text]
        assert tool_names(request) == ["read_log"]

    def test_memories_of_an_earlier_process_are_there(self, configured: httpx.Client) -> None:
        assert PORT in fact_texts(configured, "Which port?", "before")

    def test_a_conversation_ends_after_a_timeout(self, configured: httpx.Client) -> None:
        wait_until(lambda: is_closed(configured, conversation_id="sunday", user="before"))

    def test_a_quota_limits_the_memories_of_a_collection(self, configured: httpx.Client) -> None:
        for number in range(8):
            react(configured, "facts/store", content=f"Box {number} is blue", user="max", collection="payments")
        where = {"user_id": "max", "project_id": "payments"}
        answer = configured.post("/recollect/v1/upkeep", params=where, json={"chores": ["quota"]})
        assert answer.status_code == 200, answer.text
        assert len(fact_texts(configured, "box", "max", top_k=20)) == 6

    def test_an_unknown_name_in_agent_mem_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        (tmp_path / "config.yaml").write_text("agent-mem:\n  fact-retrieval-topk: 2\n")
        with pytest.raises(InvalidSettings, match=r"no setting 'agent-mem.fact-retrieval-topk'"):
            load({"home": tmp_path, "preset": "react-mem"}, environ={})

    def test_settings_and_memory_both_apply_the_preset(self, tmp_path: Path) -> None:
        settings = Settings(preset="react-mem", home=tmp_path, database="memory:", search_limit=4)
        assert (settings.context_format, settings.store_invocations) == ("react-mem", True)
        assert settings.search_limit == 4
        with Memory(settings=settings) as one, Memory("memory:", preset="react-mem", home=tmp_path) as other:
            for memory in (one, other):
                memory.add(PORT, user_id="alex")
                block = memory.recall("Which port does the payment service use?", user_id="alex").context.text
                assert block == f"Long-term Facts:\n- {PORT}"

    def test_an_unknown_preset_is_an_error_that_lists_the_presets(self) -> None:
        with pytest.raises(InvalidSettings, match=r"there is no preset 'react'; the presets are .*react-mem"):
            Settings(preset="react")
