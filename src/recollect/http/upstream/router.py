"""The upstreams of the settings, and which of them serves a model.

An upstream takes a request and returns a response whose body is still arriving.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate
from typing import TYPE_CHECKING, Protocol, TypeAlias

from recollect.config.server_fields import ResponsesMode
from recollect.config.settings import Settings
from recollect.errors import ModelUnavailable, UpstreamUnavailable
from recollect.http.auth.address import checked_url
from recollect.models.local_chat import LocalChat, LocalEndpoint
from recollect.service.extractive_answer import RequestMemory

if TYPE_CHECKING:
    from recollect.http.upstream.http_upstream import HttpUpstream

Header: TypeAlias = tuple[bytes, bytes]
# An answer that has to be read as a whole may be as large as a request.
MAX_BUFFERED_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRequest:
    """A request to an upstream; `path` is appended to its base URL as it is, with the query.

    `memory` never leaves this process; None means that memory is off for the request.
    """

    method: str
    path: str
    query: str = ""
    headers: Sequence[Header] = ()
    body: bytes | AsyncIterable[bytes] = b""
    memory: RequestMemory | None = None


class UpstreamResponse(Protocol):
    """A response whose head has arrived and whose body is arriving."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Sequence[Header]: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the body as it arrives, encoded as the headers say; raises UpstreamBroken if it breaks."""
        ...

    async def close(self) -> None:
        """Release the connection; an upstream that is still sending notices at once."""
        ...


class Upstream(Protocol):
    """An endpoint that answers chats."""

    @property
    def name(self) -> str: ...

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Return the response once its head has arrived, or raise UpstreamUnavailable."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class BufferedResponse:
    """A response that was read, and the `rest` of one that is too large; `parts` are relayed one by one."""

    status: int
    headers: Sequence[Header]
    parts: Sequence[bytes]
    rest: AsyncIterator[bytes] | None = None

    @property
    def is_complete(self) -> bool:
        return self.rest is None

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    async def chunks(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            yield part
        if self.rest is not None:
            async for part in self.rest:
                yield part

    async def close(self) -> None: ...


async def buffer_response(response: UpstreamResponse, *, max_bytes: int = MAX_BUFFERED_BYTES) -> BufferedResponse:
    """Read a response to its end and close it; of one larger than `max_bytes` the rest is left to the caller."""
    if isinstance(response, BufferedResponse):
        return response
    parts: list[bytes] = []
    size, chunks = 0, response.chunks()
    try:
        async for chunk in chunks:
            parts.append(chunk)
            size += len(chunk)
            if size > max_bytes:
                return BufferedResponse(response.status, tuple(response.headers), parts, chunks)
    except BaseException:
        await response.close()
        raise
    await response.close()
    return BufferedResponse(response.status, tuple(response.headers), parts)


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
            from recollect.http.upstream.http_upstream import HttpUpstream

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
    # aiohttp takes a tenth of the server's start; chats that the memory answers do without it.
    from recollect.http.upstream.http_upstream import HttpUpstream

    url = checked_url(url, name=name)
    upstream = HttpUpstream(url, url, connect_s=connect_s, idle_s=idle_s)
    if not key:
        return ModelRoute(patterns, upstream)
    return ModelRoute(patterns, KeyedUpstream(upstream, key, prefers_client=settings.upstream_key == "client"))
