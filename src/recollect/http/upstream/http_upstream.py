"""An upstream over HTTP/1.1, by aiohttp.

Not by httpx, which model clients use: a streamed chat takes a fifth of the CPU time this way, and a tenth at 100
concurrent chats. HTTP/2 would share connections between chats, but costs more than it saves.
"""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Sequence

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import AddrInfoType
from aiohttp.resolver import ThreadedResolver
from multidict import CIMultiDict
from yarl import URL

from recollect.errors import UpstreamBroken, UpstreamUnavailable
from recollect.http.auth.address import check_resolved
from recollect.http.upstream.router import Header, UpstreamRequest, UpstreamResponse

# Headers that aiohttp adds by itself; the upstream should see only the client's.
_AUTO_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
# Idle connections are closed before the server closes them: local servers do after 5 s, public ones after a minute.
_IDLE_S, _TLS_IDLE_S = 4.0, 45.0
_MAX_ATTEMPTS, _PAUSE_S = 3, 0.05
# Limits what is buffered for a client that reads slowly. On a local network a small receive buffer is fast enough;
# over a distance it would limit throughput.
_PIECE_BYTES = 1 << 14
_RECEIVE_BUFFER_BYTES = 1 << 15
_MAX_WRITE_BYTES = 1 << 18


class HttpResponse:
    """A response of aiohttp's."""

    def __init__(self, response: aiohttp.ClientResponse, name: str) -> None:
        self._response = response
        self._name = name

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Sequence[Header]:
        return self._response.raw_headers

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_chunked(_PIECE_BYTES):
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UpstreamBroken(f"{self._name} broke off: {error or type(error).__name__}") from error

    async def close(self) -> None:
        # A response that was read to its end has returned its connection to the pool. Otherwise the connection is
        # closed, which tells the upstream to stop generating.
        self._response.close()


class HttpUpstream:
    """One endpoint; connections are reused."""

    def __init__(
        self, name: str, url: str, *, connect_s: float, idle_s: float, trusted: ssl.SSLContext | None = None
    ) -> None:
        self.name = name
        self._url = url
        self._trusted = trusted
        self._session: aiohttp.ClientSession | None = None
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=idle_s)

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        session = self._open_session()
        url = URL(self._url + request.path + (f"?{request.query}" if request.query else ""), encoded=True)
        headers = CIMultiDict((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers)
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                response = await session.request(
                    request.method,
                    url,
                    data=_payload(request.body),
                    headers=headers,
                    allow_redirects=False,
                    skip_auto_headers=_AUTO_HEADERS,
                )
                if not 200 <= response.status <= 599:
                    response.close()
                    raise UpstreamUnavailable(f"{self.name} answered with the invalid status {response.status}")
                return HttpResponse(response, self.name)
            except aiohttp.ClientConnectorError as error:
                # Nothing was sent yet, so a retry is safe.
                if attempt == _MAX_ATTEMPTS:
                    raise UpstreamUnavailable(f"{self.name} cannot be reached: {error.os_error}") from error
                await asyncio.sleep(_PAUSE_S * attempt)
            except TimeoutError as error:
                raise UpstreamUnavailable(f"{self.name} did not answer in time") from error
            except (aiohttp.ClientError, OSError) as error:
                raise UpstreamUnavailable(f"{self.name} gave no answer: {error or type(error).__name__}") from error
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            uses_tls = self._url.startswith("https:")
            connector = aiohttp.TCPConnector(
                limit=0,
                keepalive_timeout=_TLS_IDLE_S if uses_tls else _IDLE_S,
                resolver=_GuardedResolver(),
                ttl_dns_cache=10,
                ssl=(self._trusted or ssl.create_default_context()) if uses_tls else True,
                socket_factory=None if uses_tls else _make_socket,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=self._timeout,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                read_bufsize=_PIECE_BYTES,
            )
        return self._session


def _make_socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
    return sock


class _GuardedResolver(AbstractResolver):
    """The system's resolver, which refuses forbidden addresses."""

    def __init__(self) -> None:
        self._system = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        resolved = await self._system.resolve(host, port, family)
        check_resolved(host, [each["host"] for each in resolved])
        return resolved

    async def close(self) -> None:
        await self._system.close()


def _payload(body: bytes | AsyncIterable[bytes]) -> io.BytesIO | bytes | AsyncIterable[bytes] | None:
    """Return a body as it is sent: a large one in pieces, because one write of it blocks the event loop."""
    if isinstance(body, bytes) and len(body) > _MAX_WRITE_BYTES:
        return io.BytesIO(body)
    return body or None
