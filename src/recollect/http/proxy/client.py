"""The client's side of a request: its body, its leaving, and answers of our own in the shape it knows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.types import Message, Receive, Send

from recollect.http.upstream.protocol import Header


class TooLarge(Exception):
    """The body is larger than one that is read whole may be."""


class Gone(Exception):
    """The client left before its request was whole."""


async def read_whole(receive: Receive, most: int) -> bytes:
    """The body of the request; what is too large is not read to its end."""
    parts: list[bytes] = []
    size = 0
    async for part in body_of(receive):
        parts.append(part)
        size += len(part)
        if size > most:
            raise TooLarge
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def body_of(receive: Receive, whole: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    """The body as it comes; `whole` is set when nothing more of it will."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        more = message.get("more_body", False)
        if not more and whole is not None:
            whole.set()
        if body := message.get("body", b""):
            yield body


class Watch:
    """Cancels whoever answers a client as soon as it leaves, once the request has been read: `whole` says when."""

    def __init__(self, receive: Receive, *, whole: asyncio.Event | None = None) -> None:
        self._receive = receive
        self._whole = whole
        self.left = False

    async def __aenter__(self) -> Watch:
        self._answering = asyncio.current_task()
        self._task = asyncio.get_running_loop().create_task(self._wait())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._task.cancel()
        # Cancelled by us it is no error: there is nobody left to tell.
        return self.left and kind is asyncio.CancelledError

    async def _wait(self) -> None:
        if self._whole is not None:
            # Before that, it would take away pieces of the body.
            await self._whole.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.left = True
        if self._answering is not None:
            self._answering.cancel()


def head(status: int, headers: list[Header]) -> Message:
    """The beginning of an answer."""
    return {"type": "http.response.start", "status": status, "headers": headers}


def part(body: bytes, *, more: bool) -> Message:
    """A piece of an answer's body."""
    return {"type": "http.response.body", "body": body, "more_body": more}


async def answer_json(send: Send, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
    """An answer of ours."""
    raw = json.dumps(body).encode()
    told = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in (headers or {}).items()]
    fixed = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
    await send(head(status, [*fixed, *told]))
    await send(part(raw, more=False))


async def answer_error(
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
    await answer_json(send, status, body, headers)


async def answer_too_large(send: Send, most: int) -> None:
    """Say how large a body may be."""
    await answer_error(send, 413, f"the body is larger than {most >> 20} MiB", code="body_too_large")
