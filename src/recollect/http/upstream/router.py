"""Chats answered by a model on this machine, which is loaded by the first of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate
from re import Pattern
from re import compile as pattern

from recollect.config.server_fields import ResponsesMode
from recollect.config.settings import Settings
from recollect.errors import ModelUnavailable, UpstreamUnavailable
from recollect.http.upstream.http import HttpUpstream
from recollect.http.upstream.https import HttpsUpstream
from recollect.http.upstream.protocol import Header, Upstream, UpstreamRequest, UpstreamResponse
from recollect.http.upstream.ssrf_guard import checked_url
from recollect.models.local_chat import LocalChat, LocalEndpoint

LOCAL_PREFIX = "local:"


class LocalUpstream:
    """A GGUF model run by llama.cpp beside us."""

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
        # A model that had to be started again answers elsewhere.
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


OPENAI_URL = "https://api.openai.com/v1"


_KEY_HEADERS = (b"authorization", b"api-key", b"x-api-key")


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """The names of some models, and where they are."""

    models: tuple[Pattern[str], ...]
    upstream: Upstream


class KeyedUpstream:
    """An upstream that gets a key of ours instead of the client's."""

    def __init__(self, upstream: Upstream, key: str) -> None:
        self._upstream = upstream
        self._secret = key.encode("latin-1", "replace")
        self._key: Header = (b"authorization", b"Bearer " + self._secret)
        self.name = upstream.name

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        headers = [each for each in request.headers if each[0].lower() not in _KEY_HEADERS]
        return await self._upstream.send(replace(request, headers=[*headers, self._key]))

    def mask(self, body: bytes) -> bytes:
        """Take the key out of what an endpoint answers."""
        return body.replace(self._secret, b"***")

    async def close(self) -> None:
        await self._upstream.close()


class UpstreamRouter:
    """Every endpoint; the last one takes what no other does."""

    def __init__(self, routes: Sequence[ModelRoute], modes: Mapping[str, ResponsesMode]) -> None:
        self._routes = tuple(routes)
        self.modes = dict(modes)

    def for_model(self, model: str) -> Upstream:
        """Where a model is."""
        named = (route for route in self._routes if any(each.match(model) for each in route.models))
        return next(named, self._routes[-1]).upstream

    @property
    def all(self) -> Sequence[Upstream]:
        """All endpoints, in the order in which they are asked for a model."""
        return [route.upstream for route in self._routes]

    @property
    def has_several(self) -> bool:
        """Whether it matters which model is asked for."""
        return len(self._routes) > 1

    async def close(self) -> None:
        """Let go of all connections."""
        await asyncio.gather(*(route.upstream.close() for route in self._routes), return_exceptions=True)


def open_upstream_router(settings: Settings, *, fallback: Upstream) -> UpstreamRouter:
    """The endpoints of the settings; where there is none, `without` answers."""
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
    named = tuple(pattern(translate(each.strip())) for each in models.split(","))
    connect_s, idle_s = settings.upstream_connect_s, settings.upstream_timeout_s
    upstream: Upstream
    if url.startswith(LOCAL_PREFIX):
        tokens = settings.llm_context_tokens
        return ModelRoute(named, LocalUpstream(url, context_tokens=tokens, connect_s=connect_s, idle_s=idle_s))
    url = checked_url(url, name=name)
    if url.startswith("https:"):
        upstream = HttpsUpstream(url, url, connect_s=connect_s, idle_s=idle_s)
    else:
        upstream = HttpUpstream(url, url, connect_s=connect_s, idle_s=idle_s)
    return ModelRoute(named, KeyedUpstream(upstream, key) if key else upstream)
