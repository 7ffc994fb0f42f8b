"""Upstreams with TLS: the certificate is checked, and a disconnect of the client closes the upstream."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.llm_faults import hang, reset
from tests.support.proxy_server import BUDGET, KEY, ServedProxy, chat, served


class TlsTerminator:
    """Accepts TLS on a port of its own and forwards the bytes to a plain HTTP server."""

    def __init__(self, base_url: str, folder: Path) -> None:
        self._port = int(base_url.removesuffix("/v1").rpartition(":")[2])
        authority = trustme.CA()
        self.ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(self._context)
        self.connections = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(60)

    async def _run(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "localhost", 0, ssl=self._context, family=2)
        self.url = f"https://localhost:{server.sockets[0].getsockname()[1]}/v1"
        self._ready.set()
        await self._stopped.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(_copy(reader, upstream_writer), _copy(upstream_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()
        with suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


@pytest.fixture
def endpoint(llm: ScriptedLLM, tmp_path: Path) -> Iterator[TlsTerminator]:
    terminator = TlsTerminator(llm.base_url, tmp_path)
    terminator.start()
    yield terminator
    terminator.stop()


@pytest.fixture
def proxy(endpoint: TlsTerminator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedProxy]:
    monkeypatch.setenv("SSL_CERT_FILE", str(endpoint.ca))
    with served(tmp_path / "home", endpoint.url) as running:
        yield running


def test_chats_are_streamed_and_share_a_connection(
    llm: ScriptedLLM, endpoint: TlsTerminator, proxy: ServedProxy
) -> None:
    for _ in range(5):
        answer = proxy.post(chat(stream=True), x_memory="off", authorization=f"Bearer {KEY}")
        request, sent = llm.answers[-1]
        assert answer.body == sent.body
        assert request.headers.getlist("authorization") == [f"Bearer {KEY}"]
        assert request.headers.getlist("host") == [endpoint.url.removeprefix("https://").removesuffix("/v1")]
    assert endpoint.connections == 1


def test_a_forwarded_body_has_one_length(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    body = b'{"file": "' + b"x" * 300_000 + b'"}'
    proxy.ask("POST", "/audio/transcriptions?x=%20", body, {"content-type": "multipart/form-data"})
    [request] = llm.requests
    assert request.body == body
    assert request.headers.getlist("content-length") == [str(len(body))]


def test_a_client_that_leaves_ends_the_upstreams_answer(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    llm.reply("Aloha from the beach", faults=[hang(after_frames=3)])
    proxy.leave(chat(BUDGET, stream=True), "leaver", lambda received: b"from" in received)
    llm.wait_for(lambda server: server.disconnects, 60)
    assert proxy.stored_turns("leaver") == [("user", BUDGET), ("assistant", "Aloha from")]


def test_a_reset_before_the_answer_is_a_502(llm: ScriptedLLM, proxy: ServedProxy) -> None:
    llm.fault(reset())
    answer = proxy.post(chat(stream=True))
    assert (answer.status, answer.json["error"]["code"]) == (502, "upstream_unavailable")


def test_an_untrusted_certificate_is_refused(llm: ScriptedLLM, endpoint: TlsTerminator, tmp_path: Path) -> None:
    with served(tmp_path / "home", endpoint.url) as proxy:
        answer = proxy.post(chat(), authorization=f"Bearer {KEY}")
    assert (answer.status, answer.json["error"]["code"]) == (502, "upstream_unavailable")
    assert not llm.requests
