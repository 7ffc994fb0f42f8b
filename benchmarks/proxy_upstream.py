"""A model endpoint that costs almost nothing: `python -m benchmarks.proxy_upstream PORT`.

The model's name sets its speed: `quick` answers at once, `brisk` faster than any real model, `paced` as fast as one,
`endless` without end.
"""

from __future__ import annotations

import asyncio
import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import httptools
import uvloop

from recollect.models.static_embedder import StaticEmbedder

ANSWER = "As far as I know that was settled last spring, and nobody has said anything else about it since then."
FIRST_TOKEN_S, TOKEN_S = 0.1, 0.1
BRISK_S = 0.02
_embedder = StaticEmbedder()


def words() -> list[str]:
    """Return the answer in the pieces that are streamed."""
    first, *rest = ANSWER.split(" ")
    return [first, *(f" {word}" for word in rest)]


def _sized(body: bytes, kind: bytes = b"application/json") -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (kind, len(body), body)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    report = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return _chunk(b"data: " + json.dumps(report).encode() + b"\n\n")


def _answered(message: dict[str, Any], finish: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    fields = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    return _sized(json.dumps({**fields, "choices": [choice], "usage": usage}).encode())


_WHOLE = _answered({"content": ANSWER}, "stop")
_OPEN = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_EVENTS = [_event({"role": "assistant", "content": word} if not at else {"content": word})
           for at, word in enumerate(words())]  # fmt: skip
_EVENTS += [_event({}, "stop") + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"]
PACED_S = FIRST_TOKEN_S + TOKEN_S * len(_EVENTS)


class _Connection(asyncio.Protocol):
    """One client, with one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._body = bytearray()
        self._path = b""
        self._endless = False
        self._full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path = url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        request = json.loads(self._body) if self._body else {}
        self._body.clear()
        if self._path.endswith(b"/embeddings"):
            self._transport.write(_embedded(request))
            return
        if learned := _learned(request):
            self._transport.write(learned)
            return
        # A proxy may put a provider's name before the model's.
        model = str(request.get("model", "")).rpartition("/")[2]
        if not request.get("stream"):
            wait_s = {"paced": PACED_S, "brisk": BRISK_S}.get(model, 0.0)
            self._loop.call_later(wait_s, self._transport.write, _WHOLE)
            return
        self._transport.write(_OPEN)
        if model == "endless":
            self._endless = True
            self._go_on()
        elif model == "paced":
            self._loop.call_later(FIRST_TOKEN_S, self._stream, iter(_EVENTS), TOKEN_S)
        elif model == "brisk":
            self._loop.call_later(BRISK_S, self._stream, iter(_EVENTS), 0.0)
        else:
            self._stream(iter(_EVENTS), 0.0)

    def _stream(self, events: Iterator[bytes], pause_s: float) -> None:
        """Write one event per iteration of the loop, so that each is sent by itself."""
        event = next(events, None)
        if event is not None and not self._transport.is_closing():
            self._transport.write(event)
            self._loop.call_later(pause_s, self._stream, events, pause_s)

    def _go_on(self) -> None:
        if self._endless and not self._full and not self._transport.is_closing():
            self._transport.write(_EVENTS[1] * 80)
            self._loop.call_later(0.1, self._go_on)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._go_on()


def _embedded(request: dict[str, Any]) -> bytes:
    """Return a vector for each text, by the bundled embedder, for proxies that embed."""
    texts = [request["input"]] if isinstance(request["input"], str) else request["input"]
    is_base64 = request.get("encoding_format") == "base64"
    vectors = [
        {
            "object": "embedding",
            "index": at,
            "embedding": b64encode(row.tobytes()).decode() if is_base64 else row.tolist(),
        }
        for at, row in enumerate(_embedder.encode(texts))
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return _sized(json.dumps({"object": "list", "model": "m", "data": vectors, "usage": usage}).encode())


def _learned(request: dict[str, Any]) -> bytes:
    """Return what an LLM would learn for agent-cli, all but the last sentence; nothing if this is a chat."""
    said = str(request["messages"][-1]["content"]) if request.get("messages") else ""
    fact = said.rpartition(". ")[0]
    for tool in request.get("tools", ()):
        if tool["function"]["name"] == "final_result":
            properties = tool["function"]["parameters"]["properties"]
            result = {"summary": ANSWER} if "summary" in properties else {"response": [fact] if fact else []}
            call = {"name": "final_result", "arguments": json.dumps(result)}
            calls = [{"id": "call-1", "type": "function", "function": call}]
            return _answered({"content": None, "tool_calls": calls}, "tool_calls")
    if "New facts to process:" in said:
        facts = json.loads(said.rpartition("New facts to process:")[2].strip("`\n "))
        added = [{"event": "ADD", "id": 1000 + at, "text": text} for at, text in enumerate(facts)]
        return _answered({"content": json.dumps({"response": added})}, "stop")
    return b""


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
