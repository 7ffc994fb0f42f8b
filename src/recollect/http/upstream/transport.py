"""Send the requests of an httpx client through an upstream: with its key, its connections and its address checks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx

from recollect import __version__
from recollect.errors import UpstreamBroken, UpstreamUnavailable
from recollect.http.upstream.protocol import Ask, Header, Reply, Upstream
from recollect.http.upstream.upstreams import Keyed

# Told apart from chats by its name, and by nothing that a client sent.
HEADERS: tuple[Header, ...] = (
    (b"content-type", b"application/json"),
    (b"accept", b"application/json"),
    (b"accept-encoding", b"identity"),
    (b"user-agent", f"recollect/{__version__} (learning)".encode()),
)
_MAX_ERROR_BYTES = 1 << 16


class UpstreamTransport(httpx.AsyncBaseTransport):
    """Sends what is posted to any URL to an upstream's /chat/completions."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        ask = Ask(method="POST", path="/chat/completions", headers=HEADERS, body=await request.aread())
        try:
            reply = await self._upstream.send(ask)
        except UpstreamUnavailable as error:
            raise httpx.ConnectError(str(error), request=request) from error
        if reply.status >= 400:
            # A server may repeat the key in its complaint.
            return httpx.Response(reply.status, headers=_headers(reply), content=await self._complaint(reply))
        return httpx.Response(reply.status, headers=_headers(reply), stream=_Stream(reply, request))

    async def _complaint(self, reply: Reply) -> bytes:
        body = bytearray()
        try:
            async for chunk in reply.chunks():
                body += chunk
                if len(body) > _MAX_ERROR_BYTES:
                    break
        except UpstreamBroken:
            pass
        finally:
            await reply.close()
        return self._upstream.mask(bytes(body)) if isinstance(self._upstream, Keyed) else bytes(body)


class _Stream(httpx.AsyncByteStream):
    """The body of a reply as it comes."""

    def __init__(self, reply: Reply, request: httpx.Request) -> None:
        self._reply, self._request = reply, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._reply.chunks():
                yield chunk
        except UpstreamBroken as error:
            raise httpx.ReadError(str(error), request=self._request) from error

    async def aclose(self) -> None:
        await self._reply.close()


def _headers(reply: Reply) -> list[Header]:
    """The headers that the client reads; the length of a masked complaint may differ."""
    kept = (b"content-type", b"content-encoding", b"retry-after")
    return [(name, value) for name, value in reply.headers if name.lower() in kept]
