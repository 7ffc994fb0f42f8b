"""Sending a request to an upstream, in the language it speaks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from recollect.http.proxy.headers import beyond_one_hop, to_upstream
from recollect.http.responses.asked import Asked, Json
from recollect.http.responses.sse import object_in
from recollect.http.upstream.protocol import Header, Reply

# Said anew to the client, each for the body it gets from here.
_NOT_RELAYED = frozenset({b"host", b"content-length", b"accept-encoding", b"date", b"server"})
# Statuses with which servers say that they have no such path.
_NO_SUCH_PATH = (404, 405, 501)


@dataclass(frozen=True, slots=True)
class Whole:
    """A reply that was read to its end, to be read again."""

    status: int
    headers: Sequence[Header]
    body: bytes

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.body

    async def close(self) -> None:
        """There is nothing to let go of."""


async def read_whole(reply: Reply) -> Whole:
    """The reply once all of it is here."""
    if isinstance(reply, Whole):
        return reply
    try:
        body = b"".join([chunk async for chunk in reply.chunks()])
    finally:
        await reply.close()
    return Whole(reply.status, tuple(reply.headers), body)


async def judged(reply: Reply, asked: Asked) -> tuple[bool, Reply]:
    """Whether the upstream knows the Responses API, and its reply, which may have been read for that."""
    if reply.status in _NO_SUCH_PATH:
        whole = await read_whole(reply)
        return _is_about_the_request(object_in(whole.body), asked), whole
    if reply.status == 200 and _is_json(reply.headers):
        # Some servers answer any path with 200, and say in the body that there is no such path.
        whole = await read_whole(reply)
        found = object_in(whole.body) or {}
        return found.get("object") == "response" or "output" in found, whole
    return True, reply


def _is_about_the_request(found: Json | None, asked: Asked) -> bool:
    """Whether an error speaks of what was asked, as only someone who understood it can."""
    error = found.get("error") if found else None
    if not isinstance(error, dict):
        return False
    told = error.get("param"), error.get("code")
    return any(isinstance(each, str) and each for each in told) or asked.model in str(error.get("message"))


def _is_json(headers: Sequence[Header]) -> bool:
    return header(headers, b"content-type").startswith(b"application/json")


def header(headers: Sequence[Header], name: bytes) -> bytes:
    """The value of a header, in small letters; empty where there is none."""
    return next((value.strip().lower() for each, value in headers if each.lower() == name), b"")


def sent_headers(headers: Sequence[Header]) -> list[Header]:
    """The client's headers as they go upstream: without what steers memory, and asking for plain bytes."""
    kept = [each for each in to_upstream(headers, length=0) if each[0].lower() != b"accept-encoding"]
    return [*kept, (b"accept-encoding", b"identity")]


def bare_headers(headers: Sequence[Header]) -> list[Header]:
    """The same for a request that has no body."""
    return [(name, value) for name, value in sent_headers(headers) if not name.lower().startswith(b"content-")]


def relayed_headers(headers: Sequence[Header]) -> list[Header]:
    """The upstream's headers as they go to the client; when and by whom it was answered is said anew."""
    return [(name, value) for name, value in beyond_one_hop(headers) if name.lower() not in _NOT_RELAYED]


def told_headers(headers: Sequence[Header]) -> list[Header]:
    """Of the upstream's headers, those that say nothing about a body that is not sent as it came."""
    return [(name, value) for name, value in relayed_headers(headers) if not name.lower().startswith(b"content-")]


def to_bytes(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()
