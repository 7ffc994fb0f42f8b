"""Upstreams behind TLS, by httpcore: HTTP/2 where it is offered, so that many chats share a connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from urllib.parse import urlsplit

import httpcore

from recollect.errors import UpstreamBroken, UpstreamUnavailable
from recollect.http.upstream.pool import ConnectionPool, GuardedNetwork
from recollect.http.upstream.protocol import Header, UpstreamRequest, UpstreamResponse

_IDLE_S = 60.0
_MAX_CONNECTIONS = 1000
_MAX_ATTEMPTS, _PAUSE_S = 3, 0.05


class HttpsResponse:
    """An answer of httpcore's."""

    def __init__(self, response: httpcore.Response, name: str, closing: set[asyncio.Task[None]]) -> None:
        self._response = response
        self._name = name
        self._closing = closing

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Sequence[Header]:
        return self._response.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.aiter_stream():
                yield chunk
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise UpstreamBroken(f"{self._name} broke off: {error or type(error).__name__}") from error

    async def close(self) -> None:
        # In a task of its own: whoever answers is cancelled when its client leaves, also at the very end of an
        # answer, and a stream that is half closed would count as open for ever.
        task = asyncio.get_running_loop().create_task(self._response.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        await asyncio.shield(task)


class HttpsUpstream:
    """One endpoint over TLS; connections are kept for the next request."""

    def __init__(
        self, name: str, url: str, *, connect_s: float, idle_s: float, trusted: ssl.SSLContext | None = None
    ) -> None:
        self.name = name
        self._url = url
        self._host = urlsplit(url).netloc.encode()
        self._trusted = trusted
        self._timeouts = {"connect": connect_s, "read": idle_s, "write": idle_s, "pool": connect_s}
        self._pool: ConnectionPool | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        url = self._url + request.path + (f"?{request.query}" if request.query else "")
        http_request = httpcore.Request(
            request.method,
            url,
            headers=[(b"Host", self._host), *request.headers, *_length_headers(request)],
            content=request.body,
            extensions={"timeout": self._timeouts},
        )
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                response = await self._open_pool().handle_async_request(http_request)
                return HttpsResponse(response, self.name, self._closing)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                # Nothing was sent yet, so trying again is safe.
                if attempt == _MAX_ATTEMPTS:
                    raise UpstreamUnavailable(f"{self.name} cannot be reached: {error}") from error
                await asyncio.sleep(_PAUSE_S * attempt)
            except httpcore.TimeoutException as error:
                raise UpstreamUnavailable(f"{self.name} did not answer in time") from error
            except (httpcore.NetworkError, httpcore.ProtocolError) as error:
                raise UpstreamUnavailable(f"{self.name} gave no answer: {error or type(error).__name__}") from error
        raise AssertionError("the last try returns or raises")

    async def close(self) -> None:
        if self._closing:
            await asyncio.wait(self._closing)
        if self._pool is not None:
            await self._pool.aclose()

    def _open_pool(self) -> ConnectionPool:
        if self._pool is None:
            self._pool = ConnectionPool(
                ssl_context=self._trusted or ssl.create_default_context(),
                max_connections=_MAX_CONNECTIONS,
                keepalive_expiry=_IDLE_S,
                http1=True,
                http2=True,
                network_backend=GuardedNetwork(),
            )
        return self._pool


def _length_headers(request: UpstreamRequest) -> Iterable[Header]:
    """How long the body is, unless the client's own headers say it: said twice, or in two ways, it is refused."""
    if any(name.lower() == b"content-length" for name, _ in request.headers):
        return []
    if isinstance(request.body, bytes):
        return [(b"Content-Length", str(len(request.body)).encode())] if request.body else []
    return [(b"Transfer-Encoding", b"chunked")]
