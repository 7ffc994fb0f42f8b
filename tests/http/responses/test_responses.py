"""The Responses API through the real client, whether the upstream has it or only chat completions."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel

from recollect.model.scope import Scope
from recollect.testing.llm_replies import ToolCall
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.responses_server import ResponsesServer, client_of, last, last_request_text

LOOK = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    "strict": False,
}


def test_a_response_is_created_stored_listed_and_deleted(sdk: openai.OpenAI) -> None:
    made = sdk.responses.create(model="m", input="Aloha", metadata={"a": "b"})
    assert (made.status, made.output_text) == ("completed", "You said: Aloha")
    assert made.usage is not None
    assert made.usage.output_tokens > 0
    response = sdk.responses.retrieve(made.id)
    assert (response.output_text, response.metadata) == (made.output_text, {"a": "b"})
    (item,) = sdk.responses.input_items.list(made.id).data
    assert item.type == "message"
    assert item.content[0].text == "Aloha"  # type: ignore[union-attr]
    sdk.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError) as caught:
        sdk.responses.retrieve(made.id)
    assert caught.value.body["code"] == "not_found"  # type: ignore[index]


def test_hop_by_hop_and_memory_headers_are_not_forwarded(server: ResponsesServer, llm: ScriptedLLM) -> None:
    headers = {"connection": "x-hop", "x-hop": "1", "te": "trailers", "x-memory-user": "ann", "x-other": "2"}
    answer = httpx.post(f"{server.url}/responses", json={"model": "m", "input": "Aloha"}, headers=headers, timeout=60)
    assert answer.status_code == 200
    for request in llm.requests:
        assert request.headers["x-other"] == "2"
        assert not {"connection", "x-hop", "te", "x-memory-user"} & set(request.headers)


def test_input_with_text_image_and_file_parts_is_answered(sdk: openai.OpenAI, llm: ScriptedLLM) -> None:
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


def test_events_are_typed_ordered_numbered_and_without_done(server: ResponsesServer) -> None:
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


def test_the_sdk_assembles_the_answer_from_the_stream(sdk: openai.OpenAI, llm: ScriptedLLM) -> None:
    llm.reply("The sea is warm.", reasoning="They ask about the sea.")
    with sdk.responses.stream(model="m", input="How is the sea?") as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == "The sea is warm."
    assert final.output[0].type == "reasoning"
    assert final.output[0].summary[0].text == "They ask about the sea."
    assert sdk.responses.retrieve(final.id).output_text == text


def test_a_streamed_response_can_be_continued_at_once(sdk: openai.OpenAI, llm: ScriptedLLM) -> None:
    for event in sdk.responses.create(model="m", input="My dog is Rex", stream=True):
        if event.type == "response.completed":
            made = sdk.responses.create(
                model="m", input="And my cat is Tom", previous_response_id=event.response.id, store=False
            )
            assert made.previous_response_id == event.response.id
            assert made.output_text == "You said: And my cat is Tom"


def test_function_calls_and_their_outputs_form_a_chain(sdk: openai.OpenAI, llm: ScriptedLLM) -> None:
    calls = [ToolCall("look", {"at": "sea"}, "call_a"), ToolCall("look", {"at": "sky"}, "call_b")]
    llm.reply("I look.", tool_calls=calls)
    first = sdk.responses.create(model="m", input="Look around", tools=[LOOK])  # type: ignore[list-item]
    results = [item for item in first.output if item.type == "function_call"]
    assert [(each.call_id, json.loads(each.arguments)) for each in results] == [
        ("call_a", {"at": "sea"}),
        ("call_b", {"at": "sky"}),
    ]
    outputs: Any = [{"type": "function_call_output", "call_id": each.call_id, "output": "blue"} for each in results]
    llm.reply("All is blue.")
    second = sdk.responses.create(model="m", previous_response_id=first.id, input=outputs, tools=[LOOK])  # type: ignore[list-item]
    assert second.output_text == "All is blue."
    request = last(llm)
    if "messages" in request:
        roles = [(each["role"], len(each.get("tool_calls", ()))) for each in request["messages"]]
        assert roles[-4:] == [("user", 0), ("assistant", 2), ("tool", 0), ("tool", 0)]
    else:
        assert request["input"] == outputs
        assert request["previous_response_id"] == first.id


def test_function_calls_are_streamed_with_their_arguments(sdk: openai.OpenAI, llm: ScriptedLLM) -> None:
    llm.reply(tool_calls=[ToolCall("look", {"at": "the sea and the sky"}, "call_a")])
    with sdk.responses.stream(model="m", input="Look", tools=[LOOK]) as stream:  # type: ignore[list-item]
        events = list(stream)
        final = stream.get_final_response()
    arguments = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
    (call,) = final.output
    assert call.type == "function_call"
    assert call.arguments == arguments == '{"at": "the sea and the sky"}'


def test_structured_output_is_parsed_by_the_sdk(sdk: openai.OpenAI, llm: ScriptedLLM) -> None:
    class Trip(BaseModel):
        place: str
        budget: int

    llm.reply_json({"place": "Hawaii", "budget": 10_000})
    made = sdk.responses.parse(model="m", input="Where to?", text_format=Trip)
    assert made.output_parsed == Trip(place="Hawaii", budget=10_000)
    request = last(llm)
    form = request.get("response_format", {}).get("json_schema") or request["text"]["format"]
    assert form["schema"]["properties"].keys() == {"place", "budget"}


def test_a_chain_of_responses_is_sent_as_its_history(translating: ResponsesServer, llm: ScriptedLLM) -> None:
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
    # The chain is one session, named after its first response.
    assert {each.options.scope.session for each in translating.memory.started} == {first.id}
    assert branch.id != second.id


def test_instructions_are_unchanged(server: ResponsesServer, sdk: openai.OpenAI, llm: ScriptedLLM) -> None:
    sdk.responses.create(model="m", input="My dog is called Rex")
    sdk.responses.create(model="m", input="What is my dog called?", instructions="Be  brief. é")
    request = last(llm)
    assert "Rex" in last_request_text(llm)
    if "messages" in request:
        assert request["messages"][0] == {"role": "system", "content": "Be  brief. é"}
    else:
        assert request["instructions"] == "Be  brief. é"


def test_memories_are_inserted_before_the_last_question(sdk: openai.OpenAI, llm: ScriptedLLM) -> None:
    sdk.responses.create(model="m", input="My budget for the Hawaii trip is $10,000")
    items: Any = [{"role": "user", "content": "Hello"}, {"role": "user", "content": "What's my budget for the trip?"}]
    sdk.responses.create(model="m", input=items)
    request = last(llm)
    inputs = request.get("messages") or request["input"]
    assert len(inputs) == 3
    assert [items[0], items[1]] == [inputs[0], inputs[2]]
    assert "$10,000" in json.dumps(inputs[1])


def test_the_example_request_of_the_semantic_router_works_as_printed(
    server: ResponsesServer, llm: ScriptedLLM
) -> None:
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
    stored = server.run(server.service.responses.response(Scope("user_456"), earlier["id"]))
    printed = replace(
        stored, id="resp_abc123", root_id="resp_abc123", upstream="", body={**stored.body, "id": "resp_abc123"}
    )
    server.run(server.service.responses.save_response(stored.scope, printed, started_at=stored.created_at))
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
    assert "$10,000" in last_request_text(llm)
    assert "I plan a trip" in last_request_text(llm)
    assert not {"memory_config", "memory_context"} & last(llm).keys()


def test_memory_hits_are_listed_on_request(sdk: openai.OpenAI) -> None:
    sdk.responses.create(model="m", input="My dog is called Rex")
    raw = sdk.responses.with_raw_response.create(
        model="m", input="What is my dog called?", extra_body={"memory_hits": True}
    )
    hits = json.loads(raw.text)["memory_hits"]
    assert len(hits) == int(raw.headers["x-memory-hits"]) > 0
    assert raw.headers["x-memory-turn"]


def test_concurrent_responses_are_each_answered_and_stored(server: ResponsesServer) -> None:
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
