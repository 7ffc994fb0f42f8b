from __future__ import annotations

import json
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import openai
import pytest

from recollect.testing import llm_faults as faults
from recollect.testing.llm_faults import Fault
from recollect.testing.llm_wire import MALFORMED_ANSWERS, ScriptedReply, ToolCall, malformed_reply
from recollect.testing.scripted_llm import ScriptedLLM

HELLO: Any = [{"role": "user", "content": "Hello there"}]
WEATHER = [ToolCall("weather", {"city": "Hilo"}), ToolCall("time", {"zone": "HST"}, id="call_mine")]


def ask(client: openai.OpenAI, text: str = "Hello there") -> str | None:
    message: Any = {"role": "user", "content": text}
    return client.chat.completions.create(model="m", messages=[message]).choices[0].message.content


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


def frames(response: httpx.Response) -> list[Any]:
    lines = [line for line in response.text.split("\n\n") if line]
    return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


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


def test_slow_answers_are_whole_and_as_slow_as_told(llm: ScriptedLLM) -> None:
    for fault, least_s in [(faults.delay(0.2), 0.2), (faults.trickle(0.05, size=100), 0.1)]:
        llm.fault(fault)
        began = time.monotonic()
        assert post_with_read_timeout(llm).json()["choices"][0]["finish_reason"] == "stop"
        assert least_s <= time.monotonic() - began < least_s + 20


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


def test_broken_bodies_arrive_with_status_200(llm: ScriptedLLM) -> None:
    for fault in (faults.no_body(), faults.truncated(), faults.html_page()):
        llm.fault(fault)
        response = post_with_read_timeout(llm)
        assert response.status_code == 200
        with pytest.raises(ValueError, match=r"Expecting|Unterminated|delimiter"):
            response.json()
    llm.fault(faults.content_type("text/plain"))
    response = post_with_read_timeout(llm)
    assert (response.headers["content-type"], response.json()["object"]) == ("text/plain", "chat.completion")


def test_an_error_in_mid_stream_reaches_the_client_and_ends_it(llm: ScriptedLLM, client: openai.OpenAI) -> None:
    llm.fault(faults.stream_error(2, {"error": {"message": "GPU on fire"}}), times=2)
    with pytest.raises(openai.APIError, match="GPU on fire"):
        ask_streamed(client)
    assert [type(frame) for frame in frames(post_with_read_timeout(llm, stream=True))] == [dict] * 3


QUIRKS = [
    faults.sse_comments(), faults.sse_fields(), faults.crlf(), faults.split_utf8(), faults.chunks_of(1),
    faults.big_frame(), faults.empty_choices(), faults.without_done(), faults.deltas_without_index(),
]  # fmt: skip


@pytest.mark.parametrize("quirk", QUIRKS, ids=lambda quirk: quirk.name)
def test_a_quirk_changes_the_bytes_and_not_the_words(llm: ScriptedLLM, client: openai.OpenAI, quirk: Fault) -> None:
    text = ScriptedReply("Mahalo — ʻae", tool_calls=WEATHER if "index" in quirk.name else ())
    llm.reply(text).reply(text)
    post_with_read_timeout(llm, stream=True)
    llm.fault(quirk)
    if text.tool_calls:
        assert '"tool_calls":[{"index"' not in post_with_read_timeout(llm, stream=True).text
    else:
        assert ask_streamed(client) == "Mahalo — ʻae"
    plain, bent = (answer.steps for _, answer in llm.answers)
    assert [len(step) for step in plain if isinstance(step, bytes)] != [len(s) for s in bent if isinstance(s, bytes)]


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


@pytest.mark.parametrize("name", MALFORMED_ANSWERS)
def test_malformed_answers_arrive_as_they_are(llm: ScriptedLLM, name: str) -> None:
    llm.reply(malformed_reply(name))
    message = post_with_read_timeout(llm).json()["choices"][0]["message"]
    in_reasoning = name == "only_in_reasoning"
    assert message["reasoning_content" if in_reasoning else "content"] == MALFORMED_ANSWERS[name]
    assert not in_reasoning or message["content"] == ""
    assert llm.disconnects == []
