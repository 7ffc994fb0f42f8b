"""The client's side of a request: its body, its leaving, and answers of our own in the shape it knows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.types import Message, Receive, Send

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
