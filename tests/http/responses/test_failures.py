"""The Responses API when something goes wrong: with the request, the upstream, the client or the ledger."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from typing import Any

import httpx
import openai
import pytest

from recollect.errors import StoreUnavailable
from recollect.testing.llm_replies import ScriptedReply
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.llm_faults import delay, hang, http_error, reset, stream_error, truncated
from tests.support.responses_server import CHAT_ONLY, ResponsesServer, client_of, start_stream


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_reaches_the_token_limit_is_incomplete(
    sdk: openai.OpenAI, llm: ScriptedLLM, streamed: bool
) -> None:
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
def test_an_upstream_error_is_relayed_unchanged(server: ResponsesServer, llm: ScriptedLLM, streamed: bool) -> None:
    limit = {"error": {"message": "slow down", "type": "requests", "param": None, "code": "rate_limit_exceeded"}}
    headers = {"retry-after": "7", "x-ratelimit-limit-requests": "60", "x-request-id": "req_1"}
    llm.fault(http_error(429, limit, headers), times=None)
    answer = httpx.post(f"{server.url}/responses", json={"model": "m", "input": "Hi", "stream": streamed}, timeout=60)
    assert (answer.status_code, answer.json()) == (429, limit)
    assert {name: answer.headers[name] for name in headers} == headers
    assert answer.headers["x-memory-status"] == "ok"


def test_an_upstream_error_ends_the_translated_stream_as_failed(
    translating: ResponsesServer, llm: ScriptedLLM
) -> None:
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


def test_a_broken_native_stream_ends_with_an_error_and_its_part_is_stored(
    responses_server: ResponsesServer, llm: ScriptedLLM
) -> None:
    llm.fault(reset(after_frames=6))
    with responses_server.connected(llm.base_url, "native") as server, client_of(server) as sdk:
        events = list(sdk.responses.create(model="m", input="Hi there", stream=True))
        assert events[-1].type == "error"
        assert [event.sequence_number for event in events] == list(range(len(events)))
        id = events[0].response.id  # type: ignore[union-attr]
        server.run(server.context.tasks.close())
        assert sdk.responses.retrieve(id).status == "incomplete"
        assert server.memory.answers == ["You said:"]


def test_an_unreachable_upstream_is_a_502(translating: ResponsesServer, llm: ScriptedLLM) -> None:
    llm.stop()
    with client_of(translating) as sdk, pytest.raises(openai.InternalServerError) as caught:
        sdk.responses.create(model="m", input="Hi")
    assert caught.value.status_code == 502
    assert caught.value.body["code"] == "upstream_unavailable"  # type: ignore[index]


def test_an_answer_that_is_no_chat_completion_is_a_502(translating: ResponsesServer, llm: ScriptedLLM) -> None:
    for fault in (http_error(200, "<html>"), http_error(200, {}), truncated()):
        llm.fault(fault)
        answer = httpx.post(f"{translating.url}/responses", json={"model": "m", "input": "Hi"}, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_broken")


@pytest.mark.parametrize("streamed", [False, True])
def test_a_redirect_is_neither_followed_nor_relayed(
    server: ResponsesServer, llm: ScriptedLLM, streamed: bool
) -> None:
    with ScriptedLLM() as elsewhere:
        llm.fault(http_error(307, b"", headers={"location": f"{elsewhere.base_url}/responses"}), times=None)
        body = {"model": "m", "input": "Hi", "stream": streamed}
        for _ in range(2):
            answer = httpx.post(f"{server.url}/responses", json=body, timeout=60)
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_redirects")
            assert "location" not in answer.headers
        assert not elsewhere.requests


def test_a_translated_stream_that_is_too_large_fails_and_its_part_is_stored(
    translating: ResponsesServer, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.http.responses.from_chat.MAX_BUFFERED_BYTES", 100_000)
    llm.reply("many words " * 20_000)
    with client_of(translating) as sdk:
        events = list(sdk.responses.create(model="m", input="Hi", stream=True))
        assert [event.type for event in events[-2:]] == ["error", "response.failed"]
        failed = sdk.responses.retrieve(events[-1].response.id)  # type: ignore[union-attr]
        assert failed.error is not None
        assert "larger than 100,000 bytes" in failed.error.message
        assert len(failed.output_text) < 100_000


def test_a_native_stream_that_is_too_large_is_relayed_and_not_stored(
    responses_server: ResponsesServer, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.http.responses.passthrough.MAX_BUFFERED_BYTES", 100_000)
    text = "many words " * 20_000
    llm.reply(text)
    with responses_server.connected(llm.base_url, "native") as server, client_of(server) as sdk:
        events = list(sdk.responses.create(model="m", input="Hi", stream=True))
        assert events[-1].type == "response.completed"
        assert events[-1].response.output_text == text
        server.run(server.context.tasks.close())
        assert server.memory.answers == []


def test_nothing_is_stored_of_a_rejected_request(translating: ResponsesServer, llm: ScriptedLLM) -> None:
    body = {"model": "m", "input": "My dog is Rex", "tools": [{"type": "web_search"}]}
    assert httpx.post(f"{translating.url}/responses", json=body, timeout=60).status_code == 400
    assert translating.memory.started == []
    assert llm.requests == []


def test_a_disconnect_closes_the_upstream_and_the_partial_answer_is_stored(
    server: ResponsesServer, llm: ScriptedLLM
) -> None:
    llm.reply("One two three four five six seven eight", faults=[hang(after_frames=6)])
    with client_of(server) as sdk:
        stream, id = start_stream(sdk)
        stream.close()
        llm.wait_for(lambda seen: seen.disconnects, timeout_s=60)
        server.run(server.context.tasks.close())
        response = sdk.responses.retrieve(id)
    assert response.status == "incomplete"
    assert response.output_text.startswith("One")
    assert "eight" not in response.output_text
    assert server.memory.answers == [response.output_text]


def test_a_disconnect_before_the_answer_closes_the_upstream(server: ResponsesServer, llm: ScriptedLLM) -> None:
    llm.default = ScriptedReply("Late", faults=[delay(60)])
    body = json.dumps({"model": "m", "input": "My dog is Rex"})
    url = httpx.URL(server.url)
    with socket.create_connection((url.host, url.port or 80)) as client:
        head = f"POST /v1/responses HTTP/1.1\r\nHost: {url.host}\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(f"{head}{body}".encode())
        llm.wait_for(lambda seen: any(answer.status == 200 for _, answer in seen.answers), timeout_s=60)
    llm.wait_for(lambda seen: seen.disconnects, timeout_s=60)
    server.run(server.context.tasks.close())
    assert server.memory.started[0].turn_id is not None
    assert server.memory.answers == []


def test_an_unsupported_request_is_rejected_with_a_remedy(translating: ResponsesServer) -> None:
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
    translating.change_context(settings=translating.context.settings.model_copy(update={"max_body_mb": 0}))
    assert httpx.post(f"{translating.url}/responses", content=b" " * 11, timeout=60).status_code == 413


def test_an_upstream_without_the_responses_api_is_detected_once(
    responses_server: ResponsesServer, llm: ScriptedLLM
) -> None:
    not_found = {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}
    nowhere = {"error": "Unexpected endpoint or method. (POST /v1/responses)"}
    for fault in (CHAT_ONLY, http_error(404, {"detail": "Not Found"}), http_error(404, not_found),
                  http_error(405, b""), http_error(200, nowhere, {"content-type": "application/json"})):  # fmt: skip
        llm.clear()
        llm.fault(fault, on="responses")
        with responses_server.connected(llm.base_url) as server, client_of(server) as sdk:
            assert sdk.responses.create(model="m", input="Hi").output_text == "You said: Hi"
            assert sdk.responses.create(model="m", input="Hi").output_text == "You said: Hi"
        assert [request.kind for request in llm.requests] == ["responses", "chat", "chat"]


def test_an_unknown_model_is_not_taken_for_a_missing_responses_api(
    responses_server: ResponsesServer, llm: ScriptedLLM
) -> None:
    unknown = {
        "error": {"message": "The model `m` does not exist.", "type": "NotFoundError", "param": None, "code": 404}
    }
    llm.fault(http_error(404, unknown), on="responses")
    with responses_server.connected(llm.base_url) as server, client_of(server) as sdk:
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            sdk.responses.create(model="m", input="Hi")
        sdk.responses.create(model="m", input="Hi")
    assert [request.kind for request in llm.requests] == ["responses", "responses"]


def test_requests_without_history_are_answered_while_the_ledger_is_unavailable(
    translating: ResponsesServer, llm: ScriptedLLM
) -> None:
    class Unavailable:
        async def epoch(self, user: str) -> int:
            raise StoreUnavailable("the ledger is unavailable")

        @property
        def responses(self) -> Any:
            raise StoreUnavailable("the ledger is unavailable")

    translating.change_context(service=Unavailable)
    with client_of(translating) as sdk:
        made = sdk.responses.create(model="m", input="Hi")
        assert made.output_text == "You said: Hi"
        with pytest.raises(openai.InternalServerError) as caught:
            sdk.responses.create(model="m", input="Hi", previous_response_id=made.id)
        assert caught.value.status_code == 503


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_does_not_wait_for_a_slow_ledger(server: ResponsesServer, llm: ScriptedLLM, streamed: bool) -> None:
    free = threading.Event()

    class Slow:
        responses = server.service.responses

        async def epoch(self, user: str) -> int:
            await asyncio.to_thread(free.wait, 120)
            return await server.service.epoch(user)

    server.change_context(service=Slow, store_timeout_s=0.05)
    body = {"model": "m", "input": "Hi", "stream": streamed}
    answer = httpx.post(f"{server.url}/responses", json=body, timeout=60)
    assert "You said" in answer.text or "said" in answer.text
    assert not free.is_set()
    # The client knows the id, so a read waits until the response is stored.
    threading.Timer(0.1, free.set).start()
    with client_of(server) as sdk:
        assert sdk.responses.retrieve(re.findall(r"resp_\w+", answer.text)[0]).output_text == "You said: Hi"


def test_an_upstream_that_ignores_stream_is_answered_in_events(
    translating: ResponsesServer, llm: ScriptedLLM
) -> None:
    whole = {"id": "x", "model": "m", "choices": [{"index": 0, "finish_reason": "stop",
             "message": {"role": "assistant", "content": "Whole"}}]}  # fmt: skip
    llm.fault(http_error(200, whole, {"content-type": "application/json"}))
    with client_of(translating) as sdk:
        *_, event = sdk.responses.create(model="m", input="Hi", stream=True)
    assert event.type == "response.completed"
    assert event.response.output_text == "Whole"
