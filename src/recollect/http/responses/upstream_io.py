"""Server-sent events: read from bytes that come in any pieces, and written."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.http.proxy.asgi_io import headers_for_upstream, strip_hop_by_hop
from recollect.http.responses.request import Json, ResponseParams
from recollect.http.upstream.protocol import Header, UpstreamResponse


class SseReader:
    """Takes a stream's bytes as they come and gives the data of each event once it is whole."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        # Where to go on looking, so that a large event in small pieces is not searched again and again.
        self._searched = 0
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that are whole now."""
        complete = []
        self._buffer += chunk
        start = 0
        while (end := self._buffer.find(b"\n", max(self._searched, start))) >= 0:
            line = bytes(self._buffer[start:end]).removesuffix(b"\r")
            start = end + 1
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                complete.append(b"\n".join(self._data))
                self._data = []
        del self._buffer[:start]
        self._searched = len(self._buffer)
        return complete

    def end(self) -> list[bytes]:
        """The data of an event that was begun and not ended by a blank line, at the end of the stream."""
        return self.feed(b"\n\n") if self._buffer or self._data else []


def decode_object(data: bytes) -> dict[str, Any] | None:
    """The JSON object that the data of an event is; None where it is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def encode_events(events: Iterable[Mapping[str, Any]]) -> bytes:
    """Events as bytes, each with its type."""
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n".encode() for event in events
    )


# Said anew to the client, each for the body it gets from here.
_NOT_RELAYED = frozenset({b"host", b"content-length", b"accept-encoding", b"date", b"server"})
# Statuses with which servers say that they have no such path.
_UNKNOWN_PATH_STATUSES = (404, 405, 501)


@dataclass(frozen=True, slots=True)
class BufferedResponse:
    """A reply that was read to its end, to be read again."""

    status: int
    headers: Sequence[Header]
    body: bytes

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.body

    async def close(self) -> None:
        """There is nothing to let go of."""


async def buffer_response(reply: UpstreamResponse) -> BufferedResponse:
    """The reply once all of it is here."""
    if isinstance(reply, BufferedResponse):
        return reply
    try:
        body = b"".join([chunk async for chunk in reply.chunks()])
    finally:
        await reply.close()
    return BufferedResponse(reply.status, tuple(reply.headers), body)


async def detect_responses_api(reply: UpstreamResponse, params: ResponseParams) -> tuple[bool, UpstreamResponse]:
    """Whether the upstream knows the Responses API, and its reply, which may have been read for that."""
    if reply.status in _UNKNOWN_PATH_STATUSES:
        buffered = await buffer_response(reply)
        return _mentions_request(decode_object(buffered.body), params), buffered
    if reply.status == 200 and _is_json(reply.headers):
        # Some servers answer any path with 200, and say in the body that there is no such path.
        buffered = await buffer_response(reply)
        answer = decode_object(buffered.body) or {}
        return answer.get("object") == "response" or "output" in answer, buffered
    return True, reply


def _mentions_request(answer: Json | None, params: ResponseParams) -> bool:
    """Whether an error speaks of what was asked, as only someone who understood it can."""
    error = answer.get("error") if answer else None
    if not isinstance(error, dict):
        return False
    details = error.get("param"), error.get("code")
    return any(isinstance(each, str) and each for each in details) or params.model in str(error.get("message"))


def _is_json(headers: Sequence[Header]) -> bool:
    return header_value(headers, b"content-type").startswith(b"application/json")


def header_value(headers: Sequence[Header], name: bytes) -> bytes:
    """The value of a header, in small letters; empty where there is none."""
    return next((value.strip().lower() for each, value in headers if each.lower() == name), b"")


def upstream_headers(headers: Sequence[Header]) -> list[Header]:
    """The client's headers as they go upstream: without what steers memory, and asking for plain bytes."""
    forwarded = [each for each in headers_for_upstream(headers, length=0) if each[0].lower() != b"accept-encoding"]
    return [*forwarded, (b"accept-encoding", b"identity")]


def upstream_headers_without_content(headers: Sequence[Header]) -> list[Header]:
    """The same for a request that has no body."""
    return [(name, value) for name, value in upstream_headers(headers) if not name.lower().startswith(b"content-")]


def relayed_headers(headers: Sequence[Header]) -> list[Header]:
    """The upstream's headers as they go to the client; when and by whom it was answered is said anew."""
    return [(name, value) for name, value in strip_hop_by_hop(headers) if name.lower() not in _NOT_RELAYED]


def relayed_headers_without_content(headers: Sequence[Header]) -> list[Header]:
    """Of the upstream's headers, those that say nothing about a body that is not sent as it came."""
    return [(name, value) for name, value in relayed_headers(headers) if not name.lower().startswith(b"content-")]


def encode_json(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()
