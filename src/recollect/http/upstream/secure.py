"""Upstreams behind TLS, by httpcore: HTTP/2 where it is offered, so that many chats share a connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from urllib.parse import urlsplit

import httpcore

from recollect.errors import UpstreamBroken, UpstreamUnavailable
from recollect.http.upstream.pool import Network, Pool
from recollect.http.upstream.protocol import Ask, Header, Reply

_IDLE_S = 60.0
_CONNECTIONS = 1000
_TRIES, _PAUSE_S = 3, 0.05


class SecureReply:
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


class SecureUpstream:
    """One endpoint over TLS; connections are kept for the next request."""

    def __init__(
        self, name: str, url: str, *, connect_s: float, idle_s: float, trusted: ssl.SSLContext | None = None
    ) -> None:
        self.name = name
        self._url = url
        self._host = urlsplit(url).netloc.encode()
        self._trusted = trusted
        self._timeouts = {"connect": connect_s, "read": idle_s, "write": idle_s, "pool": connect_s}
        self._pool: Pool | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def send(self, ask: Ask) -> Reply:
        url = self._url + ask.path + (f"?{ask.query}" if ask.query else "")
        request = httpcore.Request(
            ask.method,
            url,
            headers=[(b"Host", self._host), *ask.headers, *_length(ask)],
            content=ask.body,
            extensions={"timeout": self._timeouts},
        )
        for tries in range(1, _TRIES + 1):
            try:
                response = await self._opened().handle_async_request(request)
                return SecureReply(response, self.name, self._closing)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                # Nothing was sent yet, so trying again is safe.
                if tries == _TRIES:
                    raise UpstreamUnavailable(f"{self.name} cannot be reached: {error}") from error
                await asyncio.sleep(_PAUSE_S * tries)
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

    def _opened(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(
                ssl_context=self._trusted or ssl.create_default_context(),
                max_connections=_CONNECTIONS,
                keepalive_expiry=_IDLE_S,
                http1=True,
                http2=True,
                network_backend=Network(),
            )
        return self._pool


def _length(ask: Ask) -> Iterable[Header]:
    """How long the body is, unless the client's own headers say it: said twice, or in two ways, it is refused."""
    if any(name.lower() == b"content-length" for name, _ in ask.headers):
        return []
    if isinstance(ask.body, bytes):
        return [(b"Content-Length", str(len(ask.body)).encode())] if ask.body else []
    return [(b"Transfer-Encoding", b"chunked")]
