"""The transport of learning: requests of an `httpx` client, sent by an upstream of the proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx

from recollect.errors import UpstreamBroken, UpstreamUnavailable
from recollect.http.upstream.learning import LEARNING_HEADERS
from recollect.http.upstream.router import Header, KeyedUpstream, Upstream, UpstreamRequest, UpstreamResponse

_MAX_ERROR_BYTES = 1 << 16


class UpstreamTransport(httpx.AsyncBaseTransport):
    """Sends each request, whatever its URL, to an upstream's /chat/completions."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        upstream_request = UpstreamRequest(
            method="POST", path="/chat/completions", headers=LEARNING_HEADERS, body=await request.aread()
        )
        try:
            reply = await self._upstream.send(upstream_request)
        except UpstreamUnavailable as error:
            raise httpx.ConnectError(str(error), request=request) from error
        if reply.status >= 400:
            # A server may repeat the key in its error.
            return httpx.Response(
                reply.status, headers=_relayed_headers(reply), content=await self._read_error(reply)
            )
        return httpx.Response(reply.status, headers=_relayed_headers(reply), stream=_Stream(reply, request))

    async def _read_error(self, reply: UpstreamResponse) -> bytes:
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
        return self._upstream.mask(bytes(body)) if isinstance(self._upstream, KeyedUpstream) else bytes(body)


class _Stream(httpx.AsyncByteStream):
    """The body of a reply as it arrives."""

    def __init__(self, reply: UpstreamResponse, request: httpx.Request) -> None:
        self._reply, self._request = reply, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._reply.chunks():
                yield chunk
        except UpstreamBroken as error:
            raise httpx.ReadError(str(error), request=self._request) from error

    async def aclose(self) -> None:
        await self._reply.close()


def _relayed_headers(reply: UpstreamResponse) -> list[Header]:
    """Return the headers that the client reads; the length of a masked error may differ."""
    relayed = (b"content-type", b"content-encoding", b"retry-after")
    return [(name, value) for name, value in reply.headers if name.lower() in relayed]
