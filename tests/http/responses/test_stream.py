"""Chat completions become responses, whole or in pieces of any size, with the same result."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from recollect.http.proxy.sse import SseReader, decode_object, encode_events
from recollect.http.responses.from_chat import ResponseTranslator
from recollect.http.responses.items import new_response, output_text
from recollect.http.responses.request import parse_response_params
from recollect.http.responses.to_chat import to_messages

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m-2026"}

words = st.text(min_size=1, max_size=20)
calls = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.uuids().map(lambda id: f"call_{id.hex}"),
            "type": st.just("function"),
            "function": st.fixed_dictionaries({"name": words, "arguments": st.text(max_size=20)}),
        }
    ),
    max_size=3,
    unique_by=lambda call: call["id"],
)


def fresh(**fields: Any) -> ResponseTranslator:
    request = asyncio.run(parse_response_params(json.dumps({"model": "m", "input": "Hi", **fields}).encode()))
    return ResponseTranslator(new_response(request, id="resp_1", created_at=1))


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {**HEAD, "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


def translated(chunks: Sequence[dict[str, Any]], **fields: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the events of chunks and a [DONE], and the final response."""
    translation = fresh(**fields)
    events = translation.begin()
    for each in chunks:
        events += translation.feed(each)
    translation.mark_done()
    events += translation.end()
    return events, translation.response


def kinds(events: Sequence[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def rebuilt(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the output as a client assembles it from the deltas alone."""
    output: dict[int, dict[str, Any]] = {}
    for event in events:
        kind, at = event["type"].removeprefix("response."), event.get("output_index", -1)
        if kind == "output_item.added":
            output[at] = json.loads(json.dumps(event["item"]))
        elif kind in ("content_part.added", "reasoning_summary_part.added"):
            where = "content" if kind == "content_part.added" else "summary"
            output[at][where].append(dict(event["part"]))
        elif kind == "output_text.delta":
            output[at]["content"][event["content_index"]]["text"] += event["delta"]
        elif kind == "refusal.delta":
            output[at]["content"][event["content_index"]]["refusal"] += event["delta"]
        elif kind == "reasoning_summary_text.delta":
            output[at]["summary"][event["summary_index"]]["text"] += event["delta"]
        elif kind == "function_call_arguments.delta":
            output[at]["arguments"] += event["delta"]
    return [output[at] for at in sorted(output)]


def bare(output: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in item.items() if name not in ("id", "status")} for item in output]


def test_text_chunks_become_typed_events_in_order() -> None:
    events, response = translated([chunk({"role": "assistant", "content": ""}), chunk({"content": "Alo"}),
                                   chunk({"content": "ha"}), chunk(finish="stop")])  # fmt: skip
    assert kinds(events) == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert [event["sequence_number"] for event in events] == list(range(10))
    assert output_text(response) == "Aloha"
    assert (response["status"], response["model"]) == ("completed", "m-2026")
    assert response["completed_at"] >= response["created_at"]
    assert events[-1]["response"] == response
    assert events[0]["response"]["status"] == "in_progress"
    assert events[0]["response"]["output"] == []


def test_reasoning_text_and_calls_become_separate_items() -> None:
    events, response = translated(
        [
            chunk({"reasoning_content": "Hm"}), chunk({"reasoning": "m."}), chunk({"content": "Let me see."}),
            chunk({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "look", "arguments": ""}}]}),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]}),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}),
            chunk(finish="tool_calls"),
            {**HEAD, "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12,
             "completion_tokens_details": {"reasoning_tokens": 3}, "prompt_tokens_details": {"cached_tokens": 2}}},
        ]
    )  # fmt: skip
    thought, message, call = response["output"]
    assert thought["summary"] == [{"type": "summary_text", "text": "Hmm."}]
    assert message["content"][0]["text"] == "Let me see."
    assert (call["call_id"], call["name"], call["arguments"]) == ("c1", "look", '{"a":1}')
    assert "function_call_arguments.done" in kinds(events)
    assert kinds(events)[2:8] == [
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
        "reasoning_summary_text.delta", "reasoning_summary_text.done", "reasoning_summary_part.done",
    ]  # fmt: skip
    usage = response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (5, 7, 12)
    assert usage["output_tokens_details"] == {"reasoning_tokens": 3}
    assert usage["input_tokens_details"]["cached_tokens"] == 2


@pytest.mark.parametrize(
    "deltas",
    [
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "1"}},
         {"index": 1, "id": "b", "function": {"name": "g", "arguments": "3"}},
         {"index": 0, "function": {"arguments": "2"}}, {"index": 1, "function": {"arguments": "4"}}],
        [{"id": "a", "function": {"name": "f", "arguments": "1"}}, {"function": {"arguments": "2"}},
         {"id": "b", "function": {"name": "g", "arguments": "3"}}, {"function": {"arguments": "4"}}],
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "12"}},
         {"index": 0, "id": "b", "function": {"name": "g", "arguments": "34"}}],
        [{"id": "a", "function": {"name": "f", "arguments": "1"}}, {"id": "a", "function": {"arguments": "2"}},
         {"id": "b", "function": {"name": "g", "arguments": "34"}}],
    ],
    ids=["interleaved", "without-index", "all-index-0", "by-id"],
)  # fmt: skip
def test_deltas_of_parallel_calls_are_assigned_to_their_calls(deltas: list[dict[str, Any]]) -> None:
    events, response = translated([chunk({"tool_calls": [each]}) for each in deltas] + [chunk(finish="tool_calls")])
    assert [(item["call_id"], item["name"], item["arguments"]) for item in response["output"]] == [
        ("a", "f", "12"),
        ("b", "g", "34"),
    ]
    assert bare(rebuilt(events)) == bare(response["output"])


def test_a_custom_tool_becomes_a_custom_call() -> None:
    call = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "sql", "input": "SELECT"}}
    events, response = translated([chunk({"tool_calls": [call]}), chunk(finish="tool_calls")])
    assert response["output"][0]["type"] == "custom_tool_call"
    assert response["output"][0]["input"] == "SELECT"
    assert "custom_tool_call_input.delta" in kinds(events)


def test_a_refusal_becomes_a_separate_part() -> None:
    events, response = translated([chunk({"refusal": "I "}), chunk({"refusal": "won't."}), chunk(finish="stop")])
    assert response["output"][0]["content"] == [{"type": "refusal", "refusal": "I won't."}]
    assert kinds(events)[3:7] == ["content_part.added", "refusal.delta", "refusal.delta", "refusal.done"]


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")]
)
def test_a_truncated_answer_is_incomplete_with_a_reason(finish: str, reason: str) -> None:
    events, response = translated([chunk({"content": "Alo"}), chunk(finish=finish)])
    assert kinds(events)[-1] == response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": reason}
    assert response["output"][0]["status"] == "incomplete"
    assert output_text(response) == "Alo"


def test_an_error_chunk_ends_the_response_as_failed_with_its_part() -> None:
    translation = fresh()
    translation.feed(chunk({"content": "Alo"}))
    events = translation.feed({"error": {"message": "overloaded", "type": "server_error", "code": None}})
    assert kinds(events) == ["output_text.done", "content_part.done", "output_item.done", "error", "failed"]
    assert translation.response["error"] == {"code": "server_error", "message": "overloaded"}
    assert translation.feed(chunk({"content": "ha"})) == translation.end() == []
    assert output_text(translation.response) == "Alo"


def test_a_stream_without_an_end_is_failed() -> None:
    translation = fresh()
    translation.feed(chunk({"content": "Alo"}))
    assert kinds(translation.end())[-2:] == ["error", "failed"]


def test_an_empty_answer_is_an_empty_message() -> None:
    events, response = translated([chunk({"content": ""}), chunk(finish="stop")])
    assert output_text(response) == ""
    assert response["output"][0]["content"][0]["text"] == ""
    assert bare(rebuilt(events)) == bare(response["output"])


def test_malformed_chunks_are_ignored() -> None:
    odd: list[Any] = [
        {},
        {"choices": []},
        {"choices": [None]},
        {"choices": [{"index": 1, "delta": {"content": "no"}}]},
        chunk({"content": None, "tool_calls": None}),
        chunk({"tool_calls": ["x"]}),
        chunk({"content": 7}),
    ]
    _, response = translated([*odd, chunk({"content": "yes"}), chunk(finish="stop")])
    assert output_text(response) == "yes"


def test_logprobs_and_annotations_are_part_of_the_text() -> None:
    token = {"token": "A", "logprob": -0.1, "bytes": [65], "top_logprobs": []}
    body = {**HEAD, "choices": [{"index": 0, "delta": {"content": "A"}, "logprobs": {"content": [token]}}]}
    cited = chunk({"annotations": [{"type": "url_citation", "url_citation": {"url": "u", "title": "t"}}]})
    events, response = translated([body, cited, chunk(finish="stop")])
    part = response["output"][0]["content"][0]
    assert part["logprobs"] == [token]
    assert part["annotations"] == [{"type": "url_citation", "url": "u", "title": "t"}]
    assert "output_text.annotation.added" in kinds(events)


@settings(deadline=None)
@given(text=st.text(max_size=40), thought=st.text(max_size=20), called=calls, data=st.data())
def test_a_stream_in_any_pieces_yields_the_same_response_as_a_whole_answer(
    text: str, thought: str, called: list[dict[str, Any]], data: st.DataObject
) -> None:
    message = {"role": "assistant", "content": text, "reasoning_content": thought, "tool_calls": called}
    _, whole = translated([{**HEAD, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}])
    deltas: list[dict[str, Any]] = [{"reasoning_content": each} for each in thought]
    deltas += [{"content": each} for each in text]
    for at, call in enumerate(called):
        head = {**call, "index": at, "function": {"name": call["function"]["name"], "arguments": ""}}
        deltas.append({"tool_calls": [head]})
        pieces = call["function"]["arguments"]
        deltas += [{"tool_calls": [{"index": at, "function": {"arguments": piece}}]} for piece in pieces]
    stream = b"".join(b"data: " + json.dumps(chunk(each)).encode() + b"\n\n" for each in deltas)
    stream += b"data: " + json.dumps(chunk(finish="stop")).encode() + b"\r\n\r\n"
    size = data.draw(st.integers(1, 50))
    reader, translation = SseReader(), fresh()
    events = translation.begin()
    for at in range(0, len(stream), size):
        for result in reader.feed(stream[at : at + size]):
            events += translation.feed(decode_object(result) or {})
    events += translation.end()
    assert bare(translation.response["output"]) == bare(whole["output"])
    assert bare(rebuilt(events)) == bare(whole["output"])
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    counted = Counter(kinds(events))
    assert counted["output_item.added"] == counted["output_item.done"] == len(whole["output"])
    for event in events:
        EVENT.validate_python(event)
    Response.model_validate(translation.response)


@settings(deadline=None)
@given(text=st.text(max_size=40), called=calls)
def test_output_items_translate_back_to_the_message_of_the_model(text: str, called: list[dict[str, Any]]) -> None:
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if called:
        message["tool_calls"] = called
    _, response = translated([{**HEAD, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}])
    repeated = [each.message for each in to_messages(response["output"])]
    assert repeated == [message if text or called else {"role": "assistant", "content": ""}]


@settings(deadline=None)
@given(events=st.lists(st.dictionaries(words, st.text(), max_size=3), max_size=5), size=st.integers(1, 9))
def test_encoded_events_can_be_parsed(events: list[dict[str, Any]], size: int) -> None:
    sent = [{**event, "type": "t"} for event in events]
    raw = encode_events(sent)
    reader = SseReader()
    results = [data for at in range(0, len(raw), size) for data in reader.feed(raw[at : at + size])]
    assert [decode_object(data) for data in results] == sent


def test_comments_and_other_fields_are_skipped_and_the_last_event_needs_no_blank_line() -> None:
    reader = SseReader()
    assert reader.feed(b": hello\n\nevent: x\nid: 1\nretry: 5\ndata: a\ndata:b\n\ndata: c") == [b"a\nb"]
    assert reader.end() == [b"c"]
    assert reader.end() == []
