"""The client's side of a proxied request: its body, its headers, its disconnection, and the relayed answer."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from recollect.errors import InvalidInput, UpstreamBroken, UpstreamUnavailable
from recollect.http.auth.caller import STATE_KEY_REMOVED
from recollect.http.params import decode_header
from recollect.http.proxy.memory_options import HEADER_PREFIX
from recollect.http.upstream.router import Header, KeyedUpstream, Upstream, UpstreamResponse

_log = logging.getLogger("recollect")


_KEY_MISSING = (
    "The upstream requires a key, and a Recollect key is not forwarded: set upstream_api_key, or send the upstream's "
    "key in Authorization and the Recollect key in X-API-Key"
)


class BadRequest(InvalidInput):
    """A request that the proxy refuses: the field in `param`, and a `code` for programs."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param, self.code, self.status = param, code, status


class UpstreamRefused(UpstreamUnavailable):
    """An answer of the upstream that must not be relayed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class AsgiApp:
    """An ASGI application, from a function that the router would take for one of a request.

    Each has an identity of its own, by which the access log knows the route.
    """

    def __init__(self, handle: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._handle = handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._handle(scope, receive, send)


class ClientDisconnected(Exception):
    """The client left before its request was complete."""


async def receive_body(receive: Receive, max_bytes: int) -> bytes:
    """Return the request's body; raises BadRequest without reading one that is too large to its end."""
    parts: list[bytes] = []
    size = 0
    async for part in iter_body(receive):
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            message = f"the body is larger than {max_bytes:,} bytes; send less, or raise max_body_mb"
            raise BadRequest(message, code="body_too_large", status=413)
    if len(parts) == 1:
        return parts[0]
    # Python lets other threads run while it copies more than a mebibyte.
    return b"".join(parts) if size <= 1 << 20 else await asyncio.to_thread(b"".join, parts)


async def iter_body(receive: Receive, body_received: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    """Iterate over the body as it arrives; `body_received` is set at its end."""
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
    """Cancels the current task as soon as its client disconnects, once the request's body has been received."""

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
        # Our own cancellation is no error: there is no client left to report one to.
        return self.is_disconnected and kind is asyncio.CancelledError

    async def _wait(self) -> None:
        if self._body_received is not None:
            # Before that, `receive` would take pieces of the body.
            await self._body_received.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_disconnected = True
        if self._answering is not None:
            self._answering.cancel()


def response_start(status: int, headers: Sequence[Header]) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def response_body(body: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def send_json(send: Send, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
    raw = json.dumps(body).encode()
    fixed = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
    await send(response_start(status, [*fixed, *encode_headers(headers or {})]))
    await send(response_body(raw, more=False))


def encode_headers(headers: Mapping[str, str]) -> list[Header]:
    return [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]


def check_relayable(scope: Scope, upstream: Upstream, reply: UpstreamResponse) -> None:
    """Raise UpstreamRefused for a reply that must not be relayed: a missing key or a redirect."""
    if reply.status == 401 and not isinstance(upstream, KeyedUpstream) and scope["state"].get(STATE_KEY_REMOVED):
        raise UpstreamRefused("upstream_key_missing", _KEY_MISSING)
    if 300 <= reply.status < 400 and reply.status != 304:
        message = "the upstream redirects to another address; set upstream_url to that address if it is trusted"
        raise UpstreamRefused("upstream_redirects", message)


async def relay(
    send: Send,
    reply: UpstreamResponse,
    headers: Sequence[Header],
    record: Callable[[bytes], Awaitable[None]] | None = None,
) -> None:
    """Send a reply to the client as it arrives, byte for byte; `record` sees each piece first."""
    await send(response_start(reply.status, headers))
    try:
        async for chunk in reply.chunks():
            if record is not None:
                await record(chunk)
            await send(response_body(chunk, more=True))
        await send(response_body(b"", more=False))
    except UpstreamBroken as error:
        # Without a proper end the server closes the connection, so the client does not take the answer for complete.
        _log.warning("%s", error)


# Headers of a single connection; the proxy has two.
_HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
    b"trailer", b"trailers", b"transfer-encoding", b"upgrade", b"expect",
})  # fmt: skip
# Answers are recorded, so they may only be encoded in these.
_READABLE_ENCODINGS = ("gzip", "deflate", "identity")
_MEMORY_PREFIX = HEADER_PREFIX.encode()


def headers_by_name(headers: Iterable[Header]) -> dict[str, str]:
    """Return headers by lower-case name; of repeated ones the first, so that a later one cannot override it."""
    first_values: dict[str, str] = {}
    for name, value in headers:
        first_values.setdefault(name.decode("latin-1").lower(), decode_header(value))
    return first_values


def headers_for_upstream(headers: Sequence[Header], *, body_changed: bool = False) -> list[Header]:
    """Return the client's headers for the upstream: none of ours, none of this connection."""
    dropped = (b"host", b"content-length") if body_changed else (b"host",)
    return [
        (name, value)
        for name, value in strip_hop_by_hop(headers)
        if (low := name.lower()) not in dropped and not low.startswith(_MEMORY_PREFIX)
    ]


def with_readable_encodings(headers: Iterable[Header]) -> list[Header]:
    """Return headers that accept only encodings which can be recorded."""
    return [
        (name, _readable_encodings(value) if name.lower() == b"accept-encoding" else value) for name, value in headers
    ]


def _readable_encodings(value: bytes) -> bytes:
    accepted = (each.strip() for each in value.decode("latin-1").split(","))
    readable = [each for each in accepted if each.partition(";")[0].strip().lower() in _READABLE_ENCODINGS]
    return ", ".join(readable).encode() or b"identity"


def headers_for_client(
    headers: Sequence[Header], extra: Mapping[str, str], *, drop: tuple[bytes, ...] = ()
) -> list[Header]:
    """Return the upstream's headers and `extra` for the client, without those whose names start with `drop`."""
    dropped = (b"date", _MEMORY_PREFIX, *drop)
    relayed = [(name, value) for name, value in strip_hop_by_hop(headers) if not name.lower().startswith(dropped)]
    return relayed + encode_headers(extra)


def strip_hop_by_hop(headers: Sequence[Header]) -> list[Header]:
    values = (value for name, value in headers if name.lower() == b"connection")
    named = {each.strip().lower() for value in values for each in value.split(b",")}
    return [(name, value) for name, value in headers if (low := name.lower()) not in _HOP_BY_HOP and low not in named]
