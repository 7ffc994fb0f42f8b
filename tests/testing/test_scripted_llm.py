"""The scripted LLM: scripted replies and faults as OpenAI's own client sees them."""

from __future__ import annotations

import base64
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from recollect.testing.fake_embedder import embed_words
from recollect.testing.llm_replies import ScriptedReply, ToolCall
from recollect.testing.scripted_llm import RecordedRequest, ScriptedLLM
from tests.support import llm_faults as faults

HELLO: Any = [{"role": "user", "content": "Hello there"}]
WEATHER = [ToolCall("weather", {"city": "Hilo"}), ToolCall("time", {"zone": "HST"}, id="call_mine")]


def ask(client: openai.OpenAI, text: str = "Hello there") -> str | None:
    message: Any = {"role": "user", "content": text}
    return client.chat.completions.create(model="m", messages=[message]).choices[0].message.content


def post(llm: ScriptedLLM, **fields: Any) -> httpx.Response:
    body = {"model": "m", "messages": HELLO, **fields}
    return httpx.post(f"{llm.base_url}/chat/completions", json=body, timeout=60)


def test_without_a_script_the_last_user_message_is_echoed(client: openai.OpenAI) -> None:
    assert ask(client, "Aloha") == "You said: Aloha"
    assert client.responses.create(model="m", input="Aloha").output_text == "You said: Aloha"


def test_queued_replies_come_in_order_and_then_the_default(llm: ScriptedLLM, client: openai.OpenAI) -> None:
    llm.reply("one").reply_json({"two": 2}).reply(lambda request: f"{request.kind} three")
    llm.default = ScriptedReply("done")
    assert [ask(client) for _ in range(5)] == ["one", '{"two": 2}', "chat three", "done", "done"]
    assert (llm.stats.calls["chat"], llm.stats.prompt_tokens, llm.stats.completion_tokens) == (5, 10, 12)


def test_the_latest_matching_rule_replies_until_it_is_removed(llm: ScriptedLLM, client: openai.OpenAI) -> None:
    llm.reply("queued")
    llm.when("Aloha").reply("first rule")
    later = llm.when(lambda request: request.text.startswith("Aloha")).reply("later rule")
    assert [ask(client, "Aloha"), ask(client, "Aloha"), ask(client, "Bye")] == ["later rule"] * 2 + ["queued"]
    later.remove()
    assert ask(client, "Aloha") == "first rule"


def test_an_error_in_the_script_is_named_in_the_response(llm: ScriptedLLM, client: openai.OpenAI) -> None:
    llm.reply(lambda request: request.json["no such field"])
    with pytest.raises(openai.InternalServerError, match="KeyError: 'no such field'"):
        ask(client)


def test_replies_are_the_same_whole_and_streamed(llm: ScriptedLLM, client: openai.OpenAI) -> None:
    llm.default = ScriptedReply("Surf is up, é", tool_calls=WEATHER, reasoning="hm")
    whole = client.chat.completions.create(model="m", messages=HELLO).choices[0]
    with client.chat.completions.stream(model="m", messages=HELLO) as stream:
        streamed = stream.get_final_completion().choices[0]
    for choice in (whole, streamed):
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Surf is up, é")
        calls: Any = choice.message.tool_calls
        assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Hilo"}, {"zone": "HST"}]
        assert calls[1].id == "call_mine"


def test_a_stream_ends_with_usage_only_on_request(llm: ScriptedLLM) -> None:
    assert '"usage"' not in post(llm, stream=True).text
    llm.reply("one two")
    *_, last, done = post(llm, stream=True, stream_options={"include_usage": True}).text.strip().split("\n\n")
    assert json.loads(last[6:])["usage"] == {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}
    assert done == "data: [DONE]"


def test_responses_stream_typed_events(llm: ScriptedLLM, client: openai.OpenAI) -> None:
    llm.reply("Surf is up", reasoning="hm", tool_calls=WEATHER, finish_reason="length")
    events: Any = list(client.responses.create(model="m", input="Hi", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "Surf is up"
    final = events[-1].response
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"]
    assert (final.status, final.incomplete_details.reason) == ("incomplete", "max_output_tokens")


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_embeddings_are_those_of_the_fake_embedder(llm: ScriptedLLM, client: openai.OpenAI, encoding: Any) -> None:
    texts = ["red fox", "blue whale"]
    answer = client.embeddings.create(model="e", input=texts, dimensions=24, encoding_format=encoding)
    rows: list[Any] = [row.embedding for row in answer.data]
    vectors = [np.frombuffer(base64.b64decode(row), "<f4") for row in rows] if encoding == "base64" else rows
    np.testing.assert_array_equal(np.array(vectors, dtype=np.float32), embed_words(texts, 24))


def test_requests_are_recorded_byte_for_byte(llm: ScriptedLLM) -> None:
    body = b'{ "messages":[{"role":"user","content":"\xc3\xa9"}], "top_p":1.0, "x":1e-7, "x":1234567890123456 }'
    httpx.post(f"{llm.base_url}/chat/completions?v=1", content=body, headers={"X-Odd": "yes"}, timeout=60)
    [request] = llm.calls("chat")
    assert (request.body, request.query, request.headers["x-odd"], request.text) == (body, "v=1", "yes", "é")


def test_a_fault_applies_to_requests_of_its_kind_and_the_retry_gets_the_reply(llm: ScriptedLLM) -> None:
    llm.reply("at last")
    llm.fault(faults.http_error(503), on="embeddings", times=None)
    llm.fault(faults.http_error(429, {"error": {"message": "slow down"}}, {"retry-after": "0.05"}), times=2)
    with openai.OpenAI(base_url=llm.base_url, api_key="k", max_retries=0) as client:
        with pytest.raises(openai.RateLimitError, match="slow down"):
            ask(client)
        assert ask(client.with_options(max_retries=1)) == "at last"
        with pytest.raises(openai.InternalServerError):
            client.embeddings.create(model="e", input="a")


def test_a_reset_in_mid_stream_reaches_the_client(llm: ScriptedLLM) -> None:
    llm.fault(faults.reset(after_frames=2))
    with pytest.raises(httpx.TransportError):
        post(llm, stream=True)
    assert llm.disconnects == []


def test_a_client_that_disconnects_is_recorded(llm: ScriptedLLM) -> None:
    llm.reply(faults=[faults.hang(after_frames=2)])
    body = {"model": "m", "messages": HELLO, "stream": True}
    with httpx.stream("POST", f"{llm.base_url}/chat/completions", json=body, timeout=60) as response:
        assert next(response.iter_raw())
    llm.wait_for(lambda server: server.disconnects)
    assert llm.disconnects[0].request is llm.requests[0]


def test_a_function_that_waits_does_not_delay_other_replies(llm: ScriptedLLM) -> None:
    gate = threading.Event()

    def late(_: RecordedRequest) -> str:
        return "in time" if gate.wait(60) else "blocked"

    llm.reply(late)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(post, llm)
        llm.wait_for(lambda server: server.requests)
        assert "You said" in post(llm).text
        gate.set()
        assert "in time" in slow.result().text


def test_it_stops_with_open_connections_and_starts_on_the_same_port() -> None:
    server = ScriptedLLM().start()
    base_url = server.base_url
    server.fault(faults.hang())
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(post, server)
        server.wait_for(lambda llm: llm.requests)
        server.stop()
        assert isinstance(hanging.exception(60), httpx.TransportError)
    with server:
        assert server.base_url == base_url
        assert post(server).status_code == 200
