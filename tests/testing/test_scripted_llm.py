from __future__ import annotations

import base64
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from recollect.testing.fake_embedder import embed_words
from recollect.testing.llm_replies import ScriptedReply, ToolCall
from recollect.testing.llm_server import RecordedRequest
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support import llm_faults as faults

HELLO: Any = [{"role": "user", "content": "Hello there"}]
WEATHER = [ToolCall("weather", {"city": "Hilo"}), ToolCall("time", {"zone": "HST"}, id="call_mine")]


def ask(client: openai.OpenAI, text: str = "Hello there") -> str | None:
    message: Any = {"role": "user", "content": text}
    return client.chat.completions.create(model="m", messages=[message]).choices[0].message.content


def post(llm: ScriptedLLM, *, timeout: float = 60, **fields: Any) -> httpx.Response:
    body = {"model": "m", "messages": HELLO, **fields}
    return httpx.post(f"{llm.base_url}/chat/completions", json=body, timeout=timeout, verify=False)


def frames(response: httpx.Response) -> list[Any]:
    lines = [line for line in response.text.split("\n\n") if line]
    return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


def test_without_a_script_the_last_words_of_the_user_come_back(client: openai.OpenAI) -> None:
    assert ask(client, "Aloha") == "You said: Aloha"
    assert client.responses.create(model="m", input="Aloha").output_text == "You said: Aloha"


def test_queued_replies_come_in_order_and_then_the_default(llm: ScriptedLLM, client: openai.OpenAI) -> None:
    llm.reply("one").reply_json({"two": 2}).reply(lambda request: f"{request.kind} three")
    llm.default = ScriptedReply("done")
    assert [ask(client) for _ in range(5)] == ["one", '{"two": 2}', "chat three", "done", "done"]


def test_the_latest_rule_that_matches_wins_and_holds_until_removed(llm: ScriptedLLM, client: openai.OpenAI) -> None:
    llm.reply("queued")
    llm.when("Aloha").reply("first rule")
    later = llm.when(lambda request: request.text.startswith("Aloha")).reply("later rule")
    assert [ask(client, "Aloha"), ask(client, "Aloha"), ask(client, "Bye")] == ["later rule"] * 2 + ["queued"]
    later.reply("said anew")
    assert ask(client, "Aloha") == "said anew"
    later.remove()
    assert ask(client, "Aloha") == "first rule"
    later.remove()
    assert ask(client, "Aloha") == "first rule"


def test_a_mistake_in_the_script_is_an_error_that_names_it(llm: ScriptedLLM, client: openai.OpenAI) -> None:
    llm.reply(lambda request: request.json["no such field"])
    with pytest.raises(openai.InternalServerError, match="KeyError: 'no such field'"):
        ask(client)
    llm.fault(faults.crlf())
    with pytest.raises(openai.InternalServerError, match="ask with stream=true"):
        ask(client)
    with pytest.raises(TypeError, match="leave the keywords out"):
        llm.reply(ScriptedReply("a"), reasoning="b")


def test_a_stream_has_the_role_first_a_reason_last_and_one_done(llm: ScriptedLLM) -> None:
    llm.reply("Surf is up, é", finish_reason="length")
    response = post(llm, stream=True)
    *chunks, done = frames(response)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["length"]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == "Surf is up, é"
    assert not any("usage" in chunk for chunk in chunks)


def test_usage_ends_a_stream_only_where_it_was_asked_for(llm: ScriptedLLM) -> None:
    llm.reply("one two")
    *chunks, last, done = frames(post(llm, stream=True, stream_options={"include_usage": True}))
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}
    assert all(chunk["usage"] is None for chunk in chunks)
    assert done == "[DONE]"


def test_parallel_tool_calls_are_the_same_whole_and_streamed(llm: ScriptedLLM, client: openai.OpenAI) -> None:
    llm.reply(tool_calls=WEATHER).reply(tool_calls=WEATHER)
    choice = client.chat.completions.create(model="m", messages=HELLO).choices[0]
    with client.chat.completions.stream(model="m", messages=HELLO) as stream:
        streamed = stream.get_final_completion().choices[0]
    for answer in (choice, streamed):
        assert (answer.finish_reason, answer.message.content) == ("tool_calls", None)
        calls: Any = answer.message.tool_calls
        assert [call.function.name for call in calls] == ["weather", "time"]
        assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Hilo"}, {"zone": "HST"}]
        assert calls[1].id == "call_mine"
        assert calls[0].id.startswith("call_")


def test_n_choices_and_reasoning_arrive_whole_and_streamed(llm: ScriptedLLM) -> None:
    llm.default = ScriptedReply("Yes", reasoning="Let me think")
    whole = post(llm, n=3).json()["choices"]
    chunks = [chunk["choices"][0] for chunk in frames(post(llm, n=3, stream=True))[:-1]]
    for index in range(3):
        assert whole[index]["index"] == index
        assert whole[index]["message"]["reasoning_content"] == "Let me think"
        deltas = [choice["delta"] for choice in chunks if choice["index"] == index]
        assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Let me think"
        assert "".join(delta.get("content", "") for delta in deltas) == "Yes"


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_embeddings_are_those_of_the_fake_embedder(llm: ScriptedLLM, client: openai.OpenAI, encoding: Any) -> None:
    texts = ["red fox", "blue whale"]
    answer = client.embeddings.create(model="e", input=texts, dimensions=24, encoding_format=encoding)
    rows: list[Any] = [row.embedding for row in answer.data]
    got = [np.frombuffer(base64.b64decode(row), "<f4") for row in rows] if encoding == "base64" else rows
    np.testing.assert_array_equal(np.array(got, dtype=np.float32), embed_words(texts, 24))
    assert (answer.usage.total_tokens, llm.stats.embedding_tokens) == (4, 4)


def test_responses_stream_typed_events_with_rising_numbers(llm: ScriptedLLM, client: openai.OpenAI) -> None:
    llm.reply("Surf is up", reasoning="hm", tool_calls=WEATHER)
    events: Any = list(client.responses.create(model="m", input="Hi", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "Surf is up"
    arguments = [e.arguments for e in events if e.type == "response.function_call_arguments.done"]
    assert [json.loads(text) for text in arguments] == [{"city": "Hilo"}, {"zone": "HST"}]
    assert events[-1].type == "response.completed"
    final = events[-1].response
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"]
    assert b"[DONE]" not in llm.answers[-1][1].body


def test_a_response_cut_by_its_length_is_incomplete(llm: ScriptedLLM, client: openai.OpenAI) -> None:
    llm.reply("Surf is", finish_reason="length")
    answer = client.responses.create(model="m", input="Hi")
    assert answer.incomplete_details is not None
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def test_every_other_path_is_described_as_it_arrived(llm: ScriptedLLM, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["scripted"]
    got = httpx.patch(f"{llm.base_url}/models/org%2Fname?b=%20&a=1&a", content=b"\x00\xff").json()
    path = "/v1/models/org%2Fname"
    assert got == {"method": "PATCH", "path": path, "query": "b=%20&a=1&a", "body_bytes": 2}
    assert httpx.head(f"{llm.base_url}/models").status_code == 200
    assert httpx.get(llm.base_url.replace("/v1", "/v2/models")).status_code == 404


def test_requests_are_recorded_byte_for_byte(llm: ScriptedLLM) -> None:
    body = b'{ "messages":[{"role":"user","content":"\xc3\xa9"}], "top_p":1.0, "x":1e-7, "x":1234567890123456 }'
    httpx.post(f"{llm.base_url}/chat/completions?v=1", content=body, headers={"X-Odd": "yes"})
    [request] = llm.calls("chat")
    assert (request.body, request.query, request.headers["x-odd"]) == (body, "v=1", "yes")
    assert (request.text, request.json["top_p"]) == ("é", 1.0)
    assert request.at.utcoffset() == timedelta(0)
    llm.clear()
    assert (llm.requests, llm.answers, sum(llm.stats.calls.values())) == ([], [], 0)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"messages": 1}', b"[" * 100_000])
def test_a_body_that_is_no_chat_request_is_refused(llm: ScriptedLLM, body: bytes) -> None:
    response = httpx.post(f"{llm.base_url}/chat/completions", content=body)
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
    assert llm.requests[0].body == body


def test_calls_and_tokens_are_counted(llm: ScriptedLLM, client: openai.OpenAI) -> None:
    llm.reply("one, two")
    ask(client, "three little words")
    llm.fault(faults.http_error(500))
    with pytest.raises(openai.InternalServerError):
        ask(client)
    assert (llm.stats.calls["chat"], llm.stats.calls["embeddings"]) == (2, 0)
    assert (llm.stats.prompt_tokens, llm.stats.completion_tokens) == (3, 3)


def test_concurrent_clients_each_get_a_reply_of_their_own(llm: ScriptedLLM) -> None:
    for number in range(64):
        llm.reply(str(number))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(llm).json()["choices"][0]["message"]["content"], range(64)))
    assert sorted(map(int, answers)) == list(range(64))


def test_a_function_that_waits_does_not_hold_up_other_answers(llm: ScriptedLLM) -> None:
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


def test_it_starts_fast_stops_clean_and_comes_back_on_its_port() -> None:
    before = set(threading.enumerate())
    server = ScriptedLLM()
    began = time.monotonic()
    server.start()
    assert time.monotonic() - began < 10
    base_url = server.base_url
    server.fault(faults.hang())
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(post, server)
        server.wait_for(lambda llm: llm.requests)
        server.stop()
        server.stop()
        assert isinstance(hanging.exception(60), httpx.TransportError)
    assert set(threading.enumerate()) <= before
    assert server.disconnects == []
    with pytest.raises(httpx.ConnectError):
        post(server)
    with server:
        assert server.base_url == base_url
        assert post(server).status_code == 200


def ask_streamed(client: openai.OpenAI) -> str:
    stream = client.chat.completions.create(model="m", messages=HELLO, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def post_with_read_timeout(llm: ScriptedLLM, *, timeout: float = 60, **fields: Any) -> httpx.Response:
    body = {"model": "m", "messages": HELLO, **fields}
    url, limit = f"{llm.base_url}/chat/completions", httpx.Timeout(60, read=timeout)
    return httpx.post(url, json=body, timeout=limit, verify=False)


def read_all(connection: socket.socket, into: bytearray) -> None:
    while data := connection.recv(65536):
        into += data


def test_an_http_error_has_its_headers_and_the_retry_gets_the_reply(llm: ScriptedLLM) -> None:
    llm.reply("at last")
    headers = {"retry-after": "0.05", "x-ratelimit-remaining-requests": "0", "x-request-id": "r1"}
    llm.fault(faults.http_error(429, {"error": {"message": "slow down"}}, headers), times=2)
    with openai.OpenAI(base_url=llm.base_url, api_key="k", max_retries=0) as client:
        with pytest.raises(openai.RateLimitError, match="slow down") as caught:
            ask(client)
        assert {name: caught.value.response.headers[name] for name in headers} == headers
        assert ask(client.with_options(max_retries=1)) == "at last"
    assert llm.stats.calls["chat"] == 3


def test_a_fault_waits_for_a_request_of_its_kind(llm: ScriptedLLM, client: openai.OpenAI) -> None:
    llm.fault(faults.http_error(503), on="embeddings", times=None)
    assert ask(client) == "You said: Hello there"
    for _ in range(3):
        with pytest.raises(openai.InternalServerError):
            client.embeddings.create(model="e", input="a")


def test_a_reset_comes_before_any_byte_in_mid_body_or_in_mid_stream(
    llm: ScriptedLLM, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for fault, stream, got in [
        (faults.reset(), False, None),
        (faults.reset(after_bytes=10), False, b'{"id":"cha'),
        (faults.reset(after_frames=2), True, 2),
    ]:
        llm.fault(fault)
        request = b'{"messages":[],"stream":%s}' % (b"true" if stream else b"false")
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(request)
        received = bytearray()
        with socket.create_connection(("127.0.0.1", httpx.URL(llm.base_url).port or 0)) as raw:
            raw.sendall(head + request)
            with pytest.raises(ConnectionResetError):
                read_all(raw, received)
        if got is None:
            assert received == b""
        elif isinstance(got, bytes):
            assert received.endswith(b"\r\n\r\n" + got)
        else:
            assert received.count(b"data: ") == got
    assert llm.disconnects == []
    assert [record for record in caplog.records if record.name in ("uvicorn.access", "uvicorn.error")] == []


def test_what_was_sent_is_kept_byte_for_byte(llm: ScriptedLLM) -> None:
    llm.fault(faults.sse_fields(), faults.crlf(), faults.split_utf8())
    llm.reply("é")
    assert post_with_read_timeout(llm, stream=True).content == llm.answers[0][1].body
    with pytest.raises(UnicodeDecodeError):
        [step.decode() for step in llm.answers[0][1].steps if isinstance(step, bytes)]


@pytest.mark.parametrize("after", [0, 2])
def test_a_client_that_goes_away_is_recorded_at_once(llm: ScriptedLLM, after: int) -> None:
    llm.reply(faults=[faults.hang(after_frames=after)])
    with pytest.raises(httpx.ReadTimeout):
        post_with_read_timeout(llm, stream=True, timeout=1)
    left_at = datetime.now(UTC)
    llm.wait_for(lambda server: server.disconnects)
    [gone] = llm.disconnects
    assert gone.request is llm.requests[0]
    assert gone.request.at < gone.at < left_at + timedelta(seconds=20)
    with pytest.raises(TimeoutError, match="POST /v1/chat/completions"):
        llm.wait_for(lambda server: len(server.disconnects) > 1, timeout_s=0.05)


def test_a_client_that_leaves_a_large_answer_or_a_slow_function_is_recorded(llm: ScriptedLLM) -> None:
    gate = threading.Event()
    llm.reply("x" * 20_000_000).reply(lambda _: str(gate.wait(60)))
    body = {"model": "m", "messages": HELLO}
    with httpx.stream("POST", f"{llm.base_url}/chat/completions", json=body, timeout=60) as response:
        assert next(response.iter_raw())
    llm.wait_for(lambda server: len(server.disconnects) == 1)
    with pytest.raises(httpx.ReadTimeout):
        post_with_read_timeout(llm, timeout=1)
    gate.set()
    llm.wait_for(lambda server: len(server.disconnects) == 2)
