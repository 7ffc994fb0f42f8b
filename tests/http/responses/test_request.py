"""Requests of the Responses API: parsed, validated, translated, and rewritten in place."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.http.proxy.asgi_io import BadRequest
from recollect.http.responses.items import with_id
from recollect.http.responses.passthrough import native_body, to_item
from recollect.http.responses.persistence import History
from recollect.http.responses.request import parse_response_params
from recollect.http.responses.to_chat import check_translatable, to_chat, to_messages
from recollect.model.scope import Scope

NO_EPOCH: Any = None
NOTHING = History(Scope("ann"), "resp_0", NO_EPOCH)


def parse_request_with(**fields: Any) -> Any:
    return asyncio.run(parse_response_params(json.dumps({"model": "m", "input": "Hi", **fields}).encode()))


def messages(*items: dict[str, Any]) -> list[dict[str, Any]]:
    return [each.message for each in to_messages(items)]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None), (b"[]", None), (b"{", None), (b"\xff", None), (b'{"input": "Hi"}', "model"),
        (b'{"model": "m"}', "input"), (b'{"model": 7, "input": "Hi"}', "model"),
        (b'{"model": "m", "input": 7}', "input"), (b'{"model": "m", "input": ["Hi"]}', "input[0]"),
        (b'{"model": "m", "input": [{}]}', "input[0].type"),
        (b'{"model": "m", "input": [{"role": "tool", "content": "x"}]}', "input[0].role"),
        (b'{"model": "m", "input": [{"role": "user", "content": 7}]}', "input[0].content"),
        (b'{"model": "m", "input": [{"role": "user", "content": ["x"]}]}', "input[0].content"),
        (b'{"model": "m", "input": "Hi", "stream": "yes"}', "stream"),
        (b'{"model": "m", "input": "Hi", "store": 1}', "store"),
        (b'{"model": "m", "input": "Hi", "background": true}', "background"),
        (b'{"model": "m", "input": "Hi", "metadata": []}', "metadata"),
        (b'{"model": "m", "input": "Hi", "previous_response_id": 7}', "previous_response_id"),
        (b'{"model": "m", "input": "Hi", "conversation": {}}', "conversation"),
        (b'{"model": "m", "input": "Hi", "conversation": "c", "previous_response_id": "r"}', "conversation"),
        (b'{"model": "m", "input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
    ],
)  # fmt: skip
def test_an_invalid_request_is_rejected_with_the_name_of_the_field(body: bytes, param: str | None) -> None:
    with pytest.raises(BadRequest) as caught:
        asyncio.run(parse_response_params(body))
    assert caught.value.param == param


def test_input_may_be_missing_in_a_request_with_history() -> None:
    assert asyncio.run(parse_response_params(b'{"model": "m", "previous_response_id": "r"}')).items == []
    assert asyncio.run(parse_response_params(b'{"model": "m", "conversation": {"id": "c"}}')).thread_id == "c"


def test_a_request_is_translated_to_chat_completions() -> None:
    fields = {
        "model": "m", "input": "Hi", "instructions": "Be brief.", "max_output_tokens": 9, "temperature": 0.5,
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True},
                  {"type": "custom", "name": "c",
                   "format": {"type": "grammar", "syntax": "lark", "definition": "d"}}],
        "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": False,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True},
                 "verbosity": "low"},
        "reasoning": {"effort": "high", "summary": "auto"}, "top_logprobs": 3, "stream": True, "store": True,
        "metadata": {"a": "b"}, "user": "u", "truncation": "auto", "top_k": 40, "memory_context": {"user_id": "ann"},
    }  # fmt: skip
    assert to_chat(fields, [{"role": "user", "content": "Hi"}]) == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "max_tokens": 9,
        "temperature": 0.5,
        "tools": [
            {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}},
            {"type": "custom", "custom": {"name": "c", "format": {
                "type": "grammar", "grammar": {"syntax": "lark", "definition": "d"}}}},
        ],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "response_format": {"type": "json_schema", "json_schema": {
            "name": "n", "schema": {"type": "object"}, "strict": True}},
        "verbosity": "low",
        "reasoning_effort": "high",
        "logprobs": True,
        "top_logprobs": 3,
        "stream": True,
        "stream_options": {"include_usage": True},
        "user": "u",
        "top_k": 40,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": ["x"]}, "tools[0]"),
        ({"tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "file_search"}}, "tool_choice"),
        ({"prompt": {"id": "p"}}, "prompt"),
    ],
)
def test_a_field_that_chat_completions_lack_is_rejected_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        to_chat({"model": "m", **fields}, [])
    assert caught.value.param == param


def test_items_become_messages_and_calls_join_the_assistant_message_before_them() -> None:
    assert messages(
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "Look"},
                                     {"type": "input_image", "image_url": "data:x", "detail": "low"},
                                     {"type": "input_file", "file_data": "data:y", "filename": "a.pdf"},
                                     {"type": "input_audio", "input_audio": {"data": "z", "format": "mp3"}}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "b", "name": "g", "input": "x"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "custom_tool_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "2"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Look"},
                                     {"type": "image_url", "image_url": {"url": "data:x", "detail": "low"}},
                                     {"type": "file", "file": {"file_data": "data:y", "filename": "a.pdf"}},
                                     {"type": "input_audio", "input_audio": {"data": "z", "format": "mp3"}}]},
        {"role": "assistant", "content": "I look.", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "b", "type": "custom", "custom": {"name": "g", "input": "x"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "assistant", "content": None, "refusal": "No."},
    ]  # fmt: skip


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "msg_1"},
        {"type": "web_search_call", "id": "ws_1"},
        {"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]},
        {"role": "user", "content": [{"type": "input_file", "file_url": "https://x"}]},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "hologram"}]},
    ],
)
def test_an_item_that_chat_completions_lack_is_rejected(item: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="chat completions"):
        check_translatable([item])


texts = st.text(max_size=12)
plain_items = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system"]), "content": texts})


@settings(deadline=None)
@given(st.lists(plain_items, max_size=6))
def test_stored_items_translate_to_the_same_messages(items: list[dict[str, Any]]) -> None:
    stored = [with_id(item) for item in items]
    assert messages(*stored) == messages(*items) == items
    assert len({item["id"] for item in stored}) == len(items)
    assert [with_id(item) for item in stored] == stored


@settings(deadline=None)
@given(st.sampled_from(["user", "system"]), st.lists(texts, min_size=2, max_size=3) | texts)
def test_a_message_of_memory_translates_to_an_item_and_back(role: str, said: Any) -> None:
    content = said if isinstance(said, str) else [{"type": "text", "text": each} for each in said]
    message = {"role": role, "content": content}
    assert messages(to_item(message)) == [message]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def native(request: Any, history: History, placed: Any, recalled: list[Any], upstream: str = "main") -> Any:
    return native_body(request, history, placed, recalled, upstream=upstream)


@settings(deadline=None)
@given(st.lists(json_values.map(lambda each: {"role": "user", "content": "x", "odd": each}), max_size=4), st.data())
def test_inserting_an_item_changes_nothing_else_in_the_body(items: list[Any], data: st.DataObject) -> None:
    text = json.dumps(
        {"model": "m", "a": 1.0, "input": items, "b": None}, indent=data.draw(st.sampled_from([None, 2]))
    )
    request = asyncio.run(parse_response_params(text.encode()))
    placed = to_messages(request.items)
    recalled: list[Any] = [each.message for each in placed]
    block = {"role": "user", "content": "tea"}
    at = data.draw(st.integers(0, len(items)))
    sent = native(request, NOTHING, placed, [*recalled[:at], block, *recalled[at:]]).decode()
    assert json.loads(sent)["input"] == [*items[:at], to_item(block), *items[at:]]
    without_block = sent.replace(json.dumps(to_item(block)), "")
    assert "".join(without_block.split()).replace(",", "") == "".join(text.split()).replace(",", "")


def test_a_text_input_becomes_a_list_and_keeps_its_bytes() -> None:
    request = asyncio.run(parse_response_params(b'{"model": "m", "input" : "caf\\u00e9 \\ud83c\\udf0a", "x": 1e-7}'))
    placed = to_messages(request.items)
    block = {"role": "user", "content": "tea"}
    assert native(request, NOTHING, placed, [block, placed[0].message]).decode() == (
        '{"model": "m", "input" : [' + json.dumps(to_item(block)) +
        ', {"role": "user", "content": "caf\\u00e9 \\ud83c\\udf0a"}], "x": 1e-7}'
    )  # fmt: skip


def test_a_native_body_gains_the_memory_block_and_loses_memory_fields_only() -> None:
    raw = '{"model":"m",  "memory_context":{"user_id":"ann"}, "input":[{"role":"user","content":"A"},' \
          ' {"role":"user","content":"B","odd":1.0}],"temperature":1e-7}'  # fmt: skip
    request = asyncio.run(parse_response_params(raw.encode()))
    placed = to_messages(request.items)
    block = {"role": "user", "content": "You know: tea."}
    assert native(request, NOTHING, placed, [placed[0].message, block, placed[1].message]).decode() == (
        '{"model":"m", "input":[{"role":"user","content":"A"}, ' + json.dumps(to_item(block)) +
        ', {"role":"user","content":"B","odd":1.0}],"temperature":1e-7}'
    )  # fmt: skip


def test_the_history_is_sent_to_an_upstream_that_does_not_have_it() -> None:
    history = History(
        Scope("ann"), "resp_0", NO_EPOCH,
        ({"id": "msg_1", "type": "message", "status": "completed", "role": "user", "content": "A"},
         {"id": "rs_1", "type": "reasoning", "summary": []},
         {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}),
        upstream="main",
    )  # fmt: skip
    output = {"type": "function_call_output", "call_id": "c", "output": "1"}
    request = parse_request_with(previous_response_id="resp_9", input=[output])
    placed = to_messages([*history.items, *request.items])
    block = {"role": "user", "content": "tea"}
    recalled = [block, *(each.message for each in placed)]
    elsewhere = json.loads(native(request, history, placed, recalled, "other"))
    assert elsewhere["input"] == [
        to_item(block),
        {"type": "message", "role": "user", "content": "A"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        output,
    ]
    assert "previous_response_id" not in elsewhere
    # Results of tools continue from a question that was sent with its memories.
    assert native(request, history, placed, recalled) == request.body.text.encode()
    question = parse_request_with(previous_response_id="resp_9", input="B")
    placed = to_messages([*history.items, *question.items])
    system = {"role": "system", "content": "tea"}
    here = json.loads(native(question, history, placed, [system, *(each.message for each in placed)]))
    assert here["input"] == [to_item(system), {"role": "user", "content": "B"}]


def test_a_rewritten_question_replaces_the_original() -> None:
    request = parse_request_with(input=[{"role": "user", "content": "A"}, {"role": "user", "content": "B"}])
    placed = to_messages(request.items)
    rewritten = {"role": "user", "content": "tea\n\nCurrent message: B"}
    sent = json.loads(native(request, NOTHING, placed, [placed[0].message, rewritten]))
    assert sent["input"] == [{"role": "user", "content": "A"}, to_item(rewritten)]
