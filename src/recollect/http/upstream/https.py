"""httpcore's connections, with what chats need of them besides: an upstream learns when nobody listens any more.

httpcore forgets an HTTP/2 stream that is closed early and does not tell the other side, so a model would go on
writing, at the user's cost, what nobody reads.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpcore
from h2.errors import ErrorCodes
from h2.events import DataReceived
from h2.exceptions import ProtocolError
from httpcore import AnyIOBackend, AsyncNetworkStream
from httpcore._async.http2 import AsyncHTTP2Connection

from recollect.errors import UpstreamBroken, UpstreamUnavailable
from recollect.http.upstream.protocol import Header, UpstreamRequest, UpstreamResponse
from recollect.http.upstream.ssrf_guard import check_resolved

# The only thing asked of it is how long a write may take.
_RESET_REQUEST = httpcore.Request("GET", "https://localhost", extensions={"timeout": {"write": 5.0}})


class ConnectionPool(httpcore.AsyncConnectionPool):
    """A pool of connections that say when a stream is given up."""

    def create_connection(self, origin: httpcore.Origin) -> httpcore.AsyncConnectionInterface:
        return _Connection(
            origin=origin,
            ssl_context=self._ssl_context,
            keepalive_expiry=self._keepalive_expiry,
            http1=self._http1,
            http2=self._http2,
            network_backend=self._network_backend,
        )


class _Connection(httpcore.AsyncHTTPConnection):
    """Opens what it was offered: HTTP/2 in our way, HTTP/1.1 in the usual one."""

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        try:
            async with self._request_lock:
                if self._connection is None:
                    self._connection = self._open_protocol(await self._connect(request))
        except BaseException:
            self._connect_failed = True
            raise
        return await super().handle_async_request(request)

    def _open_protocol(self, stream: AsyncNetworkStream) -> httpcore.AsyncConnectionInterface:
        ssl_object = stream.get_extra_info("ssl_object")
        offered = ssl_object is not None and ssl_object.selected_alpn_protocol() == "h2"
        kind = _Http2 if offered else httpcore.AsyncHTTP11Connection
        return kind(origin=self._origin, stream=stream, keepalive_expiry=self._keepalive_expiry)


class _Http2(AsyncHTTP2Connection):
    """Resets a stream that ends before its answer does."""

    async def _response_closed(self, stream_id: int) -> None:
        for event in self._events.get(stream_id, ()):
            # What was not read counts against the connection until it is said to be taken.
            if isinstance(event, DataReceived):
                with suppress(ProtocolError):
                    self._h2_state.acknowledge_received_data(event.flow_controlled_length or 0, stream_id)
        # One that came to its end is closed already, and resetting it is a mistake.
        with suppress(ProtocolError):
            self._h2_state.reset_stream(stream_id, error_code=ErrorCodes.CANCEL)
        with suppress(httpcore.NetworkError, httpcore.TimeoutException):
            await self._write_outgoing_data(_RESET_REQUEST)
        await super()._response_closed(stream_id)


class GuardedNetwork(AnyIOBackend):
    """The usual network, except for where nothing may be sent: a name is resolved once, looked at, and then used."""

    async def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> AsyncNetworkStream:
        try:
            resolved = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} is not known: {error}") from error
        addresses = list(dict.fromkeys(str(each[4][0]) for each in resolved))
        check_resolved(host, addresses)
        for address in addresses[:-1]:
            with suppress(httpcore.ConnectError):
                return await super().connect_tcp(address, port, *args, **options)
        return await super().connect_tcp(addresses[-1], port, *args, **options)


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
