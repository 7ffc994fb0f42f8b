"""The client's side of a request: its body, its leaving, and answers of our own in the shape it knows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from starlette.types import Message, Receive, Send

from recollect.http.params import decode_header
from recollect.http.proxy.memory_options import HEADER_PREFIX
from recollect.http.upstream.protocol import Header


class BodyTooLarge(Exception):
    """The body is larger than one that is read whole may be."""


class ClientDisconnected(Exception):
    """The client left before its request was whole."""


async def receive_body(receive: Receive, max_bytes: int) -> bytes:
    """The body of the request; what is too large is not read to its end."""
    parts: list[bytes] = []
    size = 0
    async for part in iter_body(receive):
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            raise BodyTooLarge
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def iter_body(receive: Receive, body_received: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    """The body as it comes; `whole` is set when nothing more of it will."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        more = message.get("more_body", False)
        if not more and body_received is not None:
            body_received.set()
        if body := message.get("body", b""):
            yield body


class DisconnectWatcher:
    """Cancels whoever answers a client as soon as it leaves, once the request has been read: `whole` says when."""

    def __init__(self, receive: Receive, *, body_received: asyncio.Event | None = None) -> None:
        self._receive = receive
        self._body_received = body_received
        self.is_disconnected = False

    async def __aenter__(self) -> DisconnectWatcher:
        self._answering = asyncio.current_task()
        self._task = asyncio.get_running_loop().create_task(self._wait())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._task.cancel()
        # Cancelled by us it is no error: there is nobody left to tell.
        return self.is_disconnected and kind is asyncio.CancelledError

    async def _wait(self) -> None:
        if self._body_received is not None:
            # Before that, it would take away pieces of the body.
            await self._body_received.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_disconnected = True
        if self._answering is not None:
            self._answering.cancel()


def response_start(status: int, headers: list[Header]) -> Message:
    """The beginning of an answer."""
    return {"type": "http.response.start", "status": status, "headers": headers}


def response_body(body: bytes, *, more: bool) -> Message:
    """A piece of an answer's body."""
    return {"type": "http.response.body", "body": body, "more_body": more}


async def send_json(send: Send, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
    """An answer of ours."""
    raw = json.dumps(body).encode()
    extra = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in (headers or {}).items()]
    fixed = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
    await send(response_start(status, [*fixed, *extra]))
    await send(response_body(raw, more=False))


async def send_error(
    send: Send,
    status: int,
    message: str,
    *,
    code: str,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """An error of ours, as OpenAI's clients read it."""
    kind = "invalid_request_error" if status < 500 else "api_error"
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    await send_json(send, status, body, headers)


async def send_too_large(send: Send, max_bytes: int) -> None:
    """Say how large a body may be."""
    await send_error(send, 413, f"the body is larger than {max_bytes >> 20} MiB", code="body_too_large")


# They speak of one connection only, and there are two.
_HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
    b"trailer", b"trailers", b"transfer-encoding", b"upgrade", b"expect",
})  # fmt: skip
# The answer is read along, so it may come only in what we can read.
_READABLE_ENCODINGS = ("gzip", "deflate", "identity")
_MEMORY_PREFIX = HEADER_PREFIX.encode()


def headers_by_name(headers: Iterable[Header]) -> dict[str, str]:
    """The headers as they are looked up; of several with one name the first, so that nobody can override it."""
    first_values: dict[str, str] = {}
    for name, value in headers:
        first_values.setdefault(name.decode("latin-1").lower(), decode_header(value))
    return first_values


def headers_for_upstream(headers: Sequence[Header], *, length: int | None = None) -> list[Header]:
    """The client's headers as the upstream gets them: nothing that is ours, nor of this connection."""
    return [
        (name, value)
        for name, value in strip_hop_by_hop(headers)
        if (low := name.lower()) != b"host"
        and not low.startswith(_MEMORY_PREFIX)
        and not (length is not None and low == b"content-length")
    ]


def with_readable_encodings(headers: Iterable[Header]) -> list[Header]:
    """The headers with no encoding accepted that we could not read the answer in."""
    return [
        (name, _readable_encodings(value) if name.lower() == b"accept-encoding" else value) for name, value in headers
    ]


def _readable_encodings(value: bytes) -> bytes:
    offered = (each.strip() for each in value.decode("latin-1").split(","))
    return ", ".join(
        each for each in offered if each.partition(";")[0].strip().lower() in _READABLE_ENCODINGS
    ).encode() or (b"identity")


def headers_for_client(
    headers: Sequence[Header], extra: Mapping[str, str], *, length: int | None = None
) -> list[Header]:
    """The upstream's headers as the client gets them, with what is told of memory; `length` is of a changed body."""
    changed = length is not None
    passed = [
        (name, value)
        for name, value in strip_hop_by_hop(headers)
        if (low := name.lower()) != b"date"
        and not low.startswith(_MEMORY_PREFIX)
        and not (changed and low in (b"content-length", b"content-encoding"))
    ]
    if changed:
        passed.append((b"content-length", str(length).encode()))
    return passed + [(name.encode(), value.encode("latin-1", "replace")) for name, value in extra.items()]


def strip_hop_by_hop(headers: Sequence[Header]) -> list[Header]:
    """The headers that do not speak of the connection they came by, of its own accord or because they are told to."""
    values = (value for name, value in headers if name.lower() == b"connection")
    named = {each.strip().lower() for value in values for each in value.split(b",")}
    return [(name, value) for name, value in headers if (low := name.lower()) not in _HOP_BY_HOP and low not in named]
