"""Answers are relayed byte for byte: streams, errors and breaks."""

from __future__ import annotations

import asyncio
import gc
import gzip
import http.client
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect.http.proxy.sse import MAX_ANSWER_BYTES, SseReader, StreamRecorder
from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.remember import MemoryInput
from recollect.testing.llm_replies import Cut, Fault, ScriptedReply, ToolCall
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.llm_faults import (
    big_frame,
    chunks_of,
    crlf,
    deltas_without_index,
    empty_choices,
    http_error,
    reset,
    split_utf8,
    sse_comments,
    sse_fields,
    stream_error,
    trickle,
    without_done,
)
from tests.support.proxy_server import BUDGET, QUESTION, ServedProxy, answers, chat, served

CALLS = [ToolCall("look", {"at": "日本"}), ToolCall("book", {"room": 1.0})]
SSE = "text/event-stream"
ERROR_HEADERS = {
    "retry-after": "7",
    "retry-after-ms": "6500",
    "x-ratelimit-remaining-requests": "0",
    "x-ratelimit-reset-tokens": "6m0s",
    "x-request-id": "req_abc",
    "openai-organization": "org",
}


@pytest.fixture(scope="module")
def proxy(llm: ScriptedLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProxy]:
    with served(tmp_path_factory.mktemp("home"), llm.base_url) as running:
        yield running


@pytest.fixture(scope="module")
def llm() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as server:
        yield server


@pytest.fixture(autouse=True)
def _afresh(llm: ScriptedLLM) -> None:
    llm.clear()


STREAMS = [
    (),
    (sse_comments(),),
    (sse_fields(),),
    (crlf(),),
    (sse_fields(), crlf(), chunks_of(1)),
    (split_utf8(),),
    (big_frame(),),
    (chunks_of(1),),
    (chunks_of(7),),
    (deltas_without_index(),),
    (empty_choices(),),
    (without_done(),),
]


REPLIES = [ScriptedReply("Aloha, 日本 🏝!"), ScriptedReply(None, CALLS), ScriptedReply("One\n\ndata: [DONE]\n\n")]


@pytest.mark.parametrize("faults", STREAMS, ids=lambda faults: "+".join(fault.name for fault in faults) or "plain")
def test_a_stream_is_relayed_byte_for_byte(llm: ScriptedLLM, proxy: ServedProxy, faults: tuple[Fault, ...]) -> None:
    for reply in REPLIES:
        llm.clear()
        llm.reply(reply)
        if faults:
            llm.fault(*faults)
        answer = proxy.post(chat(stream=True))
        [(_, sent)] = llm.answers
        assert answer.status == 200
        assert answer.body == sent.body
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert "content-length" not in answer.headers


@pytest.mark.parametrize("include_usage", [True, False])
def test_usage_is_sent_on_request_only_and_done_once(
    llm: ScriptedLLM, proxy: ServedProxy, include_usage: bool
) -> None:
    fields: dict[str, Any] = {"stream_options": {"include_usage": True}} if include_usage else {}
    answer = proxy.post(chat(stream=True, **fields))
    [request] = llm.calls("chat")
    assert ("stream_options" in request.json) is include_usage
    assert (b'"usage":{' in answer.body) is include_usage
    assert answer.body.count(b"data: [DONE]") == 1
    assert answer.body.endswith(b"data: [DONE]\n\n")


def test_each_chunk_is_relayed_before_the_next_one_arrives(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    llm.fault(answers(b"data: one\n\n", Cut.HANG, content_type=SSE))
    with httpx.stream("POST", f"{proxy.url}/chat/completions", json=chat(stream=True), timeout=60) as answer:
        assert next(answer.iter_raw()) == b"data: one\n\n"


@pytest.mark.parametrize("streamed", [True, False])
def test_the_answer_is_recorded_in_any_encoding_of_the_stream(
    llm: ScriptedLLM, proxy: ServedProxy, streamed: bool
) -> None:
    user = f"heard-{streamed}"
    llm.reply("Aloha, 日本 🏝!", faults=[sse_fields(), crlf(), chunks_of(1)] if streamed else [chunks_of(1)])
    proxy.post(chat("I plan a trip", stream=streamed), x_memory_user=user)
    assert proxy.stored_turns(user) == [("user", "I plan a trip"), ("assistant", "Aloha, 日本 🏝!")]


def test_a_compressed_answer_is_relayed_compressed_and_recorded(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Packed"}}]}
    packed = gzip.compress(json.dumps(body).encode())
    llm.fault(
        answers(packed, content_type="application/json", content_encoding="gzip", content_length=str(len(packed)))
    )
    answer = proxy.post(chat("Pack it"), x_memory_user="packed", accept_encoding="br, gzip")
    assert (answer.body, answer.headers["content-encoding"]) == (packed, "gzip")
    assert answer.headers["content-length"] == str(len(packed))
    # An encoding that cannot be recorded is not accepted.
    assert llm.requests[0].headers["accept-encoding"] == "gzip"
    assert proxy.stored_turns("packed") == [("user", "Pack it"), ("assistant", "Packed")]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("status", [400, 401, 429, 503, 529])
def test_an_upstream_error_is_relayed_unchanged(
    llm: ScriptedLLM, proxy: ServedProxy, status: int, streamed: bool
) -> None:
    text = b'{"error": {"message": "No.", "code": "odd\\u0021" } }\n'
    llm.fault(http_error(status, text, headers=ERROR_HEADERS))
    answer = proxy.post(chat(stream=streamed))
    assert (answer.status, answer.body) == (status, text)
    assert {name: answer.headers[name] for name in ERROR_HEADERS} == ERROR_HEADERS
    assert answer.headers["x-memory-status"] == "ok"
    # The proxy did not retry.
    assert len(llm.requests) == 1


def test_an_upstream_error_is_not_stored_as_an_answer(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    llm.fault(http_error(429, {"choices": [{"message": {"content": "slow down"}}]}))
    report = {"x_memory_user": "refused", "x_memory_session": "one"}
    proxy.post(chat(BUDGET), **report)
    llm.reply("Aloha")
    proxy.post(chat("And now?"), **report)
    assert proxy.stored_turns("refused", 3) == [("user", BUDGET), ("user", "And now?"), ("assistant", "Aloha")]


@pytest.mark.parametrize("fault", [reset(after_frames=3), reset(after_frames=1)], ids=["later", "at once"])
def test_a_broken_stream_ends_without_a_proper_end(llm: ScriptedLLM, proxy: ServedProxy, fault: Fault) -> None:
    llm.reply("Aloha from the beach", faults=[fault])
    with pytest.raises(http.client.IncompleteRead) as raised:
        proxy.post(chat(BUDGET, stream=True), x_memory_user=f"cut-{len(llm.requests)}")
    [(_, sent)] = llm.answers
    # A reset can overtake sent bytes; nothing is added to them.
    assert sent.body.startswith(raised.value.partial)
    assert b"stop" not in raised.value.partial


def test_the_part_before_a_break_is_stored(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    llm.reply("Aloha from the beach", faults=[reset(after_frames=3)])
    with pytest.raises(http.client.IncompleteRead):
        proxy.post(chat(BUDGET, stream=True), x_memory_user="cut")
    assert proxy.stored_turns("cut") == [("user", BUDGET), ("assistant", "Aloha from")]


@pytest.mark.parametrize("headers", [{"content_length": "1000"}, {}], ids=["with-length", "without-length"])
def test_a_broken_answer_ends_without_a_proper_end(
    llm: ScriptedLLM, proxy: ServedProxy, headers: dict[str, str]
) -> None:
    llm.fault(answers(b'{"choices": []}', Cut.RESET, content_type="application/json", **headers))
    with pytest.raises(http.client.IncompleteRead):
        proxy.post(chat())


def test_a_broken_answer_with_memory_hits_is_an_error(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    llm.fault(answers(b'{"choices": []}', Cut.RESET, content_type="application/json"))
    answer = proxy.post(chat(memory_hits=True))
    assert (answer.status, answer.json["error"]["code"]) == (502, "upstream_broken")
    assert answer.headers["x-memory-status"] == "ok"


def test_an_error_event_is_relayed_unchanged(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    llm.reply("Aloha from the beach", faults=[stream_error(2)])
    answer = proxy.post(chat(stream=True))
    [(_, sent)] = llm.answers
    assert answer.body == sent.body
    assert b"[DONE]" not in answer.body


def test_a_reset_before_the_first_byte_is_a_502(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    llm.fault(reset())
    answer = proxy.post(chat(stream=True))
    assert (answer.status, answer.json["error"]["code"]) == (502, "upstream_unavailable")
    assert answer.headers["x-memory-status"] == "ok"


def test_memory_hits_are_added_and_the_rest_of_the_answer_is_unchanged(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    proxy.post(chat(BUDGET), x_memory_user="hits")
    text = b'{"id": "1", "x": 1.0, "choices": [ ]\n}\n'
    packed = gzip.compress(text)
    for body, more in ((text, {}), (packed, {"content_encoding": "gzip"})):
        llm.fault(answers(body, content_type="application/json", content_length=str(len(body)), **more))
        answer = proxy.post(chat(memory_hits=True), x_memory_user="hits", x_memory="read")
        assert answer.body.startswith(b'{"id": "1", "x": 1.0, "choices": [ ]')
        assert BUDGET in [hit["content"] for hit in answer.json["memory_hits"]]
        assert "content-encoding" not in answer.headers


def test_a_tool_result_stays_the_last_message(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    proxy.post(chat(BUDGET), x_memory_user="tool")
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "$10,000"},
    ]
    llm.clear()
    answer = proxy.post({"model": "scripted", "messages": messages}, x_memory_user="tool")
    [request] = llm.calls("chat")
    got = request.json["messages"]
    assert int(answer.headers["x-memory-hits"]) > 0
    assert [got[0], *got[2:]] == messages
    assert BUDGET in got[1]["content"]
    assert got[1]["role"] == "user"


def test_the_prefix_of_a_growing_history_stays_the_same_for_prompt_caches(
    llm: ScriptedLLM, proxy: ServedProxy
) -> None:
    proxy.post(chat(BUDGET), x_memory_user="prefix")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    later = [
        *messages,
        {"role": "assistant", "content": "$10,000"},
        {"role": "user", "content": "And my budget left?"},
    ]
    proxy.post({"model": "scripted", "messages": messages}, x_memory_user="prefix")
    proxy.post({"model": "scripted", "messages": later}, x_memory_user="prefix")
    got = llm.calls("chat")[-1].json["messages"]
    assert got[:3] == later[:3]
    assert (len(got), got[4]) == (5, later[3])


def test_a_huge_memory_does_not_exceed_the_token_budget(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    huge = "My budget for the Hawaii trip is " + "very " * 40_000 + "large"
    proxy.post(chat(huge), x_memory_user="huge")
    llm.clear()
    answer = proxy.post(chat(), x_memory_user="huge", x_memory="read")
    [request] = llm.calls("chat")
    assert int(answer.headers["x-memory-hits"]) > 0
    assert "My budget for the Hawaii trip is very" in request.text
    assert len(request.body) < 20_000


def test_system_messages_are_unchanged(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    proxy.post(chat(BUDGET), x_memory_user="system")
    llm.clear()
    messages = [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "In verse."}]
    proxy.post({"model": "scripted", "messages": [*messages, *chat()["messages"]]}, x_memory_user="system")
    got = llm.calls("chat")[0].json["messages"]
    assert got[:2] == messages
    assert [each["role"] for each in got[2:]] == ["user", "user"]


STREAM_COUNT = 100
MAX_BUSY_S = 0.05
BY = Author("test")


class Beat:
    """Measures the longest time that the loop was busy between two of its turns.

    It is CPU time, so that other processes on the machine do not count.
    """

    def __init__(self) -> None:
        self.most_s = 0.0

    async def go_on(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.most_s, before = max(self.most_s, now - before), now


async def run_streams(port: int) -> list[tuple[int, str, str]]:
    """Run concurrent streams; return the status, the memory status and the text of each."""
    limits = httpx.Limits(max_connections=STREAM_COUNT)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120, limits=limits) as client:

        async def ask(number: int) -> tuple[int, str, str]:
            body = chat(QUESTION, stream=True)
            headers = {"X-Memory-User": f"user-{number}"}
            async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
                text = (await answer.aread()).decode()
                return answer.status_code, answer.headers["x-memory-status"], text

        return list(await asyncio.gather(*(ask(number) for number in range(STREAM_COUNT))))


async def store_budget(proxy: ServedProxy, number: int) -> None:
    await proxy.service.add(Scope(f"user-{number}"), MemoryInput(content=f"{BUDGET}, says user {number}."), by=BY)


def test_a_hundred_concurrent_streams_do_not_block_the_event_loop(tmp_path: Path, llm: ScriptedLLM) -> None:
    llm.fault(trickle(0.01, size=200), times=None)
    with served(tmp_path, llm.base_url) as proxy:
        for number in range(STREAM_COUNT):
            proxy.run(store_budget(proxy, number))
        # Load what the first use loads.
        assert proxy.post(chat(QUESTION), X_Memory_User="user-0").status == 200
        # As a server does once it has started.
        gc.collect()
        gc.freeze()
        beat = Beat()

        async def start() -> asyncio.Task[None]:
            return asyncio.create_task(beat.go_on())

        async def stop(task: asyncio.Task[None]) -> None:
            task.cancel()

        beating = proxy.run(start())
        answers = asyncio.run(run_streams(proxy.port))
        proxy.run(stop(beating))
    assert [(status, memory) for status, memory, _ in answers] == [(200, "ok")] * STREAM_COUNT
    assert all(text.rstrip().endswith("data: [DONE]") for _, _, text in answers)
    # Each forwarded request has the memory of its user only.
    for request in llm.requests[-STREAM_COUNT:]:
        assert sum(f"says user {number}." in request.text for number in range(STREAM_COUNT)) == 1
    assert beat.most_s < MAX_BUSY_S, f"the loop was busy for {beat.most_s * 1e3:.0f} ms at a time"


MAX_SENT_BYTES = 1 << 20
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(word: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": word}}]}).encode() + b"\n\n"


class Endless:
    """An upstream that answers endlessly, until it has to wait or has sent far too much."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        # So that little is buffered by the system.
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"
        self.sent = 0
        self.ended = threading.Event()
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        words = event(" word") * 100
        chunk = b"%x\r\n%b\r\n" % (len(words), words)
        client, _ = self._listening.accept()
        with client:
            client.recv(1 << 16)
            client.settimeout(1)
            client.sendall(_HEAD)
            try:
                while self.sent < 2 * MAX_SENT_BYTES:
                    client.sendall(chunk)
                    self.sent += len(chunk)
            except TimeoutError:
                pass
            finally:
                self.ended.set()

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def endless() -> Iterator[Endless]:
    upstream = Endless()
    yield upstream
    upstream.close()


def test_an_upstream_waits_for_a_client_that_does_not_read(tmp_path: Path, endless: Endless) -> None:
    raw = json.dumps(chat(stream=True)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(raw)}\r\n\r\n"
    with served(tmp_path, endless.url) as proxy, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", proxy.port))
        client.sendall(head.encode() + raw)
        assert endless.ended.wait(60)
        assert 0 < endless.sent < MAX_SENT_BYTES


def stored_bytes() -> int:
    """Return the bytes that are held by the package; other threads of the tests allocate too."""
    own = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/recollect/http/*")])
    return sum(each.size for each in own.traces)


def test_recording_a_long_answer_takes_little_memory() -> None:
    recorder = StreamRecorder(streamed=True)
    count = 8_000

    async def feed() -> None:
        for number in range(count):
            await recorder.feed(event(f" {number:05}"))

    tracemalloc.start()
    try:
        asyncio.run(feed())
        stored = stored_bytes()
    finally:
        tracemalloc.stop()
    text = asyncio.run(recorder.text())
    assert (len(text), text[:12]) == (6 * count, " 00000 00001")
    assert stored < 3 * len(text)


def test_an_event_without_an_end_takes_bounded_memory_and_the_next_one_is_read() -> None:
    reader, line = SseReader(), b"data: " + b"x" * (1 << 16) + b"\n"
    tracemalloc.start()
    try:
        for _ in range(3 * MAX_ANSWER_BYTES // len(line)):
            assert reader.feed(line) == []
        stored = stored_bytes()
    finally:
        tracemalloc.stop()
    assert stored < 1.5 * MAX_ANSWER_BYTES
    [large] = reader.feed(b"\n")
    assert len(large) <= MAX_ANSWER_BYTES
    assert reader.feed(b"data: next\n\n") == [b"next"]
