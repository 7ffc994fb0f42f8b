"""The Responses API through the real client, whether the upstream speaks it or only chat completions."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel
from responses_samples import Running, running

from recollect.errors import StoreUnavailable
from recollect.model.change import By
from recollect.model.erase import Erase, Target
from recollect.model.scope import Scope
from recollect.testing.llm_faults import delay, hang, http_error, reset, stream_error, truncated
from recollect.testing.llm_wire import Reply, ToolCall
from recollect.testing.scripted_llm import ScriptedLLM

OFF = {"memory_config": {"enabled": False, "auto_store": False}}
CHAT_ONLY = http_error(404, "404 page not found")
LOOK = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    "strict": False,
}


@pytest.fixture(params=["translate", "native", "auto", "auto-chat-only"])
def server(request: Any, llm: ScriptedLLM) -> Iterator[Running]:
    if request.param == "auto-chat-only":
        llm.fault(CHAT_ONLY, times=None, on="responses")
    with running(llm.base_url, request.param.partition("-")[0]) as server:
        yield server


@pytest.fixture
def translating(llm: ScriptedLLM) -> Iterator[Running]:
    with running(llm.base_url, "translate") as server:
        yield server


@pytest.fixture
def sdk(server: Running) -> Iterator[openai.OpenAI]:
    with client_of(server) as client:
        yield client


def client_of(server: Running, **headers: str) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=server.url, api_key="sk-test", max_retries=0, timeout=60, default_headers=headers or None
    )


def last(llm: ScriptedLLM) -> dict[str, Any]:
    """What the upstream was last asked, of what it answered."""
    asked: dict[str, Any] = llm.answers[-1][0].json
    return asked


def said_to(llm: ScriptedLLM) -> str:
    return llm.answers[-1][0].text


def test_a_text_is_answered_kept_listed_and_deleted(sdk: openai.OpenAI) -> None:
    made = sdk.responses.create(model="m", input="Aloha", metadata={"a": "b"})
    assert (made.status, made.output_text) == ("completed", "You said: Aloha")
    assert made.usage is not None
    assert made.usage.output_tokens > 0
    found = sdk.responses.retrieve(made.id)
    assert (found.output_text, found.metadata) == (made.output_text, {"a": "b"})
    (item,) = sdk.responses.input_items.list(made.id).data
    assert item.type == "message"
    assert item.content[0].text == "Aloha"  # type: ignore[union-attr]
    sdk.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError) as caught:
        sdk.responses.retrieve(made.id)
    assert caught.value.body["code"] == "not_found"  # type: ignore[index]


def test_a_list_with_all_kinds_of_parts_is_answered(sdk: openai.OpenAI, llm: ScriptedLLM) -> None:
    content: Any = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
    ]
    made = sdk.responses.create(model="m", input=[{"role": "user", "content": content}])
    assert made.output_text == "You said: What is this?"
    assert "data:image/png;base64,AA==" in json.dumps(last(llm))
    (item,) = sdk.responses.input_items.list(made.id).data
    assert [part.type for part in item.content] == ["input_text", "input_image", "input_file"]  # type: ignore[union-attr]


def test_events_are_typed_in_order_numbered_and_without_done(server: Running) -> None:
    raw = httpx.post(f"{server.url}/responses", json={"model": "m", "input": "Aloha", "stream": True}, timeout=60)
    frames = [frame.split("\n") for frame in raw.text.strip().split("\n\n")]
    assert all(len(frame) == 2 for frame in frames)
    events = [json.loads(frame[1].removeprefix("data: ")) for frame in frames]
    assert [frame[0].removeprefix("event: ") for frame in frames] == [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"].removeprefix("response.") for event in events if event["type"][-6:] != ".delta"] == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.done", "content_part.done",
        "output_item.done", "completed",
    ]  # fmt: skip
    assert "[DONE]" not in raw.text
    assert raw.headers["x-memory-status"] == "ok"
    assert raw.headers["content-type"].startswith("text/event-stream")


def test_the_clients_own_stream_puts_the_answer_together(sdk: openai.OpenAI, llm: ScriptedLLM) -> None:
    llm.reply("The sea is warm.", reasoning="They ask about the sea.")
    with sdk.responses.stream(model="m", input="How is the sea?") as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == "The sea is warm."
    assert final.output[0].type == "reasoning"
    assert final.output[0].summary[0].text == "They ask about the sea."
    assert sdk.responses.retrieve(final.id).output_text == text


def test_a_response_that_was_streamed_can_be_gone_on_from_at_once(sdk: openai.OpenAI, llm: ScriptedLLM) -> None:
    for event in sdk.responses.create(model="m", input="My dog is Rex", stream=True):
        if event.type == "response.completed":
            made = sdk.responses.create(
                model="m", input="And my cat is Tom", previous_response_id=event.response.id, store=False
            )
            assert made.previous_response_id == event.response.id
            assert made.output_text == "You said: And my cat is Tom"


def test_functions_are_called_and_answered_over_a_chain(sdk: openai.OpenAI, llm: ScriptedLLM) -> None:
    calls = [ToolCall("look", {"at": "sea"}, "call_a"), ToolCall("look", {"at": "sky"}, "call_b")]
    llm.reply("I look.", tool_calls=calls)
    first = sdk.responses.create(model="m", input="Look around", tools=[LOOK])  # type: ignore[list-item]
    found = [item for item in first.output if item.type == "function_call"]
    assert [(each.call_id, json.loads(each.arguments)) for each in found] == [
        ("call_a", {"at": "sea"}),
        ("call_b", {"at": "sky"}),
    ]
    outputs: Any = [{"type": "function_call_output", "call_id": each.call_id, "output": "blue"} for each in found]
    llm.reply("All is blue.")
    second = sdk.responses.create(model="m", previous_response_id=first.id, input=outputs, tools=[LOOK])  # type: ignore[list-item]
    assert second.output_text == "All is blue."
    asked = last(llm)
    if "messages" in asked:
        roles = [(each["role"], len(each.get("tool_calls", ()))) for each in asked["messages"]]
        assert roles[-4:] == [("user", 0), ("assistant", 2), ("tool", 0), ("tool", 0)]
    else:
        assert asked["input"] == outputs
        assert asked["previous_response_id"] == first.id


def test_calls_are_streamed_with_their_arguments(sdk: openai.OpenAI, llm: ScriptedLLM) -> None:
    llm.reply(tool_calls=[ToolCall("look", {"at": "the sea and the sky"}, "call_a")])
    with sdk.responses.stream(model="m", input="Look", tools=[LOOK]) as stream:  # type: ignore[list-item]
        events = list(stream)
        final = stream.get_final_response()
    arguments = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
    (call,) = final.output
    assert call.type == "function_call"
    assert call.arguments == arguments == '{"at": "the sea and the sky"}'


def test_an_answer_in_a_schema_is_parsed(sdk: openai.OpenAI, llm: ScriptedLLM) -> None:
    class Trip(BaseModel):
        place: str
        budget: int

    llm.reply_json({"place": "Hawaii", "budget": 10_000})
    made = sdk.responses.parse(model="m", input="Where to?", text_format=Trip)
    assert made.output_parsed == Trip(place="Hawaii", budget=10_000)
    asked = last(llm)
    form = asked.get("response_format", {}).get("json_schema") or asked["text"]["format"]
    assert form["schema"]["properties"].keys() == {"place", "budget"}


def test_a_chain_tells_the_model_all_that_was_said(translating: Running, llm: ScriptedLLM) -> None:
    with client_of(translating) as sdk:
        first = sdk.responses.create(model="m", input="One", instructions="Count.")
        second = sdk.responses.create(model="m", input="Two", previous_response_id=first.id)
        branch = sdk.responses.create(model="m", input="Deux", previous_response_id=first.id)
        sdk.responses.create(
            model="m", input="Three", previous_response_id=second.id, extra_body={"memory_config": {"enabled": False}}
        )
    assert last(llm)["messages"] == [
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "You said: One"},
        {"role": "user", "content": "Two"},
        {"role": "assistant", "content": "You said: Two"},
        {"role": "user", "content": "Three"},
    ]
    # All of it is one session, whose name is the chain's.
    assert {each.steering.scope.session for each in translating.memory.begun} == {first.id}
    assert branch.id != second.id


def test_instructions_stay_as_they_are(server: Running, sdk: openai.OpenAI, llm: ScriptedLLM) -> None:
    sdk.responses.create(model="m", input="My dog is called Rex")
    sdk.responses.create(model="m", input="What is my dog called?", instructions="Be  brief. é")
    asked = last(llm)
    assert "Rex" in said_to(llm)
    if "messages" in asked:
        assert asked["messages"][0] == {"role": "system", "content": "Be  brief. é"}
    else:
        assert asked["instructions"] == "Be  brief. é"


def test_what_was_said_is_recalled_in_another_chat_before_the_last_question(
    sdk: openai.OpenAI, llm: ScriptedLLM
) -> None:
    sdk.responses.create(model="m", input="My budget for the Hawaii trip is $10,000")
    items: Any = [{"role": "user", "content": "Hello"}, {"role": "user", "content": "What's my budget for the trip?"}]
    sdk.responses.create(model="m", input=items)
    asked = last(llm)
    given = asked.get("messages") or asked["input"]
    assert len(given) == 3
    assert [items[0], items[1]] == [given[0], given[2]]
    assert "$10,000" in json.dumps(given[1])


def test_the_example_request_of_the_semantic_router_works_as_printed(server: Running, llm: ScriptedLLM) -> None:
    march = {
        "model": "qwen3", "input": "My budget for the Hawaii trip is $10,000",
        "memory_context": {"user_id": "user_456"},
    }  # fmt: skip
    assert httpx.post(f"{server.url}/responses", json=march, timeout=60).status_code == 200
    earlier = httpx.post(
        f"{server.url}/responses",
        json={"model": "qwen3", "input": "I plan a trip", "memory_context": {"user_id": "user_456"}},
        timeout=60,
    ).json()
    kept = server.run(server.service.responses.response(Scope("user_456"), earlier["id"]))
    printed = replace(
        kept, id="resp_abc123", root_id="resp_abc123", upstream="", body={**kept.body, "id": "resp_abc123"}
    )
    server.run(server.service.responses.keep_response(kept.scope, printed, begun_at=kept.created_at))
    example = {
        "model": "qwen3",
        "input": "What's my budget for the trip?",
        "previous_response_id": "resp_abc123",
        "memory_config": {"enabled": True, "auto_store": True},
        "memory_context": {"user_id": "user_456"},
    }
    answer = httpx.post(f"{server.url}/responses", json=example, timeout=60)
    assert answer.status_code == 200
    assert answer.json()["output"][0]["content"][0]["text"] == "You said: What's my budget for the trip?"
    assert "$10,000" in said_to(llm)
    assert "I plan a trip" in said_to(llm)
    assert not {"memory_config", "memory_context"} & last(llm).keys()


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_was_cut_is_incomplete(sdk: openai.OpenAI, llm: ScriptedLLM, streamed: bool) -> None:
    llm.reply("The sea is", finish_reason="length")
    if streamed:
        *_, event = sdk.responses.create(model="m", input="Hi", max_output_tokens=3, stream=True)
        assert event.type == "response.incomplete"
        made = event.response
    else:
        made = sdk.responses.create(model="m", input="Hi", max_output_tokens=3)
    assert made.status == sdk.responses.retrieve(made.id).status == "incomplete"
    assert made.incomplete_details is not None
    assert made.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize("streamed", [False, True])
def test_an_error_of_the_upstream_comes_through_as_it_is(server: Running, llm: ScriptedLLM, streamed: bool) -> None:
    limit = {"error": {"message": "slow down", "type": "requests", "param": None, "code": "rate_limit_exceeded"}}
    headers = {"retry-after": "7", "x-ratelimit-limit-requests": "60", "x-request-id": "req_1"}
    llm.fault(http_error(429, limit, headers), times=None)
    answer = httpx.post(f"{server.url}/responses", json={"model": "m", "input": "Hi", "stream": streamed}, timeout=60)
    assert (answer.status_code, answer.json()) == (429, limit)
    assert {name: answer.headers[name] for name in headers} == headers
    assert answer.headers["x-memory-status"] == "ok"


def test_an_error_in_the_middle_ends_the_stream_as_an_error(translating: Running, llm: ScriptedLLM) -> None:
    for fault in (stream_error(3), reset(after_frames=3), truncated()):
        llm.fault(fault)
        with client_of(translating) as sdk:
            events = list(sdk.responses.create(model="m", input="Hi there you", stream=True))
            assert [event.type for event in events[-2:]] == ["error", "response.failed"]
            assert [event.sequence_number for event in events] == list(range(len(events)))
            failed = sdk.responses.retrieve(events[-1].response.id)  # type: ignore[union-attr]
        assert failed.status == "failed"
        assert failed.error is not None
        assert failed.output_text.startswith("You")
        assert failed.output_text != "You said: Hi there you"


def test_a_native_stream_that_breaks_ends_as_an_error_and_what_came_is_kept(llm: ScriptedLLM) -> None:
    llm.fault(reset(after_frames=6))
    with running(llm.base_url, "native") as server, client_of(server) as sdk:
        events = list(sdk.responses.create(model="m", input="Hi there", stream=True))
        assert events[-1].type == "error"
        assert [event.sequence_number for event in events] == list(range(len(events)))
        id = events[0].response.id  # type: ignore[union-attr]
        server.run(server.parts.tasks.close())
        assert sdk.responses.retrieve(id).status == "incomplete"
        assert server.memory.answers == ["You said:"]


def test_an_upstream_that_is_away_is_a_502(translating: Running, llm: ScriptedLLM) -> None:
    llm.stop()
    with client_of(translating) as sdk, pytest.raises(openai.InternalServerError) as caught:
        sdk.responses.create(model="m", input="Hi")
    assert caught.value.status_code == 502
    assert caught.value.body["code"] == "upstream_unavailable"  # type: ignore[index]


def test_an_answer_that_is_none_is_a_502(translating: Running, llm: ScriptedLLM) -> None:
    for fault in (http_error(200, "<html>"), http_error(200, {}), truncated()):
        llm.fault(fault)
        answer = httpx.post(f"{translating.url}/responses", json={"model": "m", "input": "Hi"}, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_broken")


def test_what_is_not_to_be_stored_is_not(sdk: openai.OpenAI) -> None:
    made = sdk.responses.create(model="m", input="Hi", store=False)
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.responses.create(model="m", input="Go on", previous_response_id=made.id)
    assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")


def test_anothers_responses_and_unknown_ones_are_not_found_alike(server: Running, llm: ScriptedLLM) -> None:
    with client_of(server, **{"X-Memory-User": "ann"}) as ann, client_of(server, **{"X-Memory-User": "bob"}) as bob:
        made = ann.responses.create(model="m", input="My secret is tea")
        count = len(llm.answers)
        for id in (made.id, "resp_none"):
            for call in (bob.responses.retrieve, bob.responses.delete, bob.responses.cancel):
                with pytest.raises(openai.NotFoundError) as caught:
                    call(id)
                assert caught.value.body == {
                    "message": f"Response with id '{id}' not found.",
                    "type": "invalid_request_error",
                    "param": None,
                    "code": "not_found",
                }
            with pytest.raises(openai.NotFoundError):
                bob.responses.input_items.list(id)
            with pytest.raises(openai.BadRequestError):
                bob.responses.create(model="m", input="Go on", previous_response_id=id)
        assert len(llm.answers) == count
        assert ann.responses.retrieve(made.id).id == made.id
        assert ann.responses.retrieve(made.id, extra_query={"user": "bob"}).id == made.id


def test_input_items_come_in_pages(sdk: openai.OpenAI) -> None:
    items: Any = [{"role": "user", "content": str(n)} for n in range(5)]
    made = sdk.responses.create(model="m", input=items)
    texts = [item.content[0].text for item in sdk.responses.input_items.list(made.id, limit=2, order="asc")]  # type: ignore[union-attr]
    assert texts == ["0", "1", "2", "3", "4"]
    page = sdk.responses.input_items.list(made.id, limit=2)
    assert [item.content[0].text for item in page.data] == ["4", "3"]  # type: ignore[union-attr]
    assert page.has_more
    for wrong in ({"limit": 0}, {"limit": 101}, {"order": "up"}):
        with pytest.raises(openai.BadRequestError):
            sdk.responses.input_items.list(made.id, **wrong)  # type: ignore[arg-type]


def test_a_deleted_response_is_left_out_of_what_is_told_next(server: Running, llm: ScriptedLLM) -> None:
    with client_of(server) as sdk:
        ids, before = [], None
        for text in ("One", "Two", "Three"):
            made = sdk.responses.create(
                model="m", input=text, previous_response_id=before, extra_body={"memory_config": {"enabled": False}}
            )
            ids.append(before := made.id)
        sdk.responses.delete(ids[1])
        body = {"memory_config": {"enabled": False}}
        sdk.responses.create(model="m", input="Four", previous_response_id=ids[2], extra_body=body)
    asked = last(llm)
    assert "previous_response_id" not in asked
    given = json.dumps(asked.get("messages") or asked["input"])
    assert [word in given for word in ("One", "Two", "Three", "Four")] == [True, False, True, True]


def test_an_upstream_that_lost_what_came_before_is_told_it_again(llm: ScriptedLLM) -> None:
    for status, code in ((400, "previous_response_not_found"), (404, 404)):
        with running(llm.base_url) as server, client_of(server) as sdk:
            first = sdk.responses.create(model="m", input="One", extra_body=OFF)
            lost = {"message": f"Response with id '{first.id}' not found.", "param": None, "type": "x", "code": code}
            llm.fault(http_error(status, {"error": lost}))
            second = sdk.responses.create(model="m", input="Two", previous_response_id=first.id, extra_body=OFF)
            assert second.output_text == "You said: Two"
            assert server.parts.speech.of(llm.base_url) == "native"
            assert sdk.responses.retrieve(second.id).previous_response_id == first.id
        told = last(llm)
        assert "previous_response_id" not in told
        assert [item["role"] for item in told["input"]] == ["user", "assistant", "user"]


def test_nothing_is_remembered_of_a_request_that_is_refused(translating: Running, llm: ScriptedLLM) -> None:
    body = {"model": "m", "input": "My dog is Rex", "tools": [{"type": "web_search"}]}
    assert httpx.post(f"{translating.url}/responses", json=body, timeout=60).status_code == 400
    assert translating.memory.begun == []
    assert llm.requests == []


def test_who_made_a_response_is_asked_to_delete_it_too(server: Running, llm: ScriptedLLM) -> None:
    with client_of(server) as sdk:
        made = sdk.responses.create(model="m", input="Hi")
        is_native = llm.answers[-1][0].kind == "responses"
        sdk.responses.delete(made.id)
    server.run(server.parts.tasks.close())
    deleted = [request.path for request in llm.requests if request.method == "DELETE"]
    assert deleted == ([f"/v1/responses/{made.id}"] if is_native else [])


def test_what_was_erased_is_not_gone_on_from(server: Running, llm: ScriptedLLM) -> None:
    with client_of(server) as sdk:
        first = sdk.responses.create(model="m", input="My secret is tea")
        second = sdk.responses.create(model="m", input="And milk", previous_response_id=first.id)
        turn = server.memory.begun[0].turn_id
        assert turn is not None
        server.run(server.service.care.erase(Scope("default"), Erase(Target.TURN, turn), by=By("test")))
        with pytest.raises(openai.NotFoundError):
            sdk.responses.retrieve(first.id)
        sdk.responses.create(model="m", input="What else?", previous_response_id=second.id)
    assert "previous_response_id" not in last(llm)
    assert "My secret is tea" not in last(llm).get("messages", last(llm).get("input"))[0]["content"]


def test_a_client_that_leaves_closes_the_upstream_and_what_came_is_kept(server: Running, llm: ScriptedLLM) -> None:
    llm.reply("One two three four five six seven eight", faults=[hang(after_frames=6)])
    with client_of(server) as sdk:
        stream = sdk.responses.create(model="m", input="Count", stream=True)
        for event in stream:
            if event.type == "response.created":
                id = event.response.id
            if event.type == "response.output_text.delta":
                break
        stream.close()
        llm.wait_for(lambda seen: seen.disconnects, timeout_s=60)
        server.run(server.parts.tasks.close())
        found = sdk.responses.retrieve(id)
    assert found.status == "incomplete"
    assert found.output_text.startswith("One")
    assert "eight" not in found.output_text
    assert server.memory.answers == [found.output_text]
    assert server.parts.under_way == {}


def test_a_client_that_leaves_before_the_answer_closes_the_upstream(server: Running, llm: ScriptedLLM) -> None:
    llm.default = Reply("Late", faults=[delay(60)])
    body = json.dumps({"model": "m", "input": "My dog is Rex"})
    url = httpx.URL(server.url)
    with socket.create_connection((url.host, url.port or 80)) as client:
        head = f"POST /v1/responses HTTP/1.1\r\nHost: {url.host}\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(f"{head}{body}".encode())
        llm.wait_for(lambda seen: any(answer.status == 200 for _, answer in seen.answers), timeout_s=60)
    llm.wait_for(lambda seen: seen.disconnects, timeout_s=60)
    server.run(server.parts.tasks.close())
    assert server.memory.begun[0].turn_id is not None
    assert server.memory.answers == []


def test_a_response_under_way_can_be_looked_at_and_cancelled(server: Running, llm: ScriptedLLM) -> None:
    llm.reply("One two three four five six seven eight", faults=[hang(after_frames=6)])
    with client_of(server) as sdk, client_of(server) as other:
        stream = sdk.responses.create(model="m", input="Count", stream=True)
        for event in stream:
            if event.type == "response.created":
                id = event.response.id
            if event.type == "response.output_text.delta":
                break
        assert other.responses.retrieve(id).status == "in_progress"
        assert other.responses.cancel(id).status == "cancelled"
        list(stream)
        assert other.responses.retrieve(id).status == "cancelled"
        llm.wait_for(lambda seen: seen.disconnects, timeout_s=60)
        with pytest.raises(openai.BadRequestError, match="still being answered"):
            other.responses.cancel(id)


def test_what_cannot_be_done_is_refused_with_what_to_do(translating: Running) -> None:
    with client_of(translating) as sdk:
        made = sdk.responses.create(model="m", input="Hi")
        with pytest.raises(openai.BadRequestError, match="leave background out"):
            sdk.responses.create(model="m", input="Hi", background=True)
        with pytest.raises(openai.BadRequestError, match="leave stream out"):
            list(sdk.responses.retrieve(made.id, stream=True, starting_after=3))
        with pytest.raises(openai.BadRequestError, match="set responses to native"):
            sdk.responses.create(model="m", input="Hi", tools=[{"type": "web_search"}])
    too_much = httpx.post(f"{translating.url}/responses", content=b"{", timeout=60)
    assert too_much.status_code == 400
    translating.with_parts(max_body_bytes=10)
    assert httpx.post(f"{translating.url}/responses", content=b" " * 11, timeout=60).status_code == 413


def test_an_upstream_that_speaks_only_chat_is_found_out_once(llm: ScriptedLLM) -> None:
    not_found = {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}
    nowhere = {"error": "Unexpected endpoint or method. (POST /v1/responses)"}
    for fault in (CHAT_ONLY, http_error(404, {"detail": "Not Found"}), http_error(404, not_found),
                  http_error(405, b""), http_error(200, nowhere, {"content-type": "application/json"})):  # fmt: skip
        llm.clear()
        llm.fault(fault, on="responses")
        with running(llm.base_url) as server, client_of(server) as sdk:
            assert sdk.responses.create(model="m", input="Hi").output_text == "You said: Hi"
            assert sdk.responses.create(model="m", input="Hi").output_text == "You said: Hi"
        assert [request.kind for request in llm.requests] == ["responses", "chat", "chat"]


def test_an_unknown_model_is_no_sign_of_an_upstream_that_speaks_only_chat(llm: ScriptedLLM) -> None:
    unknown = {
        "error": {"message": "The model `m` does not exist.", "type": "NotFoundError", "param": None, "code": 404}
    }
    llm.fault(http_error(404, unknown), on="responses")
    with running(llm.base_url) as server, client_of(server) as sdk:
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            sdk.responses.create(model="m", input="Hi")
        sdk.responses.create(model="m", input="Hi")
    assert [request.kind for request in llm.requests] == ["responses", "responses"]


def test_a_chat_goes_on_while_the_ledger_is_away(translating: Running, llm: ScriptedLLM) -> None:
    class Away:
        async def epoch(self, user: str) -> int:
            raise StoreUnavailable("the ledger is away")

        @property
        def responses(self) -> Any:
            raise StoreUnavailable("the ledger is away")

    translating.with_parts(kept=Away())
    with client_of(translating) as sdk:
        made = sdk.responses.create(model="m", input="Hi")
        assert made.output_text == "You said: Hi"
        with pytest.raises(openai.InternalServerError) as caught:
            sdk.responses.create(model="m", input="Hi", previous_response_id=made.id)
        assert caught.value.status_code == 503


@pytest.mark.parametrize("streamed", [False, True])
def test_a_chat_does_not_wait_long_for_a_ledger_that_is_stuck(
    server: Running, llm: ScriptedLLM, streamed: bool
) -> None:
    free = threading.Event()

    class Stuck:
        responses = server.service.responses

        async def epoch(self, user: str) -> int:
            await asyncio.to_thread(free.wait, 120)
            return await server.service.epoch(user)

    server.with_parts(kept=Stuck(), patience_s=0.05)
    body = {"model": "m", "input": "Hi", "stream": streamed}
    answer = httpx.post(f"{server.url}/responses", json=body, timeout=60)
    assert "You said" in answer.text or "said" in answer.text
    assert not free.is_set()
    # Whoever asks for it at once waits until it is kept: its id was told already.
    threading.Timer(0.5, free.set).start()
    with client_of(server) as sdk:
        assert sdk.responses.retrieve(re.findall(r"resp_\w+", answer.text)[0]).output_text == "You said: Hi"


def test_an_upstream_that_does_not_stream_is_told_in_events_all_the_same(
    translating: Running, llm: ScriptedLLM
) -> None:
    whole = {"id": "x", "model": "m", "choices": [{"index": 0, "finish_reason": "stop",
             "message": {"role": "assistant", "content": "Whole"}}]}  # fmt: skip
    llm.fault(http_error(200, whole, {"content-type": "application/json"}))
    with client_of(translating) as sdk:
        *_, event = sdk.responses.create(model="m", input="Hi", stream=True)
    assert event.type == "response.completed"
    assert event.response.output_text == "Whole"


def test_hits_are_told_in_the_answer_where_they_are_asked_for(sdk: openai.OpenAI) -> None:
    sdk.responses.create(model="m", input="My dog is called Rex")
    raw = sdk.responses.with_raw_response.create(
        model="m", input="What is my dog called?", extra_body={"memory_hits": True}
    )
    hits = json.loads(raw.text)["memory_hits"]
    assert len(hits) == int(raw.headers["x-memory-hits"]) > 0
    assert raw.headers["x-memory-turn"]


def test_many_at_once_are_each_answered_and_kept(server: Running) -> None:
    made: list[Any] = []

    def ask(n: int) -> None:
        with client_of(server, **{"X-Memory-User": f"u{n}"}) as sdk:
            *_, event = sdk.responses.create(model="m", input=f"I am {n}", stream=True)
            made.append((n, event.response.output_text, sdk.responses.retrieve(event.response.id).output_text))  # type: ignore[union-attr]

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(made) == [(n, f"You said: I am {n}", f"You said: I am {n}") for n in range(12)]
