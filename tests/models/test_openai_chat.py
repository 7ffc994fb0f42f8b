"""The chat client keeps the promises of `recollect.models.chat`, whatever the server does."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from recollect.config.settings import Settings
from recollect.errors import InvalidInput, InvalidSettings, ModelUnavailable, RecollectError
from recollect.model.messages import message_role, message_text
from recollect.models import http_client, openai_chat
from recollect.models.chat import Chat
from recollect.models.openai_chat import OpenAIChat
from recollect.models.server_errors import describe_refusal
from recollect.prompts import Prompt, prompt, prompt_names
from recollect.testing.llm_replies import ScriptedReply, ToolCall, error_body
from recollect.testing.scripted_llm import ScriptedLLM
from recollect.wiring import open_chat
from tests.support.llm_faults import (
    MALFORMED_ANSWERS,
    delay,
    hang,
    html_page,
    http_error,
    malformed_reply,
    no_body,
    reset,
    trickle,
    truncated,
)

KEY = "sk-very-secret-0123456789"
HELLO = [{"role": "user", "content": "Hello there"}]
MAX_TOKENS_REFUSED = {
    "error": {"message": "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."}
}
TEMPERATURE_REFUSED = {"error": {"message": "Unsupported value: 'temperature' does not support 0 with this model."}}


@pytest.fixture
async def chat(llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenAIChat]:
    monkeypatch.setattr(http_client, "FIRST_PAUSE_S", 0.01)
    chat = OpenAIChat(llm.base_url, KEY, model="small", timeout_s=60)
    yield chat
    await chat.close()


async def ask(chat: Chat, **options: Any) -> str:
    return await chat.complete(HELLO, max_tokens=50, **options)


async def test_a_question_is_answered_and_asked_as_openai_asks(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    llm.reply("  Aloha!\n")
    assert await ask(chat) == "Aloha!"
    [request] = llm.calls("chat")
    assert request.json == {"model": "small", "messages": HELLO, "max_tokens": 50, "temperature": 0.0}
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert chat.model == "small"


async def test_a_schema_goes_to_the_server_in_its_own_form(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    schema = {"title": "Facts", "type": "object", "properties": {}, "required": [], "additionalProperties": False}
    llm.reply_json({})
    assert await ask(chat, schema=schema) == "{}"
    form = llm.requests[0].json["response_format"]
    assert form == {"type": "json_schema", "json_schema": {"name": "Facts", "schema": schema, "strict": True}}


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("<think>They greet me.</think>\n\nAloha!", "Aloha!"),
        ("They greet me.</think>Aloha!", "Aloha!"),
        ("<think>a</think> <think>b</think>Aloha!", "Aloha!"),
        ('<think>{"a": 1}</think>{"says": "</think>"}', '{"says": "</think>"}'),
        ('{"says": "</think>"}', '{"says": "</think>"}'),
        ("The tags are <think> and </think>", "The tags are <think> and </think>"),
    ],
)
async def test_thinking_is_not_a_part_of_the_answer(
    llm: ScriptedLLM, chat: OpenAIChat, said: str, heard: str
) -> None:
    llm.reply(said)
    assert await ask(chat) == heard


async def test_the_reasoning_is_the_answer_only_when_there_is_no_other(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    llm.reply("Aloha!", reasoning="They greet me.").reply("", reasoning="Aloha again!")
    assert await ask(chat) == "Aloha!"
    assert await ask(chat) == "Aloha again!"


@pytest.mark.parametrize(
    "reply",
    [
        ScriptedReply(""),
        ScriptedReply(None),
        ScriptedReply(" \n"),
        ScriptedReply("<think>I wonder"),
        ScriptedReply("<think>I wonder</think>"),
        ScriptedReply("", reasoning="I was still thin", finish_reason="length"),
        ScriptedReply(None, tool_calls=[ToolCall("weather", {})]),
    ],
    ids=lambda reply: str(reply.text)[:20],
)
async def test_an_answer_that_says_nothing_is_an_error(
    llm: ScriptedLLM, chat: OpenAIChat, reply: ScriptedReply
) -> None:
    llm.reply(reply)
    with pytest.raises(ModelUnavailable, match="answered no message"):
        await ask(chat)


@pytest.mark.parametrize("name", [name for name in MALFORMED_ANSWERS if name not in ("empty", "ten_megabytes")])
async def test_odd_answers_come_as_they_are_and_can_be_stored(llm: ScriptedLLM, chat: OpenAIChat, name: str) -> None:
    llm.reply(malformed_reply(name))
    (await ask(chat)).encode()


async def test_an_answer_without_end_is_cut_off_and_refused(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    llm.reply(malformed_reply("ten_megabytes"))
    with pytest.raises(ModelUnavailable, match=f"more than {openai_chat.MAX_ANSWER_BYTES:,} bytes"):
        await ask(chat)
    assert len(llm.requests) == 1


@pytest.mark.parametrize("fault", [http_error(429), http_error(500), http_error(503), reset()], ids=lambda f: f.name)
async def test_a_passing_fault_is_tried_again(llm: ScriptedLLM, chat: OpenAIChat, fault: Any) -> None:
    llm.reply("Aloha!")
    llm.fault(fault, times=2)
    assert await ask(chat) == "Aloha!"
    assert len(llm.requests) == 3


@pytest.mark.parametrize("fault", [http_error(500), reset(), reset(after_bytes=20)], ids=lambda f: f.name)
async def test_a_fault_that_stays_is_given_up_on(llm: ScriptedLLM, chat: OpenAIChat, fault: Any) -> None:
    llm.fault(fault, times=None)
    with pytest.raises(ModelUnavailable) as raised:
        await ask(chat)
    assert raised.value.retryable
    assert len(llm.requests) == http_client.TRIES


@pytest.mark.parametrize(
    "fault",
    [
        html_page(),
        no_body(),
        truncated(),
        http_error(200, []),
        http_error(200, "null"),
        http_error(200, {"choices": []}),
        http_error(200, {"choices": [{"message": None}]}),
        http_error(200, {"choices": [{"message": {"content": 7}}]}),
        http_error(200, {"choices": {"0": "x"}}),
        http_error(200, b"\xff\xfe\x00"),
        http_error(200, "[" * 100_000),
    ],
)
async def test_a_malformed_answer_is_a_clear_error(llm: ScriptedLLM, chat: OpenAIChat, fault: Any) -> None:
    llm.fault(fault)
    with pytest.raises(ModelUnavailable, match=r"answered no message: (it is (not )?JSON|the model said)"):
        await ask(chat)


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_a_refusal_without_words_ends_without_a_colon(
    llm: ScriptedLLM, chat: OpenAIChat, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "TRIES", 1)
    llm.fault(http_error(status, b""), times=None)
    with pytest.raises(RecollectError, match=r"answered \d+") as raised:
        await ask(chat)
    assert not str(raised.value).rstrip().endswith(":")


@pytest.mark.parametrize("fault", [delay(30), hang(), hang(after_bytes=20), trickle(0.05)], ids=lambda f: f.name)
async def test_a_slow_server_is_left_at_the_deadline_of_the_call(
    llm: ScriptedLLM, chat: OpenAIChat, fault: Any
) -> None:
    llm.fault(fault, times=None)
    start = time.perf_counter()
    with pytest.raises(ModelUnavailable, match=r"did not answer in 1 s"):
        await ask(chat, timeout_s=1.0)
    assert time.perf_counter() - start < 20
    await asyncio.to_thread(llm.wait_for, lambda server: server.disconnects)


async def test_the_deadline_is_for_all_tries_together(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    llm.fault(http_error(503, headers={"Retry-After": "500"}), times=None)
    start = time.perf_counter()
    with pytest.raises(ModelUnavailable, match="503"):
        await ask(chat, timeout_s=400)
    assert time.perf_counter() - start < 200


async def test_a_redirect_is_not_followed_so_the_key_stays_with_its_server(
    llm: ScriptedLLM, chat: OpenAIChat
) -> None:
    with ScriptedLLM() as elsewhere:
        llm.fault(http_error(307, headers={"Location": f"{elsewhere.base_url}/chat/completions"}), times=None)
        with pytest.raises(ModelUnavailable, match="redirects are not followed"):
            await ask(chat)
        assert not elsewhere.requests


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, InvalidInput),
        (401, InvalidSettings),
        (403, InvalidSettings),
        (404, InvalidSettings),
        (500, ModelUnavailable),
    ],
)
async def test_the_key_is_never_shown(
    llm: ScriptedLLM, chat: OpenAIChat, caplog: pytest.LogCaptureFixture, status: int, error: type[Exception]
) -> None:
    caplog.set_level(logging.DEBUG)
    llm.fault(http_error(status, f"{'x' * 190} bad key {KEY}"), times=None)
    with pytest.raises(error) as raised:
        await ask(chat)
    seen = f"{raised.value} {chat!r} {caplog.text}"
    assert KEY not in seen
    assert KEY[:8] not in seen


SECRET = "I live in 12 Canary Street and my diagnosis is Lupus; 私は東京に住んでいます"
REFUSALS: dict[str, Any] = {
    "repeats": {"error": {"message": f"Invalid prompt: {SECRET}", "type": "invalid_request_error", "code": "bad"}},
    "repeats-a-part": {"error": {"message": "Flagged: 'my diagnosis is Lupus'", "type": "invalid_request_error"}},
    "names-one-word": {"error": {"message": "The word 'diagnosis' is not allowed", "type": "invalid_request_error"}},
    "says-a-name": {"error": {"message": "Lupus of Canary is filtered", "type": "invalid_request_error"}},
    "validation": {"detail": [{"loc": ["body", "messages"], "type": "invalid_request_error", "input": SECRET}]},
    "escaped": {"error": {"message": json.dumps({"asked": SECRET}), "type": "invalid_request_error"}},
    "page": f"<html>invalid_request_error<pre>{SECRET}</pre></html>",
    "in-another-script": {"error": {"message": "不適切: 東京に住", "type": "invalid_request_error"}},
}


@pytest.mark.parametrize("status", [400, 404, 422, 500])
@pytest.mark.parametrize("body", REFUSALS.values(), ids=REFUSALS)
async def test_what_a_server_repeats_of_what_it_was_asked_is_not_told(
    llm: ScriptedLLM, chat: OpenAIChat, status: int, body: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "TRIES", 1)
    llm.fault(http_error(status, body), times=None)
    with pytest.raises(RecollectError, match=f"answered {status}") as raised:
        await chat.complete([{"role": "user", "content": SECRET}], max_tokens=5)
    report = str(raised.value)
    assert not [word for word in ("Canary", "diagnosis", "Lupus", "東京", "6771") if word in report]


async def test_what_a_refusal_says_in_its_own_words_is_told(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    message = "This model's maximum context length is 8192 tokens, and you asked for more."
    llm.fault(http_error(400, error_body(message, code="context_length_exceeded")), times=None)
    with pytest.raises(InvalidInput) as raised:
        await chat.complete([{"role": "user", "content": SECRET}], max_tokens=5)
    assert "context_length_exceeded" in str(raised.value)
    assert str(raised.value).endswith(message)


async def test_a_refusal_is_understood_though_its_words_are_not_told(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    llm.reply("Aloha!")
    request = "In Hawaii, is the 'max_tokens' parameter not supported?"
    llm.fault(http_error(400, {"error": {"message": f"max_tokens is not supported; you asked: {request}"}}))
    assert await chat.complete([{"role": "user", "content": request}], max_tokens=5) == "Aloha!"


def test_looking_for_what_was_sent_takes_linear_time() -> None:
    sent = {"input": ["so it goes on " * 10_000]}
    start = time.process_time()
    describe_refusal(b"so it goes off " * 10_000, sent)
    describe_refusal(b"'" * 100_000, sent)
    assert time.process_time() - start < 15


@pytest.mark.parametrize("key", ["sk-secret\nX: y", "sk-secret–typographic", "sk secret"])
def test_a_key_that_cannot_be_sent_is_a_wrong_setting_that_does_not_show_it(key: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        OpenAIChat("http://localhost/v1", key, model="small")
    assert "secret" not in str(raised.value)


async def test_what_newer_models_refuse_is_left_out_from_then_on(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    llm.reply("Aloha!").reply("Mahalo!")
    llm.fault(http_error(400, MAX_TOKENS_REFUSED))
    llm.fault(http_error(400, TEMPERATURE_REFUSED))
    assert [await ask(chat), await ask(chat)] == ["Aloha!", "Mahalo!"]
    requests = [sorted(request.json.keys() - {"model", "messages"}) for request in llm.requests]
    assert requests == [
        ["max_tokens", "temperature"],
        ["max_completion_tokens", "temperature"],
        ["max_completion_tokens"],
        ["max_completion_tokens"],
    ]


async def test_a_refusal_that_stays_is_raised_and_not_repeated_for_ever(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    llm.fault(http_error(400, MAX_TOKENS_REFUSED), times=None)
    with pytest.raises(InvalidInput, match="max_tokens"):
        await ask(chat)
    assert len(llm.requests) == 2


async def test_halves_of_characters_are_not_sent(llm: ScriptedLLM, chat: OpenAIChat) -> None:
    await chat.complete([{"role": "user", "content": "half \ud83c"}], max_tokens=5)
    assert llm.requests[0].json["messages"][0]["content"] == "half ?"


async def test_the_settings_name_the_chat_model_or_none(llm: ScriptedLLM) -> None:
    assert open_chat(Settings()) is None
    chat = open_chat(Settings(llm="small", llm_url=llm.base_url, llm_api_key=KEY, llm_timeout_s=60))  # type: ignore[arg-type]
    assert chat is not None
    llm.reply("Aloha!")
    assert await ask(chat) == "Aloha!"
    assert llm.requests[0].headers["authorization"] == f"Bearer {KEY}"
    await chat.close()


class TestPrompts:
    @pytest.mark.parametrize("name", prompt_names())
    def test_every_prompt_has_a_purpose_and_takes_what_it_says(self, name: str) -> None:
        loaded = prompt(name)
        assert loaded.purpose
        filled = loaded.fill(**{one: f"<{one} ${one} $other>" for one in loaded.inputs})
        for one in loaded.inputs:
            assert f"<{one} ${one} $other>" in filled
        with pytest.raises(ValueError, match=f"the prompt {name} needs"):
            loaded.fill(**dict.fromkeys((*loaded.inputs, "more"), ""))

    def test_the_digest_is_of_the_text(self) -> None:
        digests = {prompt(name).digest for name in prompt_names()}
        assert len(digests) == len(prompt_names()) >= 2
        assert isinstance(prompt("rewrite"), Prompt)


class TestMessages:
    @pytest.mark.parametrize(
        ("content", "text"),
        [
            ("plain", "plain"),
            (None, ""),
            (7, ""),
            ({"text": "no list"}, ""),
            ([], ""),
            ([{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "input_text", "text": "b"}], "a\nb"),
            ([{"type": "output_text", "text": "c"}, {"type": "reasoning", "text": "secret"}], "c"),
            (
                [{"text": "untyped"}, "loose", {"type": "text", "text": 5}, {"type": ["text"], "text": "odd"}],
                "untyped",
            ),
        ],
    )
    def test_the_text_of_a_message_is_what_its_text_parts_say(self, content: object, text: str) -> None:
        assert message_text(content) == text

    @pytest.mark.parametrize(
        ("message", "role"), [({"role": "user"}, "user"), ({}, ""), ({"role": 5}, ""), (None, ""), ("user", "")]
    )
    def test_what_is_no_message_has_no_role(self, message: object, role: str) -> None:
        assert message_role(message) == role


async def test_keys_of_the_same_model_have_breakers_of_their_own() -> None:
    first, same, other = (
        OpenAIChat(base_url="http://127.0.0.1:9/v1", api_key=key, model="m") for key in ("a", "a", "b")
    )
    assert first.breaker is same.breaker
    assert first.breaker is not other.breaker
    for each in (first, same, other):
        await each.close()
