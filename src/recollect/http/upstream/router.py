"""The configured upstreams over HTTP/1.1, by aiohttp, and which of them serves a model.

Not by httpx, which model clients use: a streamed chat takes a fifth of the CPU time this way, and a tenth at 100
concurrent chats. HTTP/2 would share connections between chats, but costs more than it saves.
"""

from __future__ import annotations

import asyncio
import io
import re
import socket
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import AddrInfoType
from aiohttp.resolver import ThreadedResolver
from multidict import CIMultiDict
from yarl import URL

from recollect.config.server_fields import ResponsesMode
from recollect.config.settings import Settings
from recollect.errors import ModelUnavailable, UpstreamBroken, UpstreamUnavailable
from recollect.http.auth.address import check_resolved, checked_url
from recollect.http.upstream.protocol import Header, Upstream, UpstreamRequest, UpstreamResponse
from recollect.models.local_chat import LocalChat, LocalEndpoint

LOCAL_PREFIX = "local:"
OPENAI_URL = "https://api.openai.com/v1"
_KEY_HEADERS = (b"authorization", b"api-key", b"x-api-key")


class LocalUpstream:
    """A GGUF model run by llama.cpp on this machine, loaded by the first chat."""

    def __init__(self, name: str, *, context_tokens: int, connect_s: float, idle_s: float) -> None:
        self.name = name
        self._chat = LocalChat(name.removeprefix(LOCAL_PREFIX), context_tokens=context_tokens, timeout_s=idle_s)
        self._connect_s, self._idle_s = connect_s, idle_s
        self._current: tuple[LocalEndpoint, HttpUpstream] | None = None

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        try:
            endpoint = await self._chat.endpoint()
        except ModelUnavailable as error:
            raise UpstreamUnavailable(str(error)) from error
        # A restarted model has another address.
        if self._current is None or self._current[0] != endpoint:
            await self._disconnect()
            upstream = HttpUpstream(self.name, endpoint.base_url, connect_s=self._connect_s, idle_s=self._idle_s)
            self._current = endpoint, upstream
        headers = [each for each in request.headers if each[0].lower() != b"authorization"]
        key = (b"authorization", f"Bearer {endpoint.api_key}".encode())
        return await self._current[1].send(replace(request, headers=[*headers, key]))

    async def close(self) -> None:
        await self._disconnect()
        await self._chat.close()

    async def _disconnect(self) -> None:
        if self._current is not None:
            await self._current[1].close()
            self._current = None


class KeyedUpstream:
    """An upstream that is sent the server's key; instead of the client's, or only if the client sends none."""

    def __init__(self, upstream: Upstream, key: str, *, prefers_client: bool = False) -> None:
        self._upstream = upstream
        self._prefers_client = prefers_client
        self._secret = key.encode("latin-1", "replace")
        self._key: Header = (b"authorization", b"Bearer " + self._secret)
        self.name = upstream.name

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        if not self.uses_own_key(request.headers):
            return await self._upstream.send(request)
        headers = [each for each in request.headers if each[0].lower() not in _KEY_HEADERS]
        return await self._upstream.send(replace(request, headers=[*headers, self._key]))

    def uses_own_key(self, headers: Sequence[Header]) -> bool:
        """Return whether a request with these headers of a client is sent with the server's key."""
        return not self._prefers_client or not any(name.lower() in _KEY_HEADERS for name, _ in headers)

    def mask(self, body: bytes) -> bytes:
        return body.replace(self._secret, b"***")

    async def close(self) -> None:
        await self._upstream.close()


def uses_server_key(upstream: Upstream, headers: Sequence[Header]) -> bool:
    """Return whether a client's request with these headers is sent with the server's key."""
    return isinstance(upstream, KeyedUpstream) and upstream.uses_own_key(headers)


def _payload(body: bytes | AsyncIterable[bytes]) -> io.BytesIO | bytes | AsyncIterable[bytes] | None:
    """Return a body as it is sent: a large one in pieces, because one write of it blocks the event loop."""
    if isinstance(body, bytes) and len(body) > _MAX_WRITE_BYTES:
        return io.BytesIO(body)
    return body or None


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """Patterns of model names, and the upstream that serves them."""

    models: tuple[re.Pattern[str], ...]
    upstream: Upstream


class UpstreamRouter:
    """All upstreams; the last one serves the models that match no other."""

    def __init__(self, routes: Sequence[ModelRoute], modes: Mapping[str, ResponsesMode]) -> None:
        self._routes = tuple(routes)
        self.modes = dict(modes)

    def for_model(self, model: object) -> Upstream:
        """Return the upstream of a model; anything but a text counts as no name."""
        name = model if isinstance(model, str) else ""
        matching = (route for route in self._routes if any(each.match(name) for each in route.models))
        return next(matching, self._routes[-1]).upstream

    @property
    def all(self) -> Sequence[Upstream]:
        """All upstreams, in the order in which their patterns are tried."""
        return [route.upstream for route in self._routes]

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self.all), return_exceptions=True)


def open_upstream_router(settings: Settings, *, fallback: Upstream) -> UpstreamRouter:
    """Open the upstreams of the settings; `fallback` answers if no default one is set."""
    routes = [
        _open_route(f"upstream {name}", each.url, each.models, each.api_key.get_secret_value(), settings)
        for name, each in settings.upstreams.items()
    ]
    key = settings.upstream_api_key.get_secret_value()
    url = settings.upstream_url or (OPENAI_URL if key else "")
    routes.append(_open_route("upstream_url", url, "*", key, settings) if url else ModelRoute((), fallback))
    modes = [*(each.responses for each in settings.upstreams.values()), settings.upstream_responses]
    return UpstreamRouter(routes, {route.upstream.name: mode for route, mode in zip(routes, modes, strict=True)})


def _open_route(name: str, url: str, models: str, key: str, settings: Settings) -> ModelRoute:
    patterns = tuple(re.compile(translate(each.strip())) for each in models.split(","))
    connect_s, idle_s = settings.upstream_connect_s, settings.upstream_timeout_s
    if url.startswith(LOCAL_PREFIX):
        tokens = settings.llm_context_tokens
        return ModelRoute(patterns, LocalUpstream(url, context_tokens=tokens, connect_s=connect_s, idle_s=idle_s))
    url = checked_url(url, name=name)
    upstream = HttpUpstream(url, url, connect_s=connect_s, idle_s=idle_s)
    if not key:
        return ModelRoute(patterns, upstream)
    return ModelRoute(patterns, KeyedUpstream(upstream, key, prefers_client=settings.upstream_key == "client"))


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
