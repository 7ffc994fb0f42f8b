"""Every other path is streamed to the upstream and back unchanged; a disconnect closes the upstream at once."""

from __future__ import annotations

import gzip
import http.server
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from recollect.testing.llm_replies import Cut
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.llm_faults import chunks_of, hang, http_error
from tests.support.proxy_server import BUDGET, KEY, ServedProxy, answers, chat, served


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


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/models/org%2Fname"),
        ("HEAD", "/models/org%2Fname"),
        ("POST", "/files?purpose=fine%20tune&after=a%2Bb&limit="),
        ("PUT", "/files/%E6%97%A5/content"),
        ("PATCH", "/batches//x/../y"),
        ("DELETE", "/v1/models"),
        ("OPTIONS", "/images/edits;v=1?x=%25"),
        ("GET", "/models/%252e%252e%252ffiles"),
        ("GET", "/%252e%252e/models/%2525"),
    ],
)
def test_paths_and_queries_are_forwarded_as_written(
    llm: ScriptedLLM, proxy: ServedProxy, method: str, path: str
) -> None:
    answer = proxy.ask(method, path)
    [request] = llm.requests
    assert answer.status == 200
    assert request.method == method
    assert f"/v1{path}".removesuffix("?") == request.path + (f"?{request.query}" if request.query else "")
    assert "x-memory-status" not in answer.headers


def test_models_are_those_of_the_upstream_and_head_has_no_body(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    answer, head = proxy.ask("GET", "/models"), proxy.ask("HEAD", "/models")
    assert [each["id"] for each in answer.json["data"]] == ["scripted"]
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == answer.headers["content-length"]
    assert [request.path for request in llm.requests] == ["/v1/models", "/v1/models"]


def test_a_body_is_forwarded_unchanged_with_end_to_end_headers(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    body = b'{ "input":"\\u00e9", "x": 1.0 }\n'
    answer = proxy.ask("POST", "/embeddings", body, {
        "content-type": "application/json", "authorization": f"Bearer {KEY}", "openai-beta": "assistants=v2",
        "user-agent": "Test/1", "accept-encoding": "br", "x-stainless-lang": "python", "x-memory-user": "ann",
        "connection": "x-hop", "x-hop": "1", "te": "trailers", "proxy-authorization": "Basic x",
    })  # fmt: skip
    [request] = llm.requests
    assert answer.status == 200
    assert request.body == body
    assert dict(request.headers) == {
        "host": f"127.0.0.1:{llm.base_url.rpartition(':')[2].removesuffix('/v1')}",
        "content-type": "application/json", "content-length": str(len(body)), "authorization": f"Bearer {KEY}",
        "openai-beta": "assistants=v2", "user-agent": "Test/1", "accept-encoding": "br", "x-stainless-lang": "python",
    }  # fmt: skip


def test_a_chat_is_forwarded_with_the_headers_of_its_client_only(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    proxy.post(chat(), x_memory_user="ann", x_memory="off", user_agent="Test/1", cookie="a=b", openai_project="p")
    [request] = llm.requests
    report = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
    assert report == {
        "content-type": "application/json", "accept-encoding": "identity", "user-agent": "Test/1", "cookie": "a=b",
        "openai-project": "p",
    }  # fmt: skip


@pytest.mark.parametrize("length", [True, False])
def test_an_upload_is_streamed_to_the_upstream(llm: ScriptedLLM, proxy: ServedProxy, length: bool) -> None:
    audio = bytes(range(256)) * 4096
    files = {"file": ("a.wav", audio, "audio/wav")}
    request = httpx.Request("POST", f"{proxy.url}/audio/transcriptions", files=files, data={"model": "whisper"})
    content = request.read()
    if not length:
        del request.headers["content-length"]
        request = httpx.Request("POST", request.url, headers={**request.headers}, content=_pieces(content))
    with httpx.Client(timeout=60) as client:
        answer = client.send(request)
    [arrived] = llm.requests
    assert answer.json()["body_bytes"] == len(content)
    assert arrived.body == content
    assert ("content-length" in arrived.headers) is length
    assert ("transfer-encoding" in arrived.headers) is not length


def _pieces(content: bytes) -> Iterator[bytes]:
    for at in range(0, len(content), 70_000):
        yield content[at : at + 70_000]


def test_speech_is_streamed_to_the_client(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    llm.fault(answers(b"RIFF", Cut.HANG, content_type="audio/wav"))
    with httpx.stream("POST", f"{proxy.url}/audio/speech", json={"input": "Aloha"}, timeout=60) as answer:
        assert next(answer.iter_raw()) == b"RIFF"
    llm.wait_for(lambda server: server.disconnects, 60)


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
def test_a_content_encoding_is_relayed_unchanged(llm: ScriptedLLM, proxy: ServedProxy, encoding: str) -> None:
    packed = gzip.compress(b"a" * 1000)
    llm.fault(answers(packed, content_type="text/plain", content_encoding=encoding), chunks_of(5))
    answer = proxy.ask("GET", "/files/1/content", headers={"accept-encoding": encoding})
    assert (answer.body, answer.headers["content-encoding"]) == (packed, encoding)
    assert llm.requests[0].headers["accept-encoding"] == encoding


def test_an_error_is_relayed_with_its_headers(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    llm.fault(http_error(429, b"slow", headers={"retry-after": "3", "x-request-id": "r1"}))
    answer = proxy.ask("GET", "/models")
    assert (answer.status, answer.body) == (429, b"slow")
    assert (answer.headers["retry-after"], answer.headers["x-request-id"]) == ("3", "r1")


def test_repeated_headers_are_all_relayed(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    llm.fault(answers(b"{}", content_type="application/json", set_cookie="a=1", Set_Cookie="b=2"))
    assert proxy.ask("GET", "/models").headers.get_all("set-cookie") == ["a=1", "b=2"]


@pytest.mark.parametrize("path", ["/chat/completions", "/embeddings"])
def test_a_redirect_is_neither_followed_nor_relayed(llm: ScriptedLLM, proxy: ServedProxy, path: str) -> None:
    with ScriptedLLM() as elsewhere:
        llm.fault(http_error(307, b"", headers={"location": f"{elsewhere.base_url}{path}"}))
        answer = proxy.post(chat(), path=path, authorization=f"Bearer {KEY}")
        assert (answer.status, answer.json["error"]["code"]) == (502, "upstream_redirects")
        assert "location" not in answer.headers
        assert not elsewhere.requests


@pytest.mark.parametrize("fields", [{"stream": True}, {}], ids=["streamed", "whole"])
def test_a_disconnect_before_the_answer_closes_the_upstream(
    llm: ScriptedLLM, proxy: ServedProxy, fields: dict[str, bool]
) -> None:
    llm.fault(hang())
    left = proxy.leave(
        chat(BUDGET, **fields), "early", lambda _: llm.wait_for(lambda server: server.answers, 60) is None
    )
    llm.wait_for(lambda server: server.disconnects, 60)
    assert llm.disconnects[0].at.timestamp() - left < 20
    assert proxy.stored_turns("early", 1)[0] == ("user", BUDGET)


def test_a_disconnect_in_mid_stream_closes_the_upstream_and_stores_the_part(
    llm: ScriptedLLM, proxy: ServedProxy
) -> None:
    llm.reply("Aloha from the beach", faults=[hang(after_frames=3)])
    left = proxy.leave(chat(BUDGET, stream=True), "middle", lambda heard: b"from" in heard)
    llm.wait_for(lambda server: server.disconnects, 60)
    assert llm.disconnects[0].at.timestamp() - left < 20
    assert proxy.stored_turns("middle") == [("user", BUDGET), ("assistant", "Aloha from")]


def test_a_disconnect_during_an_unstreamed_answer_closes_the_upstream(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    llm.fault(hang(after_bytes=40))
    left = proxy.leave(chat(BUDGET), "amid", lambda heard: b"chatcmpl" in heard)
    llm.wait_for(lambda server: server.disconnects, 60)
    assert llm.disconnects[0].at.timestamp() - left < 20


@pytest.mark.parametrize("body", [b"", b'{"prompt": "a beach"}'], ids=["asking", "sending"])
def test_a_disconnect_on_another_path_closes_the_upstream(llm: ScriptedLLM, proxy: ServedProxy, body: bytes) -> None:
    llm.fault(hang())
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as client:
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        client.sendall(f"POST /v1/images/generations HTTP/1.1\r\nHost: localhost\r\n{length}\r\n".encode() + body)
        llm.wait_for(lambda server: server.answers, 60)
        left = time.time()
    llm.wait_for(lambda server: server.disconnects, 60)
    assert llm.disconnects[0].at.timestamp() - left < 20


def test_a_restarted_upstream_is_reconnected(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    assert proxy.post(chat(), x_memory="off").status == 200
    llm.stop()
    llm.start()
    assert proxy.post(chat(), x_memory="off").status == 200


def test_the_query_of_a_chat_is_forwarded(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    proxy.post(chat(), path="/chat/completions?api-version=2024-10-21&x=%2F")
    assert llm.requests[0].query == "api-version=2024-10-21&x=%2F"


def test_a_disconnect_during_an_upload_is_not_forwarded(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.sendall(b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nhalf")
    # The next request is answered, and the incomplete one never reached the upstream.
    assert proxy.ask("GET", "/models").status == 200
    assert [request.path for request in llm.requests] == ["/v1/models"]


class _OddStatus(http.server.BaseHTTPRequestHandler):
    """Answers with the status that the model's name, or the path, ends with."""

    def do_GET(self) -> None:
        self._answer(int(self.path[-3:]))

    def do_POST(self) -> None:
        self._answer(int(json.loads(self.rfile.read(int(self.headers["content-length"])))["model"][-3:]))

    def _answer(self, status: int) -> None:
        self.send_response(status, "Odd")
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_an_invalid_status_of_the_upstream_is_a_bad_gateway(tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _OddStatus) as upstream:
        thread = threading.Thread(target=upstream.serve_forever)
        thread.start()
        try:
            with served(tmp_path, f"http://127.0.0.1:{upstream.server_port}/v1") as proxy:
                for status in (600, 999):
                    body = {
                        "model": f"m{status}",
                        "input": "hello",
                        "messages": [{"role": "user", "content": "hello"}],
                    }
                    posts = ("/chat/completions", "/responses", "/embeddings")
                    answers = [proxy.post(body, path=path) for path in posts]
                    for answer in (*answers, proxy.ask("GET", f"/models/m{status}")):
                        assert (answer.status, f"invalid status {status}" in answer.body.decode()) == (502, True)
        finally:
            upstream.shutdown()
            thread.join()


def test_the_user_header_of_gateways_is_not_forwarded(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    proxy.ask("GET", "/models", headers={"x-authz-user-id": "ann", "x-other": "kept"})
    proxy.post(chat("hello"), x_authz_user_id="ann", x_other="kept")
    assert [request.path for request in llm.requests if "x-other" in request.headers] == [
        "/v1/models",
        "/v1/chat/completions",
    ]
    assert not any("x-authz-user-id" in request.headers for request in llm.requests)
