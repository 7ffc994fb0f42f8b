"""Upstreams behind TLS are spoken to in HTTP/2 where they offer it, and know at once when nobody listens."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recollect.http.upstream.https import HttpsUpstream
from recollect.http.upstream.protocol import UpstreamRequest
from tests.support.http2_upstream import FRAMES, Endpoint, h2_endpoint
from tests.support.proxy_server import BUDGET, KEY, ServedProxy, chat, served


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with h2_endpoint(tmp_path_factory.mktemp("h2")) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProxy]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(endpoint.ca))
        with served(tmp_path_factory.mktemp("home"), endpoint.url) as running:
            yield running


@pytest.fixture(autouse=True)
def _afresh(endpoint: Endpoint) -> None:
    endpoint.requests.clear()
    endpoint.hold = ""


def test_a_chat_is_sent_and_streamed_in_http2(endpoint: Endpoint, proxy: ServedProxy) -> None:
    answer = proxy.post(chat(stream=True), x_memory="off", authorization=f"Bearer {KEY}")
    [request] = endpoint.requests
    assert answer.body == b"".join(FRAMES)
    assert answer.headers["x-request-id"] == "r1"
    assert request.body == json.dumps(chat(stream=True)).encode()
    report = dict(request.headers)
    assert report[":path"] == "/v1/chat/completions"
    assert report[":authority"] == endpoint.url.removeprefix("https://").removesuffix("/v1")
    assert report["authorization"] == f"Bearer {KEY}"
    names = [name for name, _ in request.headers]
    assert len(names) == len(set(names))


def test_many_chats_share_a_connection(endpoint: Endpoint, proxy: ServedProxy) -> None:
    proxy.post(chat(), x_memory="off")
    before = endpoint.connections
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: proxy.post(chat(stream=True), x_memory="off").body, range(40)))
    assert set(answers) == {b"".join(FRAMES)}
    assert endpoint.connections == before


def test_nothing_is_left_behind_by_a_chat_that_came_to_its_end(endpoint: Endpoint, proxy: ServedProxy) -> None:
    # More than the streams that one connection may have open at a time.
    with ThreadPoolExecutor(4) as threads:
        lengths = list(threads.map(lambda _: len(proxy.post(chat(), x_memory="off").body), range(250)))
    assert len(set(lengths)) == 1
    assert not any(request.cancelled.is_set() for request in endpoint.requests)
    assert endpoint.connections < 3


@pytest.mark.parametrize("path", ["/audio/transcriptions", "/models/org%2Fname?x=%20"])
def test_other_paths_pass_and_their_bodies_have_one_length(endpoint: Endpoint, proxy: ServedProxy, path: str) -> None:
    body = b'{"file": "' + b"x" * 300_000 + b'"}'
    assert proxy.ask("POST", path, body, {"content-type": "multipart/form-data"}).status == 200
    [request] = endpoint.requests
    assert bytes(request.body) == body
    assert [value for name, value in request.headers if name == "content-length"] == [str(len(body))]
    assert dict(request.headers)[":path"] == f"/v1{path}"


def test_a_body_that_was_read_to_choose_the_upstream_has_one_length_too(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(endpoint.ca))
    other = {"models": "other-*", "url": "http://127.0.0.1:9/v1"}
    with served(tmp_path, endpoint.url, upstreams={"other": other}) as proxy:
        assert proxy.post({"model": "x", "input": "Aloha"}, path="/embeddings").status == 200
    [request] = endpoint.requests
    assert [name for name, _ in request.headers].count("content-length") == 1


@pytest.mark.parametrize("hold", ["head", "body"])
def test_a_client_that_leaves_gives_up_its_stream_and_no_other(
    endpoint: Endpoint, proxy: ServedProxy, hold: str
) -> None:
    proxy.post(chat(), x_memory="off")
    before = endpoint.connections
    endpoint.hold = hold

    def ready(incoming: bytes) -> bool:
        while hold == "head" and not (len(endpoint.requests) == 2 and endpoint.requests[1].whole):
            time.sleep(0.01)
        return hold == "head" or FRAMES[0] in incoming

    proxy.leave(chat(BUDGET, stream=True), f"leaver-{hold}", ready)
    assert endpoint.requests[1].cancelled.wait(60), "the upstream was not told"
    endpoint.hold = ""
    assert proxy.post(chat(stream=True), x_memory="off").body == b"".join(FRAMES)
    assert endpoint.connections == before
    received = [("user", BUDGET), ("assistant", "a")]
    assert (
        proxy.stored_turns(f"leaver-{hold}", len(received[: 1 + (hold == "body")]))
        == received[: 1 + (hold == "body")]
    )


@pytest.mark.parametrize("hold", ["head", "body"])
async def test_chats_that_were_given_up_make_room_for_others(endpoint: Endpoint, hold: str) -> None:
    trusted = ssl.create_default_context(cafile=endpoint.ca)
    upstream = HttpsUpstream("it", endpoint.url, connect_s=10, idle_s=10, trusted=trusted)
    ask = UpstreamRequest(method="POST", path="/chat/completions", body=b'{"stream": true}')

    async def heard() -> bytes:
        reply = await upstream.send(ask)
        try:
            return b"".join([chunk async for chunk in reply.chunks()])
        finally:
            await reply.close()

    assert await heard() == b"".join(FRAMES)
    for _ in range(3):
        endpoint.hold, before = hold, len(endpoint.requests)
        chats = [asyncio.create_task(heard()) for _ in range(60)]
        while sum(request.whole for request in endpoint.requests[before:]) < len(chats):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # the endpoint is in another thread
        for each in chats:
            each.cancel()
        await asyncio.wait(chats)
        endpoint.hold = ""
        assert await asyncio.wait_for(heard(), 60) == b"".join(FRAMES)
    await upstream.close()


def test_a_stream_that_the_upstream_gives_up_ends_as_broken(endpoint: Endpoint, proxy: ServedProxy) -> None:
    endpoint.hold = "reset"
    with pytest.raises(http.client.IncompleteRead):
        proxy.post(chat(stream=True), x_memory="off")


def test_a_certificate_that_nobody_vouches_for_is_refused(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with served(tmp_path, endpoint.url) as proxy:
        answer = proxy.post(chat(), authorization=f"Bearer {KEY}")
    assert (answer.status, answer.json["error"]["code"]) == (502, "upstream_unavailable")
    assert not endpoint.requests
