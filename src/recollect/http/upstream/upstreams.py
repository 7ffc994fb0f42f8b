"""All endpoints that chats are sent to, and which of them a model is at."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate
from re import Pattern
from re import compile as pattern

from recollect.http.upstream.address import checked_url
from recollect.http.upstream.local import LOCAL_PREFIX, LocalUpstream
from recollect.http.upstream.plain import HttpUpstream
from recollect.http.upstream.protocol import Header, Upstream, UpstreamRequest, UpstreamResponse
from recollect.http.upstream.secure import HttpsUpstream
from recollect.settings import Settings
from recollect.settings_server import ResponsesMode

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
