"""Large requests and answers: what memory reads is bounded, everything is relayed, and other clients are answered."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Iterator

import httpx
import pytest

from recollect.http.proxy.sse import MAX_ANSWER_BYTES, StreamRecorder
from recollect.model.messages import MAX_MESSAGE_CHARS, MAX_MESSAGES
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.loop_time import assert_loop_runs
from tests.support.proxy_server import ServedProxy, answers, chat, served

_MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def llm() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(llm: ScriptedLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProxy]:
    with served(tmp_path_factory.mktemp("home"), llm.base_url, chat_memory_hits=True) as running:
        yield running


def test_a_chat_with_more_text_than_memory_reads_is_forwarded_without_memory(
    proxy: ServedProxy, llm: ScriptedLLM
) -> None:
    body = json.dumps(chat("4111 1111 1111 1112 " * (MAX_MESSAGE_CHARS // 20 + 1))).encode()
    answer = proxy.post(body, x_memory_user="large-text")
    assert (answer.status, answer.headers["x-memory-status"]) == (200, "degraded; reason=too_large")
    assert llm.answers[-1][0].json == json.loads(body)
    assert proxy.run(proxy.service.sessions.list("large-text")) == []


def test_a_message_that_is_stored_in_part_is_reported(
    proxy: ServedProxy, llm: ScriptedLLM, caplog: pytest.LogCaptureFixture
) -> None:
    long = {"role": "user", "content": "I live in Porto. " * (3 * _MEBIBYTE // 17)}
    body = {"model": "scripted", "messages": [long]}
    for path, request in (("/chat/completions", body), ("/responses", {"model": "scripted", "input": [long]})):
        user = f"long{path}"
        answer = proxy.post(request, path=path, x_memory_user=user)
        assert (answer.status, answer.headers["x-memory-status"]) == (200, "degraded; reason=too_large")
        assert answer.headers["x-memory-turn"]
        assert len(proxy.stored_turns(user)[0][1]) == _MEBIBYTE
    assert "A message is 3,145,714 bytes; the limit is 1,048,576: the rest of it is not stored" in caplog.text
    # As history it was stored before, and the new message is stored completely.
    body["messages"] += [{"role": "assistant", "content": "Noted."}, {"role": "user", "content": "I like tea"}]
    assert proxy.post(body, x_memory_user="long/chat/completions").headers["x-memory-status"] == "ok"


def test_a_chat_with_more_messages_than_memory_reads_is_forwarded_without_memory(
    proxy: ServedProxy, llm: ScriptedLLM
) -> None:
    messages = [{"role": "user", "content": f"I like tea {n}"} for n in range(MAX_MESSAGES + 1)]
    answer = proxy.post({"model": "scripted", "messages": messages}, x_memory_user="many")
    assert (answer.status, answer.headers["x-memory-status"]) == (200, "degraded; reason=too_large")
    assert llm.answers[-1][0].json["messages"] == messages
    responses = {"model": "scripted", "input": messages}
    answer = proxy.post(responses, path="/responses", x_memory_user="many")
    assert answer.headers["x-memory-status"] == "degraded; reason=too_large"


def test_the_rest_api_names_the_limit_of_messages(proxy: ServedProxy) -> None:
    for messages in ("x" * (MAX_MESSAGE_CHARS + 1), [{"role": "user", "content": "I"}] * (MAX_MESSAGES + 1)):
        for operation in ("remember", "recall"):
            url = f"http://127.0.0.1:{proxy.port}/recollect/v1/{operation}"
            headers = {"x-memory-user": "many"}
            answer = httpx.post(url, json={"messages": messages}, headers=headers, timeout=60)
            assert (answer.status_code, "the limit is 4," in answer.text) == (400, True)


def test_a_large_answer_is_relayed_without_hits_and_not_learned(proxy: ServedProxy, llm: ScriptedLLM) -> None:
    whole = json.dumps({"choices": [{"message": {"role": "assistant", "content": "x" * MAX_ANSWER_BYTES}}]}).encode()
    llm.fault(answers(whole, content_type="application/json", content_length=str(len(whole))))
    answer = proxy.post(chat("I like tea"), x_memory_user="large-answer")
    assert (answer.status, answer.headers["x-memory-status"]) == (200, "degraded; reason=too_large")
    assert answer.body == whole


def test_a_small_answer_that_decompresses_to_a_large_one_is_relayed_as_it_is(
    proxy: ServedProxy, llm: ScriptedLLM
) -> None:
    bomb = gzip.compress(b'{"choices": [], "x": "' + b"0" * (4 * MAX_ANSWER_BYTES) + b'"}')
    head = {"content_type": "application/json", "content_encoding": "gzip", "content_length": str(len(bomb))}
    llm.fault(answers(bomb, **head))
    answer = proxy.post(chat("I like tea"), x_memory_user="bomb")
    assert (answer.status, answer.headers["x-memory-status"]) == (200, "degraded; reason=too_large")
    assert (answer.body, answer.headers["content-encoding"]) == (bomb, "gzip")


@pytest.mark.parametrize("streamed", [False, True])
def test_a_bomb_is_decompressed_up_to_a_limit_in_slices(streamed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.http.proxy.sse.MAX_ANSWER_BYTES", _MEBIBYTE)
    monkeypatch.setattr("recollect.http.proxy.sse.MAX_STREAM_BYTES", 2 * _MEBIBYTE)
    decompressed, new_inflater = 0, zlib.decompressobj

    class Inflater:
        def __init__(self) -> None:
            self._inflater = new_inflater(31)

        def decompress(self, data: bytes, max_length: int) -> bytes:
            nonlocal decompressed
            result = self._inflater.decompress(data, max_length)
            decompressed += len(result)
            return result

        @property
        def unconsumed_tail(self) -> bytes:
            return self._inflater.unconsumed_tail

    bomb = gzip.compress(b"data: {}\n\n" * _MEBIBYTE)
    monkeypatch.setattr("recollect.http.proxy.sse.zlib.decompressobj", lambda _: Inflater())
    recorder = StreamRecorder(streamed=streamed, encoding="gzip")
    asyncio.run(recorder.feed(bomb))
    assert recorder.is_too_large
    assert decompressed <= (2 if streamed else 1) * _MEBIBYTE + (1 << 16)
    assert asyncio.run(recorder.text()) == ""


def test_the_loop_runs_while_a_bomb_of_events_is_read() -> None:
    line = b'data: {"choices": [{"delta": {}}]}\n\n'
    bomb = gzip.compress(line * (8 * _MEBIBYTE // len(line)))
    assert_loop_runs(lambda: StreamRecorder(streamed=True, encoding="gzip").feed(bomb))
